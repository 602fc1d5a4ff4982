#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

#include "scattered.h"

static int nc, lev_id[64], flat_id[64];

static void must(int code, const char* what) {
  if (code == NC_NOERR) return;
  fprintf(stderr, "%s: %s\n", what, ncmpi_strerror(code));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// The pieces of one variable in one record, in the order of levels; the values one behind the other.
struct pieces {
  int count;
  MPI_Offset **start, **length, *numbers;
  float* values;
};

static struct pieces pieces_of(const struct run* run, long levels, int rank) {
  const struct columns* c = &run->columns;
  const size_t n = (size_t)(c->count * levels), per = (size_t)rank;
  struct pieces p = {(int)n, malloc((n + 1) * sizeof(void*)), malloc((n + 1) * sizeof(void*)),
                     calloc((n + 1) * 2 * per, sizeof(MPI_Offset)),
                     malloc((size_t)(c->total * levels + 1) * sizeof(float))};
  for (size_t i = 0; i < n; ++i) {
    p.start[i] = p.numbers + 2 * per * i;
    p.length[i] = p.start[i] + per;
    for (size_t k = 0; k < per; ++k) p.length[i][k] = 1;
    if (rank == 3) p.start[i][1] = (MPI_Offset)(i / (size_t)c->count);
    p.start[i][per - 1] = c->first[i % (size_t)c->count];
    p.length[i][per - 1] = c->length[i % (size_t)c->count];
  }
  return p;
}

static void free_pieces(struct pieces* p) {
  free(p->start);
  free(p->length);
  free(p->numbers);
  free(p->values);
}

static void set_record(struct pieces* p, const struct run* run, int variable, int record, long levels) {
  for (int i = 0; i < p->count; ++i) p->start[i][0] = record;
  float* to = p->values;
  for (long l = 0; l < levels; ++l)
    for (long i = 0; i < run->columns.count; ++i)
      for (long k = 0; k < run->columns.length[i]; ++k)
        *to++ = value_of(variable, record, levels > 1 ? l : 100, run->columns.first[i] + k);
}

void create_file(struct run* run) {
  const struct options* o = &run->options;
  const double begin = MPI_Wtime();
  must(ncmpi_create(MPI_COMM_WORLD, o->path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &nc), "create");
  int dims[3], flat[2], before;
  must(ncmpi_def_dim(nc, "time", NC_UNLIMITED, &dims[0]), "define");
  must(ncmpi_def_dim(nc, "lev", o->levels, &dims[1]), "define");
  must(ncmpi_def_dim(nc, "column", o->columns, &dims[2]), "define");
  flat[0] = dims[0], flat[1] = dims[2];
  const float hole = HOLE;
  if (o->holes > 0 && o->fill) must(ncmpi_set_fill(nc, NC_FILL, &before), "fill");
  for (int v = 0; v < o->variables; ++v) {
    char name[16];
    snprintf(name, sizeof name, "T%d", v);
    must(ncmpi_def_var(nc, name, NC_FLOAT, 3, dims, &lev_id[v]), "define");
    snprintf(name, sizeof name, "S%d", v);
    must(ncmpi_def_var(nc, name, NC_FLOAT, 2, flat, &flat_id[v]), "define");
    if (o->holes > 0 && o->fill) must(ncmpi_def_var_fill(nc, lev_id[v], 0, &hole), "fill");
    if (o->holes > 0 && o->fill) must(ncmpi_def_var_fill(nc, flat_id[v], 0, &hole), "fill");
  }
  must(ncmpi_enddef(nc), "enddef");
  run->in_calls += MPI_Wtime() - begin;
}

static void put(struct run* run, const struct pieces* p, int variable) {
  const double begin = MPI_Wtime();
  switch (run->options.way) {
    case IPUT_VARN:
      must(ncmpi_iput_varn_float(nc, variable, p->count, p->start, p->length, p->values, NULL), "iput_varn");
      break;
    case BPUT_VARN:
      must(ncmpi_bput_varn_float(nc, variable, p->count, p->start, p->length, p->values, NULL), "bput_varn");
      break;
    case PUT_VARN:
      must(ncmpi_put_varn_float_all(nc, variable, p->count, p->start, p->length, p->values), "put_varn");
      break;
    case PUT_VARA: {
      const float* from = p->values;
      const int last = p->count > 0 ? (int)((p->length[0] - p->start[0]) - 1) : 0;
      for (int i = 0; i < p->count; ++i) {
        must(ncmpi_iput_vara_float(nc, variable, p->start[i], p->length[i], from, NULL), "iput_vara");
        from += p->length[i][last];
      }
    }
  }
  run->in_calls += MPI_Wtime() - begin;
}

void write_frame(struct run* run, int record) {
  const struct options* o = &run->options;
  const size_t n = (size_t)o->variables;
  struct pieces *deep = malloc(n * sizeof *deep), *flat = malloc(n * sizeof *flat);
  for (int v = 0; v < o->variables; ++v) {
    deep[v] = pieces_of(run, o->levels, 3);
    flat[v] = pieces_of(run, 1, 2);
    set_record(&deep[v], run, v, record, o->levels);
    set_record(&flat[v], run, v, record, 1);
  }
  double begin = MPI_Wtime();
  for (int v = 0; v < o->variables && o->holes > 0 && o->fill; ++v) {
    must(ncmpi_fill_var_rec(nc, lev_id[v], record), "fill");
    must(ncmpi_fill_var_rec(nc, flat_id[v], record), "fill");
  }
  const MPI_Offset bytes = run->columns.total * (o->levels + 1) * o->variables * (MPI_Offset)sizeof(float);
  if (o->way == BPUT_VARN && bytes > 0) must(ncmpi_buffer_attach(nc, bytes), "attach");
  run->in_calls += MPI_Wtime() - begin;
  for (int v = 0; v < o->variables; ++v) {
    put(run, &deep[v], lev_id[v]);
    put(run, &flat[v], flat_id[v]);
  }
  begin = MPI_Wtime();
  if (o->way != PUT_VARN) must(ncmpi_wait_all(nc, NC_REQ_ALL, NULL, NULL), "wait_all");
  if (o->way == BPUT_VARN && bytes > 0) must(ncmpi_buffer_detach(nc), "detach");
  run->in_calls += MPI_Wtime() - begin;
  for (int v = 0; v < o->variables; ++v) {
    free_pieces(&deep[v]);
    free_pieces(&flat[v]);
  }
  free(deep);
  free(flat);
}

void close_file(struct run* run) {
  const double begin = MPI_Wtime();
  must(ncmpi_close(nc), "close");
  run->in_calls += MPI_Wtime() - begin;
}

void read_back(struct run* run, int variable, int record, int levels, float* values) {
  static int in = -1;
  if (in < 0) must(ncmpi_open(MPI_COMM_SELF, run->options.path, NC_NOWRITE, MPI_INFO_NULL, &in), "open");
  char name[16];
  int id;
  snprintf(name, sizeof name, "%c%d", levels ? 'T' : 'S', variable);
  must(ncmpi_inq_varid(in, name, &id), "variable");
  const MPI_Offset start[3] = {record, 0, 0};
  MPI_Offset count[3] = {1, levels ? run->options.levels : run->options.columns, run->options.columns};
  must(ncmpi_get_vara_float_all(in, id, start, count, values), "get");
}
