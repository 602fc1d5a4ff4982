#include "fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waiting.h"

/* Decoded input frames kept in memory, once for all ranks of a node. Beyond this the oldest is read again. */
static const double cache_bytes_max = 512e6;

enum { ALIGN = 64, MINUTES_BETWEEN = 10 };

struct Fields {
  struct Input* inputs;
  int input_count;
  const struct Grid* grid;
  MPI_Comm comm, node;
  int rank, node_rank;
  int frame_count;
  int* frame_input;     /* which input holds frame f … */
  size_t* frame_record; /* … and at which record */

  MPI_Win window;
  char* slots;
  int slot_count;
  size_t slot_bytes;
  size_t* offset; /* of every variable in a slot; `varies` flags stand first */
  int* slot_frame;

  void** patch;
  double* period; /* of a numeric time variable: what one pass through the inputs adds; NaN: no time variable */
  char (*date)[DATE_LENGTH + 1]; /* of every input frame */
  int64_t* seconds;
  int64_t period_s;
  bool dated;
  char date_now[DATE_LENGTH + 1];
};

static const struct Input* shape(const struct Fields* fields) {
  return &fields->inputs[0];
}

size_t patch_elements(const struct Fields* fields, int v, int rank) {
  const struct Var* var = &shape(fields)->vars[v];
  size_t elements = 1;
  for (int d = var->record ? 1 : 0; d < var->dim_count; ++d) {
    elements *= span_of(fields->grid, &shape(fields)->dims[var->dims[d]], rank).length;
  }
  return elements;
}

static void read_record(const struct Input* input, int v, size_t record, void* to) {
  const struct Var* var = &input->vars[v];
  size_t start[DIMS_MAX] = {0}, count[DIMS_MAX];
  for (int d = 0; d < var->dim_count; ++d) count[d] = input->dims[var->dims[d]].length;
  if (var->record) {
    start[0] = record;
    count[0] = 1;
  }
  check(nc_get_vara(input->ncid, v, start, count, to), "get_vara", var->name, input->path);
}

/* A field is what may be given another amplitude: real weather, not categories, masks and axes. */
static bool is_field(const struct Var* var) {
  return var->record && var->dim_count >= 3 && (var->type == NC_FLOAT || var->type == NC_DOUBLE);
}

static bool has_fractions(const struct Var* var, const void* values) {
  for (size_t i = 0; i < var->elements; ++i) {
    const double x = var->type == NC_FLOAT ? (double)((const float*)values)[i] : ((const double*)values)[i];
    if (isfinite(x) && fabs(x) < 1e9 && x != nearbyint(x)) return true;
  }
  return false;
}

static char* load_frame(struct Fields* fields, int frame) {
  const int slot = frame % fields->slot_count;
  char* memory = fields->slots + (size_t)slot * fields->slot_bytes;
  if (fields->slot_frame[slot] == frame) return memory;
  wait_for_all(fields->node);
  if (fields->node_rank == 0) {
    const struct Input* input = &fields->inputs[fields->frame_input[frame]];
    for (int v = 0; v < input->var_count; ++v) {
      const struct Var* var = &input->vars[v];
      if (var->type == NC_STRING) continue;
      void* values = memory + fields->offset[v];
      read_record(input, v, fields->frame_record[frame], values);
      memory[v] = is_field(var) && has_fractions(var, values);
    }
  }
  if (fields->window != MPI_WIN_NULL) MPI_Win_sync(fields->window);
  wait_for_all(fields->node);
  if (fields->window != MPI_WIN_NULL) MPI_Win_sync(fields->window);
  fields->slot_frame[slot] = frame;
  return memory;
}

static void make_slots(struct Fields* fields) {
  const struct Input* input = shape(fields);
  fields->offset = allocate((size_t)input->var_count * sizeof *fields->offset);
  size_t bytes = ((size_t)input->var_count + ALIGN - 1) / ALIGN * ALIGN;
  for (int v = 0; v < input->var_count; ++v) {
    fields->offset[v] = bytes;
    if (input->vars[v].type == NC_STRING) continue;
    bytes += (input->vars[v].elements * input->vars[v].size + ALIGN - 1) / ALIGN * ALIGN;
  }
  fields->slot_bytes = bytes;
  fields->slot_count = (int)(cache_bytes_max / (double)bytes);
  if (fields->slot_count < 1) fields->slot_count = 1;
  if (fields->slot_count > fields->frame_count) fields->slot_count = fields->frame_count;
  fields->slot_frame = allocate((size_t)fields->slot_count * sizeof *fields->slot_frame);
  for (int s = 0; s < fields->slot_count; ++s) fields->slot_frame[s] = -1;

  int node_ranks = 1;
  MPI_Comm_split_type(fields->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &fields->node);
  MPI_Comm_rank(fields->node, &fields->node_rank);
  MPI_Comm_size(fields->node, &node_ranks);
  fields->window = MPI_WIN_NULL;
  const size_t all = fields->slot_bytes * (size_t)fields->slot_count;
  if (node_ranks == 1) {
    fields->slots = allocate(all);
    return;
  }
  char* own = NULL;
  MPI_Win_allocate_shared(fields->node_rank == 0 ? (MPI_Aint)all : 0, 1, MPI_INFO_NULL, fields->node, &own,
                          &fields->window);
  MPI_Aint size = 0;
  int unit = 0;
  MPI_Win_shared_query(fields->window, 0, &size, &unit, &fields->slots);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, fields->window);
}

static void read_dates(struct Fields* fields) {
  const struct Input* input = shape(fields);
  if (input->times_var < 0 || input->vars[input->times_var].elements != DATE_LENGTH) return;
  fields->date = allocate((size_t)fields->frame_count * sizeof *fields->date);
  fields->seconds = allocate((size_t)fields->frame_count * sizeof *fields->seconds);
  fields->dated = true;
  for (int f = 0; f < fields->frame_count; ++f) {
    read_record(&fields->inputs[fields->frame_input[f]], input->times_var, fields->frame_record[f], fields->date[f]);
    if (!read_date(fields->date[f], &fields->seconds[f])) fields->dated = false;
  }
  if (!fields->dated) return;
  const int n = fields->frame_count;
  int64_t step = MINUTES_BETWEEN * 60;
  if (n > 1 && fields->seconds[n - 1] > fields->seconds[n - 2]) step = fields->seconds[n - 1] - fields->seconds[n - 2];
  fields->period_s = fields->seconds[n - 1] - fields->seconds[0] + step;
}

/* XTIME, time, time_bnds and the like go on where the inputs end. */
static double period_of(struct Fields* fields, int v) {
  const struct Input* input = shape(fields);
  const struct Var* var = &input->vars[v];
  if (!var->record || (var->type != NC_FLOAT && var->type != NC_DOUBLE) || var->elements > 2) return NAN;
  const char* record = input->dims[input->record_dim].name;
  char bounds[NC_MAX_NAME + 8];
  snprintf(bounds, sizeof bounds, "%s_bnds", record);
  if (strcmp(var->name, record) != 0 && strcmp(var->name, bounds) != 0 && strcmp(var->name, "XTIME") != 0) return NAN;
  double value[2] = {0, 0};
  const int n = fields->frame_count;
  for (int end = 0; end < 2; ++end) {
    const int f = end == 0 ? 0 : n - 1;
    union {
      float f[2];
      double d[2];
    } read;
    read_record(&fields->inputs[fields->frame_input[f]], v, fields->frame_record[f], &read);
    value[end] = var->type == NC_FLOAT ? (double)read.f[0] : read.d[0];
  }
  if (n > 1 && value[1] > value[0]) return (value[1] - value[0]) / (n - 1) * n;
  const struct Att* units = find_att(var->atts, var->att_count, "units");
  const bool minutes =
      units != NULL && units->type == NC_CHAR && units->length >= 7 && strncmp(units->values, "minutes", 7) == 0;
  return minutes ? MINUTES_BETWEEN : MINUTES_BETWEEN * 60;
}

struct Fields* start_fields(struct Input* inputs, int input_count, const struct Grid* grid, MPI_Comm comm) {
  struct Fields* fields = allocate(sizeof *fields);
  fields->inputs = inputs;
  fields->input_count = input_count;
  fields->grid = grid;
  fields->comm = comm;
  MPI_Comm_rank(comm, &fields->rank);
  for (int i = 0; i < input_count; ++i) fields->frame_count += (int)inputs[i].frames;
  fields->frame_input = allocate((size_t)fields->frame_count * sizeof *fields->frame_input);
  fields->frame_record = allocate((size_t)fields->frame_count * sizeof *fields->frame_record);
  for (int i = 0, f = 0; i < input_count; ++i) {
    for (size_t r = 0; r < inputs[i].frames; ++r, ++f) {
      fields->frame_input[f] = i;
      fields->frame_record[f] = r;
    }
  }
  make_slots(fields);
  read_dates(fields);
  const struct Input* input = shape(fields);
  fields->patch = allocate((size_t)input->var_count * sizeof *fields->patch);
  fields->period = allocate((size_t)input->var_count * sizeof *fields->period);
  for (int v = 0; v < input->var_count; ++v) {
    fields->patch[v] = allocate(patch_elements(fields, v, fields->rank) * input->vars[v].size);
    fields->period[v] = period_of(fields, v);
  }
  return fields;
}

/* 1 for the input itself; smaller, and nowhere the same, for tiles and for repeated use. */
static double amplitude(int tile_x, int tile_y, int cycle) {
  const double mixed = 0.61803398875 * tile_x + 0.41421356237 * tile_y + 0.73205080757 * cycle;
  return 1.0 - 0.25 * (mixed - floor(mixed));
}

static float vary_float(float x, float background, float a) {
  return x == 0.0f || !(fabsf(x) < 1e30f) ? x : background + a * (x - background);
}

static double vary_double(double x, double background, double a) {
  return x == 0.0 || !(fabs(x) < 1e30) ? x : background + a * (x - background);
}

/* One row of a patch, forwards or (step −1) backwards in the input. Deviations from the level's background (its
 * first point) are scaled, so that calm and dry regions stay as compressible as they are in real output, and the
 * rest gets bits of its own. */
static void copy_row(const struct Var* var, const char* slab, size_t from, ptrdiff_t step, size_t length, double a,
                     void* to) {
  const char* source = slab + from * var->size;
  if (a != 1.0 && var->type == NC_FLOAT) {
    const float* in = (const float*)source;
    const float first = *(const float*)slab, background = fabsf(first) < 1e30f ? first : 0.0f;
    for (size_t i = 0; i < length; ++i) ((float*)to)[i] = vary_float(in[(ptrdiff_t)i * step], background, (float)a);
  } else if (a != 1.0 && var->type == NC_DOUBLE) {
    const double* in = (const double*)source;
    const double first = *(const double*)slab, background = fabs(first) < 1e30 ? first : 0.0;
    for (size_t i = 0; i < length; ++i) ((double*)to)[i] = vary_double(in[(ptrdiff_t)i * step], background, a);
  } else if (step == 1) {
    memcpy(to, source, length * var->size);
  } else {
    for (size_t i = 0; i < length; ++i) {
      memcpy((char*)to + i * var->size, source + (ptrdiff_t)i * step * (ptrdiff_t)var->size, var->size);
    }
  }
}

static void make_patch(struct Fields* fields, int v, const char* memory, int cycle) {
  const struct Input* input = shape(fields);
  const struct Var* var = &input->vars[v];
  const char* values = memory + fields->offset[v];
  const bool varies = memory[v] != 0;
  const int first = var->record ? 1 : 0, count = var->dim_count - first;
  if (count == 0) {
    memcpy(fields->patch[v], values, var->size);
    return;
  }
  const struct Dim* dims[DIMS_MAX];
  struct Span span[DIMS_MAX];
  size_t stride[DIMS_MAX], at[DIMS_MAX] = {0};
  size_t step = 1;
  for (int d = count - 1; d >= 0; --d) {
    dims[d] = &input->dims[var->dims[first + d]];
    span[d] = span_of(fields->grid, dims[d], fields->rank);
    stride[d] = step;
    step *= dims[d]->length;
    if (span[d].length == 0) return;
  }
  const int last = count - 1;
  char* to = fields->patch[v];
  for (;;) {
    size_t slab = 0, within = 0;
    int tile[3] = {0, 0, 0};
    for (int d = 0; d < last; ++d) {
      const struct Source source = source_of(fields->grid, dims[d], span[d].start + at[d]);
      *(d < count - 2 ? &slab : &within) += source.index * stride[d];
      tile[dims[d]->axis] = source.tile;
    }
    for (size_t i = 0; i < span[last].length;) {
      const size_t index = span[last].start + i;
      const struct Source source = source_of(fields->grid, dims[last], index);
      tile[dims[last]->axis] = source.tile;
      size_t run = 1;
      while (i + run < span[last].length &&
             (dims[last]->axis == AXIS_NONE || source_of(fields->grid, dims[last], index + run).tile == source.tile)) {
        ++run;
      }
      const double a = varies ? amplitude(tile[AXIS_X], tile[AXIS_Y], cycle) : 1.0;
      copy_row(var, values + slab * var->size, within + source.index, source.mirrored ? -1 : 1, run, a, to);
      to += run * var->size;
      i += run;
    }
    int d = last - 1;
    while (d >= 0 && ++at[d] == span[d].length) at[d--] = 0;
    if (d < 0) return;
  }
}

static void advance_strings(struct Fields* fields, int v, int frame) {
  const struct Var* var = &shape(fields)->vars[v];
  char** strings = fields->patch[v];
  nc_free_string(var->elements, strings);
  read_record(&fields->inputs[fields->frame_input[frame]], v, fields->frame_record[frame], strings);
}

void advance_fields(struct Fields* fields, int frame) {
  const struct Input* input = shape(fields);
  const int source = frame % fields->frame_count, cycle = frame / fields->frame_count;
  const char* memory = load_frame(fields, source);
  for (int v = 0; v < input->var_count; ++v) {
    const struct Var* var = &input->vars[v];
    if (var->type == NC_STRING) {
      advance_strings(fields, v, source);
      continue;
    }
    make_patch(fields, v, memory, cycle);
    if (!isnan(fields->period[v])) {
      for (size_t i = 0; i < var->elements; ++i) {
        if (var->type == NC_FLOAT) ((float*)fields->patch[v])[i] += (float)(cycle * fields->period[v]);
        if (var->type == NC_DOUBLE) ((double*)fields->patch[v])[i] += cycle * fields->period[v];
      }
    }
  }
  if (fields->date == NULL) return;
  memcpy(fields->date_now, fields->date[source], DATE_LENGTH + 1);
  if (fields->dated) write_date(fields->seconds[source] + cycle * fields->period_s, fields->date_now);
  memcpy(fields->patch[input->times_var], fields->date_now, DATE_LENGTH);
}

const void* patch_of(const struct Fields* fields, int var) {
  return fields->patch[var];
}

int frames_of(const struct Fields* fields) {
  return fields->frame_count;
}

const char* date_of(const struct Fields* fields) {
  return fields->date_now;
}

void end_fields(struct Fields* fields) {
  const struct Input* input = shape(fields);
  for (int v = 0; v < input->var_count; ++v) {
    if (input->vars[v].type == NC_STRING) nc_free_string(input->vars[v].elements, fields->patch[v]);
    free(fields->patch[v]);
  }
  if (fields->window != MPI_WIN_NULL) {
    MPI_Win_unlock_all(fields->window);
    MPI_Win_free(&fields->window);
  } else {
    free(fields->slots);
  }
  MPI_Comm_free(&fields->node);
  free(fields->frame_input);
  free(fields->frame_record);
  free(fields->offset);
  free(fields->slot_frame);
  free(fields->patch);
  free(fields->period);
  free(fields->date);
  free(fields->seconds);
  free(fields);
}
