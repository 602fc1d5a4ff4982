// Dimensions and variables of a shadow, as far as a put has to know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/netcdf/real_library.h"

namespace advectio::netcdf {

struct Extent {
  bool unlimited = false;
  std::uint64_t length = 0;
  std::uint64_t asked = 0;  ///< the length when the program, or the library for it, last asked
};

/// Type and dimensions of a variable never change.
struct Shape {
  nc_type type = NC_NAT;
  std::size_t element = 0;
  std::vector<int> dimensions;
};

class Shapes {
 public:
  Shapes(const RealLibrary& lib, int ncid) : lib_(lib), ncid_(ncid) {}

  /// Learn dimensions that are new.
  void load();
  /// There may be new dimensions.
  void touch() noexcept { stale_ = true; }
  /// Null: there is no such variable.
  const Shape* of(int variable);

  [[nodiscard]] std::vector<Extent>& extents() noexcept { return extents_; }
  [[nodiscard]] const std::vector<Extent>& extents() const noexcept { return extents_; }
  [[nodiscard]] Extent& extent(int dimension) noexcept { return extents_[static_cast<std::size_t>(dimension)]; }
  [[nodiscard]] const Extent& extent(int dimension) const noexcept {
    return extents_[static_cast<std::size_t>(dimension)];
  }
  [[nodiscard]] bool any_unlimited();
  /// Some unlimited dimension of the variable is longer than in the shadow, where it has no length.
  [[nodiscard]] bool has_grown(const Shape& variable) const noexcept;
  /// The length of an unlimited dimension, which the program asks for. False: not such a dimension.
  bool ask(int dimension, std::size_t& length) noexcept;
  /// After nc_def_var. The library chooses chunks by the lengths that the unlimited dimensions had
  /// when last asked for. The shadow does not know these lengths.
  int choose_chunks(int variable);

 private:
  const RealLibrary& lib_;
  const int ncid_;
  std::vector<Extent> extents_;
  std::vector<Shape> shapes_;
  bool stale_ = true;
  bool asked_ = false;  ///< the program has asked for the length of a dimension that had grown
};

}  // namespace advectio::netcdf
