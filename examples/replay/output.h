/* Writing as the models do: which calls, in which order. */
#pragma once

#include <limits.h>

#include "fields.h"
#include "grid.h"
#include "input.h"
#include "options.h"

/* What one rank spent on one frame, and when it was let go. Times of day are seconds since 1970; 0: did not happen. */
struct FrameTimes {
  double define_s, put_s, sync_s, close_s; /* inside netCDF calls */
  double gather_s;                         /* collecting fields from the other ranks */
  double output_s;                         /* all of it, as WRF's own line has it */
  double output_cpu_s;                     /* CPU time of the rank's thread in it */
  double exchange_s;                       /* waiting after it for the others' output to end */
  double marker_s;                         /* making the marker of a closed file */
  double advance_s, compute_s;             /* the model's own */
  double bytes;                            /* given to put calls */
  double synced_at, closed_at;
};

struct Output {
  const struct Options* options;
  const struct Input* input;
  const struct Grid* grid;
  const struct Fields* fields;
  MPI_Comm comm; /* ranks that gather to rank 0 */
  int rank;      /* in it */
  bool split;    /* every rank writes its own patch into a file of its own */
  bool parallel; /* every rank writes its own patch into one file */
  bool writes;
  int file_rank; /* number in the file's name; -1: none */

  int ncid; /* with --io raw a file descriptor */
  bool open;
  char path[PATH_MAX];
  int* dim_map; /* input's dimension → file's, -1: not defined yet */
  int* var_map;
  size_t record;
  int file_count;
  char* gathered; /* rank 0: pieces of one field as they came */
  char* whole;    /* … and the field */
};

struct Output make_output(const struct Options* options, const struct Input* input, const struct Grid* grid,
                          const struct Fields* fields, MPI_Comm comm, int file_rank);
/* The file's name for the frame that the fields are at. */
void name_file(const struct Output* output, int file_number, char path[PATH_MAX]);
/* The marker that says that the newest file is complete: a text file that names it. */
void make_marker(const struct Output* output);
/* The value for a global attribute that tells where a file's patch lies, or how large the domain is. */
bool placed_value(const struct Output* output, const char* name, int* value);
/* Begins a file when none is open, writes the frame, syncs, and closes when `last_of_file`. Collective over comm. */
void write_frame(struct Output* output, bool last_of_file, struct FrameTimes* times);
void free_output(struct Output* output);
double now(void);
double thread_cpu_s(void);
