// netCDF-4 by all ranks: a put for each piece, whatever --way says.
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <stdlib.h>

#include "scattered.h"

static int nc, lev_id[64], flat_id[64];

static void must(int code, const char* what) {
  if (code == NC_NOERR) return;
  fprintf(stderr, "%s: %s\n", what, nc_strerror(code));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void create_file(struct run* run) {
  const struct options* o = &run->options;
  const double begin = MPI_Wtime();
  must(nc_create_par(o->path, NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &nc), "create");
  int dims[3], flat[2];
  must(nc_def_dim(nc, "time", NC_UNLIMITED, &dims[0]), "define");
  must(nc_def_dim(nc, "lev", (size_t)o->levels, &dims[1]), "define");
  must(nc_def_dim(nc, "column", (size_t)o->columns, &dims[2]), "define");
  flat[0] = dims[0], flat[1] = dims[2];
  const float hole = HOLE;
  for (int v = 0; v < o->variables; ++v) {
    char name[16];
    snprintf(name, sizeof name, "T%d", v);
    must(nc_def_var(nc, name, NC_FLOAT, 3, dims, &lev_id[v]), "define");
    snprintf(name, sizeof name, "S%d", v);
    must(nc_def_var(nc, name, NC_FLOAT, 2, flat, &flat_id[v]), "define");
    must(nc_def_var_fill(nc, lev_id[v], o->holes == 0 || !o->fill, &hole), "fill");
    must(nc_def_var_fill(nc, flat_id[v], o->holes == 0 || !o->fill, &hole), "fill");
  }
  must(nc_enddef(nc), "enddef");
  for (int v = 0; v < o->variables; ++v) {
    must(nc_var_par_access(nc, lev_id[v], NC_INDEPENDENT), "access");
    must(nc_var_par_access(nc, flat_id[v], NC_INDEPENDENT), "access");
  }
  run->in_calls += MPI_Wtime() - begin;
}

/// The record dimension grows in a call of all ranks only.
static void grow(const struct run* run, int variable, int record, int levels) {
  const size_t start[3] = {(size_t)record, 0, 0}, count[3] = {run->rank == 0, 1, 1};
  const float value = run->options.holes > 0 ? HOLE : value_of(variable, record, levels ? 0 : 100, 0);
  const int id = levels ? lev_id[variable] : flat_id[variable];
  must(nc_var_par_access(nc, id, NC_COLLECTIVE), "access");
  must(nc_put_vara_float(nc, id, start, count, &value), "grow");
  must(nc_var_par_access(nc, id, NC_INDEPENDENT), "access");
}

void write_frame(struct run* run, int record) {
  const struct options* o = &run->options;
  const struct columns* c = &run->columns;
  long longest = 1;
  for (long i = 0; i < c->count; ++i) longest = c->length[i] > longest ? c->length[i] : longest;
  float* values = malloc((size_t)longest * sizeof *values);
  for (int v = 0; v < o->variables; ++v)
    for (int levels = 1; levels >= 0; --levels) {
      double begin = MPI_Wtime();
      grow(run, v, record, levels);
      run->in_calls += MPI_Wtime() - begin;
      for (long l = 0; l < (levels ? o->levels : 1); ++l)
        for (long i = 0; i < c->count; ++i) {
          for (long k = 0; k < c->length[i]; ++k) values[k] = value_of(v, record, levels ? l : 100, c->first[i] + k);
          const size_t deep[3] = {(size_t)record, (size_t)l, (size_t)c->first[i]}, flat[2] = {deep[0], deep[2]};
          const size_t deep_n[3] = {1, 1, (size_t)c->length[i]}, flat_n[2] = {1, deep_n[2]};
          begin = MPI_Wtime();
          must(nc_put_vara_float(nc, levels ? lev_id[v] : flat_id[v], levels ? deep : flat, levels ? deep_n : flat_n,
                                 values),
               "put_vara");
          run->in_calls += MPI_Wtime() - begin;
        }
    }
  free(values);
}

void close_file(struct run* run) {
  const double begin = MPI_Wtime();
  must(nc_close(nc), "close");
  run->in_calls += MPI_Wtime() - begin;
}

void read_back(struct run* run, int variable, int record, int levels, float* values) {
  static int in = -1;
  if (in < 0) must(nc_open(run->options.path, NC_NOWRITE, &in), "open");
  char name[16];
  int id;
  snprintf(name, sizeof name, "%c%d", levels ? 'T' : 'S', variable);
  must(nc_inq_varid(in, name, &id), "variable");
  const size_t start[3] = {(size_t)record, 0, 0};
  const size_t count[3] = {1, (size_t)(levels ? run->options.levels : run->options.columns),
                           (size_t)run->options.columns};
  must(nc_get_vara_float(in, id, start, count, values), "get");
}
