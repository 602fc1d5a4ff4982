/* runs_out_together KIND RANK once|all stops|goes-on CALLS FIRST STEP: the ranks write one file after the other
 * together. In the file KIND-RANK-….n.nc, for n = FIRST, FIRST + STEP, …, the nth call of that kind that Advectio makes
 * for the rank fails (fails_at.c, preloaded). RANK -1: for each. It ends with the first n that no rank has reached.
 * STEP 0: nothing has been written before, and n is FIRST only; else one file is written before without a failure.
 * CALLS: short; read: what was put is read. A rank that stops at an error closes the file. All do so where one cannot
 * create or define it.
 * Rank 0 prints a line for each file and rank: name, rank, whether it came to n, and the library's codes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { calls_max = 32, width = 500, seconds_max = 30 };

#ifdef WITH_PNETCDF
#include <pnetcdf.h>

static int create(const char* name, int* file) {
  return ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER, MPI_INFO_NULL, file);
}
static int define(int file, const char* name, MPI_Offset length, int* dimension) {
  return ncmpi_def_dim(file, name, length, dimension);
}
static int define_variable(int file, const int* dimensions, int* variable) {
  return ncmpi_def_var(file, "T", NC_FLOAT, 2, dimensions, variable);
}
static int end_definitions(int file, int variable) {
  (void)variable;
  return ncmpi_enddef(file);
}
static int put_units(int file, int variable) {
  return ncmpi_put_att_text(file, variable, "units", 1, "K");
}
static int put_row(int file, int variable, const MPI_Offset* start, const MPI_Offset* count, const float* row) {
  return ncmpi_put_vara_float_all(file, variable, start, count, row);
}
/* By a posted call; all ranks wait for it. */
static int put_row_later(int file, int variable, const MPI_Offset* start, const MPI_Offset* count, const float* row) {
  int request = NC_REQ_NULL, status = NC_NOERR;
  const int posted = ncmpi_iput_vara_float(file, variable, start, count, row, &request);
  const int waited = ncmpi_wait_all(file, 1, &request, &status);
  return posted != NC_NOERR ? posted : waited != NC_NOERR ? waited : status;
}
static int get_row(int file, int variable, const MPI_Offset* start, const MPI_Offset* count, float* row) {
  return ncmpi_get_vara_float_all(file, variable, start, count, row);
}
#define SYNC ncmpi_sync
#define CLOSE ncmpi_close
#else
#include <netcdf.h>
#include <netcdf_par.h>

static int create(const char* name, int* file) {
  return nc_create_par(name, NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, file);
}
static int define(int file, const char* name, MPI_Offset length, int* dimension) {
  return nc_def_dim(file, name, (size_t)length, dimension);
}
static int define_variable(int file, const int* dimensions, int* variable) {
  return nc_def_var(file, "T", NC_FLOAT, 2, dimensions, variable);
}
static int end_definitions(int file, int variable) {
  const int ended = nc_enddef(file);
  const int together = nc_var_par_access(file, variable, NC_COLLECTIVE);
  return ended != NC_NOERR ? ended : together;
}
static int put_units(int file, int variable) {
  return nc_put_att_text(file, variable, "units", 1, "K");
}
static int put_row(int file, int variable, const MPI_Offset* start, const MPI_Offset* count, const float* row) {
  return nc_put_vara_float(file, variable, (const size_t*)start, (const size_t*)count, row);
}
#define put_row_later put_row
static int get_row(int file, int variable, const MPI_Offset* start, const MPI_Offset* count, float* row) {
  return nc_get_vara_float(file, variable, (const size_t*)start, (const size_t*)count, row);
}
#define SYNC nc_sync
#define CLOSE nc_close
#endif

static struct calls {
  int reached, count;
  struct {
    char name[12];
    int code;
  } calls[calls_max];
} done;
static int rank, ranks, goes_on;

static int note(const char* name, int code) {
  snprintf(done.calls[done.count].name, sizeof done.calls[0].name, "%s", name);
  done.calls[done.count++].code = code;
  return code == 0 || goes_on;
}

typedef int (*Put)(int file, int variable, const MPI_Offset* start, const MPI_Offset* count, const float* row);

static int put(Put how, int file, int variable, int record) {
  float row[width];
  for (int i = 0; i < width; ++i) row[i] = (float)(1000 * (record + 1) + rank * width + i);
  const MPI_Offset start[] = {record, rank * width}, count[] = {1, width};
  return how(file, variable, start, count, row);
}

static int get(int file, int variable, int record) {
  float row[width];
  const MPI_Offset start[] = {record, rank * width}, count[] = {1, width};
  const int code = get_row(file, variable, start, count, row);
  for (int i = 0; i < width && code == NC_NOERR; ++i)
    if (row[i] != (float)(1000 * (record + 1) + rank * width + i)) return 1;
  return code;
}

static int defined(int file, int* variable) {
  int dimensions[2] = {-1, -1};
  return note("dim", define(file, "time", NC_UNLIMITED, &dimensions[0])) &&
         note("dim", define(file, "x", (MPI_Offset)width * ranks, &dimensions[1])) &&
         note("var", define_variable(file, dimensions, variable)) && note("att", put_units(file, *variable)) &&
         note("enddef", end_definitions(file, *variable));
}

static void fill(int file, int variable, int reads) {
  (void)(note("put0", put(put_row, file, variable, 0)) && note("sync", SYNC(file)) &&
         (!reads || note("get0", get(file, variable, 0))) && note("put1", put(put_row_later, file, variable, 1)) &&
         (!reads || note("get1", get(file, variable, 1))) && note("sync", SYNC(file)) &&
         note("put2", put(put_row, file, variable, 2)));
}

/* On all ranks no call has failed so far. */
static int all_well(void) {
  int failed = 0, any = 0;
  for (int i = 0; i < done.count; ++i) failed |= done.calls[i].code != NC_NOERR;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return !any;
}

static void write_file(const char* name, int reads) {
  int file = -1, variable = -1;
  const int created = create(name, &file);
  (void)note("create", created);
  if (all_well()) {
    (void)defined(file, &variable);
    if (all_well()) fill(file, variable, reads);
  }
  if (created == NC_NOERR) (void)note("close", CLOSE(file));
}

static void print(const char* name) {
  struct calls* all = calloc((size_t)ranks, sizeof *all);
  MPI_Gather(&done, sizeof done, MPI_BYTE, all, sizeof done, MPI_BYTE, 0, MPI_COMM_WORLD);
  for (int r = 0; rank == 0 && r < ranks; ++r) {
    printf("%s %d %d", name, r, all[r].reached);
    for (int i = 0; i < all[r].count; ++i) printf(" %s=%d", all[r].calls[i].name, all[r].calls[i].code);
    printf("\n");
  }
  fflush(stdout);
  free(all);
}

int main(int count, char** words) {
  if (count != 8) return 2;
  void (*fails_at)(const char*, long, int, atomic_int*) =
      (void (*)(const char*, long, int, atomic_int*))dlsym(RTLD_DEFAULT, "fails_at");
  if (fails_at == NULL) return 2;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int whose = atoi(words[2]), all = strcmp(words[3], "all") == 0, reads = strcmp(words[5], "read") == 0;
  goes_on = strcmp(words[4], "goes-on") == 0;
  const long first = atol(words[6]), step = atol(words[7]);
  if (step > 0) write_file("warm.nc", reads);
  for (long n = first;; n += step) {
    memset(&done, 0, sizeof done);
    char name[128];
    snprintf(name, sizeof name, "%s-%s-%s-%s-%s.%ld.nc", words[1], words[2], words[3], words[4], words[5], n);
    if (getenv("FAILS_AT_TRACE") != NULL) fprintf(stderr, "=== %s\n", name);
    alarm(seconds_max); /* ranks that hang */
    atomic_int reached = 0;
    if (whose < 0 || whose == rank) fails_at(words[1], n, all, &reached);
    write_file(name, reads);
    fails_at("", 0, 0, &reached);
    done.reached = atomic_load(&reached);
    print(name);
    int any = 0;
    MPI_Allreduce(&done.reached, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!any || step == 0) break;
  }
  MPI_Finalize();
  return 0;
}
