// What MPI is to the servers of several nodes, between processes of one machine: a socket for each lane of each pair of
// them.
#pragma once

#include <memory>
#include <vector>

#include "cluster/transport.h"

namespace advectio::faults {

/// Of all servers of a run; made before they are forked, and anew whenever they begin again.
class Wires {
 public:
  explicit Wires(unsigned nodes);
  ~Wires();
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  /// In the process of that node. The ends of the others are closed.
  std::unique_ptr<Transport> transport_of(unsigned node, unsigned io_nodes);

 private:
  int& end(unsigned node, unsigned to, std::size_t lane) {
    return ends_[(node * nodes_ + to) * Transport::lanes + lane];
  }
  unsigned nodes_;
  std::vector<int> ends_;  // -1: none
};

}  // namespace advectio::faults
