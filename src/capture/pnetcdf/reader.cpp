#include "capture/pnetcdf/reader.h"

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

}  // namespace advectio::pnetcdf
