#include "capture/netcdf/convert.h"

#include <cstdint>
#include <string>

#include "capture/exact_conversion.h"

#include "core/schema.h"

namespace advectio {
namespace {

int put_as(const RealLibrary& lib, int ncid, nc_type memory, const std::size_t* start, const std::size_t* count,
           const void* from) {
  switch (memory) {
#define ADVECTIO_PUT(T, type) \
  case type:                  \
    return lib.nc_put_vara_##T(ncid, 0, start, count, static_cast<const ADVECTIO_TYPE_##T*>(from));
#define ADVECTIO_TYPE_schar signed char
#define ADVECTIO_TYPE_uchar unsigned char
#define ADVECTIO_TYPE_short short
#define ADVECTIO_TYPE_ushort unsigned short
#define ADVECTIO_TYPE_int int
#define ADVECTIO_TYPE_uint unsigned int
#define ADVECTIO_TYPE_longlong long long
#define ADVECTIO_TYPE_ulonglong unsigned long long
#define ADVECTIO_TYPE_float float
#define ADVECTIO_TYPE_double double
    ADVECTIO_PUT(schar, NC_BYTE)
    ADVECTIO_PUT(uchar, NC_UBYTE)
    ADVECTIO_PUT(short, NC_SHORT)
    ADVECTIO_PUT(ushort, NC_USHORT)
    ADVECTIO_PUT(int, NC_INT)
    ADVECTIO_PUT(uint, NC_UINT)
    ADVECTIO_PUT(longlong, NC_INT64)
    ADVECTIO_PUT(ulonglong, NC_UINT64)
    ADVECTIO_PUT(float, NC_FLOAT)
    ADVECTIO_PUT(double, NC_DOUBLE)
#undef ADVECTIO_PUT
    default: return NC_EBADTYPE;
  }
}

int creation_mode(FileFormat format) {
  switch (format) {
    case FileFormat::classic: return 0;
    case FileFormat::offset64: return NC_64BIT_OFFSET;
    case FileFormat::cdf5: return NC_64BIT_DATA;
    case FileFormat::netcdf4_classic: return NC_NETCDF4 | NC_CLASSIC_MODEL;
    case FileFormat::netcdf4: break;
  }
  return NC_NETCDF4;
}

}  // namespace

std::size_t memory_size(nc_type type) noexcept {
  return is_known(static_cast<DataType>(type)) ? size_of(static_cast<DataType>(type)) : 0;
}

Converter::~Converter() {
  for (const auto& s : scratch_) lib_.nc_close(s.ncid);
}

int Converter::scratch_for(nc_type type, const Bytes& fill, int& ncid) {
  for (const auto& s : scratch_) {
    if (s.type != type || s.fill != fill) continue;
    ncid = s.ncid;
    return NC_NOERR;
  }
  const std::string name = "advectio-scratch-" + std::to_string(reinterpret_cast<std::uintptr_t>(this)) + "-" +
                           std::to_string(scratch_.size());
  Scratch scratch{-1, type, fill};
  int code = lib_.nc_create(name.c_str(), creation_mode(format_) | NC_DISKLESS, &scratch.ncid);
  if (code != NC_NOERR) return code;
  int dimension = 0, variable = 0;
  code = lib_.nc_set_fill(scratch.ncid, NC_NOFILL, nullptr);
  if (code == NC_NOERR) code = lib_.nc_def_dim(scratch.ncid, "n", elements_max, &dimension);
  if (code == NC_NOERR) code = lib_.nc_def_var(scratch.ncid, "v", type, 1, &dimension, &variable);
  if (code == NC_NOERR && !fill.empty())
    code = lib_.nc_put_att(scratch.ncid, variable, "_FillValue", type, 1, fill.data());
  if (code == NC_NOERR) code = lib_.nc_enddef(scratch.ncid);
  if (code != NC_NOERR) {
    lib_.nc_close(scratch.ncid);
    return code;
  }
  ncid = scratch.ncid;
  scratch_.push_back(std::move(scratch));
  return NC_NOERR;
}

int Converter::convert(const void* from, nc_type memory, void* to, nc_type type, std::size_t elements,
                       const Bytes& fill) {
  if (convert_exactly(from, static_cast<DataType>(memory), to, static_cast<DataType>(type), elements)) return NC_NOERR;
  int ncid = -1;
  if (const int code = scratch_for(type, fill, ncid); code != NC_NOERR) return code;
  const std::size_t start = 0;
  int put = put_as(lib_, ncid, memory, &start, &elements, from);
  if (put == NC_ERANGE) {
    // Some builds leave an element alone whose value does not fit (4.9.0: signed char to unsigned int). Here that is
    // what an earlier conversion left; in the program's variable, as a rule, the fill value.
    Bytes filled;
    const Bytes one = fill.empty() ? default_fill(static_cast<DataType>(type)) : fill;
    for (std::size_t i = 0; i < elements; ++i) filled.insert(filled.end(), one.begin(), one.end());
    put = lib_.nc_put_vara(ncid, 0, &start, &elements, filled.data());
    if (put == NC_NOERR) put = put_as(lib_, ncid, memory, &start, &elements, from);
  }
  if (put != NC_NOERR && put != NC_ERANGE) return put;
  const int got = lib_.nc_get_vara(ncid, 0, &start, &elements, to);
  return got != NC_NOERR ? got : put;
}

}  // namespace advectio
