/* A model that writes three frames by netCDF-C: how it is linked is what the test is about. */
#include <netcdf.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int code) {
  if (code == NC_NOERR) return;
  fprintf(stderr, "model: %s\n", nc_strerror(code));
  exit(1);
}

int main(void) {
  enum { nx = 100, frames = 3 };
  int file, time, x, variable, dims[2];
  must(nc_create("out.nc", NC_NETCDF4 | NC_CLOBBER, &file));
  must(nc_def_dim(file, "time", NC_UNLIMITED, &time));
  must(nc_def_dim(file, "x", nx, &x));
  dims[0] = time;
  dims[1] = x;
  must(nc_def_var(file, "T2", NC_FLOAT, 2, dims, &variable));
  must(nc_def_var_deflate(file, variable, 1, 1, 2));
  must(nc_put_att_text(file, variable, "units", 1, "K"));
  must(nc_enddef(file));
  for (size_t frame = 0; frame < frames; ++frame) {
    const size_t start[] = {frame, 0}, count[] = {1, nx};
    float values[nx];
    for (int i = 0; i < nx; ++i) values[i] = (float)(frame * 1000 + (size_t)i);
    must(nc_put_vara_float(file, variable, start, count, values));
    must(nc_sync(file));
  }
  must(nc_close(file));
  return 0;
}
