// Which other servers this program can talk to: none (advectiod), or those of its MPI job (advectiod_mpi).
#pragma once

#include <memory>
#include <vector>

#include "cluster/transport.h"
#include "core/result.h"
#include "journal/nodes.h"

namespace advectio {

struct TransportHere {
  std::unique_ptr<Transport> all;        ///< null: there are none
  std::vector<journal::Node> simulated;  ///< where the nodes are not real (ADVECTIO_NODES)
};

/// `io_nodes`: how many of real nodes, the last ones, have no ranks. Errors: Code::invalid, where that or
/// ADVECTIO_NODES does not fit the job.
Result<TransportHere> find_transport(unsigned io_nodes);

}  // namespace advectio
