// ncmpi_get_*, iget_* and mget_* of var, var1, vara, vars, varm and varn, of every type: on a
// dataset of ours they read the file itself. And the vard calls, whose places in the file only MPI
// knows.
#include "capture/pnetcdf/families.h"

namespace advectio::pnetcdf {

namespace {
constexpr Mode mode_all = Mode::collective, mode_ = Mode::independent;
}  // namespace

// A read that may not be right is made on the shadow, for the library's code; else on the file
// itself.
#define ADVECTIO_GET(F, READING, VARIABLE, ...)                              \
  ADVECTIO_ENTER;                                                            \
  auto* file = entry.find(ncid);                                             \
  if (file == nullptr) return ADVECTIO_REAL(F, ncid, VARIABLE, __VA_ARGS__); \
  auto from = file->READING;                                                 \
  if (from.ask_shadow) {                                                     \
    (void)file->end_pending();                                               \
    return ADVECTIO_REAL(F, ncid, VARIABLE, __VA_ARGS__);                    \
  }                                                                          \
  if (from.done || from.code != NC_NOERR) return from.code

#define ADVECTIO_ONE(FORM, T, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS)                                     \
  ADVECTIO_BLOCKING(ncmpi_get_##FORM##T, mode_, FORM, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS)             \
  ADVECTIO_BLOCKING(ncmpi_get_##FORM##T##_all, mode_all, FORM, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS)    \
  ADVECTIO_EXPORT int ncmpi_iget_##FORM##T(int ncid, int varid ADVECTIO_BARE PARAMETERS,                            \
                                           TYPE* data ADVECTIO_##KIND##_PARAMETERS, int* request) try {             \
    ADVECTIO_POSTED(                                                                                                \
        ncmpi_iget_##FORM##T,                                                                                       \
        post_get(Request{Form::FORM, varid, ADVECTIO_BARE PLACE, data, ADVECTIO_##KIND##_MEMORY(NUMBER)}, request), \
        ncid, varid ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_ARGUMENTS, request);                            \
  }                                                                                                                 \
  ADVECTIO_GUARDED
#define ADVECTIO_BLOCKING(F, MODE, FORM, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS)                           \
  ADVECTIO_EXPORT int F(int ncid, int varid ADVECTIO_BARE PARAMETERS, TYPE* data ADVECTIO_##KIND##_PARAMETERS) try { \
    ADVECTIO_GET(                                                                                                    \
        F, read(MODE, {Request{Form::FORM, varid, ADVECTIO_BARE PLACE, data, ADVECTIO_##KIND##_MEMORY(NUMBER)}}),    \
        varid ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_ARGUMENTS);                                            \
    return ADVECTIO_REAL(F, from.ncid, from.variables[0] ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_ARGUMENTS); \
  }                                                                                                                  \
  ADVECTIO_GUARDED
#define ADVECTIO_BOXES(F, MODE, KIND, TYPE, NUMBER)                                                               \
  ADVECTIO_EXPORT int F(int ncid, int varid, int num, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts),               \
                        TYPE* data ADVECTIO_##KIND##_PARAMETERS) try {                                            \
    ADVECTIO_GET(F, read_boxes(MODE, varid, num, starts, counts, ADVECTIO_##KIND##_MEMORY(NUMBER)), varid, num,   \
                 starts, counts, data ADVECTIO_##KIND##_ARGUMENTS);                                               \
    return ADVECTIO_REAL(F, from.ncid, from.variables[0], num, starts, counts, data ADVECTIO_##KIND##_ARGUMENTS); \
  }                                                                                                               \
  ADVECTIO_GUARDED
#define ADVECTIO_POSTED(F, DONE, ...)                        \
  ADVECTIO_ENTER;                                            \
  auto* file = entry.find(ncid);                             \
  if (file == nullptr) return ADVECTIO_REAL(F, __VA_ARGS__); \
  const Answer answer = file->DONE;                          \
  if (!answer.ask_shadow) return answer.code;                \
  (void)file->end_pending();                                 \
  return file->answered(answer, ADVECTIO_REAL(F, __VA_ARGS__), request)

#define ADVECTIO_MANY_ONE(FORM, T, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS)                          \
  ADVECTIO_MANY_BLOCKING(ncmpi_mget_##FORM##T, mode_, FORM, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS) \
  ADVECTIO_MANY_BLOCKING(ncmpi_mget_##FORM##T##_all, mode_all, FORM, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS)
#define ADVECTIO_MANY_BLOCKING(F, MODE, FORM, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS) \
  ADVECTIO_EXPORT int F(int ncid, int nvars, int* varids ADVECTIO_BARE PARAMETERS,              \
                        TYPE** data ADVECTIO_##KIND##_LISTS) try {                              \
    ADVECTIO_GET(F,                                                                             \
                 read(MODE, requests_of({Form::FORM, nvars, varids, ADVECTIO_BARE PLACE,        \
                                         reinterpret_cast<const void* const*>(data)},           \
                                        ADVECTIO_##KIND##_LIST_MEMORY(NUMBER))),                \
                 nvars, varids ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_LIST_ARGUMENTS); \
    return ADVECTIO_REAL(F, from.ncid, nvars, from.variables.data() ADVECTIO_BARE ARGUMENTS,    \
                         data ADVECTIO_##KIND##_LIST_ARGUMENTS);                                \
  }                                                                                             \
  ADVECTIO_GUARDED

#define ADVECTIO_GETS(T, KIND, TYPE, NUMBER)                                                                           \
  ADVECTIO_ONE(var, T, KIND, TYPE, NUMBER, (nullptr, nullptr, nullptr, nullptr), (), ())                               \
  ADVECTIO_ONE(var1, T, KIND, TYPE, NUMBER, (start, nullptr, nullptr, nullptr), (, ADVECTIO_START), (, start))         \
  ADVECTIO_ONE(vara, T, KIND, TYPE, NUMBER, (start, count, nullptr, nullptr), (, ADVECTIO_START, ADVECTIO_COUNT),      \
               (, start, count))                                                                                       \
  ADVECTIO_ONE(vars, T, KIND, TYPE, NUMBER, (start, count, stride, nullptr),                                           \
               (, ADVECTIO_START, ADVECTIO_COUNT, ADVECTIO_STRIDE), (, start, count, stride))                          \
  ADVECTIO_ONE(varm, T, KIND, TYPE, NUMBER, (start, count, stride, map),                                               \
               (, ADVECTIO_START, ADVECTIO_COUNT, ADVECTIO_STRIDE, ADVECTIO_MAP), (, start, count, stride, map))       \
  ADVECTIO_BOXES(ncmpi_get_varn##T, mode_, KIND, TYPE, NUMBER)                                                         \
  ADVECTIO_BOXES(ncmpi_get_varn##T##_all, mode_all, KIND, TYPE, NUMBER)                                                \
  ADVECTIO_EXPORT int ncmpi_iget_varn##T(int ncid, int varid, int num, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts),   \
                                         TYPE* data ADVECTIO_##KIND##_PARAMETERS, int* request) try {                  \
    ADVECTIO_POSTED(ncmpi_iget_varn##T,                                                                                \
                    post_get_boxes(varid, num, starts, counts, data, ADVECTIO_##KIND##_MEMORY(NUMBER), request), ncid, \
                    varid, num, starts, counts, data ADVECTIO_##KIND##_ARGUMENTS, request);                            \
  }                                                                                                                    \
  ADVECTIO_GUARDED                                                                                                     \
  ADVECTIO_MANY_ONE(var, T, KIND, TYPE, NUMBER, (nullptr, nullptr, nullptr, nullptr), (), ())                          \
  ADVECTIO_MANY_ONE(var1, T, KIND, TYPE, NUMBER, (starts, nullptr, nullptr, nullptr), (, ADVECTIO_LIST(starts)),       \
                    (, starts))                                                                                        \
  ADVECTIO_MANY_ONE(vara, T, KIND, TYPE, NUMBER, (starts, counts, nullptr, nullptr),                                   \
                    (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts)), (, starts, counts))                              \
  ADVECTIO_MANY_ONE(vars, T, KIND, TYPE, NUMBER, (starts, counts, strides, nullptr),                                   \
                    (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts), ADVECTIO_LIST(strides)),                          \
                    (, starts, counts, strides))                                                                       \
  ADVECTIO_MANY_ONE(varm, T, KIND, TYPE, NUMBER, (starts, counts, strides, maps),                                      \
                    (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts), ADVECTIO_LIST(strides), ADVECTIO_LIST(maps)),     \
                    (, starts, counts, strides, maps))

#define ADVECTIO_TYPED_GETS(T, TYPE, NUMBER) ADVECTIO_GETS(_##T, TYPED, TYPE, NUMBER)

ADVECTIO_GETS(, FLEXIBLE, void, NC_NAT)
ADVECTIO_MEMORY_TYPES(ADVECTIO_TYPED_GETS)

#define ADVECTIO_VARD(F, CONST, MODE)                                                                            \
  ADVECTIO_EXPORT int F(int ncid, int varid, MPI_Datatype filetype, CONST void* data, MPI_Offset bufcount,       \
                        MPI_Datatype buftype) try {                                                              \
    ADVECTIO_ENTER;                                                                                              \
    auto* file = entry.find(ncid);                                                                               \
    if (file == nullptr) return ADVECTIO_REAL(F, ncid, varid, filetype, data, bufcount, buftype);                \
    const Collective in_call(file->collective_out(MODE));                                                        \
    if (auto* session = Session::current(); session != nullptr)                                                  \
      session->say_once(file->path + ": " #F " is not carried; exclude the file by a rule with capture: false"); \
    return NC_ENOTSUPPORT;                                                                                       \
  }                                                                                                              \
  ADVECTIO_GUARDED
ADVECTIO_VARD(ncmpi_put_vard, const, mode_)
ADVECTIO_VARD(ncmpi_put_vard_all, const, mode_all)
ADVECTIO_VARD(ncmpi_get_vard, , mode_)
ADVECTIO_VARD(ncmpi_get_vard_all, , mode_all)

}  // namespace advectio::pnetcdf
