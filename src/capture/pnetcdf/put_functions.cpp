// ncmpi_put_*, iput_*, bput_* and mput_* of var, var1, vara, vars, varm and varn, of every type.
#include "capture/pnetcdf/families.h"

namespace advectio::pnetcdf {

namespace {

constexpr Mode mode_all = Mode::collective, mode_ = Mode::independent, mode_iput = Mode::posted,
               mode_bput = Mode::buffered;

}  // namespace

// One exported function: a call on a dataset of ours is described and put; where it cannot be right
// the shadow is asked for the code, with the same call, and its answer counts unless it finds
// nothing wrong.
#define ADVECTIO_PUT(F, MODE, REQUEST, DONE, ...)            \
  ADVECTIO_ENTER;                                            \
  auto* file = entry.find(ncid);                             \
  if (file == nullptr) return ADVECTIO_REAL(F, __VA_ARGS__); \
  const Collective in_call(file->collective_out(MODE));      \
  const Answer answer = file->DONE;                          \
  if (!answer.ask_shadow) return answer.code;                \
  (void)file->end_pending();                                 \
  return file->answered(answer, ADVECTIO_REAL(F, __VA_ARGS__), REQUEST)

#define ADVECTIO_ONE(F, MODE, KIND, TYPE, NUMBER, FORM, REQUEST, POSTED, ID, PLACE, PARAMETERS, ARGUMENTS)             \
  ADVECTIO_EXPORT int F(int ncid, int varid ADVECTIO_BARE PARAMETERS,                                                  \
                        const TYPE* data ADVECTIO_##KIND##_PARAMETERS ADVECTIO_BARE POSTED) try {                      \
    ADVECTIO_PUT(                                                                                                      \
        F, MODE, REQUEST,                                                                                              \
        put(MODE, {Request{Form::FORM, varid, ADVECTIO_BARE PLACE, data, ADVECTIO_##KIND##_MEMORY(NUMBER)}}, REQUEST), \
        ncid, varid ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_ARGUMENTS ADVECTIO_BARE ID);                       \
  }                                                                                                                    \
  ADVECTIO_GUARDED
#define ADVECTIO_FORMS(PREFIX, T, ALL, MODE, KIND, TYPE, NUMBER, REQUEST, POSTED, ID)                                  \
  ADVECTIO_ONE(PREFIX##var##T##ALL, MODE, KIND, TYPE, NUMBER, var, REQUEST, POSTED, ID,                                \
               (nullptr, nullptr, nullptr, nullptr), (), ())                                                           \
  ADVECTIO_ONE(PREFIX##var1##T##ALL, MODE, KIND, TYPE, NUMBER, var1, REQUEST, POSTED, ID,                              \
               (start, nullptr, nullptr, nullptr), (, ADVECTIO_START), (, start))                                      \
  ADVECTIO_ONE(PREFIX##vara##T##ALL, MODE, KIND, TYPE, NUMBER, vara, REQUEST, POSTED, ID,                              \
               (start, count, nullptr, nullptr), (, ADVECTIO_START, ADVECTIO_COUNT), (, start, count))                 \
  ADVECTIO_ONE(PREFIX##vars##T##ALL, MODE, KIND, TYPE, NUMBER, vars, REQUEST, POSTED, ID,                              \
               (start, count, stride, nullptr), (, ADVECTIO_START, ADVECTIO_COUNT, ADVECTIO_STRIDE),                   \
               (, start, count, stride))                                                                               \
  ADVECTIO_ONE(PREFIX##varm##T##ALL, MODE, KIND, TYPE, NUMBER, varm, REQUEST, POSTED, ID, (start, count, stride, map), \
               (, ADVECTIO_START, ADVECTIO_COUNT, ADVECTIO_STRIDE, ADVECTIO_MAP), (, start, count, stride, map))       \
  ADVECTIO_EXPORT int PREFIX##varn##T##ALL(int ncid, int varid, int num, MPI_Offset* const* starts,                    \
                                           MPI_Offset* const* counts,                                                  \
                                           const TYPE* data ADVECTIO_##KIND##_PARAMETERS ADVECTIO_BARE POSTED) try {   \
    ADVECTIO_PUT(PREFIX##varn##T##ALL, MODE, REQUEST,                                                                  \
                 put_boxes(MODE, varid, num, starts, counts, data, ADVECTIO_##KIND##_MEMORY(NUMBER), REQUEST), ncid,   \
                 varid, num, starts, counts, data ADVECTIO_##KIND##_ARGUMENTS ADVECTIO_BARE ID);                       \
  }                                                                                                                    \
  ADVECTIO_GUARDED

#define ADVECTIO_MANY_ONE(F, MODE, KIND, TYPE, NUMBER, FORM, PLACE, PARAMETERS, ARGUMENTS)                            \
  ADVECTIO_EXPORT int F(int ncid, int nvars, int* varids ADVECTIO_BARE PARAMETERS,                                    \
                        TYPE* const* data ADVECTIO_##KIND##_LISTS) try {                                              \
    ADVECTIO_PUT(                                                                                                     \
        F, MODE, nullptr,                                                                                             \
        put(MODE,                                                                                                     \
            requests_of({Form::FORM, nvars, varids, ADVECTIO_BARE PLACE, reinterpret_cast<const void* const*>(data)}, \
                        ADVECTIO_##KIND##_LIST_MEMORY(NUMBER)),                                                       \
            nullptr),                                                                                                 \
        ncid, nvars, varids ADVECTIO_BARE ARGUMENTS, data ADVECTIO_##KIND##_LIST_ARGUMENTS);                          \
  }                                                                                                                   \
  ADVECTIO_GUARDED
#define ADVECTIO_MANY_FORMS(T, ALL, MODE, KIND, TYPE, NUMBER)                                                        \
  ADVECTIO_MANY_ONE(ncmpi_mput_var##T##ALL, MODE, KIND, TYPE, NUMBER, var, (nullptr, nullptr, nullptr, nullptr), (), \
                    ())                                                                                              \
  ADVECTIO_MANY_ONE(ncmpi_mput_var1##T##ALL, MODE, KIND, TYPE, NUMBER, var1, (starts, nullptr, nullptr, nullptr),    \
                    (, ADVECTIO_LIST(starts)), (, starts))                                                           \
  ADVECTIO_MANY_ONE(ncmpi_mput_vara##T##ALL, MODE, KIND, TYPE, NUMBER, vara, (starts, counts, nullptr, nullptr),     \
                    (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts)), (, starts, counts))                            \
  ADVECTIO_MANY_ONE(ncmpi_mput_vars##T##ALL, MODE, KIND, TYPE, NUMBER, vars, (starts, counts, strides, nullptr),     \
                    (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts), ADVECTIO_LIST(strides)),                        \
                    (, starts, counts, strides))                                                                     \
  ADVECTIO_MANY_ONE(ncmpi_mput_varm##T##ALL, MODE, KIND, TYPE, NUMBER, varm, (starts, counts, strides, maps),        \
                    (, ADVECTIO_LIST(starts), ADVECTIO_LIST(counts), ADVECTIO_LIST(strides), ADVECTIO_LIST(maps)),   \
                    (, starts, counts, strides, maps))

#define ADVECTIO_PUTS(T, KIND, TYPE, NUMBER)                                                              \
  ADVECTIO_FORMS(ncmpi_put_, T, , mode_, KIND, TYPE, NUMBER, nullptr, (), ())                             \
  ADVECTIO_FORMS(ncmpi_put_, T, _all, mode_all, KIND, TYPE, NUMBER, nullptr, (), ())                      \
  ADVECTIO_FORMS(ncmpi_iput_, T, , mode_iput, KIND, TYPE, NUMBER, request, (, int* request), (, request)) \
  ADVECTIO_FORMS(ncmpi_bput_, T, , mode_bput, KIND, TYPE, NUMBER, request, (, int* request), (, request)) \
  ADVECTIO_MANY_FORMS(T, , mode_, KIND, TYPE, NUMBER)                                                     \
  ADVECTIO_MANY_FORMS(T, _all, mode_all, KIND, TYPE, NUMBER)

#define ADVECTIO_TYPED_PUTS(T, TYPE, NUMBER) ADVECTIO_PUTS(_##T, TYPED, TYPE, NUMBER)

ADVECTIO_PUTS(, FLEXIBLE, void, NC_NAT)
ADVECTIO_MEMORY_TYPES(ADVECTIO_TYPED_PUTS)

}  // namespace advectio::pnetcdf
