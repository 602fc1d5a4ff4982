// netcdf.h with its functions visible, and lists of the families, one line for some fourteen
// functions. Nothing of netCDF-C is linked: the header gives types and numbers only.
#pragma once

#pragma GCC visibility push(default)
#include <netcdf.h>
extern "C" {
// Younger than some installed headers, or (the `_fortran` ones and those of netcdf_par.h) declared
// where MPI is needed. A communicator is an int with one MPI and a pointer with another; either
// travels unharmed in a pointer.
int nc_inq_var_filter_ids(int ncid, int varid, size_t* count, unsigned int* ids);
int nc_inq_var_filter_info(int ncid, int varid, unsigned int id, size_t* count, unsigned int* parameters);
int nc_def_var_filter(int ncid, int varid, unsigned int id, size_t count, const unsigned int* parameters);
int nc_def_var_quantize(int ncid, int varid, int mode, int digits);
int nc_inq_var_quantize(int ncid, int varid, int* mode, int* digits);
int nc_def_var_szip(int ncid, int varid, int options_mask, int pixels_per_block);
int nc_def_var_zstandard(int ncid, int varid, int level);
int nc_def_var_blosc(int ncid, int varid, unsigned subcompressor, unsigned level, unsigned blocksize,
                     unsigned addshuffle);
int nc_def_var_bzip2(int ncid, int varid, int level);
int nc_def_var_chunking_ints(int ncid, int varid, int contiguous, int* chunk_sizes);
int nc_create_par(const char* path, int mode, void* comm, void* info, int* ncid);
int nc_open_par(const char* path, int mode, void* comm, void* info, int* ncid);
int nc_create_par_fortran(const char* path, int mode, int comm, int info, int* ncid);
int nc_open_par_fortran(const char* path, int mode, int comm, int info, int* ncid);
int nc_var_par_access(int ncid, int varid, int access);
int nc__create_mp(const char* path, int mode, size_t initial, int pe, size_t* hint, int* ncid);
int nc__open_mp(const char* path, int mode, int pe, size_t* hint, int* ncid);
int nc_close_memio(int ncid, void* memory);
int nc_set_alignment(int threshold, int alignment);
// In no header, and exported by all versions.
int nc_inq_rec(int ncid, size_t* count, int* varids, size_t* bytes);
int nc_put_rec(int ncid, size_t record, void* const* data);
int nc_get_rec(int ncid, size_t record, void** data);
int ncaux_begin_compound(int ncid, const char* name, int alignment, void** tag);
}
#pragma GCC visibility pop

#ifndef NC_QUANTIZE_BITROUND
// Lists, one thought a line.
// clang-format off
#define NC_NOQUANTIZE 0
#define NC_QUANTIZE_BITROUND 3
#endif
#ifndef NC_COMPACT
#define NC_COMPACT 2
#endif
// Of netcdf_par.h, which wants MPI.
#ifndef NC_COLLECTIVE
#define NC_INDEPENDENT 0
#define NC_COLLECTIVE 1
#endif

namespace advectio::netcdf {

constexpr nc_type long_type = sizeof(long) == sizeof(int) ? NC_INT : NC_INT64;

/// X(name of the family's members, what is put, what is got, nc_type in memory)
#define ADVECTIO_MEMORY_TYPES(X)                                          \
  X(text, const char, char, NC_CHAR)                                      \
  X(schar, const signed char, signed char, NC_BYTE)                       \
  X(uchar, const unsigned char, unsigned char, NC_UBYTE)                  \
  X(ubyte, const unsigned char, unsigned char, NC_UBYTE)                  \
  X(short, const short, short, NC_SHORT)                                  \
  X(ushort, const unsigned short, unsigned short, NC_USHORT)              \
  X(int, const int, int, NC_INT)                                          \
  X(uint, const unsigned int, unsigned int, NC_UINT)                      \
  X(long, const long, long, ::advectio::netcdf::long_type)                        \
  X(longlong, const long long, long long, NC_INT64)                       \
  X(ulonglong, const unsigned long long, unsigned long long, NC_UINT64)   \
  X(float, const float, float, NC_FLOAT)                                  \
  X(double, const double, double, NC_DOUBLE)                              \
  X(string, const char*, char*, NC_STRING)

/// X(function): every function of the real library that we call, except those of the typed
/// families.
#define ADVECTIO_PLAIN_FUNCTIONS(X)                                                                              \
  X(nc_create) X(nc__create) X(nc__create_mp) X(nc_create_par) X(nc_create_par_fortran)                          \
  X(nc_open) X(nc__open) X(nc__open_mp) X(nc_open_par) X(nc_open_par_fortran) X(nc_var_par_access)               \
  X(nc_close) X(nc_close_memio) X(nc_abort) X(nc_sync) X(nc_redef) X(nc_enddef) X(nc__enddef) X(nc_set_fill)     \
  X(nc_set_alignment) X(nc_set_default_format)                                                                   \
  X(nc_inq_path) X(nc_inq_format) X(nc_inq_format_extended) X(nc_inq) X(nc_inq_unlimdims) X(nc_inq_unlimdim)     \
  X(nc_def_dim) X(nc_inq_dim) X(nc_inq_dimid) X(nc_inq_dimlen) X(nc_rename_dim)                                  \
  X(nc_def_var) X(nc_rename_var) X(nc_inq_var) X(nc_inq_varid) X(nc_inq_varname) X(nc_inq_varnatts)              \
  X(nc_def_var_fill) X(nc_inq_var_fill) X(nc_def_var_chunking) X(nc_def_var_chunking_ints)                       \
  X(nc_inq_var_chunking) X(nc_def_var_deflate) X(nc_inq_var_deflate) X(nc_def_var_fletcher32)                    \
  X(nc_inq_var_fletcher32) X(nc_def_var_szip) X(nc_def_var_endian) X(nc_inq_var_endian) X(nc_def_var_filter)     \
  X(nc_inq_var_filter_ids) X(nc_inq_var_filter_info) X(nc_def_var_quantize) X(nc_inq_var_quantize)               \
  X(nc_def_var_zstandard) X(nc_def_var_blosc) X(nc_def_var_bzip2)                                                \
  X(nc_inq_att) X(nc_inq_attname) X(nc_rename_att) X(nc_del_att) X(nc_copy_att) X(nc_copy_var) X(nc_put_att)     \
  X(nc_get_att) X(nc_get_att_string) X(nc_free_string)                                                           \
  X(nc_inq_rec) X(nc_put_rec) X(nc_get_rec) X(nc_advise) X(ncaux_begin_compound)                                 \
  X(nc_inq_grps) X(nc_inq_typeids) X(nc_def_grp) X(nc_def_compound) X(nc_def_vlen) X(nc_def_opaque) X(nc_def_enum)                                \
  X(nc_put_var) X(nc_put_var1) X(nc_put_vara) X(nc_put_vars) X(nc_put_varm)                                      \
  X(nc_get_var) X(nc_get_var1) X(nc_get_vara) X(nc_get_vars) X(nc_get_varm)

/// X(function): the typed families.
#define ADVECTIO_TYPED_FUNCTIONS(X, T)                                                                     \
  X(nc_put_att_##T) X(nc_put_var_##T) X(nc_put_var1_##T) X(nc_put_vara_##T) X(nc_put_vars_##T)             \
  X(nc_put_varm_##T) X(nc_get_var_##T) X(nc_get_var1_##T) X(nc_get_vara_##T) X(nc_get_vars_##T)            \
  X(nc_get_varm_##T)
// clang-format on

}  // namespace advectio::netcdf
