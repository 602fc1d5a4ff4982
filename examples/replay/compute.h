/* The model's own work between outputs: an explicit advection-diffusion scheme on a small grid of every rank. */
#pragma once

#include <mpi.h>

struct Compute;

struct Compute* start_compute(void);
/* Sweeps over the grid that take `seconds` when all ranks of `comm` work at once, on the machine as it is now. */
long calibrate_compute(struct Compute* compute, double seconds, MPI_Comm comm);
/* Does `work` sweeps. Returns a value that depends on all of them. */
double run_compute(struct Compute* compute, long work);
void end_compute(struct Compute* compute);
