// nc_put_var, var1, vara, vars, varm, of every type.
#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/open_files.h"

namespace advectio::netcdf {

// One exported function: a call on a dataset of ours is described and put; where it cannot be right
// the shadow is asked for the code, with the same call, and its answer counts unless it finds
// nothing wrong.
#define ADVECTIO_PUT(F, call_of, ...)                                     \
  ADVECTIO_ENTER;                                                         \
  auto* file = entry.find(ncid);                                          \
  if (entry.interrupted(ncid) != nullptr) return refuse_put();            \
  if (file != nullptr && file->inherited()) {                             \
    if (const int code = take_over(*file); code != NC_NOERR) return code; \
    file = nullptr;                                                       \
  }                                                                       \
  if (file == nullptr) return ADVECTIO_REAL(F, __VA_ARGS__);              \
  const PutAnswer answer = file->put(PutCall call_of);                    \
  if (!answer.ask_shadow) return answer.code;                             \
  file->shadow().end_pending();                                           \
  const int code = ADVECTIO_REAL(F, __VA_ARGS__);                         \
  return code != NC_NOERR ? code : answer.code

#define ADVECTIO_PUTS(SUFFIX, TYPE, NUMBER)                                                                           \
  ADVECTIO_EXPORT int nc_put_var##SUFFIX(int ncid, int varid, TYPE* data) try {                                       \
    ADVECTIO_PUT(nc_put_var##SUFFIX, ({PutCall::Form::var, varid, nullptr, nullptr, nullptr, nullptr, data, NUMBER}), \
                 ncid, varid, data);                                                                                  \
  }                                                                                                                   \
  ADVECTIO_GUARDED                                                                                                    \
  ADVECTIO_EXPORT int nc_put_var1##SUFFIX(int ncid, int varid, const size_t* index, TYPE* data) try {                 \
    ADVECTIO_PUT(nc_put_var1##SUFFIX, ({PutCall::Form::var1, varid, index, nullptr, nullptr, nullptr, data, NUMBER}), \
                 ncid, varid, index, data);                                                                           \
  }                                                                                                                   \
  ADVECTIO_GUARDED                                                                                                    \
  ADVECTIO_EXPORT int nc_put_vara##SUFFIX(int ncid, int varid, const size_t* start, const size_t* count,              \
                                          TYPE* data) try {                                                           \
    ADVECTIO_PUT(nc_put_vara##SUFFIX, ({PutCall::Form::vara, varid, start, count, nullptr, nullptr, data, NUMBER}),   \
                 ncid, varid, start, count, data);                                                                    \
  }                                                                                                                   \
  ADVECTIO_GUARDED                                                                                                    \
  ADVECTIO_EXPORT int nc_put_vars##SUFFIX(int ncid, int varid, const size_t* start, const size_t* count,              \
                                          const ptrdiff_t* stride, TYPE* data) try {                                  \
    ADVECTIO_PUT(nc_put_vars##SUFFIX, ({PutCall::Form::vars, varid, start, count, stride, nullptr, data, NUMBER}),    \
                 ncid, varid, start, count, stride, data);                                                            \
  }                                                                                                                   \
  ADVECTIO_GUARDED                                                                                                    \
  ADVECTIO_EXPORT int nc_put_varm##SUFFIX(int ncid, int varid, const size_t* start, const size_t* count,              \
                                          const ptrdiff_t* stride, const ptrdiff_t* map, TYPE* data) try {            \
    ADVECTIO_PUT(nc_put_varm##SUFFIX, ({PutCall::Form::varm, varid, start, count, stride, map, data, NUMBER}), ncid,  \
                 varid, start, count, stride, map, data);                                                             \
  }                                                                                                                   \
  ADVECTIO_GUARDED

#define ADVECTIO_TYPED_PUTS(SUFFIX, PUT, GET, NUMBER) ADVECTIO_PUTS(_##SUFFIX, PUT, NUMBER)

ADVECTIO_PUTS(, const void, NC_NAT)
ADVECTIO_MEMORY_TYPES(ADVECTIO_TYPED_PUTS)

}  // namespace advectio::netcdf
