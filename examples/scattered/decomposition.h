// The columns of a rank, in its order.
#pragma once

#include "options.h"

struct columns {
  long count;  // runs
  long* first;
  long* length;  // neighbouring columns are one run
  long total;    // columns of all runs
};

struct columns columns_of(const struct options* o, int rank, int ranks);
void free_columns(struct columns* c);
