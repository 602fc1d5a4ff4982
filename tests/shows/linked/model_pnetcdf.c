/* The same by PnetCDF, each rank its part. */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>

static void must(int code) {
  if (code == NC_NOERR) return;
  fprintf(stderr, "model: %s\n", ncmpi_strerror(code));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  enum { nx = 50, frames = 3 };
  int rank, ranks, file, time, x, variable, dims[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  must(ncmpi_create(MPI_COMM_WORLD, "out.nc", NC_64BIT_OFFSET | NC_CLOBBER, MPI_INFO_NULL, &file));
  must(ncmpi_def_dim(file, "time", NC_UNLIMITED, &time));
  must(ncmpi_def_dim(file, "x", (MPI_Offset)nx * ranks, &x));
  dims[0] = time;
  dims[1] = x;
  must(ncmpi_def_var(file, "T2", NC_FLOAT, 2, dims, &variable));
  must(ncmpi_put_att_text(file, variable, "units", 1, "K"));
  must(ncmpi_enddef(file));
  for (int frame = 0; frame < frames; ++frame) {
    const MPI_Offset start[] = {frame, (MPI_Offset)nx * rank}, count[] = {1, nx};
    float values[nx];
    for (int i = 0; i < nx; ++i) values[i] = (float)(frame * 1000 + rank * nx + i);
    must(ncmpi_put_vara_float_all(file, variable, start, count, values));
    must(ncmpi_sync(file));
  }
  must(ncmpi_close(file));
  MPI_Finalize();
  return 0;
}
