#include "server/control_socket.h"

#include <fcntl.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

namespace advectio {

namespace {

constexpr std::size_t line_max = 64 * 1024;
constexpr std::size_t clients_max = 64;
constexpr std::size_t secret_bytes = 32;

/// The system says who is at the other end, whatever the modes of the directories above the socket are.
bool is_ours(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

bool send_line(int fd, const std::string& text) {
  std::string line = text + "\n";
  std::size_t at = 0;
  while (at < line.size()) {
    const auto n = ::send(fd, line.data() + at, line.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

std::string error_line(const std::string& text) {
  return nlohmann::json{{"error", text}}.dump();
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::open(const std::string& path, std::string secret,
                                                           Handlers handlers) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{Code::invalid,
                 "the socket's path is longer than " + std::to_string(sizeof address.sun_path - 1) +
                     " characters: " + path + "; choose a shorter stage.directory",
                 0};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return system_error("socket", errno);
  // Under another name until it listens, so that whoever finds it can connect.
  const std::string next = path + "~";
  ::unlink(next.c_str());
  if (next.size() >= sizeof address.sun_path) {
    ::close(fd);
    return Error{Code::invalid, "the socket's path is too long: " + path, 0};
  }
  std::memcpy(address.sun_path, next.c_str(), next.size() + 1);
  const auto old_mask = ::umask(0177);
  const int bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(old_mask);
  if (bound != 0 || ::listen(fd, 16) != 0 || ::rename(next.c_str(), path.c_str()) != 0) {
    const int e = errno;
    ::close(fd);
    return system_error("listen on " + path, e);
  }
  return std::unique_ptr<ControlSocket>(new ControlSocket(fd, path, std::move(secret), std::move(handlers)));
}

ControlSocket::ControlSocket(int listener, std::string path, std::string secret, Handlers handlers)
    : listener_(listener), path_(std::move(path)), secret_(std::move(secret)), handlers_(std::move(handlers)) {
  if (::pipe2(wake_, O_CLOEXEC) != 0) wake_[0] = wake_[1] = -1;
  thread_ = std::thread([this] { serve(); });
}

ControlSocket::~ControlSocket() {
  finish(error_line("the server has ended"));
  if (thread_.joinable()) thread_.join();
  for (auto& c : clients_) ::close(c.fd);
  ::close(listener_);
  if (wake_[0] >= 0) {
    ::close(wake_[0]);
    ::close(wake_[1]);
  }
  ::unlink(path_.c_str());
}

void ControlSocket::finish(const std::string& answer) {
  {
    const std::lock_guard guard(mutex_);
    if (ending_) return;
    ending_ = true;
    final_answer_ = answer;
  }
  (void)!::write(wake_[1], "x", 1);
  thread_.join();
}

Result<std::string> secret_of_run(Files& files, const std::string& run_dir) {
  const auto path = run_dir + "/secret";
  if (auto there = read_file(files, path); there && there->size() == secret_bytes)
    return std::string(reinterpret_cast<const char*>(there->data()), there->size());
  std::random_device random;
  std::string secret;
  while (secret.size() < secret_bytes) {
    char hex[9];
    std::snprintf(hex, sizeof hex, "%08x", random());
    secret += hex;
  }
  ADVECTIO_TRY(replace_file(files, path, std::as_bytes(std::span(secret))));
  return secret;
}

Result<Request> parse_request(const std::string& line, const std::string& secret) {
  const auto request = nlohmann::json::parse(line, nullptr, false);
  if (!request.is_object() || !request.contains("do") || !request["do"].is_string())
    return Error{Code::invalid, "a request is a line like {\"do\":\"status\"}", 0};
  if (!request.contains("secret") || !request["secret"].is_string() || request["secret"].get<std::string>() != secret)
    return Error{Code::permission, "a request shows the secret of its run, which is in its run directory", 0};
  const auto what = request["do"].get<std::string>();
  if (what == "status") return Request::status;
  if (what == "drain") return Request::drain;
  if (what == "leave") return Request::leave;
  return Error{Code::invalid, "unknown request '" + what + "'; there are status, drain and leave", 0};
}

bool ControlSocket::handle(Client& client, const std::string& line) {
  const auto request = parse_request(line, secret_);
  if (!request) return send_line(client.fd, error_line(request.error().message));
  if (*request == Request::status) return send_line(client.fd, handlers_.status());
  client.waits_for_drain = true;
  *request == Request::drain ? handlers_.drain() : handlers_.leave();
  return true;
}

void ControlSocket::serve() {
  for (;;) {
    std::vector<pollfd> polls{{listener_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    for (const auto& c : clients_) polls.push_back({c.fd, POLLIN, 0});
    if (::poll(polls.data(), polls.size(), 1000) < 0 && errno != EINTR) return;
    {
      const std::lock_guard guard(mutex_);
      if (ending_) {
        for (auto& c : clients_)
          if (c.waits_for_drain) send_line(c.fd, final_answer_);
        return;
      }
    }
    std::vector<Client> kept;
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      Client& c = clients_[i];
      bool keep = true;
      if ((polls[i + 2].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        char buffer[4096];
        const auto n = ::recv(c.fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n > 0) {
          c.in.append(buffer, static_cast<std::size_t>(n));
          for (auto eol = c.in.find('\n'); keep && eol != std::string::npos; eol = c.in.find('\n')) {
            const std::string line = c.in.substr(0, eol);
            c.in.erase(0, eol + 1);
            keep = handle(c, line);
          }
          if (c.in.size() > line_max) keep = false;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
          keep = false;
        }
      }
      if (keep)
        kept.push_back(std::move(c));
      else
        ::close(c.fd);
    }
    clients_ = std::move(kept);
    if ((polls[0].revents & POLLIN) != 0) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) {
        timeval patience{2, 0};  // a client that does not read its answer must not hold up the others
        ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (clients_.size() >= clients_max || !is_ours(fd))
          ::close(fd);
        else
          clients_.push_back({fd, {}, false});
      }
    }
  }
}

}  // namespace advectio
