/* An ordinary netCDF program that has never heard of Advectio: three frames of one field. */
#include <netcdf.h>
#include <stdio.h>
#include <stdlib.h>

enum { frames = 3, rows = 100, columns = 200 };

static void check(int status) {
  if (status == NC_NOERR) return;
  fprintf(stderr, "frames: %s\n", nc_strerror(status));
  exit(1);
}

int main(int argc, char** argv) {
  static float field[rows][columns];
  int file, dimensions[3], variable;
  if (argc != 2) return 2;
  check(nc_create(argv[1], NC_NETCDF4 | NC_CLOBBER, &file));
  check(nc_def_dim(file, "time", NC_UNLIMITED, &dimensions[0]));
  check(nc_def_dim(file, "y", rows, &dimensions[1]));
  check(nc_def_dim(file, "x", columns, &dimensions[2]));
  check(nc_def_var(file, "h", NC_FLOAT, 3, dimensions, &variable));
  check(nc_def_var_deflate(file, variable, 1, 1, 2));
  check(nc_put_att_text(file, variable, "units", 1, "m"));
  check(nc_enddef(file));
  for (size_t t = 0; t < frames; ++t) {
    const size_t start[] = {t, 0, 0}, count[] = {1, rows, columns};
    for (int j = 0; j < rows; ++j)
      for (int i = 0; i < columns; ++i) field[j][i] = (float)t + (float)j / rows + (float)(i * i) / columns;
    check(nc_put_vara_float(file, variable, start, count, &field[0][0]));
    check(nc_sync(file));
  }
  check(nc_close(file));
  return 0;
}
