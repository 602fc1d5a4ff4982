// The server of one node of a workflow of several nodes (exchange/README.md): keeps the node's registry the same as the
// others', and has the bytes of versions sent from node to node.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "platform/log.h"

namespace advectio::exchange {

struct NodeOptions {
  std::string memory;               ///< the registry on this node
  std::string directory;            ///< of the workflow; all nodes see it
  std::vector<std::string> listen;  ///< as the config's `workflow.listen`
};

/// Below the workflow's directory: a file of each node, by which the others find it.
inline constexpr const char* nodes_directory = "/advectio.nodes";

/// Serves until the workflow has ended on this node. `ready` is called when others may come; where another server has
/// this node already, nothing is done but that. Errors are those of the beginning.
Result<void> serve_node(const NodeOptions& options, Log& log, void (*ready)());

/// Does a server live?
bool is_served(const std::string& memory);
/// Starts one, by this program's command `workflow`, which lives on without us. Its error, where it cannot begin.
Result<void> start_node_server(const NodeOptions& options);

}  // namespace advectio::exchange
