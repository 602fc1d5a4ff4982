#include "capture/pnetcdf/convert.h"

#include <unistd.h>

namespace advectio::pnetcdf {

MPI_Datatype mpi_type(const shadow::Mpi& mpi, nc_type type) noexcept {
  switch (type) {
    case NC_CHAR: return mpi.character;
    case NC_BYTE: return mpi.signed_char;
    case NC_UBYTE: return mpi.unsigned_char;
    case NC_SHORT: return mpi.short_int;
    case NC_USHORT: return mpi.unsigned_short;
    case NC_INT: return mpi.integer;
    case NC_UINT: return mpi.unsigned_int;
    case NC_FLOAT: return mpi.real;
    case NC_DOUBLE: return mpi.double_real;
    case NC_INT64: return mpi.long_long;
    case NC_UINT64: return mpi.unsigned_long_long;
    default: return mpi.null_type;
  }
}

Converter::~Converter() {
  close(true);
}

void Converter::close(bool mpi_lives) noexcept {
  if (ncid_ < 0) return;
  if (mpi_lives) lib_.ncmpi_close(ncid_);
  ncid_ = -1;
  unlink(path_.c_str());
}

int Converter::make_scratch(nc_type type, const Bytes& fill, int& id) {
  int code = NC_NOERR, dimension = 0;
  if (ncid_ < 0) {
    const int mode = format_ == FileFormat::cdf5       ? NC_64BIT_DATA
                     : format_ == FileFormat::offset64 ? NC_64BIT_OFFSET
                                                       : 0;
    code = lib_.ncmpi_create(lib_.mpi.self, path_.c_str(), mode, lib_.mpi.no_info, &ncid_);
    if (code != NC_NOERR) {
      ncid_ = -1;
      return code;
    }
    code = lib_.ncmpi_def_dim(ncid_, "n", elements_max, &dimension);
  } else {
    code = lib_.ncmpi_redef(ncid_);
  }
  const std::string name = "v" + std::to_string(scratches().size());
  if (code == NC_NOERR) code = lib_.ncmpi_def_var(ncid_, name.c_str(), type, 1, &dimension, &id);
  if (code == NC_NOERR && !fill.empty()) code = lib_.ncmpi_put_att(ncid_, id, "_FillValue", type, 1, fill.data());
  if (code == NC_NOERR) code = lib_.ncmpi_enddef(ncid_);
  return code;
}

int Converter::through_scratch(int id, const void* from, nc_type memory, void* to, nc_type type, std::size_t elements,
                               const Bytes& /*fill*/) {
  const MPI_Offset start = 0, count = static_cast<MPI_Offset>(elements);
  const int put = lib_.ncmpi_put_vara_all(ncid_, id, &start, &count, from, count, mpi_type(lib_.mpi, memory));
  if (put != NC_NOERR && put != NC_ERANGE) return put;
  const int got = lib_.ncmpi_get_vara_all(ncid_, id, &start, &count, to, count, mpi_type(lib_.mpi, type));
  return got != NC_NOERR ? got : put;
}

}  // namespace advectio::pnetcdf
