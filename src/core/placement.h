// Split output: every process writes a file of its own, a tile, and only attributes say where in the domain it lies.
// From the schemas of tiles to the schema of the whole, and to the boxes that go from each into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/box.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// The model whose attributes say the place (core/tile_ways.h). Names of files are not looked at.
enum class TileKind : std::uint8_t {
  wrf,          ///< global attributes WEST-EAST_PATCH_START_UNSTAG …, WEST-EAST_GRID_DIMENSION …
  scale,        ///< attributes of the axes: size_global, start_global, halo_global, halo_local
  nemo,         ///< global attributes DOMAIN_position_first …
  fms,          ///< of coordinate variables: domain_decomposition; global: NumFilesInSet
  mitgcm,       ///< global attributes tile_number, sNx, nSx, nPx …, or exch2_txGlobalo, exch2_tyGlobalo
  coordinates,  ///< no attribute; the values of the coordinate variables do (core/placement_by_coordinates.h)
};

std::string_view name_of(TileKind kind) noexcept;

/// What of one dimension of a tile goes where. What lies before it and behind it is halo, which another tile owns.
struct Span {
  std::uint64_t from = 0;   ///< in the tile
  std::uint64_t to = 0;     ///< in the whole
  std::uint64_t count = 0;  ///< may be 0: the tile owns nothing of it
  std::uint64_t whole = 0;  ///< length of the dimension in the whole
  bool operator==(const Span&) const = default;
};

struct Placement {
  TileKind kind = TileKind::wrf;
  std::vector<std::optional<Span>> spans;  ///< per dimension of the schema; empty: every tile has all of it
  std::optional<std::uint64_t> number;     ///< of the tile, and how many there are, where it says so
  std::optional<std::uint64_t> total;
  bool whole_is_reached = false;  ///< no tile says how large the whole is: as large as all tiles together reach
};

/// Empty: the schema does not say that it is a tile's. A file that one process wrote alone is a tile that is the whole,
/// where the model marks it so. Errors: Code::corrupt where what is said contradicts itself.
Result<std::optional<Placement>> placement_of(const Schema& schema);

struct Tile {
  std::string name;  ///< for errors
  Schema schema;
  Placement placement;
};

/// The name of the file that a tile of this name is a part of, by the ways in which the models number them. Empty: it
/// is not named like a tile. Those that their coordinates place are not known by name here.
std::string whole_name(const std::string& tile);

/// The same of a path. Processes of MITgcm may have directories of their own, mnc_0001 and so on: the whole has none.
std::string whole_path(const std::string& tile);

/// What a tile owns of the variable that is cut along the most dimensions: when the tiles of a dataset cover it, the
/// former sum up to the latter.
struct Share {
  std::uint64_t own = 1, whole = 1;
};
Share share_of(const Schema& schema, const Placement& placement);

/// One tile's part of one variable. Along unlimited dimensions both boxes are the first record.
struct Piece {
  std::size_t tile = 0;
  Box from;               ///< in the tile
  Box to;                 ///< in the whole; the same counts
  bool repeated = false;  ///< the piece before it goes to the same place: not to be written, and to be the same
};

struct Whole {
  /// As one process would have written it: the attributes of place too, and as many chunks along each dimension as one
  /// tile had.
  Schema schema;
  std::vector<std::vector<Piece>> pieces;  ///< per variable; of those not repeated no two overlap
  /// Points of the horizontal grid that no tile holds although all are there: NEMO leaves out processes with nothing
  /// but land. They get the fill value.
  std::uint64_t land_points = 0;
};

/// Puts the tiles in the order of their places: pieces count them in that order. Their placements say afterwards what
/// each gives to the whole: of an edge that two of them hold, only one. Errors, all Code::invalid: tiles that
/// are not of one dataset, that overlap, or that leave a part of the domain open; each says which.
Result<Whole> join_tiles(std::vector<Tile>& tiles);

}  // namespace advectio
