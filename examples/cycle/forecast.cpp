// An ensemble forecast: every member reads its restart files, runs for the hours of a cycle, writes history on the way
// and new restart files in the end. An MPI program as others are; each process writes files of its own.
//
//   0007/history.0003.pe000001.nc   what member 3 did in cycle 7, of its second process
//   0007/restart.0003.pe000001.nc   its state at the end of cycle 7, from which cycle 8 starts
#include <mpi.h>

#include <cstdio>

#include "files.h"
#include "model.h"
#include "options.h"

namespace cycle {
namespace {

struct Run {
  Tile tile;
  MPI_Comm member_comm = MPI_COMM_NULL;  // the processes of one member
  int group = 0, groups = 1;             // members that run side by side
  int members = 0, first_cycle = 0, cycles = 0, frames = 0;
  double hours = 0;
  std::string name;
};

/// Values of a tile's cells. `x0`, `y0`: where the tile begins in the model's own.
template <typename Value>
std::vector<Value> gathered(const Tile& tile, const auto& of_cell, int x0 = 0, int y0 = 0) {
  std::vector<Value> values;
  values.reserve(static_cast<std::size_t>(kLayers) * tile.ny() * tile.nx());
  for (int l = 0; l < kLayers; ++l)
    for (int j = 0; j < tile.ny(); ++j)
      for (int i = 0; i < tile.nx(); ++i) values.push_back(static_cast<Value>(of_cell(l, y0 + j, x0 + i)));
  return values;
}

void write_restart(const Tile& tile, State& s, const std::string& prefix, double time, int x0 = 0, int y0 = 0) {
  NewFile file(tile_name(prefix, tile.number), tile, "restart", false, time);
  const int u = file.add_double("U", "wind along the channel", "m/s", Place::east);
  const int v = file.add_double("V", "wind across the channel", "m/s", Place::north);
  const int h = file.add_double("H", "thickness of the layer", "m", Place::centre);
  file.put_axes();
  file.put(u, gathered<double>(
                  tile, [&](int l, int j, int i) { return s[l].u(j, i); }, x0, y0));
  file.put(v, gathered<double>(
                  tile, [&](int l, int j, int i) { return s[l].v(j, i); }, x0, y0));
  file.put(h, gathered<double>(
                  tile, [&](int l, int j, int i) { return s[l].h(j, i); }, x0, y0));
  file.sync();
  file.close();
}

void read_restart(const Run& run, Model& model, const std::string& prefix) {
  const std::string path = tile_name(prefix, run.tile.number);
  OldFile file(path, false);
  if (file.x0() != run.tile.x0() || file.y0() != run.tile.y0() || file.nx() != run.tile.nx() ||
      file.ny() != run.tile.ny())
    fail(path + " is of another decomposition");
  const std::vector<double> u = file.get("U"), v = file.get("V"), h = file.get("H");
  file.close();
  State& s = model.state();
  std::size_t n = 0;
  for (int l = 0; l < kLayers; ++l)
    for (int j = 0; j < run.tile.ny(); ++j)
      for (int i = 0; i < run.tile.nx(); ++i, ++n) {
        s[l].u(j, i) = u[n];
        s[l].v(j, i) = v[n];
        s[l].h(j, i) = h[n];
      }
  model.exchange(s);
}

/// One member through one cycle.
void forecast(const Run& run, Model& model, int cycle, const std::string& member) {
  const double seconds = run.hours * 3600, begin = (cycle - 1) * seconds;
  read_restart(run, model, cycle_directory(cycle - 1) + "restart." + member);
  NewFile history(tile_name(cycle_directory(cycle) + "history." + member, run.tile.number), run.tile, "history", true,
                  begin);
  const int variables[] = {
      history.add_float("U", "wind along the channel", "m/s"), history.add_float("V", "wind across the channel", "m/s"),
      history.add_float("H", "thickness of the layer", "m"), history.add_float("PV", "potential vorticity", "m-1 s-1")};
  history.put_axes();
  for (int frame = 0; frame <= run.frames; ++frame) {
    if (frame > 0) model.advance(seconds / run.frames);
    const double time = begin + frame * seconds / run.frames;
    history.put_time(frame, time, frame == 0 ? time : begin + (frame - 1) * seconds / run.frames);
    using Seen = Model::Seen;
    int n = 0;
    for (const auto which : {&Seen::u, &Seen::v, &Seen::h, &Seen::pv})
      history.put(variables[n++], frame,
                  gathered<float>(run.tile, [&](int l, int j, int i) { return model.seen(l, j, i).*which; }));
    history.sync();
  }
  history.close();
  write_restart(run.tile, model.state(), cycle_directory(cycle) + "restart." + member, begin + seconds);
}

/// Nature and the members begin as states of one long run that are days apart: the members know how the model behaves,
/// but nothing of nature's weather today. One process runs it, and writes the files of all tiles.
void prepare(const Run& run, double days, double apart) {
  Model model(Tile{run.tile.grid, Tiles{}, 0}, MPI_COMM_SELF);
  const auto write = [&](const std::string& member) {
    for (int number = 0; number < run.tile.tiles.count(); ++number) {
      const Tile tile{run.tile.grid, run.tile.tiles, number};
      write_restart(tile, model.state(), cycle_directory(0) + "restart." + member, 0, tile.x0(), tile.y0());
    }
  };
  model.start(20261125);
  model.advance(days * 86400);
  for (int m = 1; m <= run.members; ++m) {
    write(member_name(m));
    model.advance((m < run.members ? 1 : 4) * apart * 86400);
  }
  write("truth");
}

void report(int cycle, double began, const FileTimes& before) {
  const FileTimes& now = file_times();
  const double spent[] = {MPI_Wtime() - began, now.opening - before.opening, now.reading - before.reading,
                          now.writing - before.writing};
  double most[4];
  MPI_Reduce(spent, most, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) return;
  std::printf("forecast: cycle %d took %.4f s; files, of the slowest process: open %.4f read %.4f write %.4f\n", cycle,
              most[0], most[1], most[2], most[3]);
  std::fflush(stdout);
}

int run_all(int argc, char** argv) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Options options(argc, argv);
  Run run;
  run.members = options.count("--members", "10", "of the ensemble, numbered from 1");
  run.name = options.text("--name", "", "instead of numbered members one of this name: truth");
  run.tile.grid = options.grid();
  run.tile.tiles = options.tiles(run.tile.grid);
  run.first_cycle = options.count("--first-cycle", "1", "its members start from the restart files of the cycle before");
  run.cycles = options.count("--cycles", "1", "how many, one after the other");
  run.hours = options.number("--hours", "12", "of a cycle");
  run.frames = options.count("--frames", "4", "of history in a cycle, and one more at its begin");
  const double days = options.number(
      "--prepare", "0", "days of a long run from which the restart files of cycle 0 are taken; no forecast then");
  const double apart = options.number("--apart", "2", "days between these states");
  if (!options.complete("An ensemble forecast with a model of two layers, in cycles.", rank)) return 0;
  if (days > 0) {
    if (rank == 0) prepare(run, days, apart);
    return 0;
  }
  const int processes = run.tile.tiles.count();
  if (size % processes != 0)
    fail(std::to_string(size) + " processes are no multiple of the " + std::to_string(processes) +
         " tiles of a member");
  if (run.frames < 1 || run.hours <= 0 || run.first_cycle < 1)
    fail("--frames, --hours and --first-cycle have to be more than 0");
  run.group = rank / processes;
  run.groups = size / processes;
  run.tile.number = rank % processes;
  MPI_Comm_split(MPI_COMM_WORLD, run.group, rank, &run.member_comm);
  Model model(run.tile, run.member_comm);
  for (int cycle = run.first_cycle; cycle < run.first_cycle + run.cycles; ++cycle) {
    const double began = MPI_Wtime();
    const FileTimes before = file_times();
    if (!run.name.empty()) {
      if (run.group == 0) forecast(run, model, cycle, run.name);
    } else {
      for (int m = run.group + 1; m <= run.members; m += run.groups) forecast(run, model, cycle, member_name(m));
    }
    report(cycle, began, before);
  }
  MPI_Comm_free(&run.member_comm);
  return 0;
}

}  // namespace
}  // namespace cycle

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = cycle::run_all(argc, argv);
  MPI_Finalize();
  return code;
}
