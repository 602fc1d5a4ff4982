// nc_get_var, var1, vara, vars, varm, of every type: on a dataset of ours they read the file
// itself.
#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/open_files.h"

namespace advectio::netcdf {

// WHOLE: lengths count. PLACED: where to read from is not left out. PLACE: a ReadPlace.
#define ADVECTIO_GET(F, NUMBER, WHOLE, PLACED, PLACE, ...)                                                \
  ADVECTIO_ENTER;                                                                                         \
  auto* file = entry.find(ncid);                                                                          \
  if (file != nullptr && file->must_be_taken_over_to_read()) {                                            \
    if (const int code = take_over(*file); code != NC_NOERR) return code;                                 \
    file = nullptr;                                                                                       \
  }                                                                                                       \
  if (file == nullptr) return ADVECTIO_REAL(F, ncid, varid, __VA_ARGS__);                                 \
  const CapturedFile::Reading from = file->read(varid, NUMBER, WHOLE, PLACED, ReadPlace PLACE);           \
  if (from.ask_shadow) {                                                                                  \
    file->shadow().end_pending();                                                                         \
    const int code = ADVECTIO_REAL(F, ncid, varid, __VA_ARGS__);                                          \
    if (from.forbidden && (PLACED) && (code == NC_EINVALCOORDS || code == NC_EEDGE)) return NC_EINDEFINE; \
    return code != NC_NOERR ? code : from.code;                                                           \
  }                                                                                                       \
  if (from.code != NC_NOERR) return from.code;                                                            \
  return ADVECTIO_REAL(F, from.ncid, from.variable, __VA_ARGS__)

#define ADVECTIO_GETS(SUFFIX, TYPE, NUMBER)                                                                        \
  ADVECTIO_EXPORT int nc_get_var##SUFFIX(int ncid, int varid, TYPE* data) try {                                    \
    ADVECTIO_GET(nc_get_var##SUFFIX, NUMBER, true, true, ({}), data);                                              \
  }                                                                                                                \
  ADVECTIO_GUARDED                                                                                                 \
  ADVECTIO_EXPORT int nc_get_var1##SUFFIX(int ncid, int varid, const size_t* index, TYPE* data) try {              \
    ADVECTIO_GET(nc_get_var1##SUFFIX, NUMBER, false, index != nullptr, ({index, nullptr, nullptr, true}), index,   \
                 data);                                                                                            \
  }                                                                                                                \
  ADVECTIO_GUARDED                                                                                                 \
  ADVECTIO_EXPORT int nc_get_vara##SUFFIX(int ncid, int varid, const size_t* start, const size_t* count,           \
                                          TYPE* data) try {                                                        \
    ADVECTIO_GET(nc_get_vara##SUFFIX, NUMBER, count == nullptr, start != nullptr, ({start, count}), start, count,  \
                 data);                                                                                            \
  }                                                                                                                \
  ADVECTIO_GUARDED                                                                                                 \
  ADVECTIO_EXPORT int nc_get_vars##SUFFIX(int ncid, int varid, const size_t* start, const size_t* count,           \
                                          const ptrdiff_t* stride, TYPE* data) try {                               \
    ADVECTIO_GET(nc_get_vars##SUFFIX, NUMBER, count == nullptr, start != nullptr, ({start, count, stride}), start, \
                 count, stride, data);                                                                             \
  }                                                                                                                \
  ADVECTIO_GUARDED                                                                                                 \
  ADVECTIO_EXPORT int nc_get_varm##SUFFIX(int ncid, int varid, const size_t* start, const size_t* count,           \
                                          const ptrdiff_t* stride, const ptrdiff_t* map, TYPE* data) try {         \
    ADVECTIO_GET(nc_get_varm##SUFFIX, NUMBER, count == nullptr, start != nullptr, ({start, count, stride}), start, \
                 count, stride, map, data);                                                                        \
  }                                                                                                                \
  ADVECTIO_GUARDED

#define ADVECTIO_TYPED_GETS(SUFFIX, PUT, GET, NUMBER) ADVECTIO_GETS(_##SUFFIX, GET, NUMBER)

ADVECTIO_GETS(, void, NC_NAT)
ADVECTIO_MEMORY_TYPES(ADVECTIO_TYPED_GETS)

}  // namespace advectio::netcdf
