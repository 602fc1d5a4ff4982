/* Writes files by every family of PnetCDF's put functions, right calls and wrong ones, and says every answer. Run with
 * and without Advectio its answers and its files must be the same.
 *
 *     mpirun -n N families FORMAT(1, 2 or 5) FILE.nc   answers go to FILE.nc.<rank> */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 6, HEIGHT = 4, TYPES = 11 };

static FILE* answers;
static int rank, ranks;

/* One line per call: what was asked, and what came back. */
static int say(int line, const char* call, int code) {
  fprintf(answers, "%d %.60s: %s\n", line, call, code == NC_NOERR ? "ok" : ncmpi_strerrno(code));
  return code;
}
#define SAY(CALL) say(__LINE__, #CALL, CALL)

static int nc, record, row, column;
static int vars[TYPES], grids[TYPES], scalars[TYPES], types;

/* X(name, type in memory) */
#define MEMORY_TYPES(X)     \
  X(schar, signed char)     \
  X(uchar, unsigned char)   \
  X(short, short)           \
  X(ushort, unsigned short) \
  X(int, int)               \
  X(uint, unsigned)         \
  X(long, long) X(float, float) X(double, double) X(longlong, long long) X(ulonglong, unsigned long long)

/* Every form of one type in memory, into a variable of any type. */
#define FORMS(T, TYPE)                                                                                            \
  static void put_##T(int v, int step) {                                                                          \
    TYPE data[HEIGHT * WIDTH];                                                                                    \
    for (int i = 0; i < HEIGHT * WIDTH; ++i) data[i] = (TYPE)((i * 37 + step * 11 + rank * 101) % 128);           \
    const MPI_Offset start[3] = {step, 0, rank * WIDTH}, count[3] = {1, HEIGHT, WIDTH};                           \
    SAY(ncmpi_put_vara_##T##_all(nc, grids[v], start, count, data));                                              \
    const MPI_Offset at[3] = {step, 1, rank * WIDTH + 2};                                                         \
    data[0] = (TYPE)(step + 1);                                                                                   \
    SAY(ncmpi_put_var1_##T##_all(nc, grids[v], at, data));                                                        \
    const MPI_Offset few[3] = {1, 2, 3}, stride[3] = {1, 2, 2};                                                   \
    SAY(ncmpi_put_vars_##T##_all(nc, grids[v], start, few, stride, data));                                        \
    const MPI_Offset map[3] = {0, 1, HEIGHT};                                                                     \
    const MPI_Offset next[3] = {step + 1, 0, rank * WIDTH};                                                       \
    SAY(ncmpi_put_varm_##T##_all(nc, grids[v], next, count, NULL, map, data));                                    \
    MPI_Offset box0[3] = {step, 3, rank * WIDTH}, box1[3] = {step + 1, 0, rank * WIDTH + 4};                      \
    MPI_Offset size0[3] = {1, 1, 3}, size1[3] = {1, 4, 2};                                                        \
    MPI_Offset *starts[2] = {box0, box1}, *counts[2] = {size0, size1};                                            \
    SAY(ncmpi_put_varn_##T##_all(nc, grids[v], 2, starts, counts, data));                                         \
    int many[2] = {grids[v], grids[v]};                                                                           \
    TYPE* lists[2] = {data, data + 3};                                                                            \
    SAY(ncmpi_mput_vara_##T##_all(nc, 2, many, starts, counts, lists));                                           \
    SAY(ncmpi_put_var_##T##_all(nc, scalars[v], data));                                                           \
    SAY(ncmpi_begin_indep_data(nc));                                                                              \
    SAY(ncmpi_put_vara_##T(nc, vars[v], start + 2, count + 2, data + 5));                                         \
    SAY(ncmpi_put_var1_##T(nc, vars[v], start + 2, data + 7));                                                    \
    SAY(ncmpi_put_varn_##T(nc, grids[v], 2, starts, counts, data));                                               \
    SAY(ncmpi_end_indep_data(nc));                                                                                \
    int request[4] = {-7, -7, -7, -7}, status[4] = {9, 9, 9, 9};                                                  \
    const MPI_Offset last[3] = {step + 2, 0, rank * WIDTH}, upper[3] = {1, 2, WIDTH};                             \
    const MPI_Offset lower[3] = {step + 2, 2, rank * WIDTH};                                                      \
    SAY(ncmpi_iput_vara_##T(nc, grids[v], last, upper, data, request));                                           \
    SAY(ncmpi_bput_vara_##T(nc, grids[v], lower, few, data, request + 1));                                        \
    SAY(ncmpi_iput_varn_##T(nc, grids[v], 2, starts, counts, data, request + 2));                                 \
    SAY(ncmpi_bput_vars_##T(nc, grids[v], start, few, stride, data, request + 3));                                \
    SAY(ncmpi_cancel(nc, 1, request + 3, status + 3));                                                            \
    SAY(ncmpi_wait_all(nc, 4, request, status));                                                                  \
    fprintf(answers, "requests %d %d %d %d status %d %d %d %d\n", request[0], request[1], request[2], request[3], \
            status[0], status[1], status[2], status[3]);                                                          \
  }
MEMORY_TYPES(FORMS)

static void put_text(int step) {
  char text[WIDTH + 1];
  snprintf(text, sizeof text, "%c%c%04d", (char)(97 + rank), (char)(65 + step), step % 10000);
  const MPI_Offset start[3] = {step, 1, rank * WIDTH}, count[3] = {1, 1, WIDTH};
  SAY(ncmpi_put_vara_text_all(nc, grids[1], start, count, text));
  SAY(ncmpi_iput_vara_text(nc, grids[1], start, count, text, NULL));
  SAY(ncmpi_put_var_text_all(nc, scalars[1], "s"));
  SAY(ncmpi_wait_all(nc, NC_REQ_ALL, NULL, NULL));
}

/* Memory with halos, columns, and the type that says nothing. */
static void put_flexible(int v, MPI_Datatype element, size_t size, int step) {
  char* memory = malloc((HEIGHT + 2) * (WIDTH + 2) * size);
  for (size_t i = 0; i < (HEIGHT + 2) * (WIDTH + 2) * size; ++i) memory[i] = (char)((i * 7 + (size_t)step) % 100);
  MPI_Datatype inner, swapped;
  MPI_Type_create_subarray(2, (int[]){HEIGHT + 2, WIDTH + 2}, (int[]){HEIGHT, WIDTH}, (int[]){1, 1}, MPI_ORDER_C,
                           element, &inner);
  MPI_Type_commit(&inner);
  MPI_Type_vector(HEIGHT * WIDTH / 2, 1, 2, element, &swapped);
  MPI_Type_commit(&swapped);
  const MPI_Offset start[3] = {step, 0, rank * WIDTH}, count[3] = {1, HEIGHT, WIDTH}, half[3] = {1, HEIGHT / 2, WIDTH};
  SAY(ncmpi_put_vara_all(nc, grids[v], start, count, memory, 1, inner));
  SAY(ncmpi_put_vara_all(nc, grids[v], start, half, memory, 1, swapped));
  SAY(ncmpi_put_vara_all(nc, grids[v], start, half, memory, 2, swapped)); /* too many */
  const MPI_Offset next[3] = {step + 1, 0, rank * WIDTH}, map[3] = {0, 1, HEIGHT};
  SAY(ncmpi_put_varm_all(nc, grids[v], next, count, NULL, map, memory, 1, inner));
  SAY(ncmpi_put_vara_all(nc, grids[v], next, half, memory, 0, MPI_DATATYPE_NULL));
  SAY(ncmpi_put_vara_all(nc, grids[v], next, half, memory, 1, MPI_2INT));
  int request[2] = {-7, -7};
  SAY(ncmpi_bput_vara(nc, grids[v], next, count, memory, 1, inner, request));
  SAY(ncmpi_iput_vara(nc, grids[v], start, half, memory, 0, MPI_DATATYPE_NULL, request + 1));
  MPI_Type_free(&inner);
  MPI_Type_free(&swapped);
  SAY(ncmpi_wait_all(nc, 2, request, NULL));
  free(memory);
}

static void make_mistakes(void) {
  double d[HEIGHT * WIDTH] = {1e300, -1e300, 1, 2, 3};
  const MPI_Offset start[3] = {0, 0, 0}, count[3] = {1, 2, 2}, far[3] = {0, 9, 0}, long_[3] = {1, 2, 9999};
  const MPI_Offset minus[3] = {0, -1, 0}, few[3] = {1, -2, 1}, none[3] = {0, 0, 0}, stride[3] = {1, 0, 1};
  const int g = grids[4];
  SAY(ncmpi_put_vara_double_all(nc, g, far, count, d));
  SAY(ncmpi_put_vara_double_all(nc, g, start, long_, d));
  SAY(ncmpi_put_vara_double_all(nc, g, minus, count, d));
  SAY(ncmpi_put_vara_double_all(nc, g, start, few, d));
  SAY(ncmpi_put_vara_double_all(nc, g, start, none, d));
  SAY(ncmpi_put_vars_double_all(nc, g, start, count, stride, d));
  SAY(ncmpi_put_vara_double_all(nc, 999, start, count, d));
  SAY(ncmpi_put_vara_double_all(nc, NC_GLOBAL, start, count, d));
  SAY(ncmpi_put_vara_double_all(nc, grids[1], start, count, d));    /* numbers into text */
  SAY(ncmpi_put_vara_double(nc, g, start, count, d));               /* not in this mode */
  SAY(ncmpi_put_vara_double_all(nc, vars[0], start, count + 1, d)); /* out of range */
  SAY(ncmpi_iput_vara_double(nc, vars[0], start, count + 1, d, NULL));
  SAY(ncmpi_iput_vara_double(nc, g, far, count, d, NULL));
  SAY(ncmpi_put_varn_double_all(nc, g, 1, NULL, NULL, d));
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_put_vara_double_all(nc, g, start, count, d));
  SAY(ncmpi_wait_all(nc, NC_REQ_ALL, NULL, NULL));
  SAY(ncmpi_sync(nc));
  SAY(ncmpi_begin_indep_data(nc));
  SAY(ncmpi_put_att_int(nc, NC_GLOBAL, "redefined", NC_INT, 1, &ranks));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_begin_indep_data(nc));
  SAY(ncmpi_put_vara_double_all(nc, g, start, count, d));
  SAY(ncmpi_wait_all(nc, NC_REQ_ALL, NULL, NULL));
  SAY(ncmpi_wait(nc, NC_REQ_ALL, NULL, NULL));
  SAY(ncmpi_end_indep_data(nc));
  int wrong[3] = {77, 0, NC_REQ_NULL}, status[3] = {9, 9, 9};
  SAY(ncmpi_wait_all(nc, 3, wrong, status));
  SAY(ncmpi_cancel(nc, 2, wrong, status));
  fprintf(answers, "status %d %d\n", status[0], status[1]);
  SAY(ncmpi_buffer_attach(nc, 10));
  SAY(ncmpi_buffer_detach(nc));
  SAY(ncmpi_buffer_detach(nc));
  MPI_Offset usage = 0;
  SAY(ncmpi_inq_buffer_usage(nc, &usage));
  SAY(ncmpi_bput_vara_double(nc, g, start, count, d, NULL));
  SAY(ncmpi_buffer_attach(nc, 20));
  SAY(ncmpi_bput_vara_double(nc, g, start, count, d, NULL)); /* does not fit */
  SAY(ncmpi_buffer_detach(nc));
}

static void read_back(void) {
  MPI_Offset records = 0;
  SAY(ncmpi_inq_dimlen(nc, record, &records));
  fprintf(answers, "records %lld\n", (long long)records);
  const size_t elements = (size_t)(records * HEIGHT * WIDTH * ranks);
  double* all = malloc(elements * sizeof *all);
  for (int v = 0; v < types; ++v) {
    if (v == 1) continue;
    SAY(ncmpi_get_var_double_all(nc, grids[v], all));
    double sum = 0;
    for (size_t i = 0; i < elements; ++i) sum += all[i] * (double)(i % 97 + 1);
    fprintf(answers, "sum %d %.17g\n", v, sum);
  }
  int request = -7, status = 9;
  const MPI_Offset start[3] = {0, 0, 0}, count[3] = {1, HEIGHT, WIDTH};
  SAY(ncmpi_iget_vara_double(nc, grids[4], start, count, all, &request));
  SAY(ncmpi_wait_all(nc, 1, &request, &status));
  fprintf(answers, "first %g status %d\n", all[0], status);
  free(all);
}

/* Each call right after define mode has been left, where its answer could still be that of define mode. */
#define LEFT(CALL)         \
  do {                     \
    SAY(ncmpi_redef(nc));  \
    SAY(ncmpi_enddef(nc)); \
    SAY(CALL);             \
  } while (0)
#define LEFT_NUMBER(TYPE, F, ...)                  \
  do {                                             \
    TYPE number = -1;                              \
    LEFT(F(__VA_ARGS__, &number));                 \
    fprintf(answers, "%lld\n", (long long)number); \
  } while (0)

static void leave_define_mode(const char* path, int mode) {
  int x = 0, t = 0, old = 0, id = 0, v[3];
  const int values[4] = {1, 2, 3, 4};
  SAY(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | mode, MPI_INFO_NULL, &nc));
  SAY(ncmpi_def_dim(nc, "t", NC_UNLIMITED, &t));
  SAY(ncmpi_def_dim(nc, "x", WIDTH, &x));
  const int dims[2] = {t, x};
  SAY(ncmpi_enddef(nc));
  for (int i = 0; i < 3; ++i) { /* as WRF does: one thing at a time */
    char name[8] = {(char)('a' + i), 0};
    SAY(ncmpi_redef(nc));
    SAY(ncmpi_def_var(nc, name, NC_INT, i == 0 ? 1 : 2, i == 0 ? dims + 1 : dims, &v[i]));
    SAY(ncmpi_put_att_int(nc, v[i], "n", NC_INT, 2, values));
    SAY(ncmpi_enddef(nc));
    SAY(ncmpi_enddef(nc));
  }
  LEFT_NUMBER(MPI_Offset, ncmpi_inq_header_size, nc);
  LEFT_NUMBER(MPI_Offset, ncmpi_inq_header_extent, nc);
  LEFT_NUMBER(MPI_Offset, ncmpi_inq_varoffset, nc, v[0]);
  LEFT_NUMBER(MPI_Offset, ncmpi_inq_varoffset, nc, v[2]);
  LEFT_NUMBER(MPI_Offset, ncmpi_inq_recsize, nc);
  LEFT_NUMBER(int, ncmpi_inq_num_rec_vars, nc);
  LEFT_NUMBER(int, ncmpi_inq_num_fix_vars, nc);
  LEFT_NUMBER(int, ncmpi_inq_nvars, nc);
  LEFT_NUMBER(int, ncmpi_inq_varid, nc, "c");
  LEFT(ncmpi_def_dim(nc, "late", 3, &id));
  LEFT(ncmpi_def_var(nc, "late", NC_INT, 1, &x, &id));
  LEFT(ncmpi_def_var_fill(nc, v[0], 0, NULL));
  LEFT(ncmpi_set_fill(nc, NC_NOFILL, &old));
  LEFT(ncmpi_put_att_int(nc, v[0], "n", NC_INT, 2, values + 1));
  LEFT(ncmpi_put_att_int(nc, v[0], "n", NC_INT, 4, values));
  LEFT(ncmpi_put_att_text(nc, NC_GLOBAL, "late", 4, "late"));
  LEFT(ncmpi_rename_att(nc, v[0], "n", "longer"));
  LEFT(ncmpi_rename_att(nc, v[0], "n", "m"));
  LEFT(ncmpi_rename_var(nc, v[0], "longer"));
  LEFT(ncmpi_rename_var(nc, v[0], "z"));
  LEFT(ncmpi_rename_dim(nc, x, "longer"));
  LEFT(ncmpi_rename_dim(nc, x, "y"));
  LEFT(ncmpi_del_att(nc, v[1], "n"));
  LEFT(ncmpi_copy_att(nc, v[1], "n", nc, v[2]));
  LEFT(ncmpi_copy_att(nc, v[1], "n", nc, NC_GLOBAL));
  LEFT(ncmpi_enddef(nc));
  LEFT(ncmpi__enddef(nc, 0, 4, 0, 4));
  LEFT(ncmpi_sync_numrecs(nc));
  LEFT(ncmpi_flush(nc));
  LEFT(ncmpi_end_indep_data(nc));
  LEFT(ncmpi_wait(nc, NC_REQ_ALL, NULL, NULL));
  LEFT(ncmpi_wait_all(nc, NC_REQ_ALL, NULL, NULL));
  LEFT(ncmpi_begin_indep_data(nc));
  const MPI_Offset start[2] = {0, 0}, count[2] = {1, WIDTH}, far[2] = {0, 99};
  const int row_[WIDTH] = {1, 2, 3, 4, 5, 6};
  LEFT(ncmpi_put_vara_int(nc, v[1], start, count, row_));
  LEFT(ncmpi_put_vara_int_all(nc, v[1], far, count, row_));
  int got[WIDTH];
  LEFT(ncmpi_get_vara_int(nc, v[1], start, count, got));
  LEFT(ncmpi_put_vara_int_all(nc, v[1], start, count, row_));
  LEFT(ncmpi_put_vara_int_all(nc, v[2], start, count, row_));
  LEFT(ncmpi_put_vara_int_all(nc, v[0], start + 1, count + 1, row_));
  LEFT(ncmpi_get_vara_int_all(nc, v[2], start, count, got));
  fprintf(answers, "got %d\n", got[5]);
  LEFT(ncmpi_sync(nc));
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_def_var(nc, "last", NC_INT, 1, &x, &id));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_put_vara_int_all(nc, id, start + 1, count + 1, row_));
  SAY(ncmpi_close(nc));
}

/* What the format cannot say is found when define mode ends. */
static void too_large(const char* path, int mode) {
  int x = 0, v = 0;
  SAY(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | mode, MPI_INFO_NULL, &nc));
  SAY(ncmpi_def_dim(nc, "x", 2000000000, &x));
  for (int i = 0; i < 3; ++i) {
    char name[8] = {(char)('a' + i), 0};
    SAY(ncmpi_def_var(nc, name, NC_DOUBLE, 1, &x, &v));
    SAY(ncmpi_enddef(nc));
    if (i < 2) SAY(ncmpi_redef(nc));
  }
  SAY(ncmpi_abort(nc));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) return 2;
  const int format = atoi(argv[1]);
  char name[4096];
  snprintf(name, sizeof name, "%s.%d", argv[2], rank);
  answers = fopen(name, "w");
  setvbuf(answers, NULL, _IOLBF, 0);
  const int mode = format == 5 ? NC_64BIT_DATA : format == 2 ? NC_64BIT_OFFSET : 0;
  types = format == 5 ? TYPES : 6;
  SAY(ncmpi_create(MPI_COMM_WORLD, argv[2], NC_CLOBBER | mode, MPI_INFO_NULL, &nc));
  SAY(ncmpi_def_dim(nc, "record", NC_UNLIMITED, &record));
  SAY(ncmpi_def_dim(nc, "row", HEIGHT, &row));
  SAY(ncmpi_def_dim(nc, "column", WIDTH * ranks, &column));
  const int dims[3] = {record, row, column};
  for (int v = 0; v < types; ++v) {
    snprintf(name, sizeof name, "line%d", v);
    SAY(ncmpi_def_var(nc, name, v + 1, 1, &column, &vars[v]));
    SAY(ncmpi_def_var_fill(nc, vars[v], 0, NULL));
    snprintf(name, sizeof name, "grid%d", v);
    SAY(ncmpi_def_var(nc, name, v + 1, 3, dims, &grids[v]));
    SAY(ncmpi_put_att_text(nc, grids[v], "units", 1, "m"));
    SAY(ncmpi_def_var_fill(nc, grids[v], 0, NULL));
    snprintf(name, sizeof name, "scalar%d", v);
    SAY(ncmpi_def_var(nc, name, v + 1, 0, NULL, &scalars[v]));
  }
  SAY(ncmpi_enddef(nc));
  int no_fill = 9;
  SAY(ncmpi_inq_var_fill(nc, vars[0], &no_fill, NULL));
  fprintf(answers, "no_fill %d\n", no_fill);
  SAY(ncmpi_buffer_attach(nc, 1 << 16));
  int step = 0;
  for (int v = 0; v < types; ++v) {
    for (int r = 0; r <= 40; ++r) SAY(ncmpi_fill_var_rec(nc, grids[v], r));
    if (v == 1) {
      put_text(step);
      continue;
    }
#define PUT(T, TYPE) put_##T(v, step);
    MEMORY_TYPES(PUT)
    step += 1;
    SAY(ncmpi_sync(nc));
  }
  put_flexible(3, MPI_INT, sizeof(int), 0);
  put_flexible(4, MPI_FLOAT, sizeof(float), 1);
  put_flexible(5, MPI_INT, sizeof(int), 1); /* with a conversion */
  /* One rank alone makes the file longer; all learn of it. */
  const MPI_Offset at[3] = {42, 0, 0};
  const MPI_Offset one[3] = {rank == 0, 1, 1};
  const int last = 40;
  SAY(ncmpi_put_vara_int_all(nc, grids[3], at, one, &last));
  MPI_Offset records = 0;
  SAY(ncmpi_inq_dimlen(nc, record, &records));
  fprintf(answers, "records %lld\n", (long long)records);
  for (int v = 0; v < types; ++v)
    for (int r = 41; r <= 42; ++r) SAY(ncmpi_fill_var_rec(nc, grids[v], r));
  int pending = 9;
  SAY(ncmpi_inq_nreqs(nc, &pending));
  fprintf(answers, "pending %d\n", pending);
  SAY(ncmpi_buffer_detach(nc));
  make_mistakes();
  read_back();
  SAY(ncmpi_close(nc));
  SAY(ncmpi_open(MPI_COMM_WORLD, argv[2], NC_NOWRITE, MPI_INFO_NULL, &nc));
  read_back();
  SAY(ncmpi_close(nc));
  leave_define_mode("modes.nc", mode);
  if (format != 5) too_large("large.nc", mode);
  fclose(answers);
  MPI_Finalize();
  return 0;
}
