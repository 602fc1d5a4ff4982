#include "capture/pnetcdf/place.h"

#include <algorithm>
#include <climits>

#include "capture/pnetcdf/convert.h"

namespace advectio::pnetcdf {

bool find_place(const Request& r, const Shape& v, FileFormat format, SharedDataset& dataset, Place& to, bool read) {
  const std::size_t rank = v.lengths.size();
  to.box.start.assign(rank, 0);
  to.box.count.assign(rank, 1);
  to.stride.clear();
  to.map.clear();
  to.records = 0;
  if (rank == 0) return true;
  if (r.form == Form::var) {
    to.box.count = v.lengths;
    if (v.record) to.box.count[0] = dataset.records();
  } else {
    if (r.start == nullptr || (r.form != Form::var1 && r.count == nullptr)) return false;
    for (std::size_t i = 0; i < rank; ++i) {
      const MPI_Offset start = r.start[i], count = r.form == Form::var1 ? 1 : r.count[i];
      const MPI_Offset stride = r.stride != nullptr ? r.stride[i] : 1;
      if (start < 0 || count < 0 || stride <= 0) return false;
      if (i == 0 && v.record) {
        if (format != FileFormat::cdf5 && start > static_cast<MPI_Offset>(UINT_MAX)) return false;
      }
      if (i > 0 || !v.record || read) {
        const auto length = static_cast<MPI_Offset>(i == 0 && v.record ? dataset.records() : v.lengths[i]);
        if (start >= length || count > length - start) return false;
        if (count > 0 && (length - 1 - start) / stride < count - 1) return false;
      }
      to.box.start[i] = static_cast<std::uint64_t>(start);
      to.box.count[i] = static_cast<std::uint64_t>(count);
      if (stride != 1) to.stride.resize(rank, 1);
      if (stride != 1) to.stride[i] = static_cast<std::uint64_t>(stride);
    }
    if (r.map != nullptr) to.map.assign(r.map, r.map + rank);
  }
  if (v.record && to.box.count[0] > 0)
    to.records = to.box.start[0] + (to.box.count[0] - 1) * (to.stride.empty() ? 1 : to.stride[0]) + 1;
  return true;
}

namespace {
/// The one type that a datatype is made of. False: it is made of several, or of one that netCDF
/// does not have.
bool element_type(const shadow::Mpi& mpi, MPI_Datatype datatype, nc_type& type) {
#define ADVECTIO_IS(NAME, MPI_NAME, SYMBOL, TYPE)           \
  if (datatype == mpi.NAME && datatype != MPI_Datatype{}) { \
    type = TYPE;                                            \
    return true;                                            \
  }
  ADVECTIO_MPI_TYPES(ADVECTIO_IS)
#undef ADVECTIO_IS
  int integers = 0, addresses = 0, datatypes = 0, combiner = 0;
  if (mpi.MPI_Type_get_envelope(datatype, &integers, &addresses, &datatypes, &combiner) != MPI_SUCCESS) return false;
  if (datatypes == 0) return false;  // a predefined one that is none of ours
  std::vector<int> i(static_cast<std::size_t>(integers));
  std::vector<MPI_Aint> a(static_cast<std::size_t>(addresses));
  std::vector<MPI_Datatype> parts(static_cast<std::size_t>(datatypes));
  if (mpi.MPI_Type_get_contents(datatype, integers, addresses, datatypes, i.data(), a.data(), parts.data()) !=
      MPI_SUCCESS)
    return false;
  bool one = true;
  nc_type first = NC_NAT;
  for (auto part : parts) {
    nc_type found = NC_NAT;
    one = one && element_type(mpi, part, found) && (first == NC_NAT || found == first);
    first = found;
    int n[3] = {0, 0, 0};
    if (mpi.MPI_Type_get_envelope(part, &n[0], &n[1], &n[2], &combiner) == MPI_SUCCESS && n[2] > 0)
      mpi.MPI_Type_free(&part);  // a handle of our own
  }
  type = first;
  return one;
}
}  // namespace

bool memory_fits(const shadow::Mpi& mpi, const MemoryType& memory, const Shape& v, std::uint64_t elements,
                 nc_type& type) {
  type = memory.type;
  if (type == NC_NAT && memory.datatype == mpi.null_type) type = v.type;
  if (type == NC_NAT) {
    if (!element_type(mpi, memory.datatype, type)) return false;
    int bytes = 0;
    // -1: whatever fills the block. No other number is negative.
    if (memory.count != -1) {
      if (memory.count < 0 || memory.count > INT_MAX || mpi.MPI_Type_size(memory.datatype, &bytes) != MPI_SUCCESS)
        return false;
      if (static_cast<std::uint64_t>(bytes) * static_cast<std::uint64_t>(memory.count) != elements * memory_size(type))
        return false;
    }
  }
  return (type == NC_CHAR) == (v.type == NC_CHAR);
}

/// There are none along some dimension.
bool names_nothing(const Request& r, std::size_t rank) noexcept {
  if (r.form == Form::var || r.form == Form::var1 || r.count == nullptr) return false;
  return std::any_of(r.count, r.count + rank, [](MPI_Offset n) { return n == 0; });
}

bool says_nothing(const shadow::Mpi& mpi, const MemoryType& memory) noexcept {
  return memory.type == NC_NAT && memory.datatype != mpi.null_type && memory.count == 0;
}

}  // namespace advectio::pnetcdf
