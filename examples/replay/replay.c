/* replay: reads real model output and writes it again with exactly the model's order of calls. See --help. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compute.h"
#include "fields.h"
#include "grid.h"
#include "input.h"
#include "options.h"
#include "output.h"
#include "report.h"
#include "waiting.h"

static void refuse_own_input(const struct Input* inputs, int count, const char* path) {
  struct stat output, input;
  if (stat(path, &output) != 0) return;
  for (int i = 0; i < count; ++i) {
    if (stat(inputs[i].path, &input) == 0 && input.st_dev == output.st_dev && input.st_ino == output.st_ino) {
      fail("%s is an input; choose another directory or --output", path);
    }
  }
}

static void refuse_same_name(const char* files, const char* path) {
  const size_t length = strlen(path);
  for (const char* at = files; at != NULL; at = strchr(at, '\n')) {
    if (*at == '\n') ++at;
    if (strncmp(at, path, length) == 0 && at[length] == '\n') {
      fail("two files would be named %s; use <date> or <n> in --output", path);
    }
  }
}

static void remember(char** files, const char* path) {
  const size_t before = *files != NULL ? strlen(*files) : 0;
  char* longer = realloc(*files, before + strlen(path) + 2);
  if (longer == NULL) fail("out of memory");
  sprintf(longer + before, "%s\n", path);
  *files = longer;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  start_waiting();
  struct Options options = parse_options(argc, argv, rank == 0);
  const bool scale = options.order == ORDER_SCALE;
  if (scale && options.input_count != ranks) {
    if (rank == 0) fprintf(stderr, "replay: --order scale wants one input for each of the %d ranks\n", ranks);
    MPI_Finalize();
    return 2;
  }

  const int input_count = scale ? 1 : options.input_count;
  struct Input* inputs = allocate((size_t)input_count * sizeof *inputs);
  for (int i = 0; i < input_count; ++i) {
    inputs[i] = read_input(options.inputs[scale ? rank : i]);
    require_same_shape(&inputs[0], &inputs[i]);
  }
  if (options.target_mb > 0) choose_tiles(&inputs[0], options.target_mb * 1e6, &options.tiles_x, &options.tiles_y);
  const struct Grid grid = make_grid(&inputs[0], scale ? 1 : ranks, options.tiles_x, options.tiles_y);
  MPI_Comm comm = scale ? MPI_COMM_SELF : MPI_COMM_WORLD;
  struct Fields* fields = start_fields(inputs, input_count, &grid, comm);
  const int frame_count = options.frames > 0 ? options.frames : frames_of(fields);
  int per_file = options.frames_per_file > 0 ? options.frames_per_file : (int)inputs[0].frames;
  if (inputs[0].record_dim < 0) per_file = 1;
  if (options.output == NULL && inputs[0].times_var < 0 && frame_count > per_file) options.output = "<n>_<input>";
  const bool split = !scale && (options.io == IO_SPLIT || options.io == IO_RAW);
  struct Output output = make_output(&options, &inputs[0], &grid, fields, comm, split ? rank : -1);

  struct RunTimes run = {.compute_work = options.compute_work};
  struct Compute* compute = start_compute();
  if (run.compute_work == 0) run.compute_work = calibrate_compute(compute, options.compute_s, MPI_COMM_WORLD);
  if (options.report != NULL) {
    double bytes = 0;
    const bool own_patch = split || output.parallel;
    for (int v = 0; v < inputs[0].var_count && output.writes; ++v) {
      const struct Var* var = &inputs[0].vars[v];
      if (!var->record && inputs[0].record_dim >= 0) continue;
      if (own_patch) bytes += (double)(patch_elements(fields, v, rank) * var->size);
    }
    if (output.writes && !own_patch) bytes = frame_bytes(&inputs[0], &grid);
    measure_memcpy(bytes, &run);
  }

  struct FrameTimes* frames = allocate((size_t)frame_count * sizeof *frames);
  char(*dates)[DATE_LENGTH + 1] = allocate((size_t)frame_count * sizeof *dates);
  char* files = NULL;
  int in_file = 0;
  wait_for_all(MPI_COMM_WORLD);
  run.started_at = now();
  const double begin = MPI_Wtime();
  for (int f = 0; f < frame_count; ++f) {
    struct FrameTimes* times = &frames[f];
    double at = MPI_Wtime();
    /* The result is used for nothing, but must not be known to be. */
    static volatile double computed;
    computed = run_compute(compute, run.compute_work);
    (void)computed;
    times->compute_s = MPI_Wtime() - at;
    /* No rank runs ahead of the others by an output time, and none waits for another's computing within its output. */
    wait_for_all(MPI_COMM_WORLD);
    at = MPI_Wtime();
    advance_fields(fields, f);
    times->advance_s = MPI_Wtime() - at;
    wait_for_all(MPI_COMM_WORLD);
    memcpy(dates[f], date_of(fields), DATE_LENGTH + 1);
    if (!output.open && output.writes) {
      char path[PATH_MAX];
      name_file(&output, output.file_count, path);
      refuse_own_input(inputs, input_count, path);
      refuse_same_name(files, path);
      /* One that they write together is named once. */
      if (output.rank == 0 || options.io == IO_SPLIT || options.io == IO_RAW) remember(&files, path);
    }
    ++in_file;
    const bool last = in_file == per_file || f + 1 == frame_count;
    const double cpu = thread_cpu_s();
    write_frame(&output, last, times);
    times->output_cpu_s = thread_cpu_s() - cpu;
    if (last) in_file = 0;
    /* A step begins with an exchange: in WRF (dyn_em/solve_em.F) HALO_EM_A, before physics and tendencies. */
    at = MPI_Wtime();
    wait_for_all(MPI_COMM_WORLD);
    times->exchange_s = MPI_Wtime() - at;
    /* Here all ranks have closed. */
    if (last && options.marker != NULL && rank == 0 && output.writes) {
      at = MPI_Wtime();
      make_marker(&output);
      times->marker_s = MPI_Wtime() - at;
    }
    if (output.rank == 0 && output.writes) {
      printf("Timing for Writing %s for domain %8d: %10.5f elapsed seconds\n", output.path,
             int_att(&inputs[0], "GRID_ID", 1), times->output_s);
      fflush(stdout);
    }
  }
  wait_for_all(MPI_COMM_WORLD);
  run.run_s = MPI_Wtime() - begin;
  run.ended_at = now();
  if (options.report != NULL) {
    write_report(&options, &grid, frames, frame_count, dates, files != NULL ? files : "",
                 frame_bytes(&inputs[0], &grid), &run);
  }

  free(frames);
  free(dates);
  free(files);
  free_output(&output);
  end_fields(fields);
  end_compute(compute);
  for (int i = 0; i < input_count; ++i) close_input(&inputs[i]);
  free(inputs);
  MPI_Finalize();
  return 0;
}
