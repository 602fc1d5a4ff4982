#include "readers/message.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace advectio::readers {

namespace {

constexpr char magic[4] = {'A', 'D', 'V', 'R'};

Error gone() {
  return Error{Code::gone, "the other end has closed the connection", EPIPE};
}

/// Waits until the socket can be written or read again, where it does not block.
bool wait_for(int socket, short events) {
  pollfd p{socket, events, 0};
  return ::poll(&p, 1, -1) >= 0 || errno == EINTR;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::array<std::byte, prefix_bytes> encode(const Prefix& prefix) {
  std::array<std::byte, prefix_bytes> out{};
  std::memcpy(out.data(), magic, sizeof magic);
  std::memcpy(out.data() + 4, &prefix.head_bytes, sizeof prefix.head_bytes);
  std::memcpy(out.data() + 8, &prefix.data_bytes, sizeof prefix.data_bytes);
  return out;
}

Result<Prefix> decode_prefix(std::span<const std::byte, prefix_bytes> bytes, std::uint32_t head_max) {
  if (std::memcmp(bytes.data(), magic, sizeof magic) != 0)
    return Error{Code::corrupt, "what came is no message of this protocol", 0};
  Prefix out;
  std::memcpy(&out.head_bytes, bytes.data() + 4, sizeof out.head_bytes);
  std::memcpy(&out.data_bytes, bytes.data() + 8, sizeof out.data_bytes);
  if (out.head_bytes > head_max)
    return Error{Code::corrupt, "a message with a head of " + std::to_string(out.head_bytes) + " bytes is too long", 0};
  return out;
}

Result<void> send_bytes(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN && wait_for(socket, POLLOUT)) continue;
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return gone();
    if (n < 0) return system_error("send", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> send_head(int socket, const nlohmann::json& object, std::uint64_t data_bytes,
                       std::span<const int> descriptors) {
  // Names may hold any bytes; those that are no UTF-8 become U+FFFD.
  const auto text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto prefix = encode({static_cast<std::uint32_t>(text.size()), data_bytes});
  std::vector<std::byte> all(prefix.begin(), prefix.end());
  all.insert(all.end(), reinterpret_cast<const std::byte*>(text.data()),
             reinterpret_cast<const std::byte*>(text.data()) + text.size());
  std::span<const std::byte> rest(all);
  if (!descriptors.empty()) {
    std::vector<char> control(CMSG_SPACE(descriptors.size_bytes()));
    iovec part{const_cast<std::byte*>(rest.data()), rest.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
    ssize_t n = 0;
    do {
      n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (n < 0 && (errno == EINTR || (errno == EAGAIN && wait_for(socket, POLLOUT))));
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return gone();
    if (n < 0) return system_error("send descriptors", errno);
    rest = rest.subspan(static_cast<std::size_t>(n));
  }
  return send_bytes(socket, rest);
}

namespace {

/// One `recvmsg`. 0: the other end has closed.
Result<std::size_t> receive_some(int socket, std::span<std::byte> into, std::vector<Descriptor>* descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(descriptors_max * sizeof(int))];
  for (;;) {
    iovec part{into.data(), into.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptors != nullptr) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
    }
    const auto n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EINTR || (errno == EAGAIN && wait_for(socket, POLLIN)))) continue;
    if (n < 0 && errno == ECONNRESET) return gone();
    if (n < 0) return system_error("receive", errno);
    if (descriptors != nullptr)
      for (auto* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const auto count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
          descriptors->emplace_back(fd);
        }
      }
    return static_cast<std::size_t>(n);
  }
}

}  // namespace

Result<void> receive_bytes(int socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    auto n = receive_some(socket, bytes, nullptr);
    if (!n) return std::move(n).error();
    if (*n == 0) return gone();
    bytes = bytes.subspan(*n);
  }
  return {};
}

Result<void> skip_bytes(int socket, std::uint64_t bytes) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(bytes, 1U << 20));
  for (; bytes > 0; bytes -= std::min<std::uint64_t>(bytes, buffer.size()))
    ADVECTIO_TRY(receive_bytes(socket, std::span(buffer).first(std::min<std::uint64_t>(bytes, buffer.size()))));
  return {};
}

Result<std::optional<Head>> receive_head(int socket, std::uint32_t head_max) {
  Head out;
  std::array<std::byte, prefix_bytes> prefix{};
  for (std::size_t at = 0; at < prefix.size();) {
    auto n = receive_some(socket, std::span(prefix).subspan(at), &out.descriptors);
    if (!n) return std::move(n).error();
    if (*n == 0 && at == 0) return std::optional<Head>();
    if (*n == 0) return gone();
    at += *n;
  }
  const auto decoded = decode_prefix(prefix, head_max);
  if (!decoded) return decoded.error();
  std::string text(decoded->head_bytes, '\0');
  ADVECTIO_TRY(receive_bytes(socket, std::as_writable_bytes(std::span(text))));
  out.object = nlohmann::json::parse(text, nullptr, false);
  if (!out.object.is_object()) return Error{Code::corrupt, "the head of a message is no JSON object", 0};
  out.data_bytes = decoded->data_bytes;
  return std::optional(std::move(out));
}

Result<Address> parse_address(const std::string& text) {
  Address out;
  if (text.rfind("unix:", 0) == 0 && text.size() > 5) {
    out.path = text.substr(5);
    return out;
  }
  const auto colon = text.rfind(':');
  if (text.rfind("tcp:", 0) != 0 || colon <= 4 || colon + 1 == text.size())
    return Error{Code::invalid, "'" + text + "' is no address; write tcp:HOST:PORT (or unix:PATH)", 0};
  out.local = false;
  out.host = text.substr(4, colon - 4);
  out.port = text.substr(colon + 1);
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
    out.host = out.host.substr(1, out.host.size() - 2);
  if (!std::all_of(out.port.begin(), out.port.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return Error{Code::invalid, "'" + text + "': the port is a number", 0};
  return out;
}

namespace {

Result<Descriptor> connect_within(int family, const sockaddr* to, socklen_t bytes, const std::string& what,
                                  std::chrono::milliseconds timeout) {
  Descriptor s(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!s) return system_error("socket", errno);
  int error = ::connect(s.get(), to, bytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd p{s.get(), POLLOUT, 0};
    const int ready = ::poll(&p, 1, static_cast<int>(timeout.count()));
    socklen_t size = sizeof error;
    if (ready == 0) return Error{Code::timeout, "connect to " + what + ": nobody answers", ETIMEDOUT};
    if (ready < 0 || ::getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error == ECONNREFUSED || error == ENOENT) return Error{Code::gone, "nobody listens at " + what, error};
  if (error != 0) return system_error("connect to " + what, error);
  (void)::fcntl(s.get(), F_SETFL, ::fcntl(s.get(), F_GETFL) & ~O_NONBLOCK);
  return s;
}

}  // namespace

Result<Descriptor> connect_to(const Address& address, std::chrono::milliseconds timeout) {
  if (address.local) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::string path = address.path;
    Descriptor directory;
    if (path.size() >= sizeof to.sun_path) {
      const auto slash = path.rfind('/');
      directory = Descriptor(::open(path.substr(0, slash).c_str(), O_PATH | O_CLOEXEC));
      path = "/proc/self/fd/" + std::to_string(directory.get()) + path.substr(slash);
      if (!directory || path.size() >= sizeof to.sun_path) return system_error("open " + address.path, ENAMETOOLONG);
    }
    std::memcpy(to.sun_path, path.c_str(), path.size() + 1);
    return connect_within(AF_UNIX, reinterpret_cast<const sockaddr*>(&to), sizeof to, address.path, timeout);
  }
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string what = address.host + ":" + address.port;
  if (const int e = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found); e != 0)
    return Error{Code::not_found, what + ": " + ::gai_strerror(e), 0};
  Result<Descriptor> out = Error{Code::gone, "nobody listens at " + what, ECONNREFUSED};
  for (const auto* a = found; a != nullptr; a = a->ai_next) {
    out = connect_within(a->ai_family, a->ai_addr, a->ai_addrlen, what, timeout);
    if (!out) continue;
    const int on = 1;
    (void)::setsockopt(out->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    break;
  }
  ::freeaddrinfo(found);
  return out;
}

}  // namespace advectio::readers
