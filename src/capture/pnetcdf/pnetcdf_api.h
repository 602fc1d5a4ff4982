// pnetcdf.h with its functions visible, and lists of the families, one line for a dozen functions.
// Nothing of PnetCDF or MPI is linked: the headers give types and numbers only.
#pragma once

#include "capture/shadow/mpi_library.h"

#pragma GCC visibility push(default)
#include <pnetcdf.h>
extern "C" {
// Not in all headers.
int ncmpi_var_set_chunk(int ncid, int varid, int* lengths);
int ncmpi_var_get_chunk(int ncid, int varid, int* lengths);
int ncmpi_var_set_filter(int ncid, int varid, int filter);
int ncmpi_var_get_filter(int ncid, int varid, int* filter);
}
#pragma GCC visibility pop

// Lists, one thought a line.
// clang-format off

/// X(name of the family's members, type in memory, its nc_type)
#define ADVECTIO_MEMORY_TYPES(X)                                  \
  X(text, char, NC_CHAR)                                          \
  X(schar, signed char, NC_BYTE)                                  \
  X(uchar, unsigned char, NC_UBYTE)                               \
  X(short, short, NC_SHORT)                                       \
  X(ushort, unsigned short, NC_USHORT)                            \
  X(int, int, NC_INT)                                             \
  X(uint, unsigned int, NC_UINT)                                  \
  X(long, long, (sizeof(long) == 8 ? NC_INT64 : NC_INT))          \
  X(float, float, NC_FLOAT)                                       \
  X(double, double, NC_DOUBLE)                                    \
  X(longlong, long long, NC_INT64)                                \
  X(ulonglong, unsigned long long, NC_UINT64)

/// X(function): what we catch or call besides the families below.
#define ADVECTIO_PLAIN_FUNCTIONS(X)                                                                                  \
  X(ncmpi_create) X(ncmpi_open) X(ncmpi_close) X(ncmpi_abort) X(ncmpi_delete) X(ncmpi_sync) X(ncmpi_sync_numrecs)    \
  X(ncmpi_redef) X(ncmpi_enddef) X(ncmpi__enddef) X(ncmpi_begin_indep_data) X(ncmpi_end_indep_data) X(ncmpi_flush)   \
  X(ncmpi_set_fill) X(ncmpi_def_var_fill) X(ncmpi_inq_var_fill) X(ncmpi_fill_var_rec) X(ncmpi_inq_file_format)       \
  X(ncmpi_inq) X(ncmpi_inq_format) X(ncmpi_inq_path) X(ncmpi_inq_dim) X(ncmpi_inq_dimlen) X(ncmpi_inq_unlimdim)      \
  X(ncmpi_inq_var) X(ncmpi_inq_varname) X(ncmpi_inq_varid) X(ncmpi_inq_varnatts) X(ncmpi_inq_att)                    \
  X(ncmpi_inq_attname) X(ncmpi_inq_nreqs) X(ncmpi_inq_put_size) X(ncmpi_inq_get_size)                                \
  X(ncmpi_def_dim) X(ncmpi_def_var) X(ncmpi_put_att) X(ncmpi_get_att) X(ncmpi_copy_att) X(ncmpi_del_att)             \
  X(ncmpi_rename_att) X(ncmpi_rename_var) X(ncmpi_rename_dim) X(ncmpi_put_att_ubyte)                                 \
  X(ncmpi_wait) X(ncmpi_wait_all) X(ncmpi_cancel)                                                                    \
  X(ncmpi_inq_header_size) X(ncmpi_inq_header_extent) X(ncmpi_inq_varoffset) X(ncmpi_inq_recsize)                    \
  X(ncmpi_inq_num_rec_vars) X(ncmpi_inq_num_fix_vars) X(ncmpi_inq_file_info) X(ncmpi_get_file_info)                  \
  X(ncmpi_buffer_attach) X(ncmpi_buffer_detach) X(ncmpi_inq_buffer_usage)                   \
  X(ncmpi_var_set_chunk) X(ncmpi_var_get_chunk) X(ncmpi_var_set_filter) X(ncmpi_var_get_filter)                      \
  X(ncmpi_put_vard) X(ncmpi_put_vard_all) X(ncmpi_get_vard) X(ncmpi_get_vard_all)

/// X(function): the families for one type; T is empty for the flexible ones, else an underscore and
/// the type's name.
#define ADVECTIO_FAMILIES(X, T)                                                                                      \
  ADVECTIO_FAMILY(X, var, T) ADVECTIO_FAMILY(X, var1, T) ADVECTIO_FAMILY(X, vara, T) ADVECTIO_FAMILY(X, vars, T)     \
  ADVECTIO_FAMILY(X, varm, T) ADVECTIO_FAMILY(X, varn, T)                                                            \
  ADVECTIO_MANY(X, var, T) ADVECTIO_MANY(X, var1, T) ADVECTIO_MANY(X, vara, T) ADVECTIO_MANY(X, vars, T)             \
  ADVECTIO_MANY(X, varm, T)
#define ADVECTIO_FAMILY(X, FORM, T)                                                                                  \
  X(ncmpi_put_##FORM##T) X(ncmpi_put_##FORM##T##_all) X(ncmpi_get_##FORM##T) X(ncmpi_get_##FORM##T##_all)            \
  X(ncmpi_iput_##FORM##T) X(ncmpi_bput_##FORM##T) X(ncmpi_iget_##FORM##T)
#define ADVECTIO_MANY(X, FORM, T)                                                                                    \
  X(ncmpi_mput_##FORM##T) X(ncmpi_mput_##FORM##T##_all) X(ncmpi_mget_##FORM##T) X(ncmpi_mget_##FORM##T##_all)
// clang-format on
