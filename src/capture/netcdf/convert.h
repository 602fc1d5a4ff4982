// Conversions as netCDF-C makes them. A scratch variable is in a small dataset of its own, in
// memory.
#pragma once

#include "capture/netcdf/real_library.h"
#include "capture/shadow/conversion.h"

namespace advectio::netcdf {

using shadow::memory_size;

class Converter : public shadow::Converter<Converter> {
 public:
  /// `format`: of the dataset, whose rules count.
  Converter(const RealLibrary& lib, FileFormat format) : lib_(lib), format_(format) {}
  ~Converter();
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;

 private:
  friend shadow::Converter<Converter>;
  int make_scratch(nc_type type, const Bytes& fill, int& ncid);
  int through_scratch(int ncid, const void* from, nc_type memory, void* to, nc_type type, std::size_t elements,
                      const Bytes& fill);

  const RealLibrary& lib_;
  const FileFormat format_;
};

}  // namespace advectio::netcdf
