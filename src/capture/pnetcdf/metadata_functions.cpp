// The shadow keeps the metadata. These functions catch changes, the length of the record dimension,
// fill modes and sizes.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "capture/pnetcdf/parallel_file.h"
#include "capture/pnetcdf/shadow_calls.h"

namespace advectio::pnetcdf {
namespace {

/// `_FillValue` as it is, where it may no longer be set although the shadow would let it: for the
/// shadow all is of one define mode. `undo` puts it back after such a call and gives the
/// library's code.
class LateFill {
 public:
  LateFill(ParallelFile& file, int variable, const char* name);
  int undo(int code);

 private:
  ParallelFile& file_;
  int variable_;
  bool late_ = false, there_ = false;
  Attribute before_;
};

LateFill::LateFill(ParallelFile& file, int variable, const char* name) : file_(file), variable_(variable) {
  late_ = file.defining() && variable >= 0 && static_cast<std::size_t>(variable) < file.schema().variables() &&
          name != nullptr && std::string_view(name) == "_FillValue";
  there_ = late_ && shadow::read_attribute(Calls{file.lib, file.ncid}, variable, name, before_) == NC_NOERR;
}

int LateFill::undo(int code) {
  if (!late_ || code != NC_NOERR) return code;
  const char* name = "_FillValue";
  if (there_)
    file_.lib.ncmpi_put_att(file_.ncid, variable_, name, static_cast<nc_type>(before_.type),
                            static_cast<MPI_Offset>(before_.count), before_.values.data());
  else
    file_.lib.ncmpi_del_att(file_.ncid, variable_, name);
  return NC_ELATEFILL;
}

}  // namespace

// Calls whose answers differ between define mode and data mode (ParallelFile::end_pending).
#define ADVECTIO_BY_MODE(F, PARAMETERS, ...)                                   \
  ADVECTIO_EXPORT int F PARAMETERS try {                                       \
    ADVECTIO_ENTER;                                                            \
    if (auto* file = entry.find(ncid); file != nullptr) {                      \
      if (const int code = file->end_pending(); code != NC_NOERR) return code; \
    }                                                                          \
    return ADVECTIO_REAL(F, __VA_ARGS__);                                      \
  }                                                                            \
  ADVECTIO_GUARDED
ADVECTIO_BY_MODE(ncmpi_def_dim, (int ncid, const char* name, MPI_Offset length, int* id), ncid, name, length, id)
ADVECTIO_BY_MODE(ncmpi_inq_header_size, (int ncid, MPI_Offset* bytes), ncid, bytes)
ADVECTIO_BY_MODE(ncmpi_inq_header_extent, (int ncid, MPI_Offset* bytes), ncid, bytes)
ADVECTIO_BY_MODE(ncmpi_inq_varoffset, (int ncid, int varid, MPI_Offset* bytes), ncid, varid, bytes)
ADVECTIO_BY_MODE(ncmpi_inq_recsize, (int ncid, MPI_Offset* bytes), ncid, bytes)
ADVECTIO_BY_MODE(ncmpi_inq_num_rec_vars, (int ncid, int* count), ncid, count)
ADVECTIO_BY_MODE(ncmpi_inq_num_fix_vars, (int ncid, int* count), ncid, count)
ADVECTIO_BY_MODE(ncmpi_inq_file_info, (int ncid, MPI_Info* info), ncid, info)
ADVECTIO_BY_MODE(ncmpi_get_file_info, (int ncid, MPI_Info* info), ncid, info)
ADVECTIO_BY_MODE(ncmpi_inq_get_size, (int ncid, MPI_Offset* bytes), ncid, bytes)

ADVECTIO_EXPORT int ncmpi_def_var(int ncid, const char* name, nc_type type, int rank, const int* dimensions,
                                  int* id) try {
  constexpr int rank_max = 1024;  // of netCDF-C, which writes the header
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) {
    if (rank > rank_max) {
      if (auto* session = Session::current(); session != nullptr)
        session->say_once(file->path + ": a variable of " + std::to_string(rank) +
                          " dimensions is refused, as there may be " + std::to_string(rank_max) +
                          "; exclude the file by a rule with capture: false");
      return NC_EMAXDIMS;
    }
    if (const int code = file->end_pending(); code != NC_NOERR) return code;
  }
  return ADVECTIO_REAL(ncmpi_def_var, ncid, name, type, rank, dimensions, id);
}
ADVECTIO_GUARDED

// A change may be made in data mode too, where it counts from then on. DONE: what it may have
// changed.
#define ADVECTIO_CHANGE(F, DONE, PARAMETERS, ...)                                     \
  ADVECTIO_EXPORT int F PARAMETERS try {                                              \
    ADVECTIO_ENTER;                                                                   \
    auto* file = entry.find(ncid);                                                    \
    if (file == nullptr) return ADVECTIO_REAL(F, __VA_ARGS__);                        \
    if (const int settled = file->end_pending(); settled != NC_NOERR) return settled; \
    Collective in_call(file->collective_out(!file->defining()));                      \
    const int code = ADVECTIO_REAL(F, __VA_ARGS__);                                   \
    /* A value that is out of range is kept all the same. */                          \
    if (code == NC_NOERR || code == NC_ERANGE)                                        \
      file->DONE;                                                                     \
    else                                                                              \
      in_call.refused();                                                              \
    return code;                                                                      \
  }                                                                                   \
  ADVECTIO_GUARDED

#define ADVECTIO_PUT_ATT(F, PARAMETERS, ...)                                          \
  ADVECTIO_EXPORT int F PARAMETERS try {                                              \
    ADVECTIO_ENTER;                                                                   \
    auto* file = entry.find(ncid);                                                    \
    if (file == nullptr) return ADVECTIO_REAL(F, __VA_ARGS__);                        \
    if (const int settled = file->end_pending(); settled != NC_NOERR) return settled; \
    Collective in_call(file->collective_out(!file->defining()));                      \
    LateFill late(*file, varid, name);                                                \
    const int code = late.undo(ADVECTIO_REAL(F, __VA_ARGS__));                        \
    if (code == NC_NOERR || code == NC_ERANGE)                                        \
      file->touch(varid);                                                             \
    else                                                                              \
      in_call.refused();                                                              \
    return code;                                                                      \
  }                                                                                   \
  ADVECTIO_GUARDED
#define ADVECTIO_PUT_ATTRIBUTE(T, TYPE)                                                                               \
  ADVECTIO_PUT_ATT(ncmpi_put_att_##T,                                                                                 \
                   (int ncid, int varid, const char* name, nc_type type, MPI_Offset count, const TYPE* values), ncid, \
                   varid, name, type, count, values)
ADVECTIO_PUT_ATT(ncmpi_put_att_text, (int ncid, int varid, const char* name, MPI_Offset count, const char* values),
                 ncid, varid, name, count, values)
ADVECTIO_PUT_ATTRIBUTE(schar, signed char)
ADVECTIO_PUT_ATTRIBUTE(uchar, unsigned char)
ADVECTIO_PUT_ATTRIBUTE(ubyte, unsigned char)
ADVECTIO_PUT_ATTRIBUTE(short, short)
ADVECTIO_PUT_ATTRIBUTE(ushort, unsigned short)
ADVECTIO_PUT_ATTRIBUTE(int, int)
ADVECTIO_PUT_ATTRIBUTE(uint, unsigned int)
ADVECTIO_PUT_ATTRIBUTE(long, long)
ADVECTIO_PUT_ATTRIBUTE(float, float)
ADVECTIO_PUT_ATTRIBUTE(double, double)
ADVECTIO_PUT_ATTRIBUTE(longlong, long long)
ADVECTIO_PUT_ATTRIBUTE(ulonglong, unsigned long long)
ADVECTIO_PUT_ATT(ncmpi_put_att,
                 (int ncid, int varid, const char* name, nc_type type, MPI_Offset count, const void* values), ncid,
                 varid, name, type, count, values)
ADVECTIO_CHANGE(ncmpi_rename_dim, touch_dimensions(), (int ncid, int dimid, const char* name), ncid, dimid, name)
ADVECTIO_CHANGE(ncmpi_rename_var, touch(varid), (int ncid, int varid, const char* name), ncid, varid, name)
ADVECTIO_CHANGE(ncmpi_rename_att, touch(varid), (int ncid, int varid, const char* name, const char* next), ncid, varid,
                name, next)
ADVECTIO_CHANGE(ncmpi_del_att, touch(varid), (int ncid, int varid, const char* name), ncid, varid, name)
ADVECTIO_CHANGE(ncmpi_copy_att, touch(varid), (int from, int from_variable, const char* name, int ncid, int varid),
                from, from_variable, name, ncid, varid)

ADVECTIO_EXPORT int ncmpi_inq_dim(int ncid, int dimid, char* name, MPI_Offset* length) try {
  ADVECTIO_ENTER;
  const int code = ADVECTIO_REAL(ncmpi_inq_dim, ncid, dimid, name, length);
  if (auto* file = entry.find(ncid);
      file != nullptr && code == NC_NOERR && length != nullptr && dimid == file->variables().record_dimension())
    *length = static_cast<MPI_Offset>(file->out().records());
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_inq_dimlen(int ncid, int dimid, MPI_Offset* length) try {
  ADVECTIO_ENTER;
  const int code = ADVECTIO_REAL(ncmpi_inq_dimlen, ncid, dimid, length);
  if (auto* file = entry.find(ncid);
      file != nullptr && code == NC_NOERR && length != nullptr && dimid == file->variables().record_dimension())
    *length = static_cast<MPI_Offset>(file->out().records());
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_set_fill(int ncid, int mode, int* before) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_set_fill, ncid, mode, before);
  if (const int settled = file->end_pending(); settled != NC_NOERR) return settled;
  const int code = ADVECTIO_REAL(ncmpi_set_fill, ncid, mode, before);
  // It holds for all that have been defined so far.
  if (code == NC_NOERR) file->fill_modes().set_all(mode == NC_FILL);
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_def_var_fill(int ncid, int varid, int no_fill, const void* value) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_def_var_fill, ncid, varid, no_fill, value);
  if (const int settled = file->end_pending(); settled != NC_NOERR) return settled;
  const bool puts_value = value != nullptr && no_fill == 0;
  LateFill late(*file, puts_value ? varid : -1, "_FillValue");
  const int code = late.undo(ADVECTIO_REAL(ncmpi_def_var_fill, ncid, varid, no_fill, value));
  // Too late for the value is not too late for the mode.
  if (code == NC_NOERR || code == NC_ELATEFILL) file->fill_modes().set(varid, no_fill == 0);
  if (code == NC_NOERR && puts_value) file->touch(varid);
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_inq_var_fill(int ncid, int varid, int* no_fill, void* value) try {
  ADVECTIO_ENTER;
  const int code = ADVECTIO_REAL(ncmpi_inq_var_fill, ncid, varid, no_fill, value);
  if (auto* file = entry.find(ncid);
      file != nullptr && code == NC_NOERR && no_fill != nullptr && file->fill_modes().kept(varid))
    *no_fill = file->fill_modes().filled(varid) ? 0 : 1;
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_fill_var_rec(int ncid, int varid, MPI_Offset record) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_fill_var_rec, ncid, varid, record);
  Collective in_call(file->collective_out());
  bool refused = false;
  const int code = file->fill_record(varid, record, refused);
  if (refused) in_call.refused();
  return code;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_inq_path(int ncid, int* length, char* path) try {
  ADVECTIO_ENTER;
  const auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_inq_path, ncid, length, path);
  if (length != nullptr) *length = static_cast<int>(file->path.size());
  if (path != nullptr) std::strcpy(path, file->path.c_str());
  return NC_NOERR;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_inq_put_size(int ncid, MPI_Offset* bytes) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file != nullptr) {
    if (const int settled = file->end_pending(); settled != NC_NOERR) return settled;
  }
  const int code = ADVECTIO_REAL(ncmpi_inq_put_size, ncid, bytes);
  if (file != nullptr && code == NC_NOERR && bytes != nullptr) *bytes += static_cast<MPI_Offset>(file->bytes_put);
  return code;
}
ADVECTIO_GUARDED

// Chunks and filters, which some builds of PnetCDF have. A dataset of ours has neither.
#define ADVECTIO_REFUSED(F, TYPE)                                                                                \
  ADVECTIO_EXPORT int F(int ncid, int varid, TYPE value) try {                                                   \
    ADVECTIO_ENTER;                                                                                              \
    const auto* file = entry.find(ncid);                                                                         \
    if (file == nullptr) return ADVECTIO_REAL(F, ncid, varid, value);                                            \
    if (auto* session = Session::current(); session != nullptr)                                                  \
      session->say_once(file->path + ": " #F " is not carried; exclude the file by a rule with capture: false"); \
    return NC_ENOTSUPPORT;                                                                                       \
  }                                                                                                              \
  ADVECTIO_GUARDED
ADVECTIO_REFUSED(ncmpi_var_set_chunk, int*)
ADVECTIO_REFUSED(ncmpi_var_get_chunk, int*)
ADVECTIO_REFUSED(ncmpi_var_set_filter, int)
ADVECTIO_REFUSED(ncmpi_var_get_filter, int*)

ADVECTIO_EXPORT int ncmpi_inq_nreqs(int ncid, int* count) try {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_inq_nreqs, ncid, count);
  if (count != nullptr) *count = file->requests().pending();
  return NC_NOERR;
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_wait(int ncid, int count, int* ids, int* statuses) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->wait(false, count, ids, statuses);
  return ADVECTIO_REAL(ncmpi_wait, ncid, count, ids, statuses);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_wait_all(int ncid, int count, int* ids, int* statuses) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->wait(true, count, ids, statuses);
  return ADVECTIO_REAL(ncmpi_wait_all, ncid, count, ids, statuses);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_cancel(int ncid, int count, int* ids, int* statuses) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->cancel(count, ids, statuses);
  return ADVECTIO_REAL(ncmpi_cancel, ncid, count, ids, statuses);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_buffer_attach(int ncid, MPI_Offset bytes) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->requests().attach(bytes);
  return ADVECTIO_REAL(ncmpi_buffer_attach, ncid, bytes);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_buffer_detach(int ncid) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->requests().detach();
  return ADVECTIO_REAL(ncmpi_buffer_detach, ncid);
}
ADVECTIO_GUARDED

ADVECTIO_EXPORT int ncmpi_inq_buffer_usage(int ncid, MPI_Offset* bytes) try {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->requests().usage(bytes);
  return ADVECTIO_REAL(ncmpi_inq_buffer_usage, ncid, bytes);
}
ADVECTIO_GUARDED

}  // namespace advectio::pnetcdf
