/* Conversations with PnetCDF that its own programs do not have: wrong posted calls, definitions that cannot be laid
 * out, a give-up in the midst of them. Run with and without Advectio its answers and its files must be the same.
 *
 *     mpirun -n N chosen_calls WHICH…    one after another; makes WHICH.nc; answers go to WHICH.nc.<rank> */
#include <limits.h>
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static FILE* answers;
static int rank, ranks;
static char path[64];

static int say(int line, const char* call, int code) {
  fprintf(answers, "%d %.70s: %s\n", line, call, code == NC_NOERR ? "ok" : ncmpi_strerrno(code));
  return code;
}
#define SAY(CALL) say(__LINE__, #CALL, CALL)

static int nc, t, x, rec, fix;

static void create(int mode) {
  SAY(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | mode, MPI_INFO_NULL, &nc));
}

/* A dimension of 4 and one of records, `fix` and `rec` along them, of doubles. */
static void create_usual(void) {
  create(0);
  SAY(ncmpi_def_dim(nc, "t", NC_UNLIMITED, &t));
  SAY(ncmpi_def_dim(nc, "x", 4, &x));
  const int dims[2] = {t, x};
  SAY(ncmpi_def_var(nc, "fix", NC_DOUBLE, 1, &x, &fix));
  SAY(ncmpi_def_var(nc, "rec", NC_DOUBLE, 2, dims, &rec));
}

static void put_record(int v, MPI_Offset record, double value) {
  const MPI_Offset start[2] = {record, 0}, count[2] = {rank == 0, 4};
  const double values[4] = {value, value + 1, value + 2, value + 3};
  SAY(ncmpi_put_vara_double_all(nc, v, start, count, values));
}

/* What is put between two reads is read, whoever has put it and by whichever call. */
static void reads_between_puts(void) {
  create(NC_64BIT_DATA);
  SAY(ncmpi_def_dim(nc, "t", NC_UNLIMITED, &t));
  SAY(ncmpi_def_dim(nc, "x", ranks, &x));
  const int dims[2] = {t, x};
  SAY(ncmpi_def_var(nc, "rec", NC_INT, 2, dims, &rec));
  SAY(ncmpi_def_var(nc, "fix", NC_INT, 1, &x, &fix));
  SAY(ncmpi_enddef(nc));
  const MPI_Offset own = rank, one = 1;
  for (int k = 0; k < 4; ++k) {
    int all[64] = {0}, mine = 10 * k + rank + 1, got = -9;
    const MPI_Offset start[2] = {k, rank}, count[2] = {1, 1}, from[2] = {k, 0}, whole[2] = {1, ranks};
    SAY(ncmpi_put_vara_int_all(nc, rec, start, count, &mine));
    MPI_Barrier(MPI_COMM_WORLD); /* PnetCDF does not wait for the others' data */
    SAY(ncmpi_get_vara_int_all(nc, rec, from, whole, all));
    for (int i = 0; i < ranks; ++i) fprintf(answers, "  %d", all[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    mine += 1000;
    SAY(ncmpi_put_vara_int_all(nc, fix, &own, &one, &mine));
    SAY(ncmpi_get_var1_int_all(nc, fix, &own, &got));
    SAY(ncmpi_begin_indep_data(nc));
    fprintf(answers, "  collective %d", got);
    for (int again = 0; again < 2; ++again) {
      mine += 1000;
      SAY(ncmpi_put_var1_int(nc, fix, &own, &mine));
      SAY(ncmpi_get_var1_int(nc, fix, &own, &got));
      fprintf(answers, "  alone %d", got);
    }
    SAY(ncmpi_end_indep_data(nc));
    int request[2] = {-7, -7}, status[2] = {9, 9};
    mine += 1000;
    SAY(ncmpi_iput_var1_int(nc, fix, &own, &mine, &request[0]));
    SAY(ncmpi_iget_var1_int(nc, fix, &own, &got, &request[1]));
    SAY(ncmpi_wait_all(nc, 2, request, status));
    fprintf(answers, "  posted %d\n", got);
  }
  SAY(ncmpi_close(nc));
}

/* What CDF-1 cannot lay out, and files that are made after it. */
static void too_large(int with_data) {
  int y = 0, v = 0;
  if (with_data) {
    create_usual();
    SAY(ncmpi_enddef(nc));
    put_record(rec, 1, 1);
    SAY(ncmpi_redef(nc));
  } else {
    create(0);
    SAY(ncmpi_def_dim(nc, "x", 4, &x));
  }
  SAY(ncmpi_def_dim(nc, "y", INT_MAX - 3, &y));
  SAY(ncmpi_def_var(nc, "large", NC_CHAR, 1, &y, &v));
  SAY(ncmpi_def_var(nc, "small", NC_INT, 1, &x, &v));
  if (with_data) SAY(ncmpi_enddef(nc));
  SAY(ncmpi_close(nc));
  MPI_Barrier(MPI_COMM_WORLD);
  FILE* there = fopen(path, "r");
  fprintf(answers, "there %d\n", there != NULL);
  if (there != NULL) fclose(there);
  MPI_Barrier(MPI_COMM_WORLD);
  if (with_data) return;
  strcpy(strrchr(path, '.'), "-next.nc");
  create_usual();
  SAY(ncmpi__enddef(nc, 1 << 30, 4, 1 << 29, 4)); /* room for the header, and behind the data */
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_def_dim(nc, "y", 1 << 28, &y));
  SAY(ncmpi_def_var(nc, "a", NC_INT, 1, &y, &v));
  SAY(ncmpi_def_var(nc, "b", NC_INT, 1, &x, &v));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_abort(nc));
  create_usual();
  SAY(ncmpi_close(nc));
}
static void too_large_from_the_start(void) {
  too_large(0);
}
static void too_large_after_data(void) {
  too_large(1);
}

/* What was ended before stays, with its attributes and names as they were. */
static void gives_up_definitions(void) {
  int v = 0;
  create_usual();
  SAY(ncmpi_put_att_text(nc, NC_GLOBAL, "title", 3, "one"));
  SAY(ncmpi_put_att_text(nc, fix, "units", 1, "m"));
  SAY(ncmpi_def_var_fill(nc, fix, 0, NULL));
  SAY(ncmpi_enddef(nc));
  put_record(rec, 0, 5);
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_def_var(nc, "second", NC_INT, 1, &x, &v));
  SAY(ncmpi_def_var_fill(nc, v, 0, NULL));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_put_att_text(nc, fix, "units", 1, "s"));
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_def_var(nc, "third", NC_INT, 1, &x, &v));
  SAY(ncmpi_put_att_text(nc, NC_GLOBAL, "title", 3, "two"));
  SAY(ncmpi_del_att(nc, fix, "units"));
  SAY(ncmpi_rename_var(nc, fix, "another"));
  SAY(ncmpi_rename_dim(nc, x, "longer"));
  SAY(ncmpi_abort(nc));
}

static void gives_up_all_definitions(void) {
  create_usual();
  ncmpi_abort(nc); /* every rank removes the file; in PnetCDF one of them finds it gone */
  MPI_Barrier(MPI_COMM_WORLD);
  FILE* there = fopen(path, "r");
  fprintf(answers, "there %d\n", there != NULL);
  if (there != NULL) fclose(there);
}

/* Variables that are added where there are records. */
static void fills_what_is_added(void) {
  const int dims[2] = {0, 1};
  const double value = -1;
  int filled = 0, with_value = 0, not_filled = 0, fixed = 0;
  create_usual();
  SAY(ncmpi_enddef(nc));
  put_record(rec, 2, 5);
  for (int r = 0; r < 2; ++r) put_record(rec, r, 7);
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_def_var(nc, "filled", NC_DOUBLE, 2, dims, &filled));
  SAY(ncmpi_def_var_fill(nc, filled, 0, NULL));
  SAY(ncmpi_def_var(nc, "with_value", NC_DOUBLE, 2, dims, &with_value));
  SAY(ncmpi_def_var_fill(nc, with_value, 0, &value));
  SAY(ncmpi_def_var(nc, "fixed", NC_DOUBLE, 1, &x, &fixed));
  SAY(ncmpi_def_var_fill(nc, fixed, 0, &value));
  SAY(ncmpi_def_var(nc, "not_filled", NC_DOUBLE, 2, dims, &not_filled));
  SAY(ncmpi_enddef(nc));
  for (int r = 0; r < 3; ++r) put_record(not_filled, r, 9);
  put_record(filled, 1, 11);
  SAY(ncmpi_close(nc));
}

/* The records of all variables stay as they are, although a variable without records is filled. */
static void fills_what_has_no_records(void) {
  const int dims[2] = {0, 1};
  int sparse = 0;
  create_usual();
  SAY(ncmpi_def_var_fill(nc, fix, 0, NULL));
  SAY(ncmpi_def_var(nc, "sparse", NC_DOUBLE, 2, dims, &sparse));
  SAY(ncmpi_enddef(nc));
  for (int r = 0; r < 4; r += 3) put_record(rec, r, 5);
  SAY(ncmpi_close(nc));
}

/* Where fill modes and values come too late, and what counts as one. */
static void fill_modes(void) {
  const double value = 7, other = 8;
  int no_fill = 9, before = 9, late = 0;
  create_usual();
  SAY(ncmpi_put_att_double(nc, rec, "_FillValue", NC_DOUBLE, 1, &value));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_inq_var_fill(nc, rec, &no_fill, NULL));
  fprintf(answers, "no_fill %d\n", no_fill);
  SAY(ncmpi_fill_var_rec(nc, rec, 1));
  SAY(ncmpi_fill_var_rec(nc, fix, 1));
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_put_att_double(nc, fix, "_FillValue", NC_DOUBLE, 1, &value));
  SAY(ncmpi_put_att_double(nc, rec, "_FillValue", NC_DOUBLE, 1, &other));
  SAY(ncmpi_put_att_double(nc, rec, "_FillValue", NC_INT, 1, &other));
  SAY(ncmpi_def_var_fill(nc, fix, 0, &value));
  SAY(ncmpi_def_var_fill(nc, fix, 0, NULL));
  SAY(ncmpi_def_var(nc, "late", NC_DOUBLE, 1, &x, &late));
  SAY(ncmpi_put_att_double(nc, late, "_FillValue", NC_DOUBLE, 1, &value));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_inq_var_fill(nc, fix, &no_fill, NULL));
  fprintf(answers, "no_fill %d\n", no_fill);
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_set_fill(nc, NC_FILL, &before));
  SAY(ncmpi_inq_var_fill(nc, late, &no_fill, NULL));
  fprintf(answers, "no_fill %d before %d\n", no_fill, before);
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_fill_var_rec(nc, rec, 0));
  const MPI_Offset start = 0, count = 4;
  const double values[4] = {1, 2, 3, 4};
  SAY(ncmpi_put_vara_double_all(nc, fix, &start, &count, values));
  SAY(ncmpi_put_vara_double_all(nc, late, &start, &count, values));
  SAY(ncmpi_close(nc));
}

/* Wrong calls are found when they are posted, in the library's order. */
static void wrong_posted_calls(void) {
  double w[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  char text[8] = "abcdefg";
  create_usual();
  SAY(ncmpi_enddef(nc));
  put_record(rec, 1, 5);
  MPI_Offset far = 9, two = 2, last = 3, minus = -1, none = 0, zero[2] = {0, 0}, beyond[2] = {2, 0}, row[2] = {1, 4};
  MPI_Offset *far_[1] = {&far}, *two_[1] = {&two}, *last_[1] = {&last}, *minus_[1] = {&minus}, *null_[1] = {NULL};
  int q = -7;
#define EACH(CALL)                                     \
  do {                                                 \
    q = -7;                                            \
    SAY(CALL);                                         \
    fprintf(answers, "  null %d\n", q == NC_REQ_NULL); \
  } while (0)
  for (int attached = 0; attached < 2; ++attached) {
    if (attached) SAY(ncmpi_buffer_attach(nc, 100));
#define OF(P, CONST)                                                    \
  EACH(ncmpi_##P##_vara_double(nc, fix, &far, &two, w, &q));            \
  EACH(ncmpi_##P##_vara_double(nc, fix, &last, &two, w, &q));           \
  EACH(ncmpi_##P##_vara_double(nc, fix, &last, &minus, w, &q));         \
  EACH(ncmpi_##P##_vara_double(nc, fix, &minus, &two, w, &q));          \
  EACH(ncmpi_##P##_vara_double(nc, fix, &none, &none, w, &q));          \
  EACH(ncmpi_##P##_vara_double(nc, fix, NULL, &two, w, &q));            \
  EACH(ncmpi_##P##_vara_double(nc, fix, &none, NULL, w, &q));           \
  EACH(ncmpi_##P##_vars_double(nc, fix, &none, &two, &none, w, &q));    \
  EACH(ncmpi_##P##_vara_double(nc, 7, &far, &two, w, &q));              \
  EACH(ncmpi_##P##_vara_double(nc, NC_GLOBAL, &far, &two, w, &q));      \
  EACH(ncmpi_##P##_vara_text(nc, fix, &far, &two, text, &q));           \
  EACH(ncmpi_##P##_vara(nc, fix, &none, &two, w, 3, MPI_DOUBLE, &q));   \
  EACH(ncmpi_##P##_vara(nc, fix, &none, &two, w, 0, MPI_DOUBLE, &q));   \
  EACH(ncmpi_##P##_vara(nc, fix, &none, &two, w, 1, MPI_2INT, &q));     \
  EACH(ncmpi_##P##_varn_double(nc, fix, 1, far_, two_, w, &q));         \
  EACH(ncmpi_##P##_varn_double(nc, fix, 1, last_, two_, w, &q));        \
  EACH(ncmpi_##P##_varn_double(nc, fix, 1, last_, minus_, w, &q));      \
  EACH(ncmpi_##P##_varn_double(nc, fix, 1, NULL, two_, w, &q));         \
  EACH(ncmpi_##P##_varn_double(nc, fix, 1, null_, two_, w, &q));        \
  EACH(ncmpi_##P##_varn_double(nc, fix, 0, far_, two_, w, &q));         \
  EACH(ncmpi_##P##_varn_text(nc, fix, 1, NULL, NULL, text, &q));        \
  EACH(ncmpi_##P##_varn(nc, fix, 1, far_, two_, w, 0, MPI_DOUBLE, &q)); \
  EACH(ncmpi_##P##_varn(nc, fix, 1, minus_, two_, w, 2, MPI_DOUBLE, &q));
    OF(iput, const)
    OF(bput, const)
    OF(iget, )
    EACH(ncmpi_iget_vara_double(nc, rec, beyond, row, w, &q));
    EACH(ncmpi_iget_var1_double(nc, rec, beyond, w, &q));
    SAY(ncmpi_wait_all(nc, NC_REQ_ALL, NULL, NULL));
  }
  /* Numbers and the buffer's room, as requests come and go. */
  int id[6] = {-7, -7, -7, -7, -7, -7}, status[6] = {9, 9, 9, 9, 9, 9};
  MPI_Offset used = -1;
  for (int i = 0; i < 3; ++i) SAY(ncmpi_bput_vara_double(nc, fix, &none, &two, w, &id[i]));
  SAY(ncmpi_iget_vara_double(nc, rec, zero, row, w, &id[3]));
  SAY(ncmpi_iget_vara_double(nc, rec, zero, row, w + 4, &id[4]));
  fprintf(answers, "numbers %d %d %d %d %d\n", id[0], id[1], id[2], id[3], id[4]);
  SAY(ncmpi_cancel(nc, 1, &id[1], status));
  SAY(ncmpi_inq_buffer_usage(nc, &used));
  fprintf(answers, "used %lld\n", (long long)used);
  SAY(ncmpi_bput_vara_double(nc, fix, &none, &two, w, &id[5]));
  SAY(ncmpi_bput_vara_double(nc, fix, &two, &two, w, &id[1]));
  SAY(ncmpi_bput_vara_double(nc, fix, &two, &two, w, &id[1]));
  SAY(ncmpi_buffer_detach(nc));
  fprintf(answers, "numbers %d %d\n", id[5], id[1]);
  SAY(ncmpi_wait_all(nc, 6, id, status));
  for (int i = 0; i < 6; ++i) fprintf(answers, "  %d %d\n", id[i], status[i]);
  SAY(ncmpi_buffer_detach(nc));
  int wrong[2] = {90, 91};
  SAY(ncmpi_iput_vara_double(nc, fix, &none, &two, w, &id[0]));
  SAY(ncmpi_wait_all(nc, 2, wrong, status));
  SAY(ncmpi_wait_all(nc, 1, wrong, status)); /* as many as there are: all of them */
  SAY(ncmpi_cancel(nc, -9, NULL, NULL));
  SAY(ncmpi_close(nc));
}

/* A request that is still pending keeps nothing else from being read. */
static void reads_while_a_request_is_pending(void) {
  const double w[4] = {1, 2, 3, 4};
  double r[4] = {0, 0, 0, 0};
  const MPI_Offset start = 0, count = 4;
  int q = -7;
  create_usual();
  SAY(ncmpi_enddef(nc));
  put_record(rec, 0, 5);
  SAY(ncmpi_put_vara_double_all(nc, fix, &start, &count, w + 0));
  SAY(ncmpi_iput_vara_double(nc, fix, &start, &count, w, &q));
  SAY(ncmpi_sync(nc));
  SAY(ncmpi_get_vara_double_all(nc, fix, &start, &count, r));
  fprintf(answers, "%g %g\n", r[0], r[3]);
  SAY(ncmpi_wait_all(nc, 1, &q, NULL));
  SAY(ncmpi_close(nc));
}

/* Room that is not a multiple of four bytes, where definitions change later. */
static void odd_room(void) {
  int y = 0, late = 0;
  create_usual();
  SAY(ncmpi_def_var_fill(nc, fix, 0, NULL));
  SAY(ncmpi__enddef(nc, 203, 0, 35, 0));
  put_record(rec, 0, 5);
  SAY(ncmpi_redef(nc));
  SAY(ncmpi_def_dim(nc, "y", 2, &y));
  const int dims[2] = {t, y};
  SAY(ncmpi_def_var(nc, "late", NC_DOUBLE, 2, dims, &late));
  SAY(ncmpi__enddef(nc, 71, 108, 14, 4));
  const MPI_Offset start[2] = {0, 0}, count[2] = {1, 2};
  const double w[2] = {1, 2};
  SAY(ncmpi_put_vara_double_all(nc, late, start, count, w));
  SAY(ncmpi_close(nc));
}

/* The first who puts is not the one who tells what there is. */
static void last_rank_puts_first(void) {
  const double value = 5;
  double r[4];
  const MPI_Offset at = 2, start = 0, count = 4;
  create_usual();
  SAY(ncmpi_def_var_fill(nc, fix, 0, &value));
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_begin_indep_data(nc));
  if (rank == ranks - 1) SAY(ncmpi_put_var1_double(nc, fix, &at, &value));
  if (rank == ranks - 1) SAY(ncmpi_get_vara_double(nc, fix, &start, &count, r));
  MPI_Barrier(MPI_COMM_WORLD); /* the others wait for that one */
  SAY(ncmpi_end_indep_data(nc));
  SAY(ncmpi_begin_indep_data(nc));
  SAY(ncmpi_end_indep_data(nc));
  SAY(ncmpi_get_vara_double_all(nc, fix, &start, &count, r));
  fprintf(answers, "%g %g\n", r[0], r[2]);
  SAY(ncmpi_close(nc));
}

/* Several boxes into memory with gaps. */
static void boxes_with_gaps(void) {
  double w[4] = {1, 2, 3, 4}, gaps[16];
  const MPI_Offset start = 0, count = 4;
  create_usual();
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_put_vara_double_all(nc, fix, &start, &count, w));
  put_record(rec, 1, 5);
  put_record(rec, 0, 10);
  MPI_Datatype spread;
  MPI_Type_vector(4, 1, 2, MPI_DOUBLE, &spread);
  MPI_Type_commit(&spread);
  MPI_Offset first[1] = {0}, third[1] = {2}, two[1] = {2}, upper[2] = {0, 0}, lower[2] = {1, 2}, half[2] = {1, 2};
  MPI_Offset *starts[2] = {first, third}, *counts[2] = {two, two}, *corners[2] = {upper, lower},
             *halves[2] = {half, half};
  int q[2] = {-7, -7}, status[2] = {9, 9};
  for (int i = 0; i < 16; ++i) gaps[i] = -1;
  SAY(ncmpi_iget_varn(nc, fix, 2, starts, counts, gaps, 1, spread, &q[0]));
  SAY(ncmpi_iget_varn(nc, rec, 2, corners, halves, gaps + 8, 1, spread, &q[1]));
  MPI_Type_free(&spread);
  SAY(ncmpi_wait_all(nc, 2, q, status));
  for (int i = 0; i < 16; ++i) fprintf(answers, " %g", gaps[i]);
  SAY(ncmpi_close(nc));
}

/* Rank 0's mode counts. */
static void modes_by_rank(void) {
  int format = -1;
  create(rank == 0 ? NC_64BIT_OFFSET : 0);
  SAY(ncmpi_inq_format(nc, &format));
  fprintf(answers, "format %d\n", format);
  SAY(ncmpi_def_dim(nc, "x", 4, &x));
  SAY(ncmpi_close(nc));
}

/* What is still pending is said, and dropped. */
static void closes_with_pending_calls(void) {
  const double w[4] = {1, 2, 3, 4};
  double r[4];
  const MPI_Offset start = 0, count = 4;
  int q[2];
  create_usual();
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_put_vara_double_all(nc, fix, &start, &count, w));
  SAY(ncmpi_iput_vara_double(nc, fix, &start, &count, w, &q[0]));
  SAY(ncmpi_iget_vara_double(nc, fix, &start, &count, r, &q[1]));
  SAY(ncmpi_close(nc));
}

/* Of the negative counts only -1 means that the memory fits. */
static void negative_counts(void) {
  const double w[4] = {1, 2, 3, 4};
  const MPI_Offset start = 0, count = 4;
  create_usual();
  SAY(ncmpi_enddef(nc));
  SAY(ncmpi_put_vara_all(nc, fix, &start, &count, w, -1, MPI_DOUBLE));
  SAY(ncmpi_put_vara_all(nc, fix, &start, &count, w, -2, MPI_DOUBLE));
  SAY(ncmpi_put_vara_all(nc, fix, &start, &count, w, -3, MPI_DOUBLE));
  SAY(ncmpi_close(nc));
}

/* The file ends with its header. */
static void without_variables(void) {
  for (int dimensions = 0; dimensions < 2; ++dimensions) {
    struct stat file;
    create(0);
    if (dimensions > 0) SAY(ncmpi_def_dim(nc, "x", 4, &x));
    SAY(ncmpi_close(nc));
    SAY(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &nc));
    SAY(ncmpi_close(nc));
    MPI_Barrier(MPI_COMM_WORLD);
    fprintf(answers, "  %ld bytes\n", stat(path, &file) == 0 ? (long)file.st_size : -1L);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/* netCDF-C, which writes the header, knows 1024. */
static void many_dimensions(void) {
  static int dimensions[1100];
  create(0);
  for (int i = 0; i < 1100; ++i) {
    char name[16];
    snprintf(name, sizeof name, "d%d", i);
    if (ncmpi_def_dim(nc, name, 1, &dimensions[i]) != NC_NOERR) return;
  }
  int v;
  for (int rank_of = 1023; rank_of < 1026; ++rank_of) {
    char name[16];
    snprintf(name, sizeof name, "v%d", rank_of);
    SAY(ncmpi_def_var(nc, name, NC_INT, rank_of, dimensions, &v));
  }
  SAY(ncmpi_close(nc));
}

/* Each is answered on one rank alone, while the others wait for it. What all put next, and its length, must not wait
 * for calls that nobody else makes. */
static void wrong_calls_of_one_rank(void) {
  create_usual();
  SAY(ncmpi_put_att_text(nc, rec, "units", 1, "m"));
  SAY(ncmpi_enddef(nc));
  put_record(rec, 0, 1);
  for (int turn = 0; turn < ranks; ++turn) {
    const MPI_Offset start = 0, count = 1;
    const double one = 1;
    int id = -1;
    if (turn == rank) {
      SAY(ncmpi_enddef(nc));
      SAY(ncmpi_def_dim(nc, "y", 3, &id));
      SAY(ncmpi_def_var(nc, "new", NC_INT, 1, &x, &id));
      SAY(ncmpi_put_att_text(nc, rec, "units", 9, "kilometre"));
      SAY(ncmpi_put_att_text(nc, rec, "new", 1, "m"));
      SAY(ncmpi_put_att_text(nc, 77, "units", 1, "m"));
      SAY(ncmpi_rename_att(nc, rec, "units", "longer than before"));
      SAY(ncmpi_rename_var(nc, rec, "fix"));
      SAY(ncmpi_rename_var(nc, 77, "f"));
      SAY(ncmpi_rename_dim(nc, x, "t"));
      SAY(ncmpi_del_att(nc, rec, "units"));
      SAY(ncmpi_fill_var_rec(nc, fix, 0));
      SAY(ncmpi_end_indep_data(nc));
      SAY(ncmpi_put_vara_double(nc, fix, &start, &count, &one));
      SAY(ncmpi_wait(nc, NC_REQ_ALL, NULL, NULL));
      SAY(ncmpi_create(MPI_COMM_WORLD, NULL, NC_CLOBBER, MPI_INFO_NULL, &id));
      SAY(ncmpi_open(MPI_COMM_WORLD, NULL, NC_NOWRITE, MPI_INFO_NULL, &id));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    put_record(rec, 1 + turn, 10 * turn);
    MPI_Offset length = 0;
    if (turn == rank) {
      SAY(ncmpi_inq_dimlen(nc, t, &length));
      fprintf(answers, "%d records\n", (int)length);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  SAY(ncmpi_close(nc));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 2) return 2;
  for (int each = 1; each < argc; ++each) {
    char name[80];
    snprintf(path, sizeof path, "%.50s.nc", argv[each]);
    snprintf(name, sizeof name, "%s.%d", path, rank);
    answers = fopen(name, "w");
#define ONE(NAME) \
  if (strcmp(argv[each], #NAME) == 0) NAME()
    ONE(reads_between_puts);
    ONE(too_large_from_the_start);
    ONE(too_large_after_data);
    ONE(gives_up_definitions);
    ONE(gives_up_all_definitions);
    ONE(fills_what_is_added);
    ONE(fills_what_has_no_records);
    ONE(fill_modes);
    ONE(wrong_posted_calls);
    ONE(reads_while_a_request_is_pending);
    ONE(odd_room);
    ONE(last_rank_puts_first);
    ONE(boxes_with_gaps);
    ONE(modes_by_rank);
    ONE(closes_with_pending_calls);
    ONE(negative_counts);
    ONE(without_variables);
    ONE(many_dimensions);
    ONE(wrong_calls_of_one_rank);
    fclose(answers);
  }
  MPI_Finalize();
  return 0;
}
