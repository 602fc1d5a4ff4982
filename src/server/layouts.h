// Layouts of puts of many boxes (core/box_layout.h), kept for the next put of the same boxes: they are sorted once.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "core/box_layout.h"
#include "journal/format.h"

namespace advectio {

/// Keeps those used last, up to a bound. Others live as long as a block has them.
class Layouts {
 public:
  static constexpr std::uint64_t bytes_max = 64ULL << 20;

  explicit Layouts(std::uint64_t most = bytes_max) : most_(most) {}

  /// That of a put of many boxes, with so many elements. Errors: Code::corrupt.
  Result<std::shared_ptr<const BoxLayout>> of(const journal::Put& put, std::uint64_t elements);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Counts of layouts made, and of calls of `of`.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }
  [[nodiscard]] std::uint64_t asked() const noexcept { return asked_; }

 private:
  struct Kept {
    std::uint64_t hash = 0;
    Bytes said;
    std::shared_ptr<const BoxLayout> layout;
    [[nodiscard]] std::uint64_t bytes() const { return said.size() + layout->bytes(); }
  };

  const std::uint64_t most_;
  std::list<Kept> kept_;  ///< the one used last first
  std::unordered_multimap<std::uint64_t, std::list<Kept>::iterator> by_hash_;
  std::uint64_t bytes_ = 0, made_ = 0, asked_ = 0;
};

}  // namespace advectio
