#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef HAVE_PARALLEL_NETCDF
#include <netcdf_par.h>
#endif

#include "parallel_output.h"
#include "waiting.h"

/* netCDF-Fortran's way into the C library; no header of netCDF-C declares them. */
extern int nc_set_chunk_cache_ints(int megabytes, int elements, int preemption_percent);
extern int nc_def_var_chunking_ints(int ncid, int varid, int storage, int* chunks);

/* WRF halves horizontal chunk lengths until a chunk has no more elements than this. */
static const double chunk_elements_max = 32.0 * 1024 * 1024;

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double thread_cpu_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct Output make_output(const struct Options* options, const struct Input* input, const struct Grid* grid,
                          const struct Fields* fields, MPI_Comm comm, int file_rank) {
  struct Output output = {.options = options, .input = input, .grid = grid, .fields = fields, .comm = comm};
  MPI_Comm_rank(comm, &output.rank);
  output.split = options->order == ORDER_WRF && (options->io == IO_SPLIT || options->io == IO_RAW);
  output.parallel = options->order == ORDER_WRF && is_parallel(options->io);
  output.writes = options->io != IO_NONE && (output.split || output.parallel || output.rank == 0);
  output.file_rank = file_rank;
  if (!output.writes) return output;
  output.dim_map = allocate((size_t)input->dim_count * sizeof *output.dim_map);
  output.var_map = allocate((size_t)input->var_count * sizeof *output.var_map);
  return output;
}

void free_output(struct Output* output) {
  free(output->dim_map);
  free(output->var_map);
  free(output->gathered);
  free(output->whole);
}

static void replace(char text[PATH_MAX], const char* token, const char* by) {
  char* at = strstr(text, token);
  if (at == NULL) return;
  char rest[PATH_MAX];
  snprintf(rest, sizeof rest, "%s", at + strlen(token));
  const size_t room = PATH_MAX - (size_t)(at - text);
  if ((size_t)snprintf(at, room, "%s%s", by, rest) >= room) fail("--output gives too long a name");
}

void name_file(const struct Output* output, int file_number, char path[PATH_MAX]) {
  const struct Input* input = output->input;
  const char* slash = strrchr(input->path, '/');
  const char* base = slash != NULL ? slash + 1 : input->path;
  const char* pattern = output->options->output;
  if (pattern == NULL) {
    pattern = input->times_var < 0              ? "<input>"
              : strncmp(base, "wrfrst", 6) == 0 ? "wrfrst_d<domain>_<date>"
                                                : "wrfout_d<domain>_<date>";
  }
  char number[16], domain[16];
  snprintf(number, sizeof number, "%04d", file_number);
  snprintf(domain, sizeof domain, "%02d", int_att(input, "GRID_ID", 1));
  if ((size_t)snprintf(path, PATH_MAX, "%s", pattern) >= PATH_MAX) fail("--output gives too long a name");
  replace(path, "<n>", number);
  replace(path, "<domain>", domain);
  replace(path, "<date>", date_of(output->fields));
  replace(path, "<input>", base);
  /* MPI takes what stands before a colon for the kind of file system. */
  for (char* c = path; output->parallel && *c != '\0'; ++c) {
    if (*c == ':') *c = '_';
  }
  if (output->file_rank >= 0) {
    char suffix[16];
    snprintf(suffix, sizeof suffix, "_%04d", output->file_rank);
    if (strlen(path) + strlen(suffix) >= PATH_MAX) fail("--output gives too long a name");
    strcat(path, suffix);
  }
}

void make_marker(const struct Output* output) {
  char path[PATH_MAX], number[16];
  snprintf(number, sizeof number, "%03d", output->file_count - 1);
  if ((size_t)snprintf(path, sizeof path, "%s", output->options->marker) >= sizeof path) fail("--marker is too long");
  replace(path, "<n>", number);
  FILE* marker = fopen(path, "w");
  if (marker == NULL) fail("cannot create %s: %s", path, strerror(errno));
  fprintf(marker, "%s\n", output->path);
  if (fclose(marker) != 0) fail("cannot write %s: %s", path, strerror(errno));
}

/* ---- definitions ---- */

static bool is_hdf5(int format) {
  return format == NC_FORMAT_NETCDF4 || format == NC_FORMAT_NETCDF4_CLASSIC;
}

static int chosen_format(const struct Output* output) {
  if (output->options->format != FORMAT_ASKED) return output->options->format;
  return output->parallel && !is_hdf5(output->input->format) ? NC_FORMAT_NETCDF4 : output->input->format;
}

static int create_mode(int format) {
  switch (format) {
    case NC_FORMAT_NETCDF4: return NC_CLOBBER | NC_NETCDF4;
    case NC_FORMAT_NETCDF4_CLASSIC: return NC_CLOBBER | NC_NETCDF4 | NC_CLASSIC_MODEL;
    case NC_FORMAT_64BIT_OFFSET: return NC_CLOBBER | NC_64BIT_OFFSET;
    case NC_FORMAT_64BIT_DATA: return NC_CLOBBER | NC_64BIT_DATA;
    default: return NC_CLOBBER;
  }
}

static size_t length_in_file(const struct Output* output, const struct Dim* dim) {
  return output->split ? span_of(output->grid, dim, output->rank).length : tiled_length(output->grid, dim);
}

static void define_dim(struct Output* output, int d) {
  if (output->dim_map[d] >= 0) return;
  const struct Dim* dim = &output->input->dims[d];
  const size_t length = dim->unlimited ? NC_UNLIMITED : length_in_file(output, dim);
  check(nc_def_dim(output->ncid, dim->name, length, &output->dim_map[d]), "nc_def_dim", dim->name, output->path);
}

static void define_chunks(struct Output* output, const struct Var* var, int varid) {
  int chunks[DIMS_MAX];
  bool halvable = false;
  double elements = 1;
  for (int d = 0; d < var->dim_count; ++d) {
    const struct Dim* dim = &output->input->dims[var->dims[d]];
    size_t chunk = var->chunks[d];
    if (!dim->unlimited) {
      /* The input's habit goes with the length: whole dimensions, or WRF's halves. */
      const size_t length = length_in_file(output, dim);
      if (chunk == dim->length) {
        chunk = length;
      } else if (chunk == (dim->length + 1) / 2) {
        chunk = (length + 1) / 2;
      }
      if (chunk > length) chunk = length;
    }
    chunks[d] = (int)chunk;
    elements *= (double)chunk;
    halvable = halvable || dim->axis != AXIS_NONE;
  }
  while (halvable && elements > chunk_elements_max) {
    elements = 1;
    for (int d = 0; d < var->dim_count; ++d) {
      if (output->input->dims[var->dims[d]].axis != AXIS_NONE) chunks[d] = (chunks[d] + 1) / 2;
      elements *= chunks[d];
    }
  }
  check(nc_def_var_chunking_ints(output->ncid, varid, NC_CHUNKED, chunks), "nc_def_var_chunking", var->name,
        output->path);
}

/* Fields get the deflate level of --deflate: what has an area, as WRF does it. */
static bool is_large(const struct Var* var) {
  return var->has_x || var->has_y || var->dim_count - (var->record ? 1 : 0) >= 2;
}

static void define_storage(struct Output* output, const struct Var* var, int varid) {
  if (!is_hdf5(chosen_format(output)) || var->dim_count == 0) return;
  const int asked = output->options->deflate;
  const bool deflate = asked == DEFLATE_ASKED ? var->deflate : asked > 0 && is_large(var) && var->type != NC_STRING;
  const bool shuffle = asked == DEFLATE_ASKED ? var->shuffle : deflate;
  /* What netCDF chooses by itself is not asked for, as the models do not. */
  if (var->chunked && (var->deflate || var->shuffle || var->has_x || var->has_y)) define_chunks(output, var, varid);
  if (deflate || shuffle) {
    const int level = asked == DEFLATE_ASKED ? var->level : asked;
    check(nc_def_var_deflate(output->ncid, varid, shuffle, deflate, level), "nc_def_var_deflate", var->name,
          output->path);
  }
  if (var->fletcher32) {
    check(nc_def_var_fletcher32(output->ncid, varid, NC_FLETCHER32), "nc_def_var_fletcher32", var->name, output->path);
  }
  if (var->endian == NC_ENDIAN_BIG) {
    check(nc_def_var_endian(output->ncid, varid, NC_ENDIAN_BIG), "nc_def_var_endian", var->name, output->path);
  }
}

static void put_att(const struct Output* output, int varid, const struct Att* att) {
  const int ncid = output->ncid;
  const char* name = att->name;
  const size_t n = att->length;
  int status = NC_NOERR;
  switch (att->type) {
    case NC_CHAR: status = nc_put_att_text(ncid, varid, name, n, att->values); break;
    case NC_BYTE: status = nc_put_att_schar(ncid, varid, name, NC_BYTE, n, att->values); break;
    case NC_SHORT: status = nc_put_att_short(ncid, varid, name, NC_SHORT, n, att->values); break;
    case NC_INT: status = nc_put_att_int(ncid, varid, name, NC_INT, n, att->values); break;
    case NC_FLOAT: status = nc_put_att_float(ncid, varid, name, NC_FLOAT, n, att->values); break;
    case NC_DOUBLE: status = nc_put_att_double(ncid, varid, name, NC_DOUBLE, n, att->values); break;
    case NC_UBYTE: status = nc_put_att_uchar(ncid, varid, name, NC_UBYTE, n, att->values); break;
    case NC_USHORT: status = nc_put_att_ushort(ncid, varid, name, NC_USHORT, n, att->values); break;
    case NC_UINT: status = nc_put_att_uint(ncid, varid, name, NC_UINT, n, att->values); break;
    case NC_INT64: status = nc_put_att_longlong(ncid, varid, name, NC_INT64, n, att->values); break;
    case NC_UINT64: status = nc_put_att_ulonglong(ncid, varid, name, NC_UINT64, n, att->values); break;
    default: status = nc_put_att_string(ncid, varid, name, n, att->values); break;
  }
  check(status, "nc_put_att", name, output->path);
}

/* SCALE gives its missing value as a double, for variables of floats too; netCDF-C converts. (Older netCDF-C took the
 * first bytes of the double for the data set's own fill value: real SCALE files show it.) */
static void put_missing_value(const struct Output* output, int varid, const struct Att* att) {
  char decimal[32];
  snprintf(decimal, sizeof decimal, "%.7g", (double)*(const float*)att->values);
  const double value = strtod(decimal, NULL);
  check(nc_put_att_double(output->ncid, varid, att->name, NC_FLOAT, 1, &value), "nc_put_att", att->name, output->path);
}

static bool is_missing_value(const struct Att* att) {
  return att->type == NC_FLOAT && att->length == 1 &&
         (strcmp(att->name, "_FillValue") == 0 || strcmp(att->name, "missing_value") == 0);
}

static void define_var(struct Output* output, int v) {
  const struct Var* var = &output->input->vars[v];
  int dims[DIMS_MAX];
  for (int d = 0; d < output->input->dim_count; ++d) {
    for (int k = 0; k < var->dim_count; ++k) {
      if (var->dims[k] == d) define_dim(output, d);
    }
  }
  for (int k = 0; k < var->dim_count; ++k) dims[k] = output->dim_map[var->dims[k]];
  int* varid = &output->var_map[v];
  check(nc_def_var(output->ncid, var->name, var->type, var->dim_count, dims, varid), "nc_def_var", var->name,
        output->path);
  define_storage(output, var, *varid);
#ifdef HAVE_PARALLEL_NETCDF
  if (output->parallel) {
    check(nc_var_par_access(output->ncid, *varid, NC_COLLECTIVE), "nc_var_par_access", var->name, output->path);
  }
#endif
  for (int a = 0; a < var->att_count; ++a) {
    if (output->options->order == ORDER_SCALE && is_missing_value(&var->atts[a])) {
      put_missing_value(output, *varid, &var->atts[a]);
    } else {
      put_att(output, *varid, &var->atts[a]);
    }
  }
}

/* Global attributes that tell where a file's patch lies and how large the domain is. */
bool placed_value(const struct Output* output, const char* name, int* value) {
  static const struct {
    const char* axis;
    enum Axis which;
  } axes[] = {{"WEST-EAST_", AXIS_X}, {"SOUTH-NORTH_", AXIS_Y}};
  const struct Grid* grid = output->grid;
  if (!output->split && grid->tiles_x == 1 && grid->tiles_y == 1) return false;
  if (output->split) {
    if (strcmp(name, "NTASKS_X") == 0) return *value = grid->mesh_x, true;
    if (strcmp(name, "NTASKS_Y") == 0) return *value = grid->mesh_y, true;
    if (strcmp(name, "NTASKS_TOTAL") == 0) return *value = grid->mesh_x * grid->mesh_y, true;
  }
  for (int i = 0; i < 2; ++i) {
    const size_t length = strlen(axes[i].axis);
    if ((i == 0 ? grid->input_x : grid->input_y) == 0 || strncmp(name, axes[i].axis, length) != 0) continue;
    const char* rest = name + length;
    const struct Dim mass = {.axis = axes[i].which}, staggered = {.axis = axes[i].which, .staggered = true};
    const struct Dim* dim = strstr(rest, "_UNSTAG") != NULL ? &mass : &staggered;
    struct Span span = {0, tiled_length(grid, dim)};
    if (strcmp(rest, "GRID_DIMENSION") == 0) return *value = (int)span.length, true;
    if (output->split) span = span_of(grid, dim, output->rank);
    if (strncmp(rest, "PATCH_START", 11) == 0) return *value = (int)span.start + 1, true;
    if (strncmp(rest, "PATCH_END", 9) == 0) return *value = (int)(span.start + span.length), true;
  }
  return false;
}

static void put_global_att(const struct Output* output, const struct Att* att) {
  struct Att placed = *att;
  int value = 0;
  if (att->type == NC_INT && att->length == 1 && placed_value(output, att->name, &value)) placed.values = &value;
  put_att(output, NC_GLOBAL, &placed);
}

/* The attributes of a split file that older WRF's serial files lack. */
static int missing_atts(const struct Output* output, struct Att missing[16], int values[16]) {
  if (!output->split) return 0;
  static const char* const names[] = {"WEST-EAST_GRID_DIMENSION",       "SOUTH-NORTH_GRID_DIMENSION",
                                      "WEST-EAST_PATCH_START_UNSTAG",   "WEST-EAST_PATCH_END_UNSTAG",
                                      "WEST-EAST_PATCH_START_STAG",     "WEST-EAST_PATCH_END_STAG",
                                      "SOUTH-NORTH_PATCH_START_UNSTAG", "SOUTH-NORTH_PATCH_END_UNSTAG",
                                      "SOUTH-NORTH_PATCH_START_STAG",   "SOUTH-NORTH_PATCH_END_STAG"};
  int count = 0;
  for (size_t n = 0; n < sizeof names / sizeof names[0]; ++n) {
    if (find_att(output->input->atts, output->input->att_count, names[n]) != NULL) continue;
    if (!placed_value(output, names[n], &values[count])) continue;
    missing[count] = (struct Att){.type = NC_INT, .length = 1, .values = &values[count]};
    snprintf(missing[count].name, sizeof missing[count].name, "%s", names[n]);
    ++count;
  }
  return count;
}

static void create_file(struct Output* output) {
  const struct Input* input = output->input;
  for (int d = 0; d < input->dim_count; ++d) output->dim_map[d] = -1;
  const int mode = create_mode(chosen_format(output));
#ifdef HAVE_PARALLEL_NETCDF
  const int status = output->parallel ? nc_create_par(output->path, mode, output->comm, MPI_INFO_NULL, &output->ncid)
                                      : nc_create(output->path, mode, &output->ncid);
#else
  const int status = nc_create(output->path, mode, &output->ncid);
#endif
  if (status != NC_NOERR) fail("cannot create %s: %s", output->path, nc_strerror(status));
  output->open = true;
  output->record = 0;
  ++output->file_count;
}

static void define_as_wrf(struct Output* output) {
  const struct Input* input = output->input;
  create_file(output);
  check(nc_set_chunk_cache_ints(32, 37, 100), "nc_set_chunk_cache", "", output->path);
  if (input->record_dim >= 0) define_dim(output, input->record_dim);
  if (input->times_var >= 0) define_var(output, input->times_var);
  for (int v = 0; v < input->var_count; ++v) {
    if (v != input->times_var) define_var(output, v);
  }
  for (int d = 0; d < input->dim_count; ++d) define_dim(output, d);
  int old_mode = 0;
  check(nc_set_fill(output->ncid, NC_NOFILL, &old_mode), "nc_set_fill", "", output->path);
  check(nc_enddef(output->ncid), "nc_enddef", "", output->path);
  struct Att missing[16];
  int values[16];
  const int missing_count = missing_atts(output, missing, values);
  for (int a = 0; a < input->att_count + missing_count; ++a) {
    check(nc_redef(output->ncid), "nc_redef", "", output->path);
    put_global_att(output, a < input->att_count ? &input->atts[a] : &missing[a - input->att_count]);
    check(nc_enddef(output->ncid), "nc_enddef", "", output->path);
  }
}

static void define_as_scale(struct Output* output) {
  const struct Input* input = output->input;
  if (chosen_format(output) != NC_FORMAT_NETCDF4) {
    fail("--order scale never leaves define mode, which only netCDF-4 allows: add --format netcdf4");
  }
  create_file(output);
  for (int a = 0; a < input->att_count; ++a) put_global_att(output, &input->atts[a]);
  for (int d = 0; d < input->dim_count; ++d) define_dim(output, d);
  for (int v = 0; v < input->var_count; ++v) define_var(output, v);
}

/* ---- values ---- */

static int put_vara(int ncid, int varid, nc_type type, const size_t* start, const size_t* count, const void* values) {
  switch (type) {
    case NC_CHAR: return nc_put_vara_text(ncid, varid, start, count, values);
    case NC_BYTE: return nc_put_vara_schar(ncid, varid, start, count, values);
    case NC_SHORT: return nc_put_vara_short(ncid, varid, start, count, values);
    case NC_INT: return nc_put_vara_int(ncid, varid, start, count, values);
    case NC_FLOAT: return nc_put_vara_float(ncid, varid, start, count, values);
    case NC_DOUBLE: return nc_put_vara_double(ncid, varid, start, count, values);
    case NC_UBYTE: return nc_put_vara_uchar(ncid, varid, start, count, values);
    case NC_USHORT: return nc_put_vara_ushort(ncid, varid, start, count, values);
    case NC_UINT: return nc_put_vara_uint(ncid, varid, start, count, values);
    case NC_INT64: return nc_put_vara_longlong(ncid, varid, start, count, values);
    case NC_UINT64: return nc_put_vara_ulonglong(ncid, varid, start, count, values);
    default: return nc_put_vara_string(ncid, varid, start, count, (const char**)(void*)(size_t)values);
  }
}

static int put_var(int ncid, int varid, nc_type type, const void* values) {
  switch (type) {
    case NC_CHAR: return nc_put_var_text(ncid, varid, values);
    case NC_BYTE: return nc_put_var_schar(ncid, varid, values);
    case NC_SHORT: return nc_put_var_short(ncid, varid, values);
    case NC_INT: return nc_put_var_int(ncid, varid, values);
    case NC_FLOAT: return nc_put_var_float(ncid, varid, values);
    case NC_DOUBLE: return nc_put_var_double(ncid, varid, values);
    case NC_UBYTE: return nc_put_var_uchar(ncid, varid, values);
    case NC_USHORT: return nc_put_var_ushort(ncid, varid, values);
    case NC_UINT: return nc_put_var_uint(ncid, varid, values);
    case NC_INT64: return nc_put_var_longlong(ncid, varid, values);
    case NC_UINT64: return nc_put_var_ulonglong(ncid, varid, values);
    default: return nc_put_var_string(ncid, varid, (const char**)(void*)(size_t)values);
  }
}

static void put_field(struct Output* output, int v, const void* values, struct FrameTimes* times) {
  const struct Input* input = output->input;
  const struct Var* var = &input->vars[v];
  const int varid = output->var_map[v];
  size_t start[DIMS_MAX] = {0}, count[DIMS_MAX], elements = 1;
  for (int d = 0; d < var->dim_count; ++d) {
    const struct Dim* dim = &input->dims[var->dims[d]];
    const struct Span patch = span_of(output->grid, dim, output->rank);
    if (output->parallel) start[d] = patch.start;
    count[d] = d == 0 && var->record ? 1 : output->parallel ? patch.length : length_in_file(output, dim);
    elements *= count[d];
  }
  if (var->record) start[0] = output->record;
  const bool scale = output->options->order == ORDER_SCALE;
  const double begin = MPI_Wtime();
  int status = NC_NOERR;
  if (scale && !var->record) {
    status = put_var(output->ncid, varid, var->type, values);
  } else if (scale && var->dim_count == 1 && var->type == NC_DOUBLE) {
    status = nc_put_var1_double(output->ncid, varid, start, values);
  } else {
    int dims = 0;
    check(nc_inq_varndims(output->ncid, varid, &dims), "nc_inq_varndims", var->name, output->path);
    status = put_vara(output->ncid, varid, var->type, start, count, values);
  }
  times->put_s += MPI_Wtime() - begin;
  check(status, "nc_put_vara", var->name, output->path);
  times->bytes += (double)elements * (double)var->size;
}

/* ---- gathering ---- */

static size_t whole_bytes(const struct Output* output, int v) {
  const struct Var* var = &output->input->vars[v];
  size_t bytes = var->size;
  for (int d = var->record ? 1 : 0; d < var->dim_count; ++d) {
    bytes *= tiled_length(output->grid, &output->input->dims[var->dims[d]]);
  }
  return bytes;
}

/* Puts one rank's patch where it belongs in the whole field. */
static void place(const struct Output* output, int v, int rank, const char* piece, char* whole) {
  const struct Var* var = &output->input->vars[v];
  const int first = var->record ? 1 : 0, count = var->dim_count - first, last = count - 1;
  struct Span span[DIMS_MAX];
  size_t stride[DIMS_MAX], at[DIMS_MAX] = {0}, step = var->size;
  for (int d = last; d >= 0; --d) {
    const struct Dim* dim = &output->input->dims[var->dims[first + d]];
    span[d] = span_of(output->grid, dim, rank);
    stride[d] = step;
    step *= tiled_length(output->grid, dim);
    if (span[d].length == 0) return;
  }
  const size_t row = span[last].length * var->size;
  for (;;) {
    size_t to = span[last].start * var->size;
    for (int d = 0; d < last; ++d) to += (span[d].start + at[d]) * stride[d];
    memcpy(whole + to, piece, row);
    piece += row;
    int d = last - 1;
    while (d >= 0 && ++at[d] == span[d].length) at[d--] = 0;
    if (d < 0) return;
  }
}

static void make_buffers(struct Output* output) {
  size_t pieces = 0, whole = 0;
  int ranks = 1;
  MPI_Comm_size(output->comm, &ranks);
  for (int v = 0; v < output->input->var_count; ++v) {
    const struct Var* var = &output->input->vars[v];
    if (!var->has_x && !var->has_y) continue;
    size_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += patch_elements(output->fields, v, r) * var->size;
    if (sum > pieces) pieces = sum;
    if (whole_bytes(output, v) > whole) whole = whole_bytes(output, v);
  }
  if (pieces > INT_MAX) fail("a variable has more than 2 GiB in one frame, too much for one MPI gather; tile less");
  output->gathered = allocate(pieces);
  output->whole = allocate(whole);
}

static const void* gather(struct Output* output, int v, struct FrameTimes* times) {
  const struct Var* var = &output->input->vars[v];
  const void* patch = patch_of(output->fields, v);
  int ranks = 1;
  MPI_Comm_size(output->comm, &ranks);
  if (output->split || output->parallel || ranks == 1 || (!var->has_x && !var->has_y)) return patch;
  const double begin = MPI_Wtime();
  int* counts = allocate(2 * (size_t)ranks * sizeof *counts);
  int* displacements = counts + ranks;
  for (int r = 0, at = 0; r < ranks; ++r) {
    counts[r] = (int)(patch_elements(output->fields, v, r) * var->size);
    displacements[r] = at;
    at += counts[r];
  }
  if (output->rank == 0 && output->gathered == NULL) make_buffers(output);
  MPI_Request request;
  MPI_Igatherv(patch, counts[output->rank], MPI_BYTE, output->gathered, counts, displacements, MPI_BYTE, 0,
               output->comm, &request);
  wait_for(&request);
  if (output->rank == 0) {
    for (int r = 0; r < ranks; ++r) place(output, v, r, output->gathered + displacements[r], output->whole);
  }
  free(counts);
  times->gather_s += MPI_Wtime() - begin;
  return output->whole;
}

/* ---- a frame ---- */

static void write_var(struct Output* output, int v, struct FrameTimes* times) {
  if (!output->input->vars[v].record && output->record > 0) return;
  const void* values = gather(output, v, times);
  if (output->writes) put_field(output, v, values, times);
}

/* The least that writing can cost: each rank's bytes as they lie, to a file of its own. */
static void write_raw(struct Output* output, bool last_of_file, struct FrameTimes* times) {
  const double begin = MPI_Wtime();
  if (!output->open) {
    name_file(output, output->file_count++, output->path);
    output->ncid = open(output->path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (output->ncid < 0) fail("cannot create %s: %s", output->path, strerror(errno));
    output->open = true;
    output->record = 0;
  }
  for (int v = 0; v < output->input->var_count; ++v) {
    const struct Var* var = &output->input->vars[v];
    if ((!var->record && output->record > 0) || var->type == NC_STRING) continue;
    const char* at = patch_of(output->fields, v);
    size_t left = patch_elements(output->fields, v, output->rank) * var->size;
    times->bytes += (double)left;
    while (left > 0) {
      const ssize_t n = write(output->ncid, at, left);
      if (n < 0) fail("cannot write %s: %s", output->path, strerror(errno));
      at += n;
      left -= (size_t)n;
    }
  }
  ++output->record;
  times->synced_at = now();
  if (last_of_file) {
    if (close(output->ncid) != 0) fail("cannot close %s: %s", output->path, strerror(errno));
    output->open = false;
    times->closed_at = now();
  }
  times->put_s = times->output_s = MPI_Wtime() - begin;
}

void write_frame(struct Output* output, bool last_of_file, struct FrameTimes* times) {
  if (output->options->io == IO_NONE) return;
  if (output->options->io == IO_RAW) {
    write_raw(output, last_of_file, times);
    return;
  }
#ifdef HAVE_PNETCDF
  if (is_pnetcdf(output->options->io)) {
    write_frame_in_parallel(output, last_of_file, times);
    return;
  }
#endif
  const struct Input* input = output->input;
  const double begin = MPI_Wtime();
  if (!output->open) {
    if (output->writes) {
      name_file(output, output->file_count, output->path);
      const double defined = MPI_Wtime();
      if (output->options->order == ORDER_SCALE) {
        define_as_scale(output);
      } else {
        define_as_wrf(output);
      }
      times->define_s += MPI_Wtime() - defined;
    }
    output->open = true;
    output->record = 0;
  }
  if (output->options->order == ORDER_WRF && input->times_var >= 0) write_var(output, input->times_var, times);
  for (int v = 0; v < input->var_count; ++v) {
    if (output->options->order == ORDER_SCALE || v != input->times_var) write_var(output, v, times);
  }
  ++output->record;
  if (output->writes) {
    double called = MPI_Wtime();
    if (!output->options->no_sync) check(nc_sync(output->ncid), "nc_sync", "", output->path);
    times->sync_s += MPI_Wtime() - called;
    times->synced_at = now();
    if (last_of_file) {
      called = MPI_Wtime();
      check(nc_close(output->ncid), "nc_close", "", output->path);
      times->close_s += MPI_Wtime() - called;
      times->closed_at = now();
    }
  }
  if (last_of_file) output->open = false;
  times->output_s = MPI_Wtime() - begin;
}
