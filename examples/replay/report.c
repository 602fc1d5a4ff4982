#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "waiting.h"

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

void measure_memcpy(double bytes, struct RunTimes* run) {
  const size_t size = (size_t)bytes;
  char *from = NULL, *to = NULL;
  if (size > 0) {
    from = malloc(size);
    to = malloc(size);
    if (from == NULL || to == NULL) fail("out of memory: 2 × %zu bytes to measure memcpy with", size);
    memset(from, 1, size);
    memset(to, 2, size);
    memcpy(to, from, size);
  }
  for (int i = 0; i < MEMCPY_REPEATS; ++i) {
    wait_for_all(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    if (size > 0) {
      memcpy(to, from, size);
      /* The copy must not be optimised away. */
      __asm__ volatile("" ::"r"(to) : "memory");
    }
    run->memcpy_s[i] = size > 0 ? MPI_Wtime() - begin : 0;
  }
  free(from);
  free(to);
  MPI_Allreduce(MPI_IN_PLACE, run->memcpy_s, MEMCPY_REPEATS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  run->memcpy_bytes = bytes;
  MPI_Allreduce(MPI_IN_PLACE, &run->memcpy_bytes, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void put_text(FILE* out, const char* text, size_t length) {
  fputc('"', out);
  for (size_t i = 0; i < length; ++i) {
    const unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\') {
      fprintf(out, "\\%c", c);
    } else if (c < 0x20) {
      fprintf(out, "\\u%04x", c);
    } else {
      fputc(c, out);
    }
  }
  fputc('"', out);
}

/* All ranks' lines, one rank after the other; null but on rank 0. */
static char* gather_lines(const char* own, int ranks, int rank) {
  int length = (int)strlen(own);
  int* lengths = allocate(2 * (size_t)ranks * sizeof *lengths);
  int* at = lengths + ranks;
  MPI_Gather(&length, 1, MPI_INT, lengths, 1, MPI_INT, 0, MPI_COMM_WORLD);
  size_t sum = 0;
  for (int r = 0; r < ranks && rank == 0; ++r) {
    at[r] = (int)sum;
    sum += (size_t)lengths[r];
  }
  char* all = rank == 0 ? allocate(sum + 1) : NULL;
  MPI_Gatherv(own, length, MPI_CHAR, all, lengths, at, MPI_CHAR, 0, MPI_COMM_WORLD);
  free(lengths);
  return all;
}

static double blocked(const struct FrameTimes* t) {
  return t->define_s + t->put_s + t->sync_s + t->close_s;
}

static void put_frame(FILE* out, const struct FrameTimes* all, int ranks, int frame_count, int frame,
                      const char* date) {
  const struct FrameTimes* own = &all[frame];
  struct FrameTimes sum = {0}, max = {0};
  double blocked_max = 0;
  for (int r = 0; r < ranks; ++r) {
    const struct FrameTimes* t = &all[(size_t)r * (size_t)frame_count + (size_t)frame];
    sum.bytes += t->bytes;
    sum.output_cpu_s += t->output_cpu_s;
#define LARGER(member) max.member = t->member > max.member ? t->member : max.member
    LARGER(output_s);
    LARGER(exchange_s);
    LARGER(advance_s);
    LARGER(compute_s);
    LARGER(synced_at);
    LARGER(closed_at);
#undef LARGER
    if (blocked(t) > blocked_max) blocked_max = blocked(t);
  }
  fprintf(out,
          "    {\"frame\": %d, \"date\": \"%s\", \"bytes\": %.0f,\n"
          "     \"blocked_s\": {\"rank0\": %.6f, \"max\": %.6f},\n"
          "     \"define_s\": %.6f, \"put_s\": %.6f, \"sync_s\": %.6f, \"close_s\": %.6f, \"gather_s\": %.6f,\n"
          "     \"output_s\": {\"rank0\": %.6f, \"max\": %.6f}, \"output_cpu_s\": %.6f, \"exchange_s\": %.6f, "
          "\"marker_s\": %.6f, \"advance_s\": %.6f, "
          "\"compute_s\": %.6f,\n",
          frame, date, sum.bytes, blocked(own), blocked_max, own->define_s, own->put_s, own->sync_s, own->close_s,
          own->gather_s, own->output_s, max.output_s, sum.output_cpu_s, max.exchange_s, own->marker_s, max.advance_s,
          max.compute_s);
  fprintf(out, "     \"synced_at\": %.6f, ", max.synced_at);
  fprintf(out, max.closed_at > 0 ? "\"closed_at\": %.6f}" : "\"closed_at\": null}", max.closed_at);
}

void write_report(const struct Options* options, const struct Grid* grid, const struct FrameTimes* frames,
                  int frame_count, char (*dates)[DATE_LENGTH + 1], const char* files, double bytes_per_frame,
                  const struct RunTimes* run) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int doubles = (int)(sizeof *frames / sizeof(double)) * frame_count;
  struct FrameTimes* all = rank == 0 ? allocate(sizeof *all * (size_t)ranks * (size_t)frame_count) : NULL;
  MPI_Gather(frames, doubles, MPI_DOUBLE, all, doubles, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  char* names = gather_lines(files, ranks, rank);
  if (rank != 0) return;

  FILE* out = fopen(options->report, "w");
  if (out == NULL) fail("cannot write the report %s", options->report);
  fprintf(out, "{\n  \"program\": \"replay\",\n  \"inputs\": [");
  for (int i = 0; i < options->input_count; ++i) {
    if (i > 0) fputs(", ", out);
    put_text(out, options->inputs[i], strlen(options->inputs[i]));
  }
  fprintf(out, "],\n  \"io\": \"%s\", \"order\": \"%s\", \"ranks\": %d, \"mesh\": [%d, %d], \"tiles\": [%d, %d],\n",
          io_names[options->io], options->order == ORDER_SCALE ? "scale" : "wrf", ranks, grid->mesh_x, grid->mesh_y,
          grid->tiles_x, grid->tiles_y);
  fprintf(out, "  \"frame_bytes\": %.0f,\n  \"started_at\": %.6f, \"ended_at\": %.6f, \"run_s\": %.6f,\n",
          bytes_per_frame, run->started_at, run->ended_at, run->run_s);
  fprintf(out, "  \"compute_work\": %ld,\n", run->compute_work);
  double sorted[MEMCPY_REPEATS];
  memcpy(sorted, run->memcpy_s, sizeof sorted);
  qsort(sorted, MEMCPY_REPEATS, sizeof sorted[0], ascending);
  fprintf(out, "  \"memcpy\": {\"bytes\": %.0f, \"median_s\": %.6f, \"min_s\": %.6f, \"max_s\": %.6f},\n",
          run->memcpy_bytes, sorted[MEMCPY_REPEATS / 2], sorted[0], sorted[MEMCPY_REPEATS - 1]);
  fputs("  \"files\": [", out);
  bool first = true;
  for (const char* name = names; *name != '\0';) {
    const size_t length = strcspn(name, "\n");
    if (!first) fputs(", ", out);
    put_text(out, name, length);
    first = false;
    name += length + (name[length] == '\n' ? 1 : 0);
  }
  fputs("],\n  \"frames\": [\n", out);
  for (int f = 0; f < frame_count; ++f) {
    put_frame(out, all, ranks, frame_count, f, dates[f]);
    fputs(f + 1 < frame_count ? ",\n" : "\n", out);
  }
  fputs("  ]\n}\n", out);
  if (fclose(out) != 0) fail("cannot write the report %s", options->report);
  free(all);
  free(names);
}
