// Values of the program's type into the variable's, exactly as the real library does it: what cannot be in doubt by
// hand, everything else by letting the library write and read back a small file of this rank's own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "capture/pnetcdf/real_library.h"
#include "core/bytes.h"
#include "core/types.h"

namespace advectio {

class Converter {
 public:
  /// `scratch`: a path that nobody else uses, in memory.
  Converter(const RealLibrary& lib, FileFormat& format, std::string scratch)
      : lib_(lib), format_(format), scratch_(std::move(scratch)) {}
  ~Converter();
  Converter(const Converter&) = delete;
  Converter& operator=(const Converter&) = delete;

  /// The most elements of one call.
  static constexpr std::size_t elements_max = 65536;

  /// `fill` is the variable's own fill value, or empty: some builds put it in the place of values out of range.
  /// NC_ERANGE: some values do not fit; all were converted all the same.
  int convert(const void* from, nc_type memory, void* to, nc_type type, std::size_t elements, const Bytes& fill);
  /// MPI is about to end, or has.
  void close(bool mpi_lives) noexcept;

 private:
  struct Variable {
    nc_type type = NC_NAT;
    Bytes fill;
    int id = -1;
  };
  int variable_for(nc_type type, const Bytes& fill, int& id);

  const RealLibrary& lib_;
  const FileFormat& format_;
  const std::string scratch_;
  int ncid_ = -1;
  std::vector<Variable> variables_;
};

/// The MPI type of elements of that type in memory.
MPI_Datatype mpi_type(const Mpi& mpi, nc_type type) noexcept;
/// Bytes of one element in memory.
std::size_t memory_size(nc_type type) noexcept;

}  // namespace advectio
