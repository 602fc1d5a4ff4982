// Data on its way out: straight from the program's memory into the dataset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "capture/dataset.h"
#include "capture/netcdf/convert.h"
#include "capture/netcdf/placement.h"
#include "capture/netcdf/reader.h"
#include "capture/shadow/stall.h"
#include "core/schema.h"

namespace advectio::netcdf {

/// The blocks of a dataset, and how far they reach in each variable. What is put goes into the
/// reader's copy, too.
class Puts {
 public:
  /// Behind the last element in each dimension, of a variable that was put.
  using Ends = std::optional<std::vector<std::size_t>>;

  Puts(const RealLibrary& lib, FileFormat format, CapturedDataset& out, shadow::StallClock& stall, Reader& reader)
      : out_(out), stall_(stall), reader_(reader), converter_(lib, format) {}

  /// Values of that type in memory are converted.
  [[nodiscard]] static bool converts(const Shape& variable, nc_type memory) noexcept {
    return memory != variable.type && variable.type != NC_STRING;
  }
  /// The call has been found right. `fill`: the variable's own fill value, where values are
  /// converted.
  int send(const PutCall& call, const Shape& variable, nc_type memory, const Placement& place, const Bytes* fill);
  /// The box is filled with one value.
  int send_fill(int variable, const Variable& description, const Box& box);
  /// It has been sent, up to the end of the place and to that of `least` elements.
  void note(int variable, const Placement& place, std::size_t least = 0);

  [[nodiscard]] bool any() const noexcept { return any_; }
  /// Of each variable. Shorter than their list: the rest was not put.
  [[nodiscard]] const std::vector<Ends>& ends() const noexcept { return ends_; }

 private:
  int send_strings(const PutCall& call, const Box& box, const std::vector<std::uint64_t>& stride);
  int send_converted(const PutCall& call, const Shape& variable, nc_type memory, const Placement& place,
                     const std::vector<std::uint64_t>& stride, const Bytes& fill);

  CapturedDataset& out_;
  shadow::StallClock& stall_;
  Reader& reader_;
  Converter converter_;
  bool any_ = false;
  std::vector<Ends> ends_;
};

}  // namespace advectio::netcdf
