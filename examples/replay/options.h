/* What the user asked for. Parsed once, the same on every rank. */
#pragma once

#include <stdbool.h>

enum Io { IO_SERIAL, IO_SPLIT, IO_PNETCDF, IO_PNETCDF_NONBLOCKING, IO_NETCDF4_PARALLEL, IO_RAW, IO_NONE };
extern const char* const io_names[]; /* by enum Io */
static inline bool is_pnetcdf(enum Io io) {
  return io == IO_PNETCDF || io == IO_PNETCDF_NONBLOCKING;
}
static inline bool is_parallel(enum Io io) {
  return is_pnetcdf(io) || io == IO_NETCDF4_PARALLEL;
}
enum Order { ORDER_WRF, ORDER_SCALE };
enum { FORMAT_ASKED = 0 };   /* otherwise one of netCDF's NC_FORMAT_* */
enum { DEFLATE_ASKED = -1 }; /* otherwise 0 (none) … 9 */

struct Options {
  char** inputs;
  int input_count;
  enum Io io;
  enum Order order;
  int frames;          /* 0: as many as the input has */
  int frames_per_file; /* 0: as the first input file has */
  int tiles_x, tiles_y;
  double target_mb; /* 0: use tiles_x, tiles_y */
  double compute_s;
  long compute_work; /* 0: calibrate from compute_s */
  int deflate;
  int format;
  const char* output; /* null: WRF-like, or the input's own name */
  bool no_sync;       /* only the close ends a file's frames */
  const char* marker; /* null: none */
  const char* report; /* null: none */
};

/* Exits (0 for --help, 2 for an error, said on stderr of the rank with `speak`) when there is nothing to run. */
struct Options parse_options(int argc, char** argv, bool speak);
