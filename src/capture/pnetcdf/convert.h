// Conversions as PnetCDF makes them. All scratch variables are in one small file of this rank's
// own.
#pragma once

#include <string>
#include <utility>

#include "capture/pnetcdf/real_library.h"
#include "capture/shadow/conversion.h"

namespace advectio::pnetcdf {

using shadow::memory_size;

class Converter : public shadow::Converter<Converter> {
 public:
  /// `format`: of the dataset, whose rules count. `scratch`: a path that nobody else uses, in
  /// memory.
  Converter(const RealLibrary& lib, const FileFormat& format, std::string scratch)
      : lib_(lib), format_(format), path_(std::move(scratch)) {}
  ~Converter();
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;

  /// MPI is about to end, or has.
  void close(bool mpi_lives) noexcept;

 private:
  friend shadow::Converter<Converter>;
  int make_scratch(nc_type type, const Bytes& fill, int& id);
  int through_scratch(int id, const void* from, nc_type memory, void* to, nc_type type, std::size_t elements,
                      const Bytes& fill);

  const RealLibrary& lib_;
  const FileFormat& format_;
  const std::string path_;
  int ncid_ = -1;
};

/// The MPI type of elements of that type in memory.
MPI_Datatype mpi_type(const shadow::Mpi& mpi, nc_type type) noexcept;

}  // namespace advectio::pnetcdf
