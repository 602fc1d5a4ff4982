#include "journal/nodes.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace advectio::journal {

Result<std::vector<Node>> simulated_nodes(const char* text) {
  std::vector<Node> nodes;
  if (text == nullptr || *text == '\0') return nodes;
  const std::string all = text;
  const auto wrong = [&all](const std::string& part, const char* why) {
    return Error{Code::invalid, "ADVECTIO_NODES=" + all + ": '" + part + "' " + why + "; e.g. n0:4,n1:4,io:0", 0};
  };
  for (std::size_t at = 0; at <= all.size();) {
    const auto end = std::min(all.find(',', at), all.size());
    const auto part = all.substr(at, end - at);
    at = end + 1;
    const auto colon = part.find(':');
    if (colon == std::string::npos || colon == 0) return wrong(part, "is not NAME:RANKS");
    Node node;
    node.name = part.substr(0, colon);
    for (const char c : node.name)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '-')
        return wrong(part, "has a name that cannot be a directory's");
    if (node.name[0] == '.') return wrong(part, "has a name that begins with a dot");
    char* rest = nullptr;
    const auto ranks = std::strtoul(part.c_str() + colon + 1, &rest, 10);
    if (rest == part.c_str() + colon + 1 || *rest != '\0' || ranks > 1'000'000 || part[colon + 1] == '-')
      return wrong(part, "does not end in a number of ranks");
    node.ranks = static_cast<std::uint32_t>(ranks);
    for (const auto& other : nodes)
      if (other.name == node.name) return wrong(part, "has a name that is there already");
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::string stage_directory(const std::string& run_dir, const std::vector<Node>& simulated, std::size_t node) {
  return node < simulated.size() ? run_dir + "/" + simulated[node].name : run_dir;
}

std::size_t node_of_rank(const std::vector<Node>& simulated, std::int64_t rank) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < simulated.size(); ++i) {
    if (rank < static_cast<std::int64_t>(simulated[i].ranks)) return i;
    rank -= static_cast<std::int64_t>(simulated[i].ranks);
    if (simulated[i].ranks > 0) last = i;
  }
  return last;
}

}  // namespace advectio::journal
