/* What a run tells about itself, as JSON. */
#pragma once

#include "grid.h"
#include "options.h"
#include "output.h"

enum { MEMCPY_REPEATS = 7 };

struct RunTimes {
  double started_at, ended_at; /* of the loop over frames */
  double run_s;                /* the same, by the monotonic clock */
  double memcpy_s[MEMCPY_REPEATS];
  double memcpy_bytes; /* of the rank with the most */
  long compute_work;
};

/* Copies `bytes` from and to memory touched before, on all ranks with bytes > 0 at once. Collective. */
void measure_memcpy(double bytes, struct RunTimes* run);

/* `frames`: this rank's, `files`: names of this rank's files, one per line. Collective; rank 0 writes. */
void write_report(const struct Options* options, const struct Grid* grid, const struct FrameTimes* frames,
                  int frame_count, char (*dates)[DATE_LENGTH + 1], const char* files, double bytes_per_frame,
                  const struct RunTimes* run);
