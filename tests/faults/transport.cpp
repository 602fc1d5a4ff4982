#include "faults/transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>

namespace advectio::faults {
namespace {

class SocketTransport final : public Transport {
 public:
  SocketTransport(unsigned node, unsigned nodes, unsigned io_nodes,
                  const std::vector<std::array<int, Transport::lanes>>& sockets)
      : node_(node), io_nodes_(io_nodes), links_(nodes) {
    for (unsigned n = 0; n < nodes; ++n) {
      names_.push_back(std::string("n") += std::to_string(n));
      for (std::size_t lane = 0; lane < lanes; ++lane) links_[n][lane].fd = sockets[n][lane];
    }
  }
  [[nodiscard]] unsigned node() const noexcept override { return node_; }
  [[nodiscard]] unsigned nodes() const noexcept override { return static_cast<unsigned>(names_.size()); }
  [[nodiscard]] unsigned io_nodes() const noexcept override { return io_nodes_; }
  [[nodiscard]] const std::string& name(unsigned node) const noexcept override { return names_[node]; }

  void send(unsigned to, Lane lane, int kind, std::span<const std::byte> bytes, std::uint64_t ticket) override {
    links_[to][static_cast<std::size_t>(lane)].out.push_back(
        {{static_cast<std::uint64_t>(kind), bytes.size()}, bytes, ticket});
    push();
  }
  void sent(std::vector<std::uint64_t>& tickets) override {
    push();
    tickets.insert(tickets.end(), sent_.begin(), sent_.end());
    sent_.clear();
  }
  std::optional<Arrival> arrived(Lane lane) override {
    push();
    for (unsigned n = 0; n < nodes(); ++n) {
      auto& link = links_[n][static_cast<std::size_t>(lane)];
      if (link.fd < 0 || link.told || !take(link, &link.head, sizeof link.head, link.got)) continue;
      link.told = true;
      return Arrival{n, lane, static_cast<int>(link.head.kind), link.head.bytes, n};
    }
    return std::nullopt;
  }
  void receive(const Arrival& arrival, std::byte* to) override {
    auto& link = links_[arrival.from][static_cast<std::size_t>(arrival.lane)];
    for (std::uint64_t got = 0; !take(link, to, arrival.bytes, got);) {
      push();
      pollfd in{link.fd, POLLIN, 0};
      (void)::poll(&in, 1, 1);
    }
    link.told = false;
    link.got = 0;
  }
  void leave(bool agreed) override {
    while (agreed && push()) ::usleep(200);
  }

 private:
  struct Head {
    std::uint64_t kind, bytes;
  };
  struct Out {
    Head head;
    std::span<const std::byte> bytes;
    std::uint64_t ticket;
    std::size_t done = 0;
  };
  struct Link {
    int fd = -1;
    std::deque<Out> out;
    Head head{};
    std::uint64_t got = 0;  // of the head
    bool told = false;      // of the message whose head that is
  };

  /// True when all of it has come. Who has ended sends no more; whoever waits for it is ended as well.
  static bool take(Link& link, void* to, std::uint64_t bytes, std::uint64_t& got) {
    while (got < bytes) {
      const auto n = ::recv(link.fd, static_cast<char*>(to) + got, bytes - got, MSG_DONTWAIT);
      if (n <= 0) return false;
      got += static_cast<std::uint64_t>(n);
    }
    return true;
  }
  /// Send as much as goes. True when there is a rest.
  bool push() {
    bool rest = false;
    for (auto& node : links_)
      for (auto& link : node) {
        while (!link.out.empty() && push(link.fd, link.out.front())) {
          sent_.push_back(link.out.front().ticket);
          link.out.pop_front();
        }
        rest = rest || !link.out.empty();
      }
    return rest;
  }
  static bool push(int fd, Out& out) {
    const auto* head = reinterpret_cast<const std::byte*>(&out.head);
    while (out.done < sizeof out.head + out.bytes.size()) {
      const bool in_head = out.done < sizeof out.head;
      const auto part =
          in_head ? std::span(head, sizeof out.head).subspan(out.done) : out.bytes.subspan(out.done - sizeof out.head);
      const auto n = ::send(fd, part.data(), part.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) return errno != EAGAIN;  // nobody hears it any more
      out.done += static_cast<std::size_t>(n);
    }
    return true;
  }

  unsigned node_, io_nodes_;
  std::vector<std::string> names_;
  std::vector<std::array<Link, lanes>> links_;
  std::vector<std::uint64_t> sent_;
};

}  // namespace

Wires::Wires(unsigned nodes) : nodes_(nodes), ends_(std::size_t{nodes} * nodes * Transport::lanes, -1) {
  for (unsigned a = 0; a < nodes; ++a)
    for (unsigned b = 0; b < a; ++b)
      for (std::size_t lane = 0; lane < Transport::lanes; ++lane) {
        int pair[2] = {-1, -1};
        (void)::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
        end(a, b, lane) = pair[0];
        end(b, a, lane) = pair[1];
      }
}

Wires::~Wires() {
  for (const int fd : ends_)
    if (fd >= 0) ::close(fd);
}

std::unique_ptr<Transport> Wires::transport_of(unsigned node, unsigned io_nodes) {
  std::vector<std::array<int, Transport::lanes>> own(nodes_);
  for (unsigned a = 0; a < nodes_; ++a)
    for (unsigned b = 0; b < nodes_; ++b)
      for (std::size_t lane = 0; lane < Transport::lanes; ++lane) {
        auto& fd = end(a, b, lane);
        if (a == node)
          own[b][lane] = fd;
        else if (fd >= 0)
          ::close(fd);
        fd = -1;
      }
  return std::make_unique<SocketTransport>(node, nodes_, io_nodes, own);
}

}  // namespace advectio::faults
