// Pieces of the parameter and argument lists of PnetCDF's families of functions, for the macros
// that define these.
#pragma once

#include "capture/pnetcdf/parallel_file.h"

// Typed calls have their type in their name, flexible ones in two more arguments.
#define ADVECTIO_TYPED_PARAMETERS
#define ADVECTIO_TYPED_ARGUMENTS
#define ADVECTIO_TYPED_MEMORY(NUMBER) \
  MemoryType {                        \
    NUMBER                            \
  }
#define ADVECTIO_FLEXIBLE_PARAMETERS , MPI_Offset bufcount, MPI_Datatype buftype
#define ADVECTIO_FLEXIBLE_ARGUMENTS , bufcount, buftype
#define ADVECTIO_FLEXIBLE_MEMORY(NUMBER) \
  MemoryType {                           \
    NC_NAT, bufcount, buftype            \
  }
#define ADVECTIO_TYPED_LISTS
#define ADVECTIO_TYPED_LIST_ARGUMENTS
#define ADVECTIO_TYPED_LIST_MEMORY(NUMBER) NUMBER, nullptr, nullptr
#define ADVECTIO_FLEXIBLE_LISTS , const MPI_Offset *bufcounts, const MPI_Datatype *buftypes
#define ADVECTIO_FLEXIBLE_LIST_ARGUMENTS , bufcounts, buftypes
#define ADVECTIO_FLEXIBLE_LIST_MEMORY(NUMBER) NC_NAT, bufcounts, buftypes

// Lists of parameters and arguments travel through the macros in parentheses.
#define ADVECTIO_BARE(...) __VA_ARGS__
#define ADVECTIO_START const MPI_Offset* start
#define ADVECTIO_COUNT const MPI_Offset* count
#define ADVECTIO_STRIDE const MPI_Offset* stride
#define ADVECTIO_MAP const MPI_Offset* map
#define ADVECTIO_LIST(NAME) MPI_Offset* const* NAME

namespace advectio::pnetcdf {

/// The blocks of an mput or mget call. A field that the form lacks is null.
struct Many {
  Form form;
  int count;
  const int* variables;
  MPI_Offset* const* starts;
  MPI_Offset* const* counts;
  MPI_Offset* const* strides;
  MPI_Offset* const* maps;
  const void* const* data;
};

inline std::vector<Request> requests_of(const Many& m, nc_type type, const MPI_Offset* counts,
                                        const MPI_Datatype* types) {
  std::vector<Request> all;
  for (int i = 0; i < m.count; ++i) {
    const auto of = [i](MPI_Offset* const* list) { return list != nullptr ? list[i] : nullptr; };
    MemoryType memory{type};
    if (type == NC_NAT) memory = {NC_NAT, counts[i], types[i]};
    all.push_back(
        {m.form, m.variables[i], of(m.starts), of(m.counts), of(m.strides), of(m.maps), m.data[i], memory, true});
  }
  return all;
}

}  // namespace advectio::pnetcdf
