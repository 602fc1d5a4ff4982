// A call of the program that puts or gets, and what is answered.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/pnetcdf/real_library.h"

namespace advectio::pnetcdf {

enum class Form : std::uint8_t { var, var1, vara, vars, varm };
enum class Mode : std::uint8_t {
  independent,
  collective,
  posted,    ///< iput, iget
  buffered,  ///< bput
};

/// The program's memory, by the arguments of a typed or a flexible call.
struct MemoryType {
  nc_type type = NC_NAT;  ///< of the elements; NC_NAT: flexible, see `datatype`
  MPI_Offset count = -1;
  MPI_Datatype datatype{};
};

/// One block of a call. A field that the form lacks is null.
struct Request {
  Form form = Form::vara;
  int variable = -1;
  const MPI_Offset* start = nullptr;
  const MPI_Offset* count = nullptr;
  const MPI_Offset* stride = nullptr;
  const MPI_Offset* map = nullptr;  ///< in elements
  const void* data = nullptr;
  MemoryType memory;
  bool one_of_many = false;  ///< of an mput or mget call, which the library makes of posted ones
};

struct Answer {
  int code = NC_NOERR;
  /// The call may not be right. The shadow, asked the same, knows the library's own code for it.
  bool ask_shadow = false;
  /// It names no elements: where the shadow finds nothing wrong, nothing is to be done.
  bool nothing = false;
};

}  // namespace advectio::pnetcdf
