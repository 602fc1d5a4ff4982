// Blocks that lie scattered in the program's memory, and walks through their elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace advectio {

/// Copy a block into dense row-major memory. Element (i0,i1,…) lies at from + Σ ik × step[k] bytes.
/// Returns the end of what was written.
inline std::byte* gather(const std::byte* from, std::span<const std::uint64_t> count,
                         std::span<const std::ptrdiff_t> step, std::size_t element, std::byte* to) {
  if (count.empty()) {
    std::memcpy(to, from, element);
    return to + element;
  }
  const auto inner = count.subspan(1);
  for (std::uint64_t i = 0; i < count[0]; ++i, from += step[0]) to = gather(from, inner, step.subspan(1), element, to);
  return to;
}

/// The next index of a block of so many elements, in row-major order. False: that was the last one,
/// and `at` is back at the first.
inline bool next_index(std::span<std::uint64_t> at, std::span<const std::uint64_t> count) {
  for (std::size_t k = at.size(); k-- > 0;) {
    if (++at[k] < count[k]) return true;
    at[k] = 0;
  }
  return false;
}

}  // namespace advectio
