// What one process puts of one variable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/box.h"
#include "core/box_layout.h"

namespace advectio {

/// Keeps memory as it is until the last copy of it goes: a segment of the stage is not used again while anybody holds a
/// lease on it. Any thread may hold one.
using Lease = std::shared_ptr<const void>;

/// The piece of one variable that one rank puts.
struct Block {
  std::uint32_t variable = 0;         ///< index into Schema::variables
  Box box;                            ///< in the variable's index space; `count` elements in each dimension
  std::vector<std::uint64_t> stride;  ///< distance of neighbours in each dimension; empty: all 1
  /// Dense, row-major, native byte order, of the variable's type. Text and numbers: elements × size_of(type) bytes.
  /// Strings: each as length (u32) and bytes, or `null_string`.
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Lease lease;  ///< on `data`; null: it is borrowed, and stays until the next commit (or `abandon`) returns
  /// Of many boxes: `box` holds all of them, and `data` has their values only. Text and numbers. Null: it is one box.
  std::shared_ptr<const BoxLayout> layout;
};

}  // namespace advectio
