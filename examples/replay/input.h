/* The input as netCDF shows it: what there is, not yet any values. */
#pragma once

#include <netcdf.h>
#include <stdbool.h>
#include <stddef.h>

enum { DIMS_MAX = 8 };

enum Axis { AXIS_NONE, AXIS_X, AXIS_Y };

struct Dim {
  char name[NC_MAX_NAME + 1];
  size_t length;
  bool unlimited;
  enum Axis axis; /* WRF's horizontal dimensions only */
  bool staggered;
};

struct Att {
  char name[NC_MAX_NAME + 1];
  nc_type type;
  size_t length;
  void* values;
};

struct Var {
  char name[NC_MAX_NAME + 1];
  nc_type type;
  size_t size; /* of one element */
  int dim_count;
  int dims[DIMS_MAX];
  int att_count;
  struct Att* atts;
  bool record; /* its first dimension is the record dimension */
  bool has_x, has_y;
  bool chunked;
  size_t chunks[DIMS_MAX];
  bool shuffle, deflate, fletcher32;
  int level;
  int endian;
  size_t elements; /* of one record, or of all where there are none */
};

struct Input {
  const char* path;
  int ncid;
  int format;
  int dim_count, var_count, att_count;
  struct Dim* dims;
  struct Var* vars;
  struct Att* atts;
  int record_dim; /* -1: none */
  int times_var;  /* `Times`, or -1 */
  size_t frames;
};

/* Opens and describes the file. It stays open. Any failure ends the program with one line. */
struct Input read_input(const char* path);
/* Ends the program unless both have the same variables of the same shape (times may differ in number). */
void require_same_shape(const struct Input* first, const struct Input* other);
void close_input(struct Input* input);

const struct Att* find_att(const struct Att* atts, int count, const char* name);
int find_var(const struct Input* input, const char* name);
/* A whole number out of a global attribute, or `otherwise`. */
int int_att(const struct Input* input, const char* name, int otherwise);

/* Ends all ranks with one line on stderr. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char* format, ...);
/* The same when `status` is a netCDF error: WHAT of WHICH in FILE: netCDF's words. */
void check(int status, const char* what, const char* which, const char* file);
void* allocate(size_t bytes);
