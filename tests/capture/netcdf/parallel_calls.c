/* Writes a file by parallel netCDF-4, by right calls and wrong ones, says every answer, and opens the file again when
 * it has just been closed. Run with and without Advectio its answers and its files must be the same.
 *
 *     mpirun -n N parallel_calls HOW FILE.nc     answers go to FILE.nc.<rank>
 *
 * HOW: netcdf4, classic-model, fortran (its numbers for communicators), unlimited (a second unlimited dimension),
 * group, group-after-enddef, late-group (after data), wrong-alone and wrong-alone-classic-model (one rank after the
 * other makes wrong calls, and meanwhile the others wait for it), communicators (several files, by parts of the ranks),
 * idle-root (only others put), pause (two frames, and between them it waits for a file FILE.nc.go), append and
 * append-classic-model (a file of all kinds of storage is opened again twice and made longer). */
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_filter.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern int nc_create_par_fortran(const char* path, int mode, int comm, int info, int* ncid);

enum { WIDTH = 6, HEIGHT = 4, RECORDS = 5 };

static FILE* answers;
static int rank, ranks, nc;
static const char* how;

/* One line per call: what was asked, and what came back. */
static int say(int line, const char* call, int code) {
  fprintf(answers, "%d %.70s: %s\n", line, call, code == NC_NOERR ? "ok" : nc_strerror(code));
  return code;
}
#define SAY(CALL) say(__LINE__, #CALL, CALL)

static int time_dim = -1, row = -1, column = -1, grid = -1, packed = -1, line = -1, whole = -1, scalar = -1, text = -1,
           number = -1;

static int create(const char* path, int mode) {
  if (strcmp(how, "fortran") == 0) {
    return nc_create_par_fortran(path, mode, MPI_Comm_c2f(MPI_COMM_WORLD), MPI_Info_c2f(MPI_INFO_NULL), &nc);
  }
  return nc_create_par(path, mode, MPI_COMM_WORLD, MPI_INFO_NULL, &nc);
}

static void say_length(int line_number) {
  size_t length = 0;
  say(line_number, "length of time", nc_inq_dimlen(nc, time_dim, &length));
  fprintf(answers, "length %zu\n", length);
}

static void define(void) {
  SAY(nc_def_dim(nc, "time", NC_UNLIMITED, &time_dim));
  /* Rank 0 goes ahead, and the others come when it has asked. */
  int told = 0;
  if (rank != 0) MPI_Bcast(&told, 1, MPI_INT, 0, MPI_COMM_WORLD);
  SAY(nc_def_dim(nc, "row", HEIGHT, &row));
  say_length(__LINE__);
  if (rank == 0) MPI_Bcast(&told, 1, MPI_INT, 0, MPI_COMM_WORLD);
  SAY(nc_def_dim(nc, "column", (size_t)(WIDTH * ranks), &column));
  const int dims[3] = {time_dim, row, column};
  SAY(nc_def_var(nc, "grid", NC_FLOAT, 3, dims, &grid));
  SAY(nc_def_var(nc, "packed", NC_SHORT, 3, dims, &packed));
  SAY(nc_def_var_deflate(nc, packed, 1, 1, 2));
  const size_t chunks[3] = {1, HEIGHT, 5};
  SAY(nc_def_var_chunking(nc, packed, NC_CHUNKED, chunks));
  SAY(nc_def_var(nc, "line", NC_DOUBLE, 1, &column, &line));
  SAY(nc_def_var(nc, "whole", NC_INT, 2, dims + 1, &whole));
  SAY(nc_def_var(nc, "scalar", NC_INT, 0, NULL, &scalar));
  SAY(nc_def_var(nc, "text", NC_CHAR, 2, (const int[]){time_dim, column}, &text));
  SAY(nc_def_var(nc, "number", NC_INT, 1, &time_dim, &number));
  SAY(nc_def_var(nc, "number", NC_INT, 1, &time_dim, &number)); /* twice */
  SAY(nc_put_att_text(nc, grid, "units", 1, "K"));
  SAY(nc_put_att_float(nc, grid, "_FillValue", NC_FLOAT, 1, (const float[]){-1}));
  SAY(nc_put_att_text(nc, NC_GLOBAL, "title", 5, "ranks"));
}

/* Access: what may be asked, what follows from filters. */
static void ask_for_access(void) {
  SAY(nc_var_par_access(nc, packed, NC_INDEPENDENT));
  SAY(nc_var_par_access(nc, grid, 7));
  SAY(nc_var_par_access(nc, 99, NC_COLLECTIVE));
  SAY(nc_var_par_access(nc, NC_GLOBAL, NC_COLLECTIVE));
  const int all[4] = {grid, packed, text, number};
  for (int i = 0; i < 4; ++i) SAY(nc_var_par_access(nc, all[i], NC_COLLECTIVE));
}

static void put_step(size_t step) {
  float data[HEIGHT * WIDTH];
  for (int i = 0; i < HEIGHT * WIDTH; ++i) data[i] = (float)((i * 37 + (int)step * 11 + rank * 101) % 128);
  const size_t start[3] = {step, 0, (size_t)(rank * WIDTH)}, count[3] = {1, HEIGHT, WIDTH};
  SAY(nc_put_vara_float(nc, grid, start, count, data));
  SAY(nc_put_vara_float(nc, packed, start, count, data)); /* converted */
  SAY(nc_put_vara(nc, grid, start, (const size_t[]){1, 1, 2}, data + 3));
  SAY(nc_put_vars_float(nc, grid, start, (const size_t[]){1, 2, 3}, (const ptrdiff_t[]){1, 2, 2}, data + 7));
  SAY(nc_put_var1_float(nc, packed, (const size_t[]){step, 1, (size_t)(rank * WIDTH + 2)}, data + 5));
  char name[WIDTH + 1];
  snprintf(name, sizeof name, "%c%c%04d", (char)(97 + rank), (char)(65 + step), (int)step);
  SAY(nc_put_vara_text(nc, text, (const size_t[]){step, (size_t)(rank * WIDTH)}, (const size_t[]){1, WIDTH}, name));
  const int value = (int)step * 3;
  SAY(nc_put_vara_int(nc, number, start, count, &value)); /* all ranks the same */
  say_length(__LINE__);
}

static void put_independently(void) {
  double row_values[WIDTH];
  int values[HEIGHT];
  for (int i = 0; i < WIDTH; ++i) row_values[i] = rank * 10 + i;
  for (int i = 0; i < HEIGHT; ++i) values[i] = rank * 100 + i;
  /* As many calls as the rank has a number: nobody waits for anybody. */
  for (int n = 0; n <= rank; ++n) {
    const size_t at = (size_t)(rank * WIDTH + n % WIDTH);
    SAY(nc_put_var1_double(nc, line, &at, &row_values[n % WIDTH]));
    SAY(nc_put_vara_int(nc, whole, (const size_t[]){0, at}, (const size_t[]){HEIGHT, 1}, values));
  }
  if (rank == ranks - 1) SAY(nc_put_var_int(nc, scalar, (const int[]){42}));
  const size_t mapped[2] = {0, (size_t)(rank * WIDTH + 4)}, size[2] = {HEIGHT, 2};
  SAY(nc_put_varm_int(nc, whole, mapped, size, NULL, (const ptrdiff_t[]){1, 0}, values));
  /* Into a record that is there, and into one that is not. */
  float one = 7;
  SAY(nc_var_par_access(nc, grid, NC_INDEPENDENT));
  SAY(nc_put_var1_float(nc, grid, (const size_t[]){0, 3, (size_t)(rank * WIDTH + 5)}, &one));
  SAY(nc_put_var1_float(nc, grid, (const size_t[]){RECORDS + 3, 3, (size_t)(rank * WIDTH)}, &one));
  SAY(nc_var_par_access(nc, grid, NC_COLLECTIVE));
  /* A variable has a length of its own. */
  SAY(nc_var_par_access(nc, text, NC_INDEPENDENT));
  const int value = 9;
  SAY(nc_put_var1_int(nc, number, (const size_t[]){RECORDS}, &value));
  SAY(nc_put_var1_text(nc, text, (const size_t[]){RECORDS, (size_t)rank}, "x"));
  SAY(nc_var_par_access(nc, text, NC_COLLECTIVE));
  say_length(__LINE__);
}

static void make_mistakes(void) {
  const float data[HEIGHT * WIDTH] = {0};
  const size_t start[3] = {0, 0, 0}, count[3] = {1, HEIGHT, WIDTH}, outside[3] = {0, 0, (size_t)(WIDTH * ranks)};
  SAY(nc_put_vara_float(nc, grid, outside, count, data));
  SAY(nc_put_vara_float(nc, grid, start, (const size_t[]){1, HEIGHT + 1, 1}, data));
  SAY(nc_put_vara_text(nc, grid, start, count, "text"));
  SAY(nc_put_vara_float(nc, 77, start, count, data));
  SAY(nc_put_vars_float(nc, grid, start, count, (const ptrdiff_t[]){1, 0, 1}, data));
  SAY(nc_put_var1_double(nc, packed, (const size_t[]){0, 3, (size_t)(rank * WIDTH)}, (const double[]){1e9}));
  SAY(nc_put_att_int(nc, 55, "none", NC_INT, 1, (const int[]){1}));
  SAY(nc_rename_var(nc, grid, "packed"));
  SAY(nc_def_var_deflate(nc, packed, 1, 1, 3));
  SAY(nc_enddef(nc));
}

/* Each of these is answered by the library on this rank alone, whatever the others do. */
enum { NO_VARIABLE = 77, NO_FILTER = 4711 };

static void use_data_wrongly(void) {
  int id = -1;
  float data[HEIGHT * WIDTH] = {0};
  const size_t far[3] = {0, 0, (size_t)(WIDTH * ranks)}, count[3] = {1, HEIGHT, WIDTH};
  SAY(nc_put_vara_float(nc, grid, far, count, data));
  SAY(nc_put_vara_float(nc, NO_VARIABLE, far, count, data));
  SAY(nc_put_vara_text(nc, grid, far, count, (char*)data));
  /* Of other variables also a wrong read waits for all ranks. */
  SAY(nc_get_vara_float(nc, whole, far + 1, count + 1, data));
  SAY(nc_get_vara_float(nc, whole, far, (const size_t[]){HEIGHT + 1, 1}, data));
  SAY(nc_get_var1_float(nc, whole, far + 1, data));
  SAY(nc_get_vars_float(nc, whole, far, (const size_t[]){HEIGHT, 1}, (const ptrdiff_t[]){2, 1}, data));
  SAY(nc_get_vars_float(nc, whole, far, (const size_t[]){1, 1}, (const ptrdiff_t[]){0, 1}, data));
  SAY(nc_get_vara_text(nc, whole, far, count, (char*)data));
  SAY(nc_get_vara_float(nc, NO_VARIABLE, far, count, data));
  SAY(nc_open_par(NULL, NC_WRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &id));
  SAY(nc_create_par("both.nc", NC_NETCDF4 | NC_64BIT_OFFSET, MPI_COMM_WORLD, MPI_INFO_NULL, &id));
}

static void define_wrongly(void) {
  int id = -1;
  nc_type type = NC_NAT;
  SAY(nc_def_dim(nc, "time", NC_UNLIMITED, &id));
  SAY(nc_def_dim(nc, "bad/name", NC_UNLIMITED, &id));
  SAY(nc_def_dim(nc, "row", 3, &id));
  SAY(nc_def_grp(nc, "bad/name", &id));
  SAY(nc_def_grp(nc, "number", &id));
  SAY(nc_def_compound(nc, 8, "bad/name", &type));
  SAY(nc_def_compound(nc, 8, "number", &type));
  SAY(nc_def_vlen(nc, "bad/name", NC_INT, &type));
  SAY(nc_def_opaque(nc, 8, "bad/name", &type));
  SAY(nc_def_enum(nc, NC_INT, "bad/name", &type));
  SAY(nc_def_var(nc, "number", NC_INT, 1, &time_dim, &id));
  SAY(nc_def_var_filter(nc, NO_VARIABLE, NO_FILTER, 0, NULL));
  SAY(nc_def_var_filter(nc, number, NO_FILTER, 0, NULL));
  SAY(nc_def_var_bzip2(nc, NO_VARIABLE, 3));
  SAY(nc_def_var_quantize(nc, NO_VARIABLE, NC_QUANTIZE_GRANULARBR, 3));
  SAY(nc_def_var_quantize(nc, number, NC_QUANTIZE_GRANULARBR, 3));
  SAY(nc_def_var_deflate(nc, number, 1, 1, 3));
  SAY(nc_rename_var(nc, number, "grid"));
  SAY(nc_rename_dim(nc, time_dim, "row"));
  SAY(nc_rename_att(nc, grid, "none", "units"));
  SAY(nc_del_att(nc, grid, "none"));
  SAY(nc_put_att_int(nc, NO_VARIABLE, "none", NC_INT, 1, &rank));
  SAY(nc_set_fill(nc, 17, NULL));
}

static void write_with_mistakes(const char* path) {
  SAY(create(path, NC_CLOBBER | NC_NETCDF4 | (strstr(how, "classic-model") != NULL ? NC_CLASSIC_MODEL : 0)));
  define();
  ask_for_access();
  SAY(nc_var_par_access(nc, whole, NC_COLLECTIVE));
  SAY(nc_enddef(nc));
  put_step(0);
  SAY(nc_sync(nc));
  put_step(1);
  for (int turn = 0; turn < ranks; ++turn) {
    if (turn == rank) use_data_wrongly();
    MPI_Barrier(MPI_COMM_WORLD);
    /* What all put next, and its length, must not wait for calls that nobody else makes. */
    put_step((size_t)(2 + turn));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  /* Some of these begin define mode, and its end waits for all. */
  for (int turn = 0; turn < ranks; ++turn) {
    if (turn == rank) define_wrongly();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  SAY(nc_close(nc));
}

/* One rank alone makes it longer; all learn of it. */
static void grow_by_one_rank(void) {
  const int value = 40;
  const size_t last = RECORDS + 1, none = 0, one = 1;
  SAY(nc_put_vara_int(nc, number, rank == 0 ? &last : &none, rank == 0 ? &one : &none, &value));
  say_length(__LINE__);
}

static void change_definitions(void) {
  SAY(nc_redef(nc));
  int late = -1;
  SAY(nc_def_var(nc, "late", NC_INT, 1, &column, &late));
  SAY(nc_put_att_text(nc, late, "units", 1, "m"));
  SAY(nc_rename_att(nc, NC_GLOBAL, "title", "name"));
  SAY(nc_enddef(nc));
  int values[WIDTH];
  for (int i = 0; i < WIDTH; ++i) values[i] = rank * WIDTH + i;
  const size_t start = (size_t)(rank * WIDTH), count = WIDTH;
  SAY(nc_put_vara_int(nc, late, &start, &count, values));
  /* The first put of a rank ends define mode by itself, except in the classic model. */
  SAY(nc_put_att_int(nc, NC_GLOBAL, "implicit", NC_INT, 1, &ranks));
}

static void read_back(void) {
  int count = 0;
  SAY(nc_inq_nvars(nc, &count));
  for (int v = 0; v < count; ++v) {
    int dimensions = 0, ids[3];
    SAY(nc_inq_varndims(nc, v, &dimensions));
    SAY(nc_inq_vardimid(nc, v, ids));
    size_t elements = 1;
    for (int d = 0; d < dimensions; ++d) {
      size_t length = 0;
      SAY(nc_inq_dimlen(nc, ids[d], &length));
      elements *= length;
    }
    double* all = calloc(elements + 1, sizeof *all);
    char* characters = calloc(elements + 1, 1);
    nc_type type = NC_NAT;
    SAY(nc_inq_vartype(nc, v, &type));
    SAY(type == NC_CHAR ? nc_get_var_text(nc, v, characters) : nc_get_var_double(nc, v, all));
    double sum = 0;
    for (size_t i = 0; i < elements; ++i) sum += (all[i] + (unsigned char)characters[i]) * (double)(i % 17 + 1);
    fprintf(answers, "sum %d %.17g\n", v, sum);
    free(all);
    free(characters);
  }
}

static void write_with_pause(const char* path) {
  char name[4096];
  put_step(0);
  SAY(nc_sync(nc));
  MPI_Barrier(MPI_COMM_WORLD);
  snprintf(name, sizeof name, "%s.paused", path);
  FILE* paused = fopen(name, "w");
  if (paused != NULL) fclose(paused);
  snprintf(name, sizeof name, "%s.go", path);
  while (access(name, F_OK) != 0) usleep(10000);
  put_step(1);
  SAY(nc_close(nc));
}

static void write_file(const char* path) {
  const int mode = NC_CLOBBER | NC_NETCDF4 | (strcmp(how, "classic-model") == 0 ? NC_CLASSIC_MODEL : 0);
  SAY(create(path, mode));
  int format = 0, extended = 0, said = 0, old = 9;
  SAY(nc_inq_format(nc, &format));
  SAY(nc_inq_format_extended(nc, &extended, &said));
  SAY(nc_set_fill(nc, NC_FILL, &old));
  fprintf(answers, "format %d %d mode %x fill %d\n", format, extended, (unsigned)said, old);
  define();
  int other = -1;
  if (strcmp(how, "unlimited") == 0) SAY(nc_def_dim(nc, "other", NC_UNLIMITED, &other));
  if (strcmp(how, "group") == 0) SAY(nc_def_grp(nc, "below", &other));
  ask_for_access();
  SAY(nc_enddef(nc));
  say_length(__LINE__);
  if (strcmp(how, "group-after-enddef") == 0) SAY(nc_def_grp(nc, "below", &other));
  if (strcmp(how, "pause") == 0) {
    write_with_pause(path);
    return;
  }
  for (size_t step = 0; step < RECORDS; ++step) {
    put_step(step);
    if (step % 2 == 1) SAY(nc_sync(nc));
  }
  grow_by_one_rank();
  put_independently();
  SAY(nc_sync(nc));
  MPI_Barrier(MPI_COMM_WORLD);
  read_back();
  if (strcmp(how, "late-group") == 0) SAY(nc_def_grp(nc, "below", &other));
  make_mistakes();
  change_definitions();
  put_step(RECORDS + 2);
  SAY(nc_sync(nc));
  read_back();
  SAY(nc_close(nc));
  SAY(nc_close(nc));
}

static void read_file(const char* path) {
  SAY(nc_open_par(path, NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &nc));
  read_back();
  SAY(nc_close(nc));
}

static void write_small(const char* name, MPI_Comm comm, MPI_Info info, const char* variable) {
  int place = 0, dim = -1, var = -1, half = comm != MPI_COMM_SELF && comm != MPI_COMM_WORLD;
  MPI_Comm_rank(comm, &place);
  SAY(nc_create_par(name, NC_NETCDF4, comm, info, &nc));
  if (half) MPI_Comm_free(&comm); /* the program's own may go while the file is open */
  SAY(nc_def_dim(nc, "time", NC_UNLIMITED, &time_dim));
  SAY(nc_def_dim(nc, "x", (size_t)(WIDTH * ranks), &dim));
  SAY(nc_def_var(nc, variable, NC_INT, 2, (const int[]){time_dim, dim}, &var));
  SAY(nc_var_par_access(nc, var, NC_COLLECTIVE));
  for (size_t step = 0; step < 3; ++step) {
    const int values[WIDTH] = {rank, (int)step, rank * (int)step};
    SAY(nc_put_vara_int(nc, var, (const size_t[]){step, (size_t)(place * WIDTH)}, (const size_t[]){1, WIDTH}, values));
    SAY(nc_sync(nc));
  }
  SAY(nc_close(nc));
}

/* Two files by one communicator, open at once; it goes when one of them is closed. */
static void write_two_at_once(MPI_Comm comm) {
  int file[2], var[2], dim = -1, place = 0;
  MPI_Comm_rank(comm, &place);
  for (int f = 0; f < 2; ++f) {
    char name[32];
    snprintf(name, sizeof name, "pair%d_%d.nc", rank % 2, f);
    SAY(nc_create_par(name, NC_NETCDF4, comm, MPI_INFO_NULL, &file[f]));
    SAY(nc_def_dim(file[f], "x", (size_t)(WIDTH * ranks), &dim));
    SAY(nc_def_var(file[f], "v", NC_INT, 1, &dim, &var[f]));
    SAY(nc_enddef(file[f]));
  }
  for (int f = 0; f < 2; ++f) {
    const int values[WIDTH] = {rank, f, rank + f};
    SAY(nc_put_vara_int(file[f], var[f], (const size_t[]){(size_t)(place * WIDTH)}, (const size_t[]){WIDTH}, values));
    SAY(nc_close(file[f]));
    if (f == 0) MPI_Comm_free(&comm);
  }
}

/* Halves of the ranks and single ranks write at the same time; then all write a file twice. */
static void write_several(void) {
  char name[32];
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Info hints;
  MPI_Info_create(&hints);
  MPI_Info_set(hints, "cb_buffer_size", "1048576");
  snprintf(name, sizeof name, "half%d.nc", rank % 2);
  write_small(name, half, hints, "v");
  MPI_Info_free(&hints);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  write_two_at_once(half);
  snprintf(name, sizeof name, "single%d.nc", rank);
  write_small(name, MPI_COMM_SELF, MPI_INFO_NULL, "v");
  write_small("twice.nc", MPI_COMM_WORLD, MPI_INFO_NULL, "first");
  write_small("twice.nc", MPI_COMM_WORLD, MPI_INFO_NULL, "second");
}

/* All kinds of storage. `late` ones get their first data after the file was opened again. */
enum { STORED = 15 };
static const struct {
  const char* name;
  int records, rows_in_chunk, records_in_chunk, shuffle, deflate, checksum, fill, late;
} stored[STORED] = {{"plain", 1, 0, 1, 0, 0, 0, 1, 0},          {"chunked", 1, 3, 1, 0, 0, 0, 1, 0},
                    {"filled", 1, 3, 3, 0, 0, 0, 2, 0},         {"unfilled", 1, 3, 1, 0, 0, 0, 0, 0},
                    {"deflated", 1, 3, 3, 1, 1, 0, 2, 0},       {"deflated_unfilled", 1, 4, 1, 0, 1, 0, 0, 0},
                    {"shuffled", 1, 3, 1, 1, 0, 0, 1, 0},       {"checked", 1, 3, 1, 0, 0, 1, 1, 0},
                    {"late", 1, 3, 1, 0, 0, 0, 1, 1},           {"late_deflated", 1, 3, 1, 0, 1, 0, 1, 1},
                    {"fixed", 0, 3, 1, 0, 0, 0, 2, 0},          {"fixed_unfilled", 0, 3, 1, 0, 0, 0, 0, 0},
                    {"fixed_deflated", 0, 3, 1, 1, 1, 0, 1, 0}, {"fixed_late", 0, 3, 1, 0, 0, 0, 1, 1},
                    {"contiguous_late", 0, 0, 1, 0, 0, 0, 1, 1}};

static void define_stored(void) {
  SAY(nc_def_dim(nc, "time", NC_UNLIMITED, &time_dim));
  SAY(nc_def_dim(nc, "row", HEIGHT, &row));
  SAY(nc_def_dim(nc, "column", (size_t)(WIDTH * ranks), &column));
  const int dims[3] = {time_dim, row, column};
  const float fill = -7;
  SAY(nc_def_var(nc, "time", NC_DOUBLE, 1, &time_dim, &number));
  for (int i = 0; i < STORED; ++i) {
    const int first = stored[i].records ? 0 : 1;
    int v = -1;
    SAY(nc_def_var(nc, stored[i].name, NC_FLOAT, 3 - first, dims + first, &v));
    const size_t chunk[3] = {(size_t)stored[i].records_in_chunk, (size_t)stored[i].rows_in_chunk, 4};
    if (chunk[1] > 0) SAY(nc_def_var_chunking(nc, v, NC_CHUNKED, chunk + first));
    if (stored[i].shuffle || stored[i].deflate)
      SAY(nc_def_var_deflate(nc, v, stored[i].shuffle, stored[i].deflate, stored[i].deflate));
    if (stored[i].checksum) SAY(nc_def_var_fletcher32(nc, v, NC_FLETCHER32));
    if (stored[i].fill == 0) SAY(nc_def_var_fill(nc, v, NC_NOFILL, NULL));
    if (stored[i].fill == 2) SAY(nc_put_att_float(nc, v, "_FillValue", NC_FLOAT, 1, &fill));
  }
  SAY(nc_enddef(nc));
}

/* Of what is filled the first ranks put only some rows. */
static void put_stored(size_t step, int again) {
  float data[HEIGHT * WIDTH];
  for (int i = 0; i < HEIGHT * WIDTH; ++i) data[i] = (float)(step * 1000 + (size_t)(rank * 100 + i));
  int v = -1;
  SAY(nc_inq_varid(nc, "time", &v));
  SAY(nc_var_par_access(nc, v, NC_COLLECTIVE));
  const double now = 10.0 * (double)step;
  SAY(nc_put_vara_double(nc, v, &step, (const size_t[]){1}, &now));
  for (int i = 0; i < STORED; ++i) {
    if (stored[i].late && !again) continue;
    SAY(nc_inq_varid(nc, stored[i].name, &v));
    SAY(nc_var_par_access(nc, v, NC_COLLECTIVE));
    const size_t at = (size_t)(rank * WIDTH);
    if (stored[i].records) {
      const size_t rows = stored[i].fill == 2 && rank == 0 ? 2 : HEIGHT;
      SAY(nc_put_vara_float(nc, v, (const size_t[]){step, 0, at}, (const size_t[]){1, rows, WIDTH}, data));
    } else {
      /* The last row, a chunk of its own, comes when the file was opened again. */
      const size_t from = again ? HEIGHT - 1 : 0, rows = again ? 1 : HEIGHT - 1;
      SAY(nc_put_vara_float(nc, v, (const size_t[]){from, at}, (const size_t[]){rows, WIDTH}, data));
    }
  }
}

static void write_and_append(const char* path) {
  const int mode = NC_CLOBBER | NC_NETCDF4 | (strcmp(how, "append-classic-model") == 0 ? NC_CLASSIC_MODEL : 0);
  SAY(create(path, mode));
  define_stored();
  for (size_t step = 0; step < 2; ++step) put_stored(step, 0);
  SAY(nc_close(nc));
  for (size_t again = 0; again < 2; ++again) {
    SAY(nc_open_par(path, NC_WRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &nc));
    for (size_t step = 0; step < 2; ++step) put_stored(2 + 2 * again + step, 1);
    read_back();
    SAY(nc_close(nc));
  }
}

/* Rank 0 defines and has nothing to put, while the others put much. */
static void write_without_root(const char* path) {
  enum { PIECE = 1 << 18, PIECES = 32 };
  int dim = -1, var = -1;
  SAY(create(path, NC_NETCDF4));
  SAY(nc_def_dim(nc, "x", (size_t)ranks * PIECES * PIECE, &dim));
  SAY(nc_def_var(nc, "v", NC_INT, 1, &dim, &var));
  SAY(nc_enddef(nc));
  int* values = malloc(PIECE * sizeof *values);
  for (int i = 0; i < PIECE; ++i) values[i] = i * 7 + rank;
  for (int piece = 0; rank != 0 && piece < PIECES; ++piece) {
    const size_t start = ((size_t)rank * PIECES + (size_t)piece) * PIECE, count = PIECE;
    SAY(nc_put_vara_int(nc, var, &start, &count, values));
  }
  free(values);
  MPI_Barrier(MPI_COMM_WORLD);
  SAY(nc_close(nc));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) return 2;
  how = argv[1];
  char name[4096];
  snprintf(name, sizeof name, "%s.%d", argv[2], rank);
  answers = fopen(name, "w");
  setvbuf(answers, NULL, _IOLBF, 0);
  if (strncmp(how, "wrong-alone", 11) == 0) {
    write_with_mistakes(argv[2]);
    fclose(answers);
    MPI_Finalize();
    return 0;
  }
  if (strcmp(how, "communicators") == 0 || strcmp(how, "idle-root") == 0) {
    if (how[0] == 'i')
      write_without_root(argv[2]);
    else
      write_several();
    fclose(answers);
    MPI_Finalize();
    return 0;
  }
  /* Creates that fail do so on all ranks. */
  SAY(create("no/such/directory.nc", NC_NETCDF4));
  SAY(create(".", NC_NETCDF4));
  if (strncmp(how, "append", 6) == 0)
    write_and_append(argv[2]);
  else
    write_file(argv[2]);
  read_file(argv[2]);
  SAY(create(argv[2], NC_NETCDF4 | NC_NOCLOBBER));
  fclose(answers);
  MPI_Finalize();
  return 0;
}
