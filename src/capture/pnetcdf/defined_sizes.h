// How large the file is that the program has defined.
#pragma once

#include <algorithm>
#include <cstdint>

#include "capture/pnetcdf/variables.h"
#include "core/schema.h"

namespace advectio::pnetcdf {

class DefinedSizes {
 public:
  /// Null: the size is not known.
  void add(const Shape* shape) noexcept {
    std::uint64_t bytes = UINT64_MAX;
    if (shape != nullptr) {
      bytes = shape->element;
      for (std::size_t d = shape->record ? 1 : 0; d < shape->lengths.size(); ++d)
        if (__builtin_mul_overflow(bytes, shape->lengths[d], &bytes)) bytes = UINT64_MAX;
    }
    largest_ = std::max(largest_, bytes);
    add_bytes(bytes);
  }
  void add_bytes(std::uint64_t bytes) noexcept {
    if (__builtin_add_overflow(bytes_, bytes, &bytes_)) bytes_ = UINT64_MAX;
  }
  /// The end of define mode cannot fail. The library checks that the format can hold the sizes, after
  /// padding.
  [[nodiscard]] bool surely_fit(FileFormat format) const noexcept {
    constexpr std::uint64_t GiB = std::uint64_t{1} << 30U;
    switch (format) {
      case FileFormat::classic: return bytes_ < GiB;
      case FileFormat::offset64: return largest_ < 3 * GiB;
      default: return bytes_ < GiB * GiB;
    }
  }

 private:
  /// Of these variables, with one record each, and of the padding.
  std::uint64_t bytes_ = 0;
  std::uint64_t largest_ = 0;  ///< bytes of the largest variable
};

}  // namespace advectio::pnetcdf
