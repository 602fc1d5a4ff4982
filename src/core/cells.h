// Who owns which part of a domain: it is cut along the edges of all boxes, into cells that each box covers whole or not
// at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/box.h"

namespace advectio {

class Cells {
 public:
  /// `boxes` are all that will be taken; they lie within a domain of the lengths `whole`.
  Cells(const std::vector<Box>& boxes, const std::vector<std::uint64_t>& whole);

  /// A grid of boxes has as many cells as boxes; only what is cut at random has their square. False: that would be more
  /// than can be held, and nothing else here may be called.
  [[nodiscard]] bool made() const noexcept { return all_.volume() <= cells_max; }

  /// Give the box to `who`. Returns who has had a part of it before, if anybody.
  std::optional<std::size_t> take(const Box& box, std::size_t who);

  /// Points that nobody has.
  [[nodiscard]] std::uint64_t open_points() const;
  /// A box of them, as large as it gets from the first. There must be one.
  [[nodiscard]] Box open_box() const;

 private:
  static constexpr std::uint64_t cells_max = std::uint64_t{1} << 26;
  static constexpr std::size_t nobody = SIZE_MAX;

  [[nodiscard]] Box cell(std::size_t index) const;
  [[nodiscard]] Box cells_of(const Box& points) const;
  [[nodiscard]] Box points_of(const Box& cells) const;
  [[nodiscard]] bool open(const Box& cells) const;

  std::vector<std::vector<std::uint64_t>> cuts_;  // per dimension, with both ends
  Box all_;                                       // cells
  std::vector<std::size_t> owner_;                // of each
};

}  // namespace advectio
