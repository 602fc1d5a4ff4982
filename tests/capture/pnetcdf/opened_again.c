/* Ranks open a PnetCDF file again and again, each time for one step, and say every answer. Run with
 * and without Advectio the answers and the files must be the same.
 *
 *     mpirun -n N opened_again FORMAT(1, 2 or 5) FILE.nc STEP...   answers go to FILE.nc.<rank>
 *
 * Steps:
 *     make                      a new file with one record
 *     append                    a record, then another behind a sync
 *     rewrite                   the first record, and the fixed variable
 *     define                    adds a variable and an attribute
 *     read, look                read, and put or not
 *     numbers                   sizes and offsets
 *     alone                     rank 0 opens it by itself
 *     modes, modes-of-others    rank 0 alone, or all the others, open it for writing
 *     nothing */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1000 };

static FILE* answers;
static int rank, ranks, nc, format;
static const char* path;

static int say(int line, const char* call, int code) {
  fprintf(answers, "%d %.60s: %s\n", line, call, code == NC_NOERR ? "ok" : ncmpi_strerrno(code));
  return code;
}
#define SAY(CALL) say(__LINE__, #CALL, CALL)

static int variable(const char* name) {
  int id = -1;
  SAY(ncmpi_inq_varid(nc, name, &id));
  return id;
}

static MPI_Offset records(void) {
  int dimension = -1;
  MPI_Offset length = -1;
  SAY(ncmpi_inq_dimid(nc, "t", &dimension));
  SAY(ncmpi_inq_dimlen(nc, dimension, &length));
  fprintf(answers, "records: %lld\n", (long long)length);
  return length;
}

static const float* values(long long seed) {
  static float data[WIDTH];
  for (int i = 0; i < WIDTH; ++i) data[i] = (float)(seed * 10000 + rank * WIDTH + i);
  return data;
}

static void put_record(MPI_Offset record, int seed) {
  const MPI_Offset start[2] = {record, (MPI_Offset)rank * WIDTH}, count[2] = {1, WIDTH};
  SAY(ncmpi_put_vara_float_all(nc, variable("v"), start, count, values(seed)));
}

static void put_fixed(int seed) {
  const MPI_Offset start = (MPI_Offset)rank * WIDTH, count = WIDTH;
  int request = NC_REQ_NULL, status = NC_NOERR;
  SAY(ncmpi_iput_vara_float(nc, variable("f"), &start, &count, values(seed), &request));
  SAY(ncmpi_wait_all(nc, 1, &request, &status));
  say(__LINE__, "its status", status);
}

/* The first value of this rank in each record, and of the fixed variable. */
static void read_back(void) {
  const MPI_Offset n = records();
  for (MPI_Offset r = 0; r <= n; ++r) { /* one too many */
    const MPI_Offset at[2] = {r, (MPI_Offset)rank * WIDTH};
    float value = -1;
    SAY(ncmpi_get_var1_float_all(nc, variable("v"), at, &value));
    fprintf(answers, "v[%lld]: %g\n", (long long)r, value);
  }
  const MPI_Offset at = (MPI_Offset)rank * WIDTH;
  float value = -1;
  SAY(ncmpi_get_var1_float_all(nc, variable("f"), &at, &value));
  fprintf(answers, "f: %g\n", value);
}

static void make(int seed) {
  int dims[2];
  int id;
  const int mode = format == 5 ? NC_64BIT_DATA : format == 2 ? NC_64BIT_OFFSET : 0;
  const float fill = -7;
  if (SAY(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | mode, MPI_INFO_NULL, &nc)) != NC_NOERR) return;
  SAY(ncmpi_def_dim(nc, "t", NC_UNLIMITED, &dims[0]));
  SAY(ncmpi_def_dim(nc, "x", (MPI_Offset)ranks * WIDTH, &dims[1]));
  SAY(ncmpi_def_var(nc, "f", NC_FLOAT, 1, &dims[1], &id));
  SAY(ncmpi_put_att_text(nc, id, "units", 1, "K"));
  SAY(ncmpi_def_var(nc, "v", NC_FLOAT, 2, dims, &id));
  SAY(ncmpi_put_att_float(nc, id, "_FillValue", NC_FLOAT, 1, &fill));
  SAY(ncmpi_def_var(nc, "odd", NC_BYTE, 1, &dims[0], &id));
  SAY(ncmpi_put_att_text(nc, NC_GLOBAL, "title", 5, "again"));
  SAY(ncmpi_enddef(nc));
  put_record(0, seed);
  put_fixed(seed);
  SAY(ncmpi_close(nc));
}

static void define(int seed) {
  int x, id;
  char name[20];
  snprintf(name, sizeof name, "w%d", seed);
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_inq_dimid(nc, "x", &x));
  SAY(ncmpi_def_var(nc, name, NC_INT, 1, &x, &id));
  SAY(ncmpi_put_att_text(nc, NC_GLOBAL, name, 5, "added"));
  SAY(ncmpi_enddef(nc));
  const MPI_Offset start = (MPI_Offset)rank * WIDTH, count = WIDTH;
  SAY(ncmpi_put_vara_float_all(nc, id, &start, &count, values(seed)));
}

static void numbers(void) {
  MPI_Offset n = -1;
  int count = -1, striping = -1, stripes = -1;
  char name[1000] = "";
  SAY(ncmpi_inq_header_size(nc, &n));
  fprintf(answers, "header %lld\n", (long long)n);
  SAY(ncmpi_inq_header_extent(nc, &n));
  fprintf(answers, "extent %lld\n", (long long)n);
  SAY(ncmpi_inq_recsize(nc, &n));
  fprintf(answers, "record %lld\n", (long long)n);
  SAY(ncmpi_inq_put_size(nc, &n));
  fprintf(answers, "put %lld\n", (long long)n);
  SAY(ncmpi_inq_striping(nc, &striping, &stripes));
  fprintf(answers, "striping %d %d\n", striping, stripes);
  SAY(ncmpi_inq_path(nc, NULL, name));
  fprintf(answers, "path %s\n", name);
  SAY(ncmpi_inq_nvars(nc, &count));
  for (int v = 0; v < count; ++v) {
    SAY(ncmpi_inq_varoffset(nc, v, &n));
    fprintf(answers, "variable %d at %lld\n", v, (long long)n);
  }
}

static void step(const char* what, int seed) {
  fprintf(answers, "%s\n", what);
  if (strcmp(what, "make") == 0) {
    make(seed);
    return;
  }
  const int alone = strcmp(what, "alone") == 0, by_rank = strncmp(what, "modes", 5) == 0;
  const int writes = !by_rank || (strcmp(what, "modes") == 0) == (rank == 0);
  if (alone) MPI_Barrier(MPI_COMM_WORLD);
  if (!alone || rank == 0) {
    const MPI_Comm comm = alone ? MPI_COMM_SELF : MPI_COMM_WORLD;
    const int code = SAY(ncmpi_open(comm, path, writes ? NC_WRITE : NC_NOWRITE, MPI_INFO_NULL, &nc));
    if (code != NC_NOERR && !by_rank) return;
    if (strcmp(what, "append") == 0) {
      const MPI_Offset n = records();
      put_record(n, seed);
      SAY(ncmpi_sync(nc));
      put_record(n + 1, seed + 1);
      records();
    } else if (strcmp(what, "rewrite") == 0) {
      put_record(0, seed);
      put_fixed(seed);
    } else if (strcmp(what, "define") == 0) {
      define(seed);
    } else if (strcmp(what, "numbers") == 0) {
      numbers();
    } else if (strcmp(what, "look") == 0 || by_rank) {
      read_back();
    } else if (strcmp(what, "read") == 0) {
      read_back();
      put_record(records(), seed);
      read_back();
    } else if (alone) {
      const MPI_Offset at = 3;
      const float value = (float)seed;
      SAY(ncmpi_put_var1_float_all(nc, variable("f"), &at, &value));
    }
    SAY(ncmpi_close(nc));
  }
  if (alone) MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
  format = atoi(argv[1]);
  path = argv[2];
  char name[1000];
  snprintf(name, sizeof name, "%s.%d", path, rank);
  answers = fopen(name, "a");
  if (answers == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int i = 3; i < argc; ++i) step(argv[i], i);
  fclose(answers);
  MPI_Finalize();
  return 0;
}
