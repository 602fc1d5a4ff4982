// The place of a put call, and the library's objections to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/netcdf/shapes.h"
#include "core/box.h"

namespace advectio::netcdf {

/// One nc_put_var* call. A field that the form lacks is null.
struct PutCall {
  enum class Form : std::uint8_t { var, var1, vara, vars, varm };
  Form form = Form::vara;
  int variable = -1;
  const std::size_t* start = nullptr;
  const std::size_t* count = nullptr;
  const std::ptrdiff_t* stride = nullptr;
  const std::ptrdiff_t* map = nullptr;  ///< in elements
  const void* data = nullptr;
  nc_type memory = NC_NAT;  ///< NC_NAT: as the variable
};

/// Of the put under way. One object serves all puts of a dataset, to spare allocations.
class Placement {
 public:
  Placement(Shapes& shapes, bool classic_format) : shapes_(shapes), classic_format_(classic_format) {}

  /// Fill in the place, and check it in the library's order: a call may be wrong in several ways.
  /// Returns the library's code. `ask_shadow`: the shadow knows a better one.
  int of(const PutCall& call, const Shape& variable, nc_type memory, bool& ask_shadow);

  [[nodiscard]] const Box& box() const noexcept { return box_; }
  [[nodiscard]] const std::vector<std::uint64_t>& stride() const noexcept { return stride_; }
  [[nodiscard]] bool strides_are_ones() const noexcept;
  /// Some elements of the call lie outside, and `box` is what lies inside. The library writes
  /// those, and the call fails. `map` then tells where they are in the program's memory.
  [[nodiscard]] bool clipped() const noexcept { return clipped_; }
  [[nodiscard]] const std::ptrdiff_t* map() const noexcept { return map_.data(); }
  /// Index behind the last element along that dimension of the box, which is not empty.
  [[nodiscard]] std::uint64_t end(std::size_t i) const noexcept {
    return box_.start[i] + (box_.count[i] - 1) * stride_[i] + 1;
  }

 private:
  int vara_hdf5(const Shape& variable) const;
  int vara_classic(const Shape& variable) const;
  int vars_classic(const Shape& variable, const PutCall& call);
  int varm(const Shape& variable, const PutCall& call);
  void clip(const Shape& variable, const PutCall& call);

  Shapes& shapes_;
  const bool classic_format_;
  Box box_;
  std::vector<std::uint64_t> stride_;
  std::vector<std::ptrdiff_t> map_;
  bool clipped_ = false;
};

}  // namespace advectio::netcdf
