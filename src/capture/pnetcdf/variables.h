// Variables of a shadow, as far as data calls have to know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/pnetcdf/real_library.h"
#include "core/bytes.h"

namespace advectio::pnetcdf {

/// Type and dimensions of a variable never change.
struct Shape {
  nc_type type = NC_NAT;
  std::size_t element = 0;
  std::vector<std::uint64_t> lengths;
  bool record = false;
};

class Variables {
 public:
  Variables(const RealLibrary& lib, int ncid) : lib_(lib), ncid_(ncid) {}

  /// Null: there is no such variable.
  const Shape* of(int variable);
  /// -1: there is none.
  [[nodiscard]] int record_dimension() const;
  /// The bytes that this variable is filled with; false: there is a `_FillValue` of another type.
  bool fill_value(int variable, Bytes& value);

 private:
  const RealLibrary& lib_;
  const int ncid_;
  std::vector<Shape> shapes_;
};

}  // namespace advectio::pnetcdf
