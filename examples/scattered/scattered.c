// Ranks that put many small pieces of an unstructured grid, as physics on columns does.
//
// Columns are dealt out to ranks one by one, along a space-filling curve, or in no order. Each
// variable T<n>(time, lev, column) and S<n>(time, column) is put run of columns by run of columns.
// The program prints the time it has spent in output calls, and its whole time. With --check it
// reads the file afterwards and compares every value.
#include "scattered.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/// As a model computes: the processor is busy.
static void compute(double seconds) {
  const double until = MPI_Wtime() + seconds;
  volatile double x = 1.0;
  while (MPI_Wtime() < until)
    for (int i = 0; i < 1000; ++i) x = x * 0.999 + 0.001;
}

/// Counts values that are not those that were put.
static long check(struct run* run) {
  const struct options* o = &run->options;
  long wrong = 0;
  float* values = malloc((size_t)(o->levels * o->columns) * sizeof *values);
  for (int levels = 0; levels < 2; ++levels)
    for (int v = 0; v < o->variables; ++v)
      for (int r = 0; r < o->records; ++r) {
        read_back(run, v, r, levels, values);
        for (long l = 0; l < (levels ? o->levels : 1); ++l)
          for (long c = 0; c < o->columns; ++c) {
            const int hole = o->holes > 0 && c % o->holes == 0;
            if (hole && !o->fill) continue;
            const float right = hole ? HOLE : value_of(v, r, levels ? l : 100, c);
            const float is = values[l * o->columns + c];
            if (is == right) continue;
            if (wrong++ < 5)
              fprintf(stderr, "%c%d record %d level %ld column %ld is %g, not %g\n", levels ? 'T' : 'S', v, r, l, c,
                      (double)is, (double)right);
          }
      }
  free(values);
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  struct run run = {read_options(argc, argv), 0, 1, {0, NULL, NULL, 0}, 0.0};
  MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &run.ranks);
  const struct options* o = &run.options;
  run.columns = columns_of(o, run.rank, run.ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  create_file(&run);
  for (int r = 0; r < o->records; ++r) {
    compute(o->compute);
    write_frame(&run, r);
  }
  close_file(&run);
  double mine[2] = {run.in_calls, MPI_Wtime() - begin}, most[2];
  long pieces = run.columns.count * (o->levels + 1) * o->variables * o->records, all = 0;
  MPI_Reduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&pieces, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (run.rank == 0) printf("pieces %ld in_calls %.4f whole %.4f\n", all, most[0], most[1]);
  long wrong = 0;
  if (o->check) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (run.rank == 0) wrong = check(&run);
    if (run.rank == 0) printf("wrong values %ld\n", wrong);
  }
  free_columns(&run.columns);
  MPI_Finalize();
  return wrong > 0;
}
