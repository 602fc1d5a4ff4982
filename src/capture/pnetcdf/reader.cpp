#include "capture/pnetcdf/reader.h"

#include <vector>

#include "capture/pnetcdf/convert.h"

namespace advectio::pnetcdf {

void Reader::close() {
  if (ncid_ < 0) return;
  lib_.ncmpi_close(ncid_);
  ncid_ = -1;
}

int Reader::open(SharedDataset& dataset, bool independent) {
  if (generation_ != dataset.generation()) close();
  if (ncid_ < 0) {
    if (const auto visible = dataset.wait_visible(); !visible.ok()) return code_of(visible);
    const auto& path = dataset.file_path();
    if (const int code = lib_.ncmpi_open(lib_.mpi.self, path.c_str(), NC_NOWRITE, lib_.mpi.no_info, &ncid_);
        code != NC_NOERR) {
      ncid_ = -1;
      return code;
    }
    generation_ = dataset.generation();
    independent_ = false;
    int dimension = -1;
    MPI_Offset records = 0;
    if (lib_.ncmpi_inq_unlimdim(ncid_, &dimension) == NC_NOERR && dimension >= 0)
      lib_.ncmpi_inq_dimlen(ncid_, dimension, &records);
    records_ = static_cast<std::uint64_t>(records);
  }
  if (independent_ != independent) {
    const int code = independent ? lib_.ncmpi_begin_indep_data(ncid_) : lib_.ncmpi_end_indep_data(ncid_);
    if (code != NC_NOERR) return code;
    independent_ = independent;
  }
  return NC_NOERR;
}

int Reader::variable(int variable) const {
  // By name: the server need not number the variables as the program does.
  char name[NC_MAX_NAME + 1] = {};
  int id = variable;
  if (lib_.ncmpi_inq_varname(shadow_, variable, name) == NC_NOERR) lib_.ncmpi_inq_varid(ncid_, name, &id);
  return id;
}

int Reader::get_records(const Request& r, const Shape& v, std::uint64_t records, bool collective) const {
  if (r.memory.type != NC_NAT && (r.memory.type == NC_CHAR) != (v.type == NC_CHAR)) return NC_ECHAR;
  const std::vector<MPI_Offset> start(v.lengths.size(), 0);
  std::vector<MPI_Offset> count(v.lengths.begin(), v.lengths.end());
  count[0] = static_cast<MPI_Offset>(records);
  const auto call = collective ? lib_.ncmpi_get_vara_all : lib_.ncmpi_get_vara;
  return call(ncid_, variable(r.variable), start.data(), count.data(), const_cast<void*>(r.data), r.memory.count,
              r.memory.type != NC_NAT ? mpi_type(lib_.mpi, r.memory.type) : r.memory.datatype);
}

int Reader::get(const PostedGet& get) const {
  const int there = variable(get.variable);
  const auto or_null = [](const std::vector<MPI_Offset>& v) { return v.empty() ? nullptr : v.data(); };
  if (!get.boxes) {
    // A scalar has no places, but the library looks at them.
    const MPI_Offset none = 0, one = 1;
    return lib_.ncmpi_get_varm_all(ncid_, there, get.start[0].empty() ? &none : get.start[0].data(),
                                   get.count[0].empty() ? &one : get.count[0].data(), or_null(get.stride),
                                   or_null(get.map), get.data, get.elements, get.datatype);
  }
  std::vector<MPI_Offset*> starts, counts;
  for (const auto& s : get.start) starts.push_back(const_cast<MPI_Offset*>(s.data()));
  for (const auto& c : get.count) counts.push_back(const_cast<MPI_Offset*>(c.data()));
  return lib_.ncmpi_get_varn_all(ncid_, there, static_cast<int>(starts.size()), starts.data(), counts.data(), get.data,
                                 get.elements, get.datatype);
}

}  // namespace advectio::pnetcdf
