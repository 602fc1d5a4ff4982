#include "grid.h"

#include <string.h>

static size_t mass_points(const struct Input* input, enum Axis axis) {
  for (int d = 0; d < input->dim_count; ++d) {
    const struct Dim* dim = &input->dims[d];
    if (dim->axis == axis) return dim->staggered ? dim->length - 1 : dim->length;
  }
  return 0;
}

struct Grid make_grid(const struct Input* input, int ranks, int tiles_x, int tiles_y) {
  struct Grid grid = {.mesh_x = 1, .mesh_y = ranks, .tiles_x = tiles_x, .tiles_y = tiles_y};
  for (int x = 1; x * x <= ranks; ++x) {
    if (ranks % x == 0) {
      grid.mesh_x = x;
      grid.mesh_y = ranks / x;
    }
  }
  grid.input_x = mass_points(input, AXIS_X);
  grid.input_y = mass_points(input, AXIS_Y);
  for (int d = 0; d < input->dim_count; ++d) {
    const struct Dim* dim = &input->dims[d];
    const size_t mass = dim->axis == AXIS_X ? grid.input_x : grid.input_y;
    if (dim->axis != AXIS_NONE && dim->length != mass + (dim->staggered ? 1 : 0)) {
      fail("%s: %s does not fit the other dimension of its axis", input->path, dim->name);
    }
  }
  if ((tiles_x > 1 && grid.input_x == 0) || (tiles_y > 1 && grid.input_y == 0)) {
    fail("%s cannot be tiled: it has no dimensions west_east and south_north", input->path);
  }
  if ((grid.input_x > 0 && grid.input_x * (size_t)tiles_x < (size_t)grid.mesh_x) ||
      (grid.input_y > 0 && grid.input_y * (size_t)tiles_y < (size_t)grid.mesh_y)) {
    fail("%s is too small for %d ranks", input->path, ranks);
  }
  return grid;
}

size_t tiled_length(const struct Grid* grid, const struct Dim* dim) {
  if (dim->axis == AXIS_NONE) return dim->length;
  const size_t mass =
      dim->axis == AXIS_X ? grid->input_x * (size_t)grid->tiles_x : grid->input_y * (size_t)grid->tiles_y;
  return mass + (dim->staggered ? 1 : 0);
}

struct Span span_of(const struct Grid* grid, const struct Dim* dim, int rank) {
  const size_t length = tiled_length(grid, dim);
  if (dim->axis == AXIS_NONE) return (struct Span){0, length};
  const size_t parts = (size_t)(dim->axis == AXIS_X ? grid->mesh_x : grid->mesh_y);
  const size_t part = (size_t)(dim->axis == AXIS_X ? rank % grid->mesh_x : rank / grid->mesh_x);
  /* WRF divides the staggered length; patches one point longer stand at both ends of the mesh, the last end
   * getting the odd one. The last patch alone has the extra staggered point. */
  const size_t points = dim->staggered ? length : length + 1;
  const size_t least = points / parts, longer = points % parts, first = longer / 2;
  const size_t last_begin = parts - (longer - first);
  size_t start = part * least + (part < first ? part : first);
  if (part > last_begin) start += part - last_begin;
  size_t end = start + least + (part < first || part >= last_begin ? 1 : 0);
  if (end > length) end = length;
  return (struct Span){start, end - start};
}

struct Source source_of(const struct Grid* grid, const struct Dim* dim, size_t index) {
  if (dim->axis == AXIS_NONE) return (struct Source){.index = index};
  const size_t mass = dim->axis == AXIS_X ? grid->input_x : grid->input_y;
  const size_t tiles = (size_t)(dim->axis == AXIS_X ? grid->tiles_x : grid->tiles_y);
  size_t tile = index / mass;
  if (tile >= tiles) tile = tiles - 1;
  struct Source source = {.index = index - tile * mass, .tile = (int)tile, .mirrored = tile % 2 == 1};
  if (source.mirrored) source.index = (dim->staggered ? mass : mass - 1) - source.index;
  return source;
}

double frame_bytes(const struct Input* input, const struct Grid* grid) {
  double bytes = 0;
  for (int v = 0; v < input->var_count; ++v) {
    const struct Var* var = &input->vars[v];
    if (!var->record && input->record_dim >= 0) continue;
    double here = (double)var->size;
    for (int d = var->record ? 1 : 0; d < var->dim_count; ++d) {
      here *= (double)tiled_length(grid, &input->dims[var->dims[d]]);
    }
    bytes += here;
  }
  return bytes;
}

void choose_tiles(const struct Input* input, double bytes, int* tiles_x, int* tiles_y) {
  long best = 0;
  for (int x = 1; x <= 1000; ++x) {
    for (int y = (x + 1) / 2; y <= x; ++y) {
      const long count = (long)x * y;
      if (best != 0 && count >= best) continue;
      const struct Grid grid = make_grid(input, 1, x, y);
      if (frame_bytes(input, &grid) < bytes) continue;
      best = count;
      *tiles_x = x;
      *tiles_y = y;
    }
  }
  if (best == 0) fail("--target-mb is beyond what tiling %s a million times gives", input->path);
}
