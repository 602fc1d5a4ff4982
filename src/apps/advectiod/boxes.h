// How a variable is cut into the pieces that are worked on at once.
#pragma once

#include <cstdint>
#include <vector>

#include "core/box.h"

namespace advectio {

/// Boxes that cover `lengths`, in whole chunks, of about so many cells; the slowest dimensions are cut first.
std::vector<Box> cut(const std::vector<std::uint64_t>& lengths, const std::vector<std::uint64_t>& chunks,
                     std::uint64_t cells);

/// The next place for values in memory.
constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t line = 64;
  return (bytes + line - 1) / line * line;
}

}  // namespace advectio
