// PnetCDF's calls that read metadata, as shadow/metadata.h asks for them.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/pnetcdf/real_library.h"
#include "capture/shadow/metadata.h"

namespace advectio::pnetcdf {

struct Calls {
  const RealLibrary& lib;
  int ncid;

  int dimension(int id, char* name, std::uint64_t& length) const {
    MPI_Offset n = 0;
    const int code = lib.ncmpi_inq_dim(ncid, id, name, &n);
    length = static_cast<std::uint64_t>(n);
    return code;
  }
  int variable(int id, char* name, int& type, std::vector<std::uint32_t>& dimensions) const {
    int rank = 0;
    if (const int code = lib.ncmpi_inq_var(ncid, id, name, &type, &rank, nullptr, nullptr); code != NC_NOERR)
      return code;
    std::vector<int> ids(static_cast<std::size_t>(rank));
    const int code = lib.ncmpi_inq_var(ncid, id, nullptr, nullptr, nullptr, ids.data(), nullptr);
    dimensions.assign(ids.begin(), ids.end());
    return code;
  }
  int attribute_count(int variable, int& count) const {
    return variable == NC_GLOBAL ? lib.ncmpi_inq(ncid, nullptr, nullptr, &count, nullptr)
                                 : lib.ncmpi_inq_varnatts(ncid, variable, &count);
  }
  int attribute_name(int variable, int number, char* name) const {
    return lib.ncmpi_inq_attname(ncid, variable, number, name);
  }
  int attribute(int variable, const char* name, int& type, std::uint64_t& count) const {
    MPI_Offset n = 0;
    const int code = lib.ncmpi_inq_att(ncid, variable, name, &type, &n);
    count = static_cast<std::uint64_t>(n);
    return code;
  }
  int attribute_values(int variable, const char* name, void* values) const {
    return lib.ncmpi_get_att(ncid, variable, name, values);
  }
};
static_assert(NC_MAX_NAME == shadow::name_max && NC_EBADTYPE == shadow::bad_type);

}  // namespace advectio::pnetcdf
