#include "decomposition.h"

#include <stdint.h>
#include <stdlib.h>

/// The place of cell (x, y) on Hilbert's curve, in a square of so many cells a side.
static uint64_t on_curve(uint64_t side, uint64_t x, uint64_t y) {
  uint64_t place = 0;
  for (uint64_t s = side / 2; s > 0; s /= 2) {
    const uint64_t right = (x & s) != 0, upper = (y & s) != 0;
    place += s * s * ((3 * right) ^ upper);
    if (upper) continue;
    if (right) {
      x = side - 1 - x;
      y = side - 1 - y;
    }
    const uint64_t t = x;
    x = y;
    y = t;
  }
  return place;
}

struct keyed {
  uint64_t key;
  long column;
};

static int by_key(const void* a, const void* b) {
  const struct keyed *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->column < y->column ? -1 : x->column > y->column;
}

static int by_number(const void* a, const void* b) {
  const long x = *(const long*)a, y = *(const long*)b;
  return x < y ? -1 : x > y;
}

static uint64_t mixed(uint64_t n) {
  n = (n ^ (n >> 30)) * 0xBF58476D1CE4E5B9U;
  n = (n ^ (n >> 27)) * 0x94D049BB133111EBU;
  return n ^ (n >> 31);
}

/// Columns are numbered row by row on a nearly square grid. A rank has a part of the order by key.
static long* columns_by_key(const struct options* o, int rank, int ranks, long* n) {
  long width = 1;
  while (width * width < o->columns) ++width;
  uint64_t side = 1;
  while (side < (uint64_t)width) side *= 2;
  struct keyed* all = malloc((size_t)o->columns * sizeof *all);
  for (long c = 0; c < o->columns; ++c) {
    const uint64_t x = (uint64_t)(c % width), y = (uint64_t)(c / width);
    all[c] = (struct keyed){o->decomposition == CURVE ? on_curve(side, x, y) : mixed((uint64_t)c + 1), c};
  }
  qsort(all, (size_t)o->columns, sizeof *all, by_key);
  const long begin = o->columns * rank / ranks, end = o->columns * (rank + 1) / ranks;
  long* mine = malloc((size_t)(end - begin + 1) * sizeof *mine);
  *n = end - begin;
  for (long i = begin; i < end; ++i) mine[i - begin] = all[i].column;
  free(all);
  if (o->decomposition == CURVE) qsort(mine, (size_t)*n, sizeof *mine, by_number);
  return mine;
}

static long* every_nth(const struct options* o, int rank, int ranks, long* n) {
  long* mine = malloc((size_t)(o->columns / ranks + 2) * sizeof *mine);
  *n = 0;
  for (long c = rank; c < o->columns; c += ranks) mine[(*n)++] = c;
  return mine;
}

struct columns columns_of(const struct options* o, int rank, int ranks) {
  long n = 0;
  long* mine = o->decomposition == ROUND_ROBIN ? every_nth(o, rank, ranks, &n) : columns_by_key(o, rank, ranks, &n);
  struct columns c = {0, malloc((size_t)(n + 1) * sizeof(long)), malloc((size_t)(n + 1) * sizeof(long)), 0};
  for (long i = 0; i < n; ++i) {
    if (o->holes > 0 && mine[i] % o->holes == 0) continue;
    ++c.total;
    if (c.count > 0 && mine[i] == c.first[c.count - 1] + c.length[c.count - 1]) {
      ++c.length[c.count - 1];
      continue;
    }
    c.first[c.count] = mine[i];
    c.length[c.count++] = 1;
  }
  free(mine);
  return c;
}

void free_columns(struct columns* c) {
  free(c->first);
  free(c->length);
}
