/* Who holds which part of the (tiled) domain, and which input point stands behind a point of it. */
#pragma once

#include "input.h"

struct Grid {
  int mesh_x, mesh_y; /* ranks west to east, south to north */
  int tiles_x, tiles_y;
  size_t input_x, input_y; /* mass points of the input; 0: no such dimension */
};

struct Span {
  size_t start, length;
};

/* Chooses the mesh of ranks as WRF does: as square as can be, not wider than high. */
struct Grid make_grid(const struct Input* input, int ranks, int tiles_x, int tiles_y);
/* Least number of tiles, nearly square, that reaches `bytes` a frame. */
void choose_tiles(const struct Input* input, double bytes, int* tiles_x, int* tiles_y);

size_t tiled_length(const struct Grid* grid, const struct Dim* dim);
/* What `rank` holds of a dimension: WRF's patches for horizontal ones, everything for others. */
struct Span span_of(const struct Grid* grid, const struct Dim* dim, int rank);

struct Source {
  size_t index; /* in the input */
  int tile;
  bool mirrored;
};
/* Odd tiles are mirrored: the field is continuous across the seams, staggered points included. */
struct Source source_of(const struct Grid* grid, const struct Dim* dim, size_t index);

/* Bytes of one output time over the whole tiled domain. */
double frame_bytes(const struct Input* input, const struct Grid* grid);
