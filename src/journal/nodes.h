// The nodes of a run that has a server on each. Where several are only simulated on one machine, to try what needs
// several, ADVECTIO_NODES names them with the number of ranks on each: "n0:4,n1:4,io:0".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace advectio::journal {

struct Node {
  std::string name;         ///< of its directory too: letters, digits, '.', '_' and '-'
  std::uint32_t ranks = 0;  ///< of the program; 0: the node is there for output only
};

/// The simulated nodes; none where `text` is null or empty. Errors: Code::invalid, naming the part that is wrong.
Result<std::vector<Node>> simulated_nodes(const char* text);

/// The directory of the stage of that node. Real nodes all use the run directory's own path, each for itself.
std::string stage_directory(const std::string& run_dir, const std::vector<Node>& simulated, std::size_t node);

/// The node of that rank of the program; of a process that is no rank (-1) the first.
std::size_t node_of_rank(const std::vector<Node>& simulated, std::int64_t rank);

}  // namespace advectio::journal
