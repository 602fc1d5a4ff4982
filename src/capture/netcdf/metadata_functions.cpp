// Definitions, attributes and names. The shadow does the work and finds the errors. These functions
// note the changes and hand over files that we cannot carry. They also keep the rules of the
// classic formats for data mode: the shadow of such a format is always in define mode.
#include <cstring>
#include <string>

#include "capture/netcdf/captured_file.h"
#include "capture/netcdf/open_files.h"

namespace advectio::netcdf {
namespace {

/// A classic dataset whose program is in data mode.
bool in_classic_data_mode(CapturedFile& file) {
  return file.shadow().classic_format() && !file.shadow().defining();
}

template <typename Call>
int change(CapturedFile& file, Touched what, int variable, Call&& call) {
  const shadow::Stall stall(file.stall());
  Collective in_call(file.together().collective_out());
  const bool was_defining = file.shadow().defining();
  file.before_change();
  int code = call();
  if (code != NC_NOERR && code != NC_ERANGE && file.shadow().enddef_pending() && !was_defining) {
    // Only the shadow knows whether a call that fails has ended data mode.
    file.shadow().end_pending();
    code = call();
  }
  file.shadow().after_change();
  // An attribute with values out of range has been put all the same.
  if (code == NC_NOERR || code == NC_ERANGE)
    file.touch(what, variable);
  else
    in_call.refused();
  return code;
}

/// Before a call whose answer depends on whether the variable has left define mode.
void end_pending_of(CapturedFile& file, int variable) {
  if (file.shadow().enddef_pending(variable)) file.shadow().end_pending();
}

bool is_fill_value(const char* name) {
  return name != nullptr && std::strcmp(name, "_FillValue") == 0;
}

/// The same before an attribute is put. In netCDF-4 only a put of the fill value depends on it, not
/// a renaming, and only once the variable counts as written. In the classic formats the value fills
/// from here on.
int before_fill_value(CapturedFile& file, int variable, const char* name) {
  if (!is_fill_value(name)) return NC_NOERR;
  if (file.shadow().written(variable)) end_pending_of(file, variable);
  return file.keep_filled();
}

/// How a variable is stored.
template <typename Call>
int store(CapturedFile& file, int variable, Call&& call, Touched what = Touched::all_but_attributes) {
  end_pending_of(file, variable);
  const int code = change(file, what, variable, call);
  if (code == NC_NOERR) file.together().filtered(variable);
  return code;
}

template <typename Call>
int define(CapturedFile& file, Touched what, int variable, Call&& call) {
  if (in_classic_data_mode(file)) return NC_ENOTINDEFINE;
  return change(file, what, variable, std::forward<Call>(call));
}

/// Bytes of an attribute's values in a classic header.
std::size_t header_bytes(nc_type type, std::size_t count) {
  return (memory_size(type) * count + 3) / 4 * 4;
}

/// In data mode a classic attribute may be written anew where it does not need more room. `values`:
/// null where they are not of `type` in memory.
template <typename Call>
int put_attribute(CapturedFile& file, int variable, const char* name, nc_type type, std::size_t count,
                  const void* values, Call&& call) {
  if (const int code = before_fill_value(file, variable, name); code != NC_NOERR) return code;
  if (!in_classic_data_mode(file) || name == nullptr) {
    const int code = change(file, Touched::all_but_attributes, variable, call);
    if (code == NC_NOERR) {
      file.description().note_attribute(variable, name, type, count, values);
    } else {
      file.description().forget_attributes(variable);
    }
    return code;
  }
  nc_type old_type = NC_NAT;
  std::size_t old_count = 0;
  if (file.lib.nc_inq_att(file.ncid, variable, name, &old_type, &old_count) == NC_NOERR) {
    if (header_bytes(type, count) <= header_bytes(old_type, old_count))
      return change(file, Touched::variable, variable, call);
  }
  // A new one, or one that would grow, is refused, but only if nothing worse is wrong with it. The
  // shadow tells; then all is as it was.
  constexpr const char* aside = "advectio-put-aside";
  const bool old = old_type != NC_NAT && file.lib.nc_rename_att(file.ncid, variable, name, aside) == NC_NOERR;
  const int code = call();
  const bool made = code == NC_NOERR || code == NC_ERANGE;
  if (made) file.lib.nc_del_att(file.ncid, variable, name);
  if (old) file.lib.nc_rename_att(file.ncid, variable, aside, name);
  return made ? NC_ENOTINDEFINE : code;
}

/// A name may not grow in data mode. The shadow finds what else may be wrong.
template <typename Call, typename Undo>
int rename(CapturedFile& file, Touched what, int variable, const char* from, const char* to, Call&& call, Undo&& undo) {
  const bool grows = in_classic_data_mode(file) && to != nullptr && std::strlen(to) > std::strlen(from);
  const int code = change(file, what, variable, call);
  if (code != NC_NOERR || !grows) return code;
  undo();
  return NC_ENOTINDEFINE;
}

/// The dataset goes to the real library, under its number, before the call.
int give_away(CapturedFile& file, const char* why) {
  const bool can = file.can_hand_over();
  if (auto* session = Session::current(); file.together().first() && session != nullptr)
    session->say_once(file.path + ": " + why + " cannot be carried; " +
                      (can ? "the netCDF library writes this file from here on"
                           : "it is refused, for parallel HDF5 cannot take over data that it has not written (a rule "
                             "with capture: false leaves it the file from the start)"));
  return can ? open_files().remove(file)->hand_over() : NC_ENOTBUILT;
}

/// `call(ncid)` is made by the library, on its own file, as we cannot carry it. A wrong one is not: it
/// changes nothing, and the other ranks may not make it.
template <typename Call>
int by_library(CapturedFile& file, const char* why, Call&& call) {
  const int ncid = file.ncid;
  if (const int code = file.would_be(call); code != NC_NOERR) return code;
  if (const int code = give_away(file, why); code != NC_NOERR) return code;
  return call(ncid);
}

/// The same for how a variable is stored. What define mode has ended for it only the shadow knows.
template <typename Call>
int stored_by_library(CapturedFile& file, int variable, const char* why, Call&& call) {
  end_pending_of(file, variable);
  if (file.shadow().ended(variable)) return store(file, variable, [&] { return call(file.ncid); });
  return by_library(file, why, call);
}

/// Only netCDF-4 proper knows groups and user types; elsewhere the shadow refuses them.
template <typename Call>
int with_groups_or_types(CapturedFile* file, int ncid, const char* why, Call&& call) {
  return file != nullptr && file->format == FileFormat::netcdf4 ? by_library(*file, why, call) : call(ncid);
}

bool knows_filter(unsigned id) {
  for (const unsigned known : {filter_id::deflate, filter_id::shuffle, filter_id::fletcher32, filter_id::szip,
                               filter_id::blosc, filter_id::lz4, filter_id::bitshuffle, filter_id::zstd})
    if (id == known) return true;
  return false;
}

}  // namespace

#define ADVECTIO_FILE \
  ADVECTIO_ENTER;     \
  auto* file = entry.find(ncid)

// For calls that change it.
#define ADVECTIO_FILE_TO_CHANGE                                           \
  ADVECTIO_FILE;                                                          \
  if (file != nullptr && file->must_be_taken_over_to_define()) {          \
    if (const int code = take_over(*file); code != NC_NOERR) return code; \
    file = nullptr;                                                       \
  }

// --- dimensions and variables -------------------------------------------------------------------

ADVECTIO_EXPORT int nc_def_dim(int ncid, const char* name, size_t length, int* id) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto on = [&](int dataset) { return ADVECTIO_REAL(nc_def_dim, dataset, name, length, id); };
  const auto call = [&] { return on(ncid); };
  // The classic model has one, and the shadow refuses the second.
  if (file != nullptr && file->format == FileFormat::netcdf4 && file->together().several() && length == NC_UNLIMITED &&
      file->shapes().any_unlimited())
    return by_library(*file, "a second unlimited dimension that several ranks extend", on);
  return file != nullptr ? define(*file, Touched::dimensions, NC_GLOBAL, call) : call();
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_inq_dimlen(int ncid, int dimid, size_t* length) try {
  ADVECTIO_FILE;
  const int code = ADVECTIO_REAL(nc_inq_dimlen, ncid, dimid, length);
  if (file != nullptr && code == NC_NOERR && length != nullptr) file->grown_length(dimid, *length);
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_inq_dim(int ncid, int dimid, char* name, size_t* length) try {
  ADVECTIO_FILE;
  const int code = ADVECTIO_REAL(nc_inq_dim, ncid, dimid, name, length);
  if (file != nullptr && code == NC_NOERR && length != nullptr) file->grown_length(dimid, *length);
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_rename_dim(int ncid, int dimid, const char* name) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto call = [&] { return ADVECTIO_REAL(nc_rename_dim, ncid, dimid, name); };
  if (file == nullptr) return call();
  char old[NC_MAX_NAME + 1] = {};
  file->lib.nc_inq_dim(ncid, dimid, old, nullptr);
  return rename(*file, Touched::dimensions, NC_GLOBAL, old, name, call,
                [&] { file->lib.nc_rename_dim(ncid, dimid, old); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_def_var(int ncid, const char* name, nc_type type, int rank, const int* dimensions, int* id) try {
  ADVECTIO_FILE_TO_CHANGE;
  int defined = -1;
  const auto call = [&] { return ADVECTIO_REAL(nc_def_var, ncid, name, type, rank, dimensions, &defined); };
  // The shadow knows one end of define mode for all of its variables.
  if (file != nullptr && file->shadow().enddef_pending()) file->shadow().end_pending();
  int code = file != nullptr ? define(*file, Touched::dimensions, NC_GLOBAL, call) : call();
  if (code != NC_NOERR) return code;
  if (id != nullptr) *id = defined;
  if (file == nullptr) return code;
  file->description().note_variable(defined);
  return file->shadow().classic_format() ? code : file->shapes().choose_chunks(defined);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_rename_var(int ncid, int varid, const char* name) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto call = [&] { return ADVECTIO_REAL(nc_rename_var, ncid, varid, name); };
  if (file == nullptr) return call();
  char old[NC_MAX_NAME + 1] = {};
  file->lib.nc_inq_varname(ncid, varid, old);
  return rename(*file, Touched::variable, varid, old, name, call, [&] { file->lib.nc_rename_var(ncid, varid, old); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_def_var_fill(int ncid, int varid, int no_fill, const void* value) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto call = [&] { return ADVECTIO_REAL(nc_def_var_fill, ncid, varid, no_fill, value); };
  if (varid == NC_GLOBAL) return call();  // refused as such in every mode
  if (file == nullptr) return call();
  end_pending_of(*file, varid);
  if (const int code = file->keep_filled(); code != NC_NOERR) return code;
  return define(*file, Touched::variable, varid, call);
}
ADVECTIO_GUARDED

// How a variable is stored. In the classic formats the shadow refuses all of these, in either mode.
#define ADVECTIO_STORAGE(F, ...)                                   \
  ADVECTIO_FILE_TO_CHANGE;                                         \
  const auto call = [&] { return ADVECTIO_REAL(F, __VA_ARGS__); }; \
  return file != nullptr ? store(*file, varid, call) : call()

ADVECTIO_EXPORT int nc_def_var_chunking(int ncid, int varid, int storage, const size_t* chunks) try {
  ADVECTIO_STORAGE(nc_def_var_chunking, ncid, varid, storage, chunks);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_var_chunking_ints(int ncid, int varid, int contiguous, int* chunks) try {
  ADVECTIO_STORAGE(nc_def_var_chunking_ints, ncid, varid, contiguous, chunks);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_var_deflate(int ncid, int varid, int shuffle, int deflate, int level) try {
  ADVECTIO_STORAGE(nc_def_var_deflate, ncid, varid, shuffle, deflate, level);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_var_fletcher32(int ncid, int varid, int fletcher32) try {
  ADVECTIO_STORAGE(nc_def_var_fletcher32, ncid, varid, fletcher32);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_var_szip(int ncid, int varid, int options_mask, int pixels_per_block) try {
  ADVECTIO_STORAGE(nc_def_var_szip, ncid, varid, options_mask, pixels_per_block);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_var_endian(int ncid, int varid, int endian) try {
  ADVECTIO_STORAGE(nc_def_var_endian, ncid, varid, endian);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_var_zstandard(int ncid, int varid, int level) try {
  ADVECTIO_STORAGE(nc_def_var_zstandard, ncid, varid, level);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_var_blosc(int ncid, int varid, unsigned subcompressor, unsigned level, unsigned blocksize,
                                     unsigned addshuffle) try {
  ADVECTIO_STORAGE(nc_def_var_blosc, ncid, varid, subcompressor, level, blocksize, addshuffle);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_def_var_filter(int ncid, int varid, unsigned id, size_t count, const unsigned* parameters) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto on = [&](int dataset) { return ADVECTIO_REAL(nc_def_var_filter, dataset, varid, id, count, parameters); };
  const auto call = [&] { return on(ncid); };
  if (file == nullptr) return call();
  if (!file->shadow().classic_format() && !knows_filter(id))
    return stored_by_library(*file, varid, ("HDF5 filter " + std::to_string(id)).c_str(), on);
  return store(*file, varid, call);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_def_var_bzip2(int ncid, int varid, int level) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto on = [&](int dataset) { return ADVECTIO_REAL(nc_def_var_bzip2, dataset, varid, level); };
  return file != nullptr && !file->shadow().classic_format() ? stored_by_library(*file, varid, "bzip2 compression", on)
                                                             : on(ncid);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_def_var_quantize(int ncid, int varid, int mode, int digits) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto on = [&](int dataset) { return ADVECTIO_REAL(nc_def_var_quantize, dataset, varid, mode, digits); };
  const auto call = [&] { return on(ncid); };
  if (file == nullptr) return call();
  if (!file->shadow().classic_format() && mode != NC_NOQUANTIZE && mode != NC_QUANTIZE_BITROUND)
    return stored_by_library(*file, varid, "quantization other than BitRound", on);
  const int code = store(*file, varid, call, Touched::variable);
  if (code == NC_NOERR && mode != NC_NOQUANTIZE) file->description().note_quantized(varid);
  return code;
}
ADVECTIO_GUARDED

// --- groups and user types ----------------------------------------------------------------------

#define ADVECTIO_GROUP_OR_TYPE(F, WHY, ...) \
  ADVECTIO_FILE_TO_CHANGE;                  \
  return with_groups_or_types(file, ncid, WHY, [&](int dataset) { return ADVECTIO_REAL(F, dataset, __VA_ARGS__); })

ADVECTIO_EXPORT int nc_def_grp(int ncid, const char* name, int* id) try {
  ADVECTIO_GROUP_OR_TYPE(nc_def_grp, "a group", name, id);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_compound(int ncid, size_t size, const char* name, nc_type* type) try {
  ADVECTIO_GROUP_OR_TYPE(nc_def_compound, "a compound type", size, name, type);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_vlen(int ncid, const char* name, nc_type base, nc_type* type) try {
  ADVECTIO_GROUP_OR_TYPE(nc_def_vlen, "a variable-length type", name, base, type);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_opaque(int ncid, size_t size, const char* name, nc_type* type) try {
  ADVECTIO_GROUP_OR_TYPE(nc_def_opaque, "an opaque type", size, name, type);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_def_enum(int ncid, nc_type base, const char* name, nc_type* type) try {
  ADVECTIO_GROUP_OR_TYPE(nc_def_enum, "an enum type", base, name, type);
}
ADVECTIO_GUARDED
/// It notes the dataset, and ncaux_end_compound defines the type.
ADVECTIO_EXPORT int ncaux_begin_compound(int ncid, const char* name, int alignment, void** tag) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto is_right = [&](int dataset) {
    nc_type type = NC_NAT;
    return ADVECTIO_REAL(nc_def_compound, dataset, 1, name, &type);
  };
  if (file != nullptr && file->format == FileFormat::netcdf4 && name != nullptr && file->would_be(is_right) == NC_NOERR)
    if (const int code = give_away(*file, "a compound type"); code != NC_NOERR) return code;
  return ADVECTIO_REAL(ncaux_begin_compound, ncid, name, alignment, tag);
}
ADVECTIO_GUARDED

// --- attributes ---------------------------------------------------------------------------------

#define ADVECTIO_PUT_ATTRIBUTE(F, TYPE, COUNT, VALUES, ...)                           \
  ADVECTIO_FILE_TO_CHANGE;                                                            \
  const auto call = [&] { return ADVECTIO_REAL(F, ncid, varid, name, __VA_ARGS__); }; \
  return file != nullptr ? put_attribute(*file, varid, name, TYPE, COUNT, VALUES, call) : call()

// TYPE: what these numbers are in memory.
#define ADVECTIO_PUT_ATTRIBUTE_NUMBERS(T, C, TYPE)                                                               \
  ADVECTIO_EXPORT int nc_put_att_##T(int ncid, int varid, const char* name, nc_type type, size_t count,          \
                                     const C* values) try {                                                      \
    ADVECTIO_PUT_ATTRIBUTE(nc_put_att_##T, type, count, type == (TYPE) ? values : nullptr, type, count, values); \
  }                                                                                                              \
  ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_put_att(int ncid, int varid, const char* name, nc_type type, size_t count,
                               const void* values) try {
  ADVECTIO_PUT_ATTRIBUTE(nc_put_att, type, count, values, type, count, values);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_put_att_text(int ncid, int varid, const char* name, size_t count, const char* text) try {
  ADVECTIO_PUT_ATTRIBUTE(nc_put_att_text, NC_CHAR, count, text, count, text);
}
ADVECTIO_GUARDED
ADVECTIO_EXPORT int nc_put_att_string(int ncid, int varid, const char* name, size_t count, const char** strings) try {
  ADVECTIO_PUT_ATTRIBUTE(nc_put_att_string, NC_STRING, count, nullptr, count, strings);
}
ADVECTIO_GUARDED
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(schar, signed char, NC_BYTE)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(uchar, unsigned char, NC_UBYTE)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(ubyte, unsigned char, NC_UBYTE)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(short, short, NC_SHORT)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(ushort, unsigned short, NC_USHORT)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(int, int, NC_INT)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(uint, unsigned int, NC_UINT)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(long, long, sizeof(long) == 8 ? NC_INT64 : NC_INT)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(longlong, long long, NC_INT64)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(ulonglong, unsigned long long, NC_UINT64)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(float, float, NC_FLOAT)
ADVECTIO_PUT_ATTRIBUTE_NUMBERS(double, double, NC_DOUBLE)

ADVECTIO_EXPORT int nc_rename_att(int ncid, int varid, const char* name, const char* new_name) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto call = [&] { return ADVECTIO_REAL(nc_rename_att, ncid, varid, name, new_name); };
  if (file == nullptr || name == nullptr) return call();
  if (is_fill_value(name) || is_fill_value(new_name))
    if (const int code = file->keep_filled(); code != NC_NOERR) return code;
  return rename(*file, Touched::variable, varid, name, new_name, call,
                [&] { file->lib.nc_rename_att(ncid, varid, new_name, name); });
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_del_att(int ncid, int varid, const char* name) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto call = [&] { return ADVECTIO_REAL(nc_del_att, ncid, varid, name); };
  if (file == nullptr) return call();
  if (const int code = before_fill_value(*file, varid, name); code != NC_NOERR) return code;
  return define(*file, Touched::variable, varid, call);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int nc_copy_att(int from, int from_varid, const char* name, int ncid, int varid) try {
  ADVECTIO_FILE_TO_CHANGE;
  const auto call = [&] { return ADVECTIO_REAL(nc_copy_att, from, from_varid, name, ncid, varid); };
  if (file == nullptr) return call();
  nc_type type = NC_NAT;
  std::size_t count = 0;
  if (file->lib.nc_inq_att(from, from_varid, name, &type, &count) != NC_NOERR) return call();
  return put_attribute(*file, varid, name, type, count, nullptr, call);
}
ADVECTIO_GUARDED

}  // namespace advectio::netcdf
