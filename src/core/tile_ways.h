// The ways in which tiles say their place: one table with a row for each model, and one function for each row.
// `join_tiles` (core/placement.h) knows no model by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/placement.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

struct TileWay {
  TileKind kind;
  std::string_view name;
  /// The place by the tile's own words. Empty: it does not say it in this way. Errors: Code::corrupt. Null: no
  /// attribute says it (core/placement_by_coordinates.h).
  Result<std::optional<Placement>> (*place)(const Schema& tile);
  /// Does this attribute, of the dataset (`global`) or of a variable, differ from tile to tile of one dataset?
  bool (*differs)(bool global, std::string_view attribute);
  /// Attributes of place of the whole, in a copy of the first tile's schema that has the whole's dimensions.
  void (*become_whole)(Schema& whole, const Schema& first);
  /// A part of the domain may be in no tile although all are there: the model writes none for processes with land only.
  bool leaves_out_land;
  /// Two neighbours may both hold the points of the edge between them. Only all tiles together show it.
  bool shares_edges;
};

/// In the order of TileKind.
std::span<const TileWay> tile_ways() noexcept;
inline const TileWay& way_of(TileKind kind) noexcept {
  return tile_ways()[static_cast<std::size_t>(kind)];
}

const Attribute* attribute_named(const std::vector<Attribute>& attributes, std::string_view name);
/// Empty for what is not there, no whole numbers, or so large that no grid can mean it (and sums of it would wrap).
std::vector<std::int64_t> whole_numbers(const Attribute* attribute);
/// Empty for what is no text.
std::string_view attribute_text(const Attribute* attribute);

}  // namespace advectio
