// The interface of netCDF-2 (ncvarput), and what it has left in that of netCDF-3 (nc_put_rec). Each
// of its functions calls some of netCDF-3, returns -1 where they fail, and gives the reason to
// nc_advise, which the program tells by `ncopts` what to do with it. So do we, with our functions of
// netCDF-3. Those that only ask for metadata are the library's: the shadow has the answers.
#include <climits>
#include <vector>

#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/open_files.h"

namespace advectio::netcdf {
namespace {

/// A call of the program that is made of others. They are made for the same caller.
class Version2 {
 public:
  explicit Version2(const void* return_address) noexcept
      : lib(*shadow::caller_of<RealLibrary>(return_address).reached), return_address_(return_address) {}
  const RealLibrary& lib;

  template <typename Function, typename... Arguments>
  int call(Function* function, Arguments... arguments) const {
    Entry::make_for(return_address_);
    const int code = function(arguments...);
    Entry::make_for(nullptr);
    return code;
  }

  /// The result of a netCDF-2 function: `answer`, or -1 after an error. Comes last, as the library
  /// may end the program here (`ncopts`).
  int returned(const char* function, int code, int ncid, int answer = 0) const {
    if (code == NC_NOERR) return answer;
    if (lib.nc_advise != nullptr) lib.nc_advise(function, code, "ncid %d", ncid);
    return -1;
  }
  int returned(const char* function, int code, const char* name, int answer) const {
    if (code == NC_NOERR) return answer;
    if (lib.nc_advise != nullptr) lib.nc_advise(function, code, "%s", name != nullptr ? name : "(null)");
    return -1;
  }

  /// Places are of type long there. The program's array may be null.
  template <typename To>
  struct Longs {
    std::vector<To> values;
    const To* get = nullptr;
  };
  template <typename To>
  Longs<To> longs(int ncid, int variable, const long* from, long divisor = 1) const {
    Longs<To> to;
    int rank = 0;
    // The call that these are for finds what is wrong with the variable.
    if (from == nullptr || lib.nc_inq_var == nullptr ||
        lib.nc_inq_var(ncid, variable, nullptr, nullptr, &rank, nullptr, nullptr) != NC_NOERR)
      return to;
    for (int i = 0; i < rank; ++i) to.values.push_back(static_cast<To>(from[i] / divisor));
    if (to.values.empty()) to.values.push_back(0);
    to.get = to.values.data();
    return to;
  }

 private:
  const void* return_address_;
};
#define ADVECTIO_VERSION2 const Version2 v2(__builtin_extract_return_addr(__builtin_return_address(0)))

struct RecordVariable {
  int id;
  std::vector<std::size_t> shape;  ///< of one record: the first length is 1
  nc_type type;
};

/// Those whose first dimension is the unlimited one, or the last made of those.
int record_variables(const Version2& v2, int ncid, std::vector<RecordVariable>& found) {
  int variables = 0, unlimited = -1;
  if (v2.lib.nc_inq == nullptr) return NC_ENOTBUILT;
  int code = v2.lib.nc_inq(ncid, nullptr, &variables, nullptr, &unlimited);
  if (unlimited < 0) return code;
  for (int id = 0; id < variables && code == NC_NOERR; ++id) {
    RecordVariable v{id, {}, NC_NAT};
    int rank = 0;
    std::vector<int> dimensions(NC_MAX_VAR_DIMS);
    code = v2.lib.nc_inq_var(ncid, id, nullptr, &v.type, &rank, dimensions.data(), nullptr);
    if (code != NC_NOERR || rank == 0 || dimensions[0] != unlimited) continue;
    v.shape.assign(static_cast<std::size_t>(rank), 1);
    for (std::size_t i = 1; i < v.shape.size() && code == NC_NOERR; ++i)
      code = v2.call(nc_inq_dimlen, ncid, dimensions[i], &v.shape[i]);
    found.push_back(std::move(v));
  }
  return code;
}

/// The record of each record variable for which there is memory: `call` puts it or gets it.
template <typename Data, typename Call>
int each_of_record(const Version2& v2, int ncid, std::size_t record, Data* data, Call call) {
  std::vector<RecordVariable> variables;
  int code = record_variables(v2, ncid, variables);
  for (std::size_t i = 0; i < variables.size() && code == NC_NOERR; ++i) {
    if (data[i] == nullptr) continue;
    std::vector<std::size_t> start(variables[i].shape.size(), 0);
    start[0] = record;
    code = v2.call(call, ncid, variables[i].id, start.data(), variables[i].shape.data(), data[i]);
  }
  return code;
}

int inquire_records(const Version2& v2, int ncid, std::vector<RecordVariable>& variables,
                    std::vector<std::size_t>& bytes) {
  const int code = record_variables(v2, ncid, variables);
  for (const auto& v : variables) {
    bytes.push_back(memory_size(v.type));
    for (const auto n : v.shape) bytes.back() *= n;
  }
  return code;
}

/// Bytes of one element, by which netCDF-2 counts maps.
long element_of(const Version2& v2, int ncid, int variable, int& code) {
  nc_type type = NC_NAT;
  code = v2.lib.nc_inq_var == nullptr ? NC_ENOTBUILT
                                      : v2.lib.nc_inq_var(ncid, variable, nullptr, &type, nullptr, nullptr, nullptr);
  const auto bytes = static_cast<long>(memory_size(type));
  return bytes > 0 ? bytes : 1;
}

}  // namespace

// --- files ----------------------------------------------------------------------------------------

ADVECTIO_EXPORT int nccreate(const char* path, int mode) try {
  ADVECTIO_VERSION2;
  int ncid = -1;
  const int code = v2.call(nc_create, path, mode, &ncid);
  return v2.returned("nccreate", code, path, ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncopen(const char* path, int mode) try {
  ADVECTIO_VERSION2;
  int ncid = -1;
  const int code = v2.call(nc_open, path, mode, &ncid);
  return v2.returned("ncopen", code, path, ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncclose(int ncid) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncclose", v2.call(nc_close, ncid), ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncabort(int ncid) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncabort", v2.call(nc_abort, ncid), ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncsync(int ncid) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncsync", v2.call(nc_sync, ncid), ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncredef(int ncid) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncredef", v2.call(nc_redef, ncid), ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncendef(int ncid) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncendef", v2.call(nc_enddef, ncid), ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncsetfill(int ncid, int mode) try {
  ADVECTIO_VERSION2;
  int old = -1;
  const int code = v2.call(nc_set_fill, ncid, mode, &old);
  return v2.returned("ncsetfill", code, ncid, old);
}
ADVECTIO_GUARDED

// --- metadata -------------------------------------------------------------------------------------

ADVECTIO_EXPORT int ncdimdef(int ncid, const char* name, long length) try {
  ADVECTIO_VERSION2;
  int id = -1;
  const int code = length < 0 ? NC_EDIMSIZE : v2.call(nc_def_dim, ncid, name, static_cast<std::size_t>(length), &id);
  return v2.returned("ncdimdef", code, ncid, id);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncdiminq(int ncid, int dimid, char* name, long* length) try {
  ADVECTIO_VERSION2;
  std::size_t all = 0;
  const int code = v2.call(nc_inq_dim, ncid, dimid, name, &all);
  if (code == NC_NOERR && length != nullptr) *length = static_cast<int>(all);  // as the library
  return v2.returned("ncdiminq", code, ncid, dimid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncdimrename(int ncid, int dimid, const char* name) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncdimrename", v2.call(nc_rename_dim, ncid, dimid, name), ncid, dimid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncvardef(int ncid, const char* name, nc_type type, int rank, const int* dimensions) try {
  ADVECTIO_VERSION2;
  int id = -1;
  const int code = v2.call(nc_def_var, ncid, name, type, rank, dimensions, &id);
  return v2.returned("ncvardef", code, ncid, id);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncvarrename(int ncid, int varid, const char* name) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncvarrename", v2.call(nc_rename_var, ncid, varid, name), ncid, varid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncattput(int ncid, int varid, const char* name, nc_type type, int count, const void* values) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncattput", v2.call(nc_put_att, ncid, varid, name, type, static_cast<std::size_t>(count), values),
                     ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncattcopy(int from, int from_varid, const char* name, int ncid, int varid) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncattcopy", v2.call(nc_copy_att, from, from_varid, name, ncid, varid), name, 0);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncattrename(int ncid, int varid, const char* name, const char* new_name) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncattrename", v2.call(nc_rename_att, ncid, varid, name, new_name), ncid, 1);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncattdel(int ncid, int varid, const char* name) try {
  ADVECTIO_VERSION2;
  return v2.returned("ncattdel", v2.call(nc_del_att, ncid, varid, name), ncid, 1);
}
ADVECTIO_GUARDED

// --- values ---------------------------------------------------------------------------------------

// The forms of a put and of a get. TYPE: of the memory.
#define ADVECTIO_VERSION2_DATA(WORD, TYPE)                                                                          \
  ADVECTIO_EXPORT int ncvar##WORD##1(int ncid, int varid, const long* index, TYPE* data) try {                      \
    ADVECTIO_VERSION2;                                                                                              \
    const auto at = v2.longs<std::size_t>(ncid, varid, index);                                                      \
    return v2.returned("ncvar" #WORD "1", v2.call(nc_##WORD##_var1, ncid, varid, at.get, data), ncid);              \
  }                                                                                                                 \
  ADVECTIO_GUARDED                                                                                                  \
  static int ncvar##WORD##_for(const Version2& v2, int ncid, int varid, const long* start, const long* count,       \
                               TYPE* data) {                                                                        \
    const auto from = v2.longs<std::size_t>(ncid, varid, start), edges = v2.longs<std::size_t>(ncid, varid, count); \
    return v2.returned("ncvar" #WORD, v2.call(nc_##WORD##_vara, ncid, varid, from.get, edges.get, data), ncid);     \
  }                                                                                                                 \
  ADVECTIO_EXPORT int ncvar##WORD(int ncid, int varid, const long* start, const long* count, TYPE* data) try {      \
    ADVECTIO_VERSION2;                                                                                              \
    return ncvar##WORD##_for(v2, ncid, varid, start, count, data);                                                  \
  }                                                                                                                 \
  ADVECTIO_GUARDED                                                                                                  \
  static int ncvar##WORD##s_for(const Version2& v2, int ncid, int varid, const long* start, const long* count,      \
                                const long* stride, TYPE* data) {                                                   \
    if (stride == nullptr) return ncvar##WORD##_for(v2, ncid, varid, start, count, data);                           \
    const auto from = v2.longs<std::size_t>(ncid, varid, start), edges = v2.longs<std::size_t>(ncid, varid, count); \
    const auto steps = v2.longs<std::ptrdiff_t>(ncid, varid, stride);                                               \
    const int code = v2.call(nc_##WORD##_vars, ncid, varid, from.get, edges.get, steps.get, data);                  \
    return v2.returned("ncvar" #WORD "s", code, ncid);                                                              \
  }                                                                                                                 \
  ADVECTIO_EXPORT int ncvar##WORD##s(int ncid, int varid, const long* start, const long* count, const long* stride, \
                                     TYPE* data) try {                                                              \
    ADVECTIO_VERSION2;                                                                                              \
    return ncvar##WORD##s_for(v2, ncid, varid, start, count, stride, data);                                         \
  }                                                                                                                 \
  ADVECTIO_GUARDED                                                                                                  \
  ADVECTIO_EXPORT int ncvar##WORD##g(int ncid, int varid, const long* start, const long* count, const long* stride, \
                                     const long* map, TYPE* data) try {                                             \
    ADVECTIO_VERSION2;                                                                                              \
    if (map == nullptr) return ncvar##WORD##s_for(v2, ncid, varid, start, count, stride, data);                     \
    int code = NC_NOERR;                                                                                            \
    const long element = element_of(v2, ncid, varid, code);                                                         \
    if (code != NC_NOERR) return code; /* the library, too, does not say -1 here */                                 \
    const auto from = v2.longs<std::size_t>(ncid, varid, start), edges = v2.longs<std::size_t>(ncid, varid, count); \
    const auto steps = v2.longs<std::ptrdiff_t>(ncid, varid, stride);                                               \
    const auto apart = v2.longs<std::ptrdiff_t>(ncid, varid, map, element);                                         \
    code = v2.call(nc_##WORD##_varm, ncid, varid, from.get, edges.get, steps.get, apart.get, data);                 \
    return v2.returned("ncvar" #WORD "g", code, ncid);                                                              \
  }                                                                                                                 \
  ADVECTIO_GUARDED
ADVECTIO_VERSION2_DATA(put, const void)
ADVECTIO_VERSION2_DATA(get, void)

// --- records --------------------------------------------------------------------------------------

ADVECTIO_EXPORT int nc_put_rec(int ncid, size_t record, void* const* data) try {
  ADVECTIO_VERSION2;
  return each_of_record(v2, ncid, record, data, nc_put_vara);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_get_rec(int ncid, size_t record, void** data) try {
  ADVECTIO_VERSION2;
  return each_of_record(v2, ncid, record, data, nc_get_vara);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_inq_rec(int ncid, size_t* count, int* varids, size_t* bytes) try {
  ADVECTIO_VERSION2;
  std::vector<RecordVariable> variables;
  std::vector<std::size_t> sizes;
  const int code = inquire_records(v2, ncid, variables, sizes);
  if (code != NC_NOERR) return code;
  if (count != nullptr) *count = variables.size();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (varids != nullptr) varids[i] = variables[i].id;
    if (bytes != nullptr) bytes[i] = sizes[i];
  }
  return NC_NOERR;
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncrecput(int ncid, long record, void* const* data) try {
  ADVECTIO_VERSION2;
  const int code = each_of_record(v2, ncid, static_cast<std::size_t>(record), data, nc_put_vara);
  return v2.returned("ncrecput", code, ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncrecget(int ncid, long record, void** data) try {
  ADVECTIO_VERSION2;
  const int code = each_of_record(v2, ncid, static_cast<std::size_t>(record), data, nc_get_vara);
  return v2.returned("ncrecget", code, ncid);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int ncrecinq(int ncid, int* count, int* varids, long* bytes) try {
  ADVECTIO_VERSION2;
  std::vector<RecordVariable> variables;
  std::vector<std::size_t> sizes;
  const int code = inquire_records(v2, ncid, variables, sizes);
  if (code != NC_NOERR) return v2.returned("ncrecinq", code, ncid);
  if (count != nullptr) *count = static_cast<int>(variables.size());
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (varids != nullptr) varids[i] = variables[i].id;
    if (bytes != nullptr) bytes[i] = static_cast<long>(sizes[i]);
  }
  return static_cast<int>(variables.size());
}
ADVECTIO_GUARDED

}  // namespace advectio::netcdf
