// Where a block of a call is, in the variable and in the program's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/dataset.h"
#include "capture/pnetcdf/request.h"
#include "capture/pnetcdf/variables.h"
#include "core/box.h"
#include "core/schema.h"

namespace advectio::pnetcdf {

struct Place {
  Box box;
  std::vector<std::uint64_t> stride;
  std::vector<MPI_Offset> map;
  std::uint64_t records = 0;
};

/// False: the call may not be right. `read`: within the records that there are.
bool find_place(const Request& request, const Shape& variable, FileFormat format, SharedDataset& dataset, Place& to,
                bool read = false);

/// The memory of a call holds as many elements as its place, of a type that can go there.
bool memory_fits(const shadow::Mpi& mpi, const MemoryType& memory, const Shape& variable, std::uint64_t elements,
                 nc_type& type);

/// Its place has no elements, wherever it is.
bool names_nothing(const Request& request, std::size_t rank) noexcept;
/// A flexible call with no elements of memory. Calls that are not collective then do nothing.
bool says_nothing(const shadow::Mpi& mpi, const MemoryType& memory) noexcept;

}  // namespace advectio::pnetcdf
