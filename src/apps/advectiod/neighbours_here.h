// Which other servers this program can talk to: none (advectiod), or those of its MPI job (advectiod_mpi).
#pragma once

#include <memory>
#include <vector>

#include "core/result.h"
#include "journal/nodes.h"
#include "server/neighbours.h"

namespace advectio {

struct NeighboursHere {
  std::unique_ptr<Neighbours> all;       ///< null: there are none
  std::vector<journal::Node> simulated;  ///< where the nodes are not real (ADVECTIO_NODES)
};

/// `io_nodes`: how many of real nodes, the last ones, have no ranks. Errors: Code::invalid, where that or
/// ADVECTIO_NODES does not fit the job.
Result<NeighboursHere> find_neighbours(unsigned io_nodes);

}  // namespace advectio
