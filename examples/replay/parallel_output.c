/* Writing by PnetCDF: all ranks write one file, each its own patch. */
#include "parallel_output.h"

#include <mpi.h>
#include <netcdf.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_parallel(int status, const char* what, const char* which, const char* file) {
  if (status != NC_NOERR) fail("%s of %s in %s: %s", what, which, file, ncmpi_strerror(status));
}

static int create_mode(const struct Output* output) {
  switch (output->options->format) {
    case NC_FORMAT_CLASSIC: return NC_CLOBBER;
    case NC_FORMAT_64BIT_DATA: return NC_CLOBBER | NC_64BIT_DATA;
    case FORMAT_ASKED:
    case NC_FORMAT_64BIT_OFFSET: return NC_CLOBBER | NC_64BIT_OFFSET; /* what WRF always asks for */
    default: fail("PnetCDF writes classic, 64bit-offset and cdf5 only");
  }
}

static void put_att(const struct Output* output, int varid, const struct Att* att) {
  const int ncid = output->ncid;
  const MPI_Offset n = (MPI_Offset)att->length;
  int status = NC_NOERR;
  switch (att->type) {
    case NC_CHAR: status = ncmpi_put_att_text(ncid, varid, att->name, n, att->values); break;
    case NC_INT: status = ncmpi_put_att_int(ncid, varid, att->name, NC_INT, n, att->values); break;
    case NC_FLOAT: status = ncmpi_put_att_float(ncid, varid, att->name, NC_FLOAT, n, att->values); break;
    case NC_DOUBLE: status = ncmpi_put_att_double(ncid, varid, att->name, NC_DOUBLE, n, att->values); break;
    default: status = ncmpi_put_att(ncid, varid, att->name, att->type, n, att->values); break;
  }
  check_parallel(status, "ncmpi_put_att", att->name, output->path);
}

static void define_dim(struct Output* output, int d) {
  if (output->dim_map[d] >= 0) return;
  const struct Dim* dim = &output->input->dims[d];
  const MPI_Offset length = dim->unlimited ? NC_UNLIMITED : (MPI_Offset)tiled_length(output->grid, dim);
  check_parallel(ncmpi_def_dim(output->ncid, dim->name, length, &output->dim_map[d]), "ncmpi_def_dim", dim->name,
                 output->path);
}

static void define_var(struct Output* output, int v) {
  const struct Var* var = &output->input->vars[v];
  int dims[DIMS_MAX];
  for (int k = 0; k < var->dim_count; ++k) define_dim(output, var->dims[k]);
  for (int k = 0; k < var->dim_count; ++k) dims[k] = output->dim_map[var->dims[k]];
  check_parallel(ncmpi_def_var(output->ncid, var->name, var->type, var->dim_count, dims, &output->var_map[v]),
                 "ncmpi_def_var", var->name, output->path);
  for (int a = 0; a < var->att_count; ++a) put_att(output, output->var_map[v], &var->atts[a]);
}

/* The bytes that this rank puts of a frame. */
static MPI_Offset own_bytes(const struct Output* output) {
  MPI_Offset bytes = 0;
  for (int v = 0; v < output->input->var_count; ++v)
    bytes += (MPI_Offset)(patch_elements(output->fields, v, output->rank) * output->input->vars[v].size);
  return bytes;
}

static void define(struct Output* output) {
  const struct Input* input = output->input;
  for (int d = 0; d < input->dim_count; ++d) output->dim_map[d] = -1;
  const int status = ncmpi_create(output->comm, output->path, create_mode(output), MPI_INFO_NULL, &output->ncid);
  if (status != NC_NOERR) fail("cannot create %s: %s", output->path, ncmpi_strerror(status));
  ++output->file_count;
  if (input->record_dim >= 0) define_dim(output, input->record_dim);
  if (input->times_var >= 0) define_var(output, input->times_var);
  for (int v = 0; v < input->var_count; ++v) {
    if (v != input->times_var) define_var(output, v);
  }
  int old_mode = 0;
  check_parallel(ncmpi_set_fill(output->ncid, NC_NOFILL, &old_mode), "ncmpi_set_fill", "", output->path);
  check_parallel(ncmpi_enddef(output->ncid), "ncmpi_enddef", "", output->path);
  for (int a = 0; a < input->att_count; ++a) {
    struct Att placed = input->atts[a];
    int value = 0;
    if (placed.type == NC_INT && placed.length == 1 && placed_value(output, placed.name, &value))
      placed.values = &value;
    check_parallel(ncmpi_redef(output->ncid), "ncmpi_redef", "", output->path);
    put_att(output, NC_GLOBAL, &placed);
    check_parallel(ncmpi_enddef(output->ncid), "ncmpi_enddef", "", output->path);
  }
  if (output->options->io == IO_PNETCDF_NONBLOCKING && own_bytes(output) > 0)
    check_parallel(ncmpi_buffer_attach(output->ncid, own_bytes(output)), "ncmpi_buffer_attach", "", output->path);
}

static int put_vara_all(int ncid, int varid, nc_type type, const MPI_Offset* start, const MPI_Offset* count,
                        const void* values) {
  switch (type) {
    case NC_CHAR: return ncmpi_put_vara_text_all(ncid, varid, start, count, values);
    case NC_INT: return ncmpi_put_vara_int_all(ncid, varid, start, count, values);
    case NC_FLOAT: return ncmpi_put_vara_float_all(ncid, varid, start, count, values);
    case NC_DOUBLE: return ncmpi_put_vara_double_all(ncid, varid, start, count, values);
    default: return ncmpi_put_vara_all(ncid, varid, start, count, values, 0, MPI_DATATYPE_NULL);
  }
}

/* Fields by bput, which may be used again at once, and what is small by iput: as SCALE and ParallelIO do. */
static int post_vara(int ncid, const struct Var* var, int varid, const MPI_Offset* start, const MPI_Offset* count,
                     const void* values) {
  const bool field = var->has_x || var->has_y;
  if (field && var->type == NC_FLOAT) return ncmpi_bput_vara_float(ncid, varid, start, count, values, NULL);
  if (field && var->type == NC_DOUBLE) return ncmpi_bput_vara_double(ncid, varid, start, count, values, NULL);
  return ncmpi_iput_vara(ncid, varid, start, count, values, 0, MPI_DATATYPE_NULL, NULL);
}

static void put_field(struct Output* output, int v, struct FrameTimes* times) {
  const struct Input* input = output->input;
  const struct Var* var = &input->vars[v];
  if (!var->record && output->record > 0) return;
  MPI_Offset start[DIMS_MAX] = {0}, count[DIMS_MAX];
  for (int d = 0; d < var->dim_count; ++d) {
    const struct Span span = span_of(output->grid, &input->dims[var->dims[d]], output->rank);
    start[d] = (MPI_Offset)span.start;
    count[d] = (MPI_Offset)span.length;
  }
  if (var->record) {
    start[0] = (MPI_Offset)output->record;
    count[0] = 1;
  }
  const void* values = patch_of(output->fields, v);
  const double begin = MPI_Wtime();
  const int status = output->options->io == IO_PNETCDF
                         ? put_vara_all(output->ncid, output->var_map[v], var->type, start, count, values)
                         : post_vara(output->ncid, var, output->var_map[v], start, count, values);
  times->put_s += MPI_Wtime() - begin;
  check_parallel(status, "ncmpi_put_vara", var->name, output->path);
  times->bytes += (double)patch_elements(output->fields, v, output->rank) * (double)var->size;
}

void write_frame_in_parallel(struct Output* output, bool last_of_file, struct FrameTimes* times) {
  const struct Input* input = output->input;
  const double begin = MPI_Wtime();
  if (!output->open) {
    name_file(output, output->file_count, output->path);
    define(output);
    times->define_s += MPI_Wtime() - begin;
    output->open = true;
    output->record = 0;
  }
  if (input->times_var >= 0) put_field(output, input->times_var, times);
  for (int v = 0; v < input->var_count; ++v) {
    if (v != input->times_var) put_field(output, v, times);
  }
  ++output->record;
  double called = MPI_Wtime();
  if (output->options->io == IO_PNETCDF_NONBLOCKING) {
    check_parallel(ncmpi_wait_all(output->ncid, NC_REQ_ALL, NULL, NULL), "ncmpi_wait_all", "", output->path);
    times->put_s += MPI_Wtime() - called;
    called = MPI_Wtime();
  }
  if (!output->options->no_sync) check_parallel(ncmpi_sync(output->ncid), "ncmpi_sync", "", output->path);
  times->sync_s += MPI_Wtime() - called;
  times->synced_at = now();
  if (last_of_file) {
    called = MPI_Wtime();
    if (output->options->io == IO_PNETCDF_NONBLOCKING && own_bytes(output) > 0)
      check_parallel(ncmpi_buffer_detach(output->ncid), "ncmpi_buffer_detach", "", output->path);
    check_parallel(ncmpi_close(output->ncid), "ncmpi_close", "", output->path);
    times->close_s += MPI_Wtime() - called;
    times->closed_at = now();
    output->open = false;
  }
  times->output_s = MPI_Wtime() - begin;
}
