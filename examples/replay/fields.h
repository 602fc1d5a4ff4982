/* The state of the "model": what every rank holds of every variable at one output time. */
#pragma once

#include <mpi.h>
#include <stdint.h>

#include "dates.h"
#include "grid.h"
#include "input.h"

struct Fields;

/* `comm`: the ranks that work on the same inputs; collective over it. `grid` and `inputs` are borrowed. */
struct Fields* start_fields(struct Input* inputs, int input_count, const struct Grid* grid, MPI_Comm comm);
/* Brings all variables to output time `frame`. Collective. */
void advance_fields(struct Fields* fields, int frame);
/* This rank's patch, C order, in the variable's own type; valid until the next advance. */
const void* patch_of(const struct Fields* fields, int var);
/* Elements of a rank's patch (of one record). */
size_t patch_elements(const struct Fields* fields, int var, int rank);
/* Output times that the inputs hold. */
int frames_of(const struct Fields* fields);
/* The date of a frame in WRF's form; empty where the input has no Times. */
const char* date_of(const struct Fields* fields);
void end_fields(struct Fields* fields);
