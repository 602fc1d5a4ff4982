// ncmpi_get_*, iget_* and mget_* of var, var1, vara, vars, varm and varn, of every type: on a dataset of ours they read
// the file itself. And the vard calls, whose places in the file only MPI knows.
#include "capture/pnetcdf/families.h"

using advectio::Form;
using advectio::MemoryType;
using advectio::Mode;
using advectio::ParallelFile;
using advectio::Request;

namespace {
constexpr Mode mode_all = Mode::collective, mode_ = Mode::independent;

std::vector<int> in_reader(ParallelFile& file, const int* variables, int count) {
  std::vector<int> ids;
  ids.reserve(count > 0 ? static_cast<std::size_t>(count) : 0);
  for (int i = 0; i < count; ++i) ids.push_back(file.variable_in_reader(variables[i]));
  return ids;
}
}  // namespace

#define ADVECTIO_GET(F, MODE, VARIABLE, FROM, ...)                           \
  ADVECTIO_ENTER;                                                            \
  auto* file = entry.find(ncid);                                             \
  if (file == nullptr) return ADVECTIO_REAL(F, ncid, VARIABLE, __VA_ARGS__); \
  const auto from = file->read(MODE, FROM);                                  \
  if (from.ask_shadow) {                                                     \
    (void)file->settle();                                                    \
    return ADVECTIO_REAL(F, ncid, VARIABLE, __VA_ARGS__);                    \
  }                                                                          \
  if (from.code != NC_NOERR) return from.code

#define ADVECTIO_ONE(FORM, T, KIND, TYPE, NUMBER, PLACE, PARAMETERS, ARGUMENTS)                                       \
  ADVECTIO_BLOCKING(ncmpi_get_##FORM##T, mode_, KIND, TYPE, PARAMETERS, ARGUMENTS)                                    \
  ADVECTIO_BLOCKING(ncmpi_get_##FORM##T##_all, mode_all, KIND, TYPE, PARAMETERS, ARGUMENTS)                           \
  ADVECTIO_EXPORT int ncmpi_iget_##FORM##T(int ncid, int varid ADVECTIO_BARE PARAMETERS,                              \
                                           TYPE* data ADVECTIO_##KIND##_PARAMETERS, int* request) {                   \
    ADVECTIO_ENTER;                                                                                                   \
    if (auto* file = entry.find(ncid); file != nullptr)                                                               \
      return file->post_get({Form::FORM, varid, ADVECTIO_BARE PLACE, data, ADVECTIO_##KIND##_MEMORY(NUMBER)}, 1,      \
                            nullptr, nullptr, request);                                                               \
    return ADVECTIO_REAL(ncmpi_iget_##FORM##T, ncid, varid ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_ARGUMENTS, \
                         request);                                                                                    \
  }
#define ADVECTIO_BLOCKING(F, MODE, KIND, TYPE, PARAMETERS, ARGUMENTS)                                            \
  ADVECTIO_EXPORT int F(int ncid, int varid ADVECTIO_BARE PARAMETERS, TYPE* data ADVECTIO_##KIND##_PARAMETERS) { \
    ADVECTIO_GET(F, MODE, varid ADVECTIO_BARE ARGUMENTS, varid, data ADVECTIO_##KIND##_ARGUMENTS);               \
    return ADVECTIO_REAL(F, from.ncid, from.variable ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_ARGUMENTS); \
  }

#define ADVECTIO_MANY_ONE(FORM, T, KIND, TYPE, PARAMETERS, ARGUMENTS)                    \
  ADVECTIO_MANY_BLOCKING(ncmpi_mget_##FORM##T, mode_, KIND, TYPE, PARAMETERS, ARGUMENTS) \
  ADVECTIO_MANY_BLOCKING(ncmpi_mget_##FORM##T##_all, mode_all, KIND, TYPE, PARAMETERS, ARGUMENTS)
#define ADVECTIO_MANY_BLOCKING(F, MODE, KIND, TYPE, PARAMETERS, ARGUMENTS)           \
  ADVECTIO_EXPORT int F(int ncid, int nvars, int* varids ADVECTIO_BARE PARAMETERS,   \
                        TYPE** data ADVECTIO_##KIND##_LISTS) {                       \
    ADVECTIO_GET(F, MODE, nvars ADVECTIO_BARE(, varids) ADVECTIO_BARE ARGUMENTS, -1, \
                 data ADVECTIO_##KIND##_LIST_ARGUMENTS);                             \
    auto ids = in_reader(*file, varids, nvars);                                      \
    return ADVECTIO_REAL(F, from.ncid, nvars, ids.data() ADVECTIO_BARE ARGUMENTS,    \
                         data ADVECTIO_##KIND##_LIST_ARGUMENTS);                     \
  }

#define ADVECTIO_GETS(T, KIND, TYPE, NUMBER)                                                                         \
  ADVECTIO_ONE(var, T, KIND, TYPE, NUMBER, (nullptr, nullptr, nullptr, nullptr), (), ())                             \
  ADVECTIO_ONE(var1, T, KIND, TYPE, NUMBER, (start, nullptr, nullptr, nullptr), (, ADVECTIO_START), (, start))       \
  ADVECTIO_ONE(vara, T, KIND, TYPE, NUMBER, (start, count, nullptr, nullptr), (, ADVECTIO_START, ADVECTIO_COUNT),    \
               (, start, count))                                                                                     \
  ADVECTIO_ONE(vars, T, KIND, TYPE, NUMBER, (start, count, stride, nullptr),                                         \
               (, ADVECTIO_START, ADVECTIO_COUNT, ADVECTIO_STRIDE), (, start, count, stride))                        \
  ADVECTIO_ONE(varm, T, KIND, TYPE, NUMBER, (start, count, stride, map),                                             \
               (, ADVECTIO_START, ADVECTIO_COUNT, ADVECTIO_STRIDE, ADVECTIO_MAP), (, start, count, stride, map))     \
  ADVECTIO_BLOCKING(ncmpi_get_varn##T, mode_, KIND, TYPE, (, int num, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts)), \
                    (, num, starts, counts))                                                                         \
  ADVECTIO_BLOCKING(ncmpi_get_varn##T##_all, mode_all, KIND, TYPE,                                                   \
                    (, int num, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts)), (, num, starts, counts))              \
  ADVECTIO_EXPORT int ncmpi_iget_varn##T(int ncid, int varid, int num, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts), \
                                         TYPE* data ADVECTIO_##KIND##_PARAMETERS, int* request) {                    \
    ADVECTIO_ENTER;                                                                                                  \
    if (auto* file = entry.find(ncid); file != nullptr)                                                              \
      return file->post_get(                                                                                         \
          {Form::vara, varid, nullptr, nullptr, nullptr, nullptr, data, ADVECTIO_##KIND##_MEMORY(NUMBER)}, num,      \
          starts, counts, request);                                                                                  \
    return ADVECTIO_REAL(ncmpi_iget_varn##T, ncid, varid, num, starts, counts, data ADVECTIO_##KIND##_ARGUMENTS,     \
                         request);                                                                                   \
  }                                                                                                                  \
  ADVECTIO_MANY_ONE(var, T, KIND, TYPE, (), ())                                                                      \
  ADVECTIO_MANY_ONE(var1, T, KIND, TYPE, (, ADVECTIO_LIST(starts)), (, starts))                                      \
  ADVECTIO_MANY_ONE(vara, T, KIND, TYPE, (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts)), (, starts, counts))       \
  ADVECTIO_MANY_ONE(vars, T, KIND, TYPE, (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts), ADVECTIO_LIST(strides)),   \
                    (, starts, counts, strides))                                                                     \
  ADVECTIO_MANY_ONE(varm, T, KIND, TYPE,                                                                             \
                    (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts), ADVECTIO_LIST(strides), ADVECTIO_LIST(maps)),   \
                    (, starts, counts, strides, maps))

#define ADVECTIO_TYPED_GETS(T, TYPE, NUMBER) ADVECTIO_GETS(_##T, TYPED, TYPE, NUMBER)

ADVECTIO_GETS(, FLEXIBLE, void, NC_NAT)
ADVECTIO_MEMORY_TYPES(ADVECTIO_TYPED_GETS)

#define ADVECTIO_VARD(F, CONST, MODE)                                                                            \
  ADVECTIO_EXPORT int F(int ncid, int varid, MPI_Datatype filetype, CONST void* data, MPI_Offset bufcount,       \
                        MPI_Datatype buftype) {                                                                  \
    ADVECTIO_ENTER;                                                                                              \
    auto* file = entry.find(ncid);                                                                               \
    if (file == nullptr) return ADVECTIO_REAL(F, ncid, varid, filetype, data, bufcount, buftype);                \
    const advectio::Collective turn(file->turns(MODE == Mode::collective));                                      \
    if (auto* session = advectio::Session::current(); session != nullptr)                                        \
      session->say_once(file->path + ": " #F " is not carried; exclude the file by a rule with capture: false"); \
    return NC_ENOTSUPPORT;                                                                                       \
  }
ADVECTIO_VARD(ncmpi_put_vard, const, mode_)
ADVECTIO_VARD(ncmpi_put_vard_all, const, mode_all)
ADVECTIO_VARD(ncmpi_get_vard, , mode_)
ADVECTIO_VARD(ncmpi_get_vard_all, , mode_all)
