// Data on its way out: straight from the program's memory into the dataset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "capture/dataset.h"
#include "capture/pnetcdf/convert.h"
#include "capture/pnetcdf/place.h"
#include "capture/pnetcdf/variables.h"
#include "capture/shadow/stall.h"

namespace advectio::pnetcdf {

class Puts {
 public:
  /// `scratch`: a path that nobody else uses, in memory.
  Puts(const RealLibrary& lib, const FileFormat& format, const std::string& scratch, Variables& variables,
       SharedDataset& out, shadow::StallClock& stall)
      : lib_(lib), variables_(variables), out_(out), stall_(stall), converter_(lib, format, scratch) {}

  /// The call has been found right. `type`: of its elements in memory.
  int send(const Request& request, const Shape& variable, const Place& place, nc_type type);
  /// The same of many boxes, whose elements lie one behind the other.
  int send_boxes(int variable, const Shape& shape, const BoxList& boxes, const std::byte* data, nc_type type);
  /// Fill this rank's share of a record. The elements are divided as the library does it: ranks may
  /// name different records.
  int send_fill(int variable, std::uint64_t record, int rank, int ranks);
  /// MPI is about to end, or has.
  void close(bool mpi_lives) noexcept { converter_.close(mpi_lives); }

 private:
  int send_converted(int variable, const Shape& shape, const Place& place, const std::byte* data, nc_type type);
  /// As the file has them. `code`: NC_ERANGE where some do not fit.
  std::vector<std::byte> converted(int variable, const Shape& shape, std::uint64_t elements, const std::byte* data,
                                   nc_type type, int& code);

  const RealLibrary& lib_;
  Variables& variables_;
  SharedDataset& out_;
  shadow::StallClock& stall_;
  Converter converter_;
};

}  // namespace advectio::pnetcdf
