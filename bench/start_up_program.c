// The program of start_up.py: says when its main began and when it ended, in nanoseconds since 1970.
#include <netcdf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int write_small_file(const char* path) {
  static float values[100][100];
  int file, dimensions[2], variable;
  int wrong = nc_create(path, NC_NETCDF4 | NC_CLOBBER, &file);
  if (!wrong) wrong = nc_def_dim(file, "y", 100, &dimensions[0]);
  if (!wrong) wrong = nc_def_dim(file, "x", 100, &dimensions[1]);
  if (!wrong) wrong = nc_def_var(file, "T2", NC_FLOAT, 2, dimensions, &variable);
  if (!wrong) wrong = nc_enddef(file);
  if (!wrong) wrong = nc_put_var_float(file, variable, &values[0][0]);
  if (!wrong) wrong = nc_close(file);
  if (wrong) fprintf(stderr, "%s: %s\n", path, nc_strerror(wrong));
  return wrong;
}

// Arguments: seconds to sleep, and a file to write or nothing.
int main(int argc, char** argv) {
  const int64_t began = now();
  const double seconds = argc > 1 ? atof(argv[1]) : 0;
  const struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&pause, NULL);
  if (argc > 2 && write_small_file(argv[2])) return 1;
  printf("%lld %lld\n", (long long)began, (long long)now());
  return 0;
}
