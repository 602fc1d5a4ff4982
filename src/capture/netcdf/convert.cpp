#include "capture/netcdf/convert.h"

#include <cstdint>
#include <string>

#include "core/schema.h"

namespace advectio::netcdf {
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
    case FileFormat::netcdf4:
    case FileFormat::zarr:
    case FileFormat::bp5:
    case FileFormat::sst: break;
  }
  return NC_NETCDF4;
}

}  // namespace

Converter::~Converter() {
  for (const auto& s : scratches()) lib_.nc_close(s.id);
}

int Converter::make_scratch(nc_type type, const Bytes& fill, int& ncid) {
  const std::string name = "advectio-scratch-" + std::to_string(reinterpret_cast<std::uintptr_t>(this)) + "-" +
                           std::to_string(scratches().size());
  int code = lib_.nc_create(name.c_str(), creation_mode(format_) | NC_DISKLESS, &ncid);
  if (code != NC_NOERR) return code;
  int dimension = 0, variable = 0;
  code = lib_.nc_set_fill(ncid, NC_NOFILL, nullptr);
  if (code == NC_NOERR) code = lib_.nc_def_dim(ncid, "n", elements_max, &dimension);
  if (code == NC_NOERR) code = lib_.nc_def_var(ncid, "v", type, 1, &dimension, &variable);
  if (code == NC_NOERR && !fill.empty()) code = lib_.nc_put_att(ncid, variable, "_FillValue", type, 1, fill.data());
  if (code == NC_NOERR) code = lib_.nc_enddef(ncid);
  if (code != NC_NOERR) lib_.nc_close(ncid);
  return code;
}

int Converter::through_scratch(int ncid, const void* from, nc_type memory, void* to, nc_type type, std::size_t elements,
                               const Bytes& fill) {
  const std::size_t start = 0;
  int put = put_as(lib_, ncid, memory, &start, &elements, from);
  if (put == NC_ERANGE) {
    // Some builds leave an element alone whose value does not fit (4.9.0: signed char to unsigned
    // int). In the program's variable it then keeps the fill value, as a rule. Here an earlier
    // conversion may have left another.
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

}  // namespace advectio::netcdf
