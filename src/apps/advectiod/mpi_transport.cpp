// The servers of a run as one MPI job, a process on each node.
#include <mpi.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "apps/advectiod/transport_here.h"

namespace advectio {
namespace {

class MpiTransport final : public Transport {
 public:
  MpiTransport(unsigned node, std::vector<std::string> names, unsigned io_nodes)
      : node_(node), names_(std::move(names)), io_nodes_(io_nodes) {
    // A communicator for each lane: what is probed for on one does not see the other's messages.
    for (auto& lane : lanes_) MPI_Comm_dup(MPI_COMM_WORLD, &lane);
  }

  [[nodiscard]] unsigned node() const noexcept override { return node_; }
  [[nodiscard]] unsigned nodes() const noexcept override { return static_cast<unsigned>(names_.size()); }
  [[nodiscard]] unsigned io_nodes() const noexcept override { return io_nodes_; }
  [[nodiscard]] const std::string& name(unsigned node) const noexcept override { return names_[node]; }

  void send(unsigned to, Lane lane, int kind, std::span<const std::byte> bytes, std::uint64_t ticket) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, static_cast<int>(to), kind, comm(lane), &request);
    requests_.push_back(request);
    tickets_.push_back(ticket);
  }

  void sent(std::vector<std::uint64_t>& tickets) override {
    if (requests_.empty()) return;
    done_.resize(requests_.size());
    int count = 0;
    MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; ++i)
      tickets.push_back(tickets_[static_cast<std::size_t>(done_[static_cast<std::size_t>(i)])]);
    if (count <= 0) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      tickets_[kept++] = tickets_[i];
    }
    requests_.resize(kept);
    tickets_.resize(kept);
  }

  std::optional<Arrival> arrived(Lane lane) override {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm(lane), &found, &message, &status);
    if (found == 0) return std::nullopt;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    const auto handle = next_handle_++;
    messages_[handle] = message;
    return Arrival{static_cast<unsigned>(status.MPI_SOURCE), lane, status.MPI_TAG, static_cast<std::uint64_t>(bytes),
                   handle};
  }

  void receive(const Arrival& arrival, std::byte* to) override {
    const auto it = messages_.find(arrival.handle);
    MPI_Mrecv(to, static_cast<int>(arrival.bytes), MPI_BYTE, &it->second, MPI_STATUS_IGNORE);
    messages_.erase(it);
  }

  void leave(bool agreed) override {
    // Who was told to stop cannot wait for the others, and MPI's end would.
    if (agreed) MPI_Finalize();
  }

 private:
  [[nodiscard]] MPI_Comm comm(Lane lane) const noexcept { return lanes_[static_cast<std::size_t>(lane)]; }

  unsigned node_;
  std::vector<std::string> names_;
  unsigned io_nodes_;
  MPI_Comm lanes_[lanes] = {};
  std::vector<MPI_Request> requests_;
  std::vector<std::uint64_t> tickets_;
  std::vector<int> done_;
  std::map<std::uint64_t, MPI_Message> messages_;
  std::uint64_t next_handle_ = 1;
};

/// All nodes' host names, in the order of their numbers.
std::vector<std::string> host_names(int nodes) {
  char own[64] = "";
  ::gethostname(own, sizeof own - 1);
  std::vector<char> all(static_cast<std::size_t>(nodes) * sizeof own);
  MPI_Allgather(own, sizeof own, MPI_CHAR, all.data(), sizeof own, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(nodes));
  for (int n = 0; n < nodes; ++n) names.emplace_back(all.data() + static_cast<std::size_t>(n) * sizeof own);
  return names;
}

}  // namespace

Result<TransportHere> find_transport(unsigned io_nodes) {
  auto simulated = journal::simulated_nodes(std::getenv("ADVECTIO_NODES"));
  if (!simulated) return std::move(simulated).error();
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED)
    return Error{Code::unsupported, "this MPI cannot be used from more than one thread (MPI_THREAD_SERIALIZED)", 0};
  int node = 0, nodes = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &node);
  MPI_Comm_size(MPI_COMM_WORLD, &nodes);
  auto names = host_names(nodes);
  if (!simulated->empty()) {
    if (simulated->size() != static_cast<std::size_t>(nodes))
      return Error{Code::invalid,
                   "ADVECTIO_NODES names " + std::to_string(simulated->size()) + " nodes, and there are " +
                       std::to_string(nodes) + " servers",
                   0};
    names.clear();
    io_nodes = 0;
    for (const auto& n : *simulated) {
      names.push_back(n.name);
      if (n.ranks > 0 && io_nodes > 0)
        return Error{Code::invalid, "ADVECTIO_NODES: nodes without ranks, for output only, come last", 0};
      io_nodes += n.ranks == 0 ? 1 : 0;
    }
  } else {
    for (std::size_t i = 0; i < names.size(); ++i)
      for (std::size_t k = 0; k < i; ++k)
        if (names[i] == names[k])
          return Error{Code::invalid,
                       "two servers have been started on " + names[i] + "; there can be one on each node", 0};
  }
  if (io_nodes >= static_cast<unsigned>(nodes) && io_nodes > 0)
    return Error{Code::invalid,
                 "of " + std::to_string(nodes) + " nodes " + std::to_string(io_nodes) +
                     " are to be for output only, which leaves none for the program",
                 0};
  TransportHere here;
  here.all = std::make_unique<MpiTransport>(static_cast<unsigned>(node), std::move(names), io_nodes);
  here.simulated = std::move(simulated).value();
  return here;
}

}  // namespace advectio
