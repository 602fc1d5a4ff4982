// Tiles without attributes of place (DALES): the values of their coordinate variables say where they lie.
//
// Of each dimension all tiles have the same values, or each has a part of one axis. The parts follow each other along
// the axis without overlap. No part may be missing between two: a gap is at most one and a half times as wide as the
// steps beside it. An outermost tile that is missing cannot be noticed: no value tells how long the axis is.
#pragma once

#include <string>
#include <vector>

#include "core/placement.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

struct UnplacedTile {
  std::string name;  ///< for errors
  Schema schema;
  /// By dimension: the values of the variable of its name; empty where there is none.
  std::vector<std::vector<double>> coordinates;
};

/// The variable whose values `place_by_coordinates` needs for a dimension; empty: there is none.
std::optional<std::uint32_t> coordinate_of(const Schema& schema, std::size_t dimension);

/// One placement for each tile. Errors, all Code::invalid: the tiles are not parts of one axis; each says which tiles
/// and which coordinate.
Result<std::vector<Placement>> place_by_coordinates(const std::vector<UnplacedTile>& tiles);

}  // namespace advectio
