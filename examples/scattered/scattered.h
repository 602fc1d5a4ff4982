// Calls of the program to an output library: by_pnetcdf.c and by_netcdf.c.
#pragma once

#include "decomposition.h"
#include "options.h"

/// The fill value.
#define HOLE (-999.0F)

struct run {
  struct options options;
  int rank, ranks;
  struct columns columns;
  double in_calls;  // seconds
};

/// A number for each element; none is that of another record or variable.
static inline float value_of(long variable, long record, long level, long column) {
  return (float)((variable * 31 + record * 7 + level) % 101) * 65536.0F + (float)column;
}

void create_file(struct run* run);
void write_frame(struct run* run, int record);
void close_file(struct run* run);
/// Values of a record of a variable, all of them; `levels`: it has levels.
void read_back(struct run* run, int variable, int record, int levels, float* values);
