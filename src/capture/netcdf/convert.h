// Values of the program's type into the variable's, exactly as the real library does it: what cannot be in doubt by
// hand, everything else by letting the library write and read back a small dataset in memory.
#pragma once

#include <cstddef>
#include <vector>

#include "capture/netcdf/real_library.h"
#include "core/bytes.h"
#include "core/types.h"

namespace advectio {

class Converter {
 public:
  Converter(const RealLibrary& lib, FileFormat format) : lib_(lib), format_(format) {}
  ~Converter();
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;

  /// The most elements of one call.
  static constexpr std::size_t elements_max = 65536;

  /// `fill` is the variable's own fill value, or empty: some builds put it in the place of values out of range.
  /// NC_ERANGE: some values do not fit; all were converted all the same.
  int convert(const void* from, nc_type memory, void* to, nc_type type, std::size_t elements, const Bytes& fill);

 private:
  struct Scratch {
    int ncid = -1;
    nc_type type = NC_NAT;
    Bytes fill;
  };
  int scratch_for(nc_type type, const Bytes& fill, int& ncid);

  const RealLibrary& lib_;
  const FileFormat format_;
  std::vector<Scratch> scratch_;
};

/// Bytes of one element in memory; 0 where there is no fixed size.
std::size_t memory_size(nc_type type) noexcept;

}  // namespace advectio
