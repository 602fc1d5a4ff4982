#include "config/nearest.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace advectio {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view text, std::span<const std::string> names) {
  std::string best;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const auto& name : names) {
    const auto d = edit_distance(text, name);
    if (d >= least) continue;
    least = d;
    best = name;
  }
  return least <= text.size() / 2 ? best : "";
}

}  // namespace advectio
