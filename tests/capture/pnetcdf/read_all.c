/* Ranks read files together, each a part of every variable: pnetcdf_read_all FILE...
 * What rank 0 prints does not depend on the number of ranks. */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSIONS_MAX = 32 };
static int rank, ranks;

static void check(int code, const char* what) {
  if (code == NC_NOERR) return;
  fprintf(stderr, "%s: %s\n", what, ncmpi_strerror(code));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void read_variable(int file, int variable) {
  char name[NC_MAX_NAME + 1];
  int dimensions = 0, ids[DIMENSIONS_MAX];
  nc_type type = NC_NAT;
  check(ncmpi_inq_var(file, variable, name, &type, &dimensions, ids, NULL), "inq_var");
  MPI_Offset start[DIMENSIONS_MAX] = {0}, count[DIMENSIONS_MAX] = {0}, elements = 1, row = 1;
  for (int d = 0; d < dimensions; ++d) {
    check(ncmpi_inq_dimlen(file, ids[d], &count[d]), "inq_dimlen");
    if (d > 0) row *= count[d];
  }
  if (dimensions > 0) {
    const MPI_Offset all = count[0];
    start[0] = all * rank / ranks;
    count[0] = all * (rank + 1) / ranks - start[0];
    elements = count[0] * row;
  }
  char* text = calloc((size_t)elements + 1, sizeof(double));
  if (type == NC_CHAR)
    check(ncmpi_get_vara_text_all(file, variable, start, count, text), name);
  else
    check(ncmpi_get_vara_double_all(file, variable, start, count, (double*)text), name);
  uint64_t sum = 0, total = 0;
  for (MPI_Offset i = 0; i < elements; ++i) {
    uint64_t bits = 0;
    if (type == NC_CHAR)
      bits = (uint64_t)(unsigned char)text[i];
    else
      memcpy(&bits, text + (size_t)i * sizeof(double), sizeof bits);
    sum += (bits ^ (bits >> 29)) * (2 * (uint64_t)(start[0] * row + i) + 1);
  }
  if (dimensions == 0 && rank > 0) sum = 0;
  MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%s %llx\n", name, (unsigned long long)total);
  free(text);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int k = 1; k < argc; ++k) {
    int file = -1, variables = 0;
    check(ncmpi_open(MPI_COMM_WORLD, argv[k], NC_NOWRITE, MPI_INFO_NULL, &file), argv[k]);
    check(ncmpi_inq_nvars(file, &variables), "inq_nvars");
    for (int v = 0; v < variables; ++v) read_variable(file, v);
    check(ncmpi_close(file), "close");
  }
  MPI_Finalize();
  return 0;
}
