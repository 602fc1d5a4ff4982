#include "input.h"

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("replay: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  fflush(NULL);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

void check(int status, const char* what, const char* which, const char* file) {
  if (status == NC_NOERR) return;
  fail("%s%s%s in %s: %s", what, which[0] == '\0' ? "" : " of ", which, file, nc_strerror(status));
}

void* allocate(size_t bytes) {
  void* memory = calloc(1, bytes > 0 ? bytes : 1);
  if (memory == NULL) fail("out of memory: %zu bytes", bytes);
  return memory;
}

static struct Att read_att(const struct Input* input, int var, int number, const char* of) {
  struct Att att = {0};
  check(nc_inq_attname(input->ncid, var, number, att.name), "inq_attname", of, input->path);
  check(nc_inq_att(input->ncid, var, att.name, &att.type, &att.length), "inq_att", att.name, input->path);
  if (att.type > NC_MAX_ATOMIC_TYPE) {
    fail("%s: attribute %s of %s has a user-defined type, which replay does not write", input->path, att.name, of);
  }
  size_t size = 0;
  check(nc_inq_type(input->ncid, att.type, NULL, &size), "inq_type", att.name, input->path);
  att.values = allocate(att.length * size);
  check(nc_get_att(input->ncid, var, att.name, att.values), "get_att", att.name, input->path);
  return att;
}

static struct Dim read_dim(const struct Input* input, int id) {
  static const struct {
    const char* name;
    enum Axis axis;
    bool staggered;
  } horizontal[] = {{"west_east", AXIS_X, false},
                    {"west_east_stag", AXIS_X, true},
                    {"south_north", AXIS_Y, false},
                    {"south_north_stag", AXIS_Y, true}};
  struct Dim dim = {0};
  check(nc_inq_dim(input->ncid, id, dim.name, &dim.length), "inq_dim", "", input->path);
  for (size_t i = 0; i < sizeof horizontal / sizeof horizontal[0]; ++i) {
    if (strcmp(dim.name, horizontal[i].name) == 0) {
      dim.axis = horizontal[i].axis;
      dim.staggered = horizontal[i].staggered;
    }
  }
  return dim;
}

static struct Var read_var(const struct Input* input, int id) {
  struct Var var = {0};
  check(nc_inq_varndims(input->ncid, id, &var.dim_count), "inq_varndims", "", input->path);
  check(nc_inq_varname(input->ncid, id, var.name), "inq_varname", "", input->path);
  if (var.dim_count > DIMS_MAX) fail("%s: %s has more than %d dimensions", input->path, var.name, DIMS_MAX);
  check(nc_inq_var(input->ncid, id, NULL, &var.type, NULL, var.dims, &var.att_count), "inq_var", var.name, input->path);
  if (var.type > NC_MAX_ATOMIC_TYPE) {
    fail("%s: %s has a user-defined type, which replay does not write", input->path, var.name);
  }
  check(nc_inq_type(input->ncid, var.type, NULL, &var.size), "inq_type", var.name, input->path);
  var.atts = allocate((size_t)var.att_count * sizeof *var.atts);
  for (int a = 0; a < var.att_count; ++a) var.atts[a] = read_att(input, id, a, var.name);
  var.endian = NC_ENDIAN_NATIVE;
  if (input->format == NC_FORMAT_NETCDF4 || input->format == NC_FORMAT_NETCDF4_CLASSIC) {
    int storage = 0, shuffle = 0, deflate = 0, fletcher32 = 0;
    check(nc_inq_var_chunking(input->ncid, id, &storage, var.chunks), "inq_var_chunking", var.name, input->path);
    var.chunked = storage == NC_CHUNKED && var.dim_count > 0;
    check(nc_inq_var_deflate(input->ncid, id, &shuffle, &deflate, &var.level), "inq_var_deflate", var.name,
          input->path);
    check(nc_inq_var_fletcher32(input->ncid, id, &fletcher32), "inq_var_fletcher32", var.name, input->path);
    check(nc_inq_var_endian(input->ncid, id, &var.endian), "inq_var_endian", var.name, input->path);
    var.shuffle = shuffle != 0;
    var.deflate = deflate != 0;
    var.fletcher32 = fletcher32 != 0;
  }
  var.record = var.dim_count > 0 && var.dims[0] == input->record_dim;
  var.elements = 1;
  for (int d = var.record ? 1 : 0; d < var.dim_count; ++d) {
    const struct Dim* dim = &input->dims[var.dims[d]];
    if (var.dims[d] == input->record_dim) {
      fail("%s: %s has %s elsewhere than first, which replay does not write", input->path, var.name, dim->name);
    }
    var.elements *= dim->length;
    var.has_x = var.has_x || dim->axis == AXIS_X;
    var.has_y = var.has_y || dim->axis == AXIS_Y;
  }
  return var;
}

static int find_record_dim(const struct Input* input) {
  /* Some files have been cut out of a model's with a fixed Time: the model had it unlimited. */
  static const char* const names[] = {"Time", "time", "time_counter"};
  for (int d = 0; d < input->dim_count; ++d) {
    if (input->dims[d].unlimited) return d;
  }
  for (size_t n = 0; n < sizeof names / sizeof names[0]; ++n) {
    for (int d = 0; d < input->dim_count; ++d) {
      if (strcmp(input->dims[d].name, names[n]) == 0) return d;
    }
  }
  return -1;
}

struct Input read_input(const char* path) {
  struct Input input = {.path = path, .record_dim = -1, .times_var = -1, .frames = 1};
  const int status = nc_open(path, NC_NOWRITE, &input.ncid);
  if (status != NC_NOERR) fail("cannot open %s: %s", path, nc_strerror(status));
  int groups = 0;
  check(nc_inq_format(input.ncid, &input.format), "inq_format", "", path);
  check(nc_inq_grps(input.ncid, &groups, NULL), "inq_grps", "", path);
  if (groups > 0) fail("%s has groups, which replay does not write", path);
  check(nc_inq(input.ncid, &input.dim_count, &input.var_count, &input.att_count, NULL), "inq", "", path);

  input.dims = allocate((size_t)input.dim_count * sizeof *input.dims);
  for (int d = 0; d < input.dim_count; ++d) input.dims[d] = read_dim(&input, d);
  int unlimited_count = 0, unlimited[NC_MAX_DIMS];
  check(nc_inq_unlimdims(input.ncid, &unlimited_count, unlimited), "inq_unlimdims", "", path);
  for (int u = 0; u < unlimited_count; ++u) input.dims[unlimited[u]].unlimited = true;
  input.record_dim = find_record_dim(&input);
  if (input.record_dim >= 0) {
    input.dims[input.record_dim].unlimited = true;
    input.frames = input.dims[input.record_dim].length;
    if (input.frames == 0) fail("%s holds no output time", path);
  }

  input.vars = allocate((size_t)input.var_count * sizeof *input.vars);
  for (int v = 0; v < input.var_count; ++v) input.vars[v] = read_var(&input, v);
  input.atts = allocate((size_t)input.att_count * sizeof *input.atts);
  for (int a = 0; a < input.att_count; ++a) input.atts[a] = read_att(&input, NC_GLOBAL, a, "the file");
  const int times = find_var(&input, "Times");
  if (times >= 0 && input.vars[times].type == NC_CHAR && input.vars[times].record) input.times_var = times;
  return input;
}

void require_same_shape(const struct Input* first, const struct Input* other) {
  bool same = first->var_count == other->var_count && first->record_dim == other->record_dim;
  for (int v = 0; same && v < first->var_count; ++v) {
    const struct Var *a = &first->vars[v], *b = &other->vars[v];
    same = strcmp(a->name, b->name) == 0 && a->type == b->type && a->dim_count == b->dim_count &&
           a->elements == b->elements && a->record == b->record;
    if (!same)
      fail("%s and %s differ in %s; inputs must be output times of one run", first->path, other->path, a->name);
  }
  if (!same)
    fail("%s and %s have not the same variables; inputs must be output times of one run", first->path, other->path);
}

static void free_atts(struct Att* atts, int count) {
  for (int a = 0; a < count; ++a) {
    if (atts[a].type == NC_STRING) nc_free_string(atts[a].length, atts[a].values);
    free(atts[a].values);
  }
  free(atts);
}

void close_input(struct Input* input) {
  nc_close(input->ncid);
  for (int v = 0; v < input->var_count; ++v) free_atts(input->vars[v].atts, input->vars[v].att_count);
  free_atts(input->atts, input->att_count);
  free(input->vars);
  free(input->dims);
}

const struct Att* find_att(const struct Att* atts, int count, const char* name) {
  for (int a = 0; a < count; ++a) {
    if (strcmp(atts[a].name, name) == 0) return &atts[a];
  }
  return NULL;
}

int find_var(const struct Input* input, const char* name) {
  for (int v = 0; v < input->var_count; ++v) {
    if (strcmp(input->vars[v].name, name) == 0) return v;
  }
  return -1;
}

int int_att(const struct Input* input, const char* name, int otherwise) {
  const struct Att* att = find_att(input->atts, input->att_count, name);
  return att != NULL && att->type == NC_INT && att->length == 1 ? *(const int*)att->values : otherwise;
}
