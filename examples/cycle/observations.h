// Observations of a cycle, and what a member's history would have had them be.
#pragma once

#include <string>
#include <vector>

#include "grid.h"

namespace cycle {

/// One number that was measured; all of a cycle as arrays. Kinds: 0 U, 1 V, 2 H.
struct Observations {
  std::vector<double> x, y, time, kind, layer, value, error;  // m, m, s, , , as measured, its standard deviation
  [[nodiscard]] std::size_t count() const { return x.size(); }
};

/// Rank 0 reads the file, all have it.
Observations read_observations(const std::string& path);

/// The observations' equivalents in one member: linear in time between two frames of its history, bilinear in space.
/// Reads all tiles of the member.
std::vector<double> equivalents(const Observations& observations, const Grid& grid, const Tiles& tiles,
                                const std::string& history);

}  // namespace cycle
