/* Ranks that open their files together again and again: the program of reopen_runs.py --together.
 *
 *     mpirun -n N reopen_together PLAN
 *
 * Each line of the plan is a step: create FILE FORMAT DEFLATE, open FILE RECORDS,
 * put FILE RECORD FRAME, read FILE RECORD FRAME, sync FILE FRAME, close FILE FRAME,
 * sleep MILLISECONDS.
 *
 * FILE is a number below MOST, FORMAT 1, 2 or 5 (PnetCDF) or 4 (parallel netCDF-4). Rank 0 says in
 * `said` which frame is put next, and which frames all ranks have synced. */
#include <fcntl.h>
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 30000, MOST = 8 };

typedef struct {
  int id, format;
} File;

static int rank, ranks, said;
static File files[MOST];
static size_t first, mine; /* of the values: those of this rank */

static void fail(const char* what, const char* why) {
  fprintf(stderr, "reopen_together: rank %d: %s: %s\n", rank, what, why);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
static void check(const char* call, int code) {
  if (code != NC_NOERR) fail(call, code < -200 ? ncmpi_strerror(code) : nc_strerror(code));
}
#define OK(CALL) check(#CALL, CALL)

static void name_of(int file, char* to, size_t size) {
  snprintf(to, size, "f%d-%d.nc", file, files[file].format);
}

static void tell(int file, const char* what, int frame, int record) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    char line[200];
    char name[40];
    name_of(file, name, sizeof name);
    const int bytes = record < 0 ? snprintf(line, sizeof line, "{\"file\": \"%s\", \"%s\": %d}\n", name, what, frame)
                                 : snprintf(line, sizeof line, "{\"file\": \"%s\", \"%s\": %d, \"record\": %d}\n", name,
                                            what, frame, record);
    if (write(said, line, (size_t)bytes) != bytes) fail("said", "it cannot be written");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static double value_of(int file, int frame, size_t i) {
  return (double)frame * 1e6 + (double)i + 0.125 * file;
}

static void create(int file, int deflate) {
  char name[40];
  int dims[2];
  int v, frame;
  File* f = &files[file];
  name_of(file, name, sizeof name);
  if (f->format == 4) {
    OK(nc_create_par(name, NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &f->id));
    OK(nc_def_dim(f->id, "t", NC_UNLIMITED, &dims[0]));
    OK(nc_def_dim(f->id, "x", WIDTH, &dims[1]));
    OK(nc_def_var(f->id, "frame", NC_INT, 1, dims, &frame));
    OK(nc_def_var(f->id, "v", NC_DOUBLE, 2, dims, &v));
    if (deflate) OK(nc_def_var_deflate(f->id, v, 1, 1, 1));
    OK(nc_enddef(f->id));
    for (int each = 0; each < 2; ++each) OK(nc_var_par_access(f->id, each, NC_COLLECTIVE));
    return;
  }
  const int mode = f->format == 5 ? NC_64BIT_DATA : f->format == 2 ? NC_64BIT_OFFSET : 0;
  OK(ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER | mode, MPI_INFO_NULL, &f->id));
  OK(ncmpi_def_dim(f->id, "t", NC_UNLIMITED, &dims[0]));
  OK(ncmpi_def_dim(f->id, "x", WIDTH, &dims[1]));
  OK(ncmpi_def_var(f->id, "frame", NC_INT, 1, dims, &frame));
  OK(ncmpi_def_var(f->id, "v", NC_DOUBLE, 2, dims, &v));
  OK(ncmpi_enddef(f->id));
}

static void open_again(int file, long records) {
  char name[40];
  int dim;
  long there = -1;
  File* f = &files[file];
  name_of(file, name, sizeof name);
  if (f->format == 4) {
    size_t length = 0;
    OK(nc_open_par(name, NC_WRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &f->id));
    for (int each = 0; each < 2; ++each) OK(nc_var_par_access(f->id, each, NC_COLLECTIVE));
    OK(nc_inq_dimid(f->id, "t", &dim));
    OK(nc_inq_dimlen(f->id, dim, &length));
    there = (long)length;
  } else {
    MPI_Offset length = 0;
    OK(ncmpi_open(MPI_COMM_WORLD, name, NC_WRITE, MPI_INFO_NULL, &f->id));
    OK(ncmpi_inq_dimid(f->id, "t", &dim));
    OK(ncmpi_inq_dimlen(f->id, dim, &length));
    there = (long)length;
  }
  if (there != records) {
    char why[100];
    snprintf(why, sizeof why, "it has %ld records, not %ld", there, records);
    fail(name, why);
  }
}

/* The first rank puts the number of the frame. */
static void put(int file, int record, int frame) {
  static double data[WIDTH];
  const File f = files[file];
  const size_t one = rank == 0;
  for (size_t i = 0; i < mine; ++i) data[i] = value_of(file, frame, first + i);
  if (f.format == 4) {
    const size_t at[2] = {(size_t)record, first}, n[2] = {1, mine};
    OK(nc_put_vara_double(f.id, 1, at, n, data));
    OK(nc_put_vara_int(f.id, 0, at, &one, &frame));
  } else {
    const MPI_Offset at[2] = {record, (MPI_Offset)first}, n[2] = {1, (MPI_Offset)mine}, some = (MPI_Offset)one;
    OK(ncmpi_put_vara_double_all(f.id, 1, at, n, data));
    OK(ncmpi_put_vara_int_all(f.id, 0, at, &some, &frame));
  }
}

static void read_back(int file, int record, int frame) {
  static double data[WIDTH];
  const File f = files[file];
  if (f.format == 4) {
    const size_t at[2] = {(size_t)record, first}, n[2] = {1, mine};
    OK(nc_get_vara_double(f.id, 1, at, n, data));
  } else {
    const MPI_Offset at[2] = {record, (MPI_Offset)first}, n[2] = {1, (MPI_Offset)mine};
    OK(ncmpi_get_vara_double_all(f.id, 1, at, n, data));
  }
  for (size_t i = 0; i < mine; ++i)
    if (data[i] != value_of(file, frame, first + i)) fail("read", "it is not what was put");
}

static void step(const char* what, int file, int a, int b) {
  File* f = &files[file];
  if (strcmp(what, "create") == 0) {
    f->format = a;
    create(file, b);
  } else if (strcmp(what, "open") == 0) {
    open_again(file, a);
  } else if (strcmp(what, "put") == 0) {
    tell(file, "frame", b, a);
    put(file, a, b);
  } else if (strcmp(what, "read") == 0) {
    read_back(file, a, b);
  } else if (strcmp(what, "sync") == 0) {
    OK(f->format == 4 ? nc_sync(f->id) : ncmpi_sync(f->id));
    tell(file, "synced", a, -1);
  } else if (strcmp(what, "close") == 0) {
    OK(f->format == 4 ? nc_close(f->id) : ncmpi_close(f->id));
    tell(file, "synced", a, -1);
  } else {
    usleep((useconds_t)file * 1000);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  FILE* plan = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (plan == NULL) fail("the plan", "it cannot be read");
  said = open("said", O_WRONLY | O_CREAT | O_APPEND, 0600);
  first = (size_t)WIDTH * (size_t)rank / (size_t)ranks;
  mine = (size_t)WIDTH * (size_t)(rank + 1) / (size_t)ranks - first;
  char line[100], what[20];
  while (fgets(line, sizeof line, plan) != NULL) {
    int file = 0, a = 0, b = 0;
    if (sscanf(line, "%19s %d %d %d", what, &file, &a, &b) >= 2) step(what, file, a, b);
  }
  fclose(plan);
  MPI_Finalize();
  return 0;
}
