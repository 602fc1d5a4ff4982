// Boxes in index space, and copying the part two of them share. Row-major ("C") order throughout: the last
// dimension varies fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace advectio {

/// A hyperslab of a variable: `start[i] .. start[i]+count[i]-1` in every dimension i. Rank 0 is a scalar.
struct Box {
  std::vector<std::uint64_t> start;
  std::vector<std::uint64_t> count;

  [[nodiscard]] std::size_t rank() const noexcept { return start.size(); }
  /// Number of elements; 1 for a scalar. Saturates at UINT64_MAX instead of wrapping.
  [[nodiscard]] std::uint64_t volume() const noexcept;
  [[nodiscard]] bool empty() const noexcept { return volume() == 0; }
  [[nodiscard]] bool contains(const Box& inner) const noexcept;
  bool operator==(const Box&) const = default;
};

/// The box two boxes share (volume 0 when they do not meet). Both must have the same rank.
Box intersect(const Box& a, const Box& b);

/// Copy `part` (which both boxes contain) between two dense row-major arrays: `from` holds the box `from_box`,
/// `to` holds the box `to_box`. `element` is bytes per element. Rows that are contiguous in both are copied in one go.
void copy_part(const Box& part, const void* from, const Box& from_box, void* to, const Box& to_box,
               std::size_t element) noexcept;

/// True when the elements of `part` lie next to each other, in order, in a dense array that holds `whole`.
bool is_contiguous(const Box& part, const Box& whole) noexcept;

/// Index of the first element of `part` in a dense array that holds `whole`.
std::uint64_t offset_in(const Box& part, const Box& whole) noexcept;

}  // namespace advectio
