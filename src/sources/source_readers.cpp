#include "sources/source_readers.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <deque>
#include <map>

#include "core/bytes.h"

namespace advectio {
namespace {

constexpr std::size_t message_bytes_max = 16 << 10;

Bytes encode(const SourceReaders::Request& r) {
  Bytes out;
  Encoder e(out);
  e.text(r.path);
  e.number(r.variable);
  e.number(r.to);
  e.number(r.stored != nullptr ? r.room : 0);
  e.number(static_cast<std::uint32_t>(r.box.rank()));
  for (const auto n : r.box.start) e.number(n);
  for (const auto n : r.box.count) e.number(n);
  return out;
}

SourceReaders::Request decode(std::span<const std::byte> message) {
  SourceReaders::Request r;
  Decoder d(message);
  r.path = d.text();
  r.variable = d.number<std::uint32_t>();
  r.to = d.number<std::uint64_t>();
  r.room = d.number<std::uint64_t>();
  const auto rank = d.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < rank; ++i) r.box.start.push_back(d.number<std::uint64_t>());
  for (std::uint32_t i = 0; i < rank; ++i) r.box.count.push_back(d.number<std::uint64_t>());
  return r;
}

/// One message whole; 0: the other side has gone.
ssize_t receive(int socket, std::span<std::byte> into) {
  for (;;) {
    const auto n = ::recv(socket, into.data(), into.size(), 0);
    if (n >= 0 || errno != EINTR) return n;
  }
}

/// What a reader process does until its socket is closed. An answer without text is a good one.
[[noreturn]] void serve(int socket, std::byte* memory, const OpenSource& open, std::size_t open_max) {
  std::map<std::string, std::unique_ptr<Source>> sources;
  std::vector<std::byte> message(message_bytes_max);
  for (;;) {
    const auto n = receive(socket, message);
    if (n <= 0) ::_exit(0);
    const auto request = decode(std::span(message).first(static_cast<std::size_t>(n)));
    Result<void> done;
    if (sources.size() >= open_max && !sources.contains(request.path)) sources.clear();
    auto& source = sources[request.path];
    if (!source) {
      auto opened = open(request.path);
      if (opened)
        source = std::move(opened).value();
      else
        done = std::move(opened).error();
    }
    std::vector<StoredChunk> stored;
    if (source && request.room > 0) {
      auto chunks = source->read_stored(request.variable, request.box, {memory + request.to, request.room});
      if (chunks)
        stored = std::move(chunks).value();
      else
        done = std::move(chunks).error();
    }
    if (source && done && stored.empty()) done = source->read(request.variable, request.box, memory + request.to);
    Bytes answer;
    Encoder e(answer);
    e.text(done ? "" : done.error().message);
    for (const auto& chunk : stored) {
      e.number(chunk.bytes);
      e.number(chunk.mask);
    }
    if (::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) ::_exit(1);
  }
}

}  // namespace

Result<std::unique_ptr<SourceReaders>> SourceReaders::start(unsigned count, std::uint64_t bytes, const OpenSource& open,
                                                            std::size_t open_max) {
  std::unique_ptr<SourceReaders> readers(new SourceReaders);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return system_error("memory for " + std::to_string(bytes) + " bytes of values", errno);
  readers->memory_ = Mapping(static_cast<std::byte*>(memory), bytes);
  for (unsigned i = 0; i < count; ++i) ADVECTIO_TRY(readers->start_one(open, open_max));
  return readers;
}

Result<void> SourceReaders::start_one(const OpenSource& open, std::size_t open_max) {
  int ends[2] = {-1, -1};
  // Messages keep their bounds.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return system_error("start a reader", errno);
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int why = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    return system_error("start a reader", why);
  }
  if (pid == 0) {
    // Kept open here, the sockets of those before would never end for them.
    for (const auto& other : readers_) ::close(other.socket);
    ::close(ends[0]);
    serve(ends[1], memory_.data(), open, open_max);
  }
  ::close(ends[1]);
  readers_.push_back({pid, ends[0], nullptr});
  return {};
}

SourceReaders::~SourceReaders() {
  for (const auto& reader : readers_) {
    ::close(reader.socket);
    if (reader.busy != nullptr) ::kill(reader.pid, SIGKILL);
  }
  for (const auto& reader : readers_)
    while (::waitpid(reader.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

Result<void> SourceReaders::take_answer(Reader& reader) {
  std::vector<std::byte> message(message_bytes_max);
  const auto n = receive(reader.socket, message);
  if (n <= 0) return Error{Code::gone, "a process that reads files has ended", 0};
  const auto& request = *std::exchange(reader.busy, nullptr);
  Decoder d(std::span<const std::byte>(message).first(static_cast<std::size_t>(n)));
  if (auto text = d.text(); !text.empty()) return Error{Code::io, std::move(text), 0};
  while (request.stored != nullptr && d.ok() && !d.at_end()) {
    const auto bytes = d.number<std::uint64_t>();
    request.stored->push_back({bytes, d.number<std::uint32_t>()});
  }
  return {};
}

Result<void> SourceReaders::read(std::span<const Request> requests, const std::atomic<bool>& stop) {
  std::vector<std::deque<const Request*>> queues(readers_.size());
  for (const auto& r : requests) queues[r.number % readers_.size()].push_back(&r);
  for (;;) {
    std::vector<pollfd> busy;
    std::vector<Reader*> who;
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      auto& reader = readers_[i];
      if (reader.busy == nullptr && !queues[i].empty()) {
        const auto& request = *queues[i].front();
        const auto message = encode(request);
        queues[i].pop_front();
        if (message.size() > message_bytes_max ||
            ::send(reader.socket, message.data(), message.size(), MSG_NOSIGNAL) < 0)
          return Error{Code::gone, "a process that reads files has ended", 0};
        reader.busy = &request;
      }
      if (reader.busy == nullptr) continue;
      busy.push_back({reader.socket, POLLIN, 0});
      who.push_back(&reader);
    }
    if (busy.empty()) return {};
    const int ready = ::poll(busy.data(), busy.size(), -1);
    if (stop) return Error{Code::gone, "interrupted", 0};
    if (ready < 0 && errno != EINTR) return system_error("wait for readers", errno);
    for (std::size_t i = 0; ready > 0 && i < busy.size(); ++i)
      if (busy[i].revents != 0) ADVECTIO_TRY(take_answer(*who[i]));
  }
}

}  // namespace advectio
