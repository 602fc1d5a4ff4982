#include "compute.h"

#include <math.h>
#include <stdlib.h>

/* 2 × 1 MiB: beyond the first caches, as a patch of a real model is, without filling the last one. */
enum { NX = 512, NY = 512 };

struct Compute {
  float* now;
  float* next;
};

struct Compute* start_compute(void) {
  struct Compute* compute = malloc(sizeof *compute);
  if (compute == NULL) abort();
  compute->now = malloc(sizeof(float) * NX * NY);
  compute->next = malloc(sizeof(float) * NX * NY);
  if (compute->now == NULL || compute->next == NULL) abort();
  for (int j = 0; j < NY; ++j) {
    for (int i = 0; i < NX; ++i) {
      compute->now[j * NX + i] = compute->next[j * NX + i] = 300.0f + sinf(0.05f * (float)i) * cosf(0.03f * (float)j);
    }
  }
  return compute;
}

double run_compute(struct Compute* compute, long work) {
  const float u = 0.2f, v = 0.1f, k = 0.05f;
  for (long sweep = 0; sweep < work; ++sweep) {
    const float* restrict f = compute->now;
    float* restrict g = compute->next;
    for (int j = 1; j < NY - 1; ++j) {
      for (int i = 1; i < NX - 1; ++i) {
        const int here = j * NX + i;
        const float centre = f[here], west = f[here - 1], east = f[here + 1], south = f[here - NX],
                    north = f[here + NX];
        g[here] =
            centre - u * (centre - west) - v * (centre - south) + k * (west + east + south + north - 4.0f * centre);
      }
    }
    float* swap = compute->now;
    compute->now = compute->next;
    compute->next = swap;
  }
  return compute->now[(NY / 2) * NX + NX / 2];
}

long calibrate_compute(struct Compute* compute, double seconds, MPI_Comm comm) {
  if (seconds <= 0) return 0;
  const double sample = seconds < 0.5 ? seconds : 0.5;
  run_compute(compute, 20);
  MPI_Barrier(comm);
  const double begin = MPI_Wtime();
  long done = 0;
  double spent = 0;
  do {
    run_compute(compute, 20);
    done += 20;
    spent = MPI_Wtime() - begin;
  } while (spent < sample);
  /* All ranks do the same amount, so the slowest decides how long it takes. */
  double rate = (double)done / spent;
  MPI_Allreduce(MPI_IN_PLACE, &rate, 1, MPI_DOUBLE, MPI_MIN, comm);
  const long work = lround(rate * seconds);
  return work > 0 ? work : 1;
}

void end_compute(struct Compute* compute) {
  free(compute->now);
  free(compute->next);
  free(compute);
}
