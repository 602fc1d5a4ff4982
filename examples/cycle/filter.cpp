// An ensemble Kalman filter between two forecasts (LETKF: Hunt, Kostelich and Szunyogh 2007). An MPI program of any
// number of processes, which are not those of the forecast. It reads
//
//   observations.nc                 of the cycle
//   0007/history.0003.pe000001.nc   for what the observations would have been in each member, at their time
//   0007/restart.0003.pe000001.nc   the guess: opened, read, closed
//
// and writes the analysis over the guess, into the same restart files, from which the next forecast starts. Mean and
// spread of the ensemble before (guess.mean, guess.spread) and after (mean, spread) are new files of the same kind.
//
// A process reads whole members, all their tiles; then each has its share of the grid's cells, with all members; then
// whole members again, which it writes. Cells do not depend on each other: the bits are the same for any number of
// processes.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "files.h"
#include "letkf.h"
#include "observations.h"
#include "options.h"

namespace cycle {
namespace {

constexpr int kPlanes = 3 * kLayers;  // of a state: U, V, H, each in all layers
const char* const kNames[] = {"U", "V", "H"};
const char* const kDone[] = {"guess.mean", "guess.spread", "mean", "spread"};

struct Run {
  Grid grid;
  Tiles tiles;
  int rank = 0, size = 1;
  int members = 0, first_cycle = 0, cycles = 0;
  double radius = 0, inflation = 0, relaxation = 0;
  std::string observations;
  [[nodiscard]] int cells() const { return grid.nx * grid.ny; }
  [[nodiscard]] int first_cell(int of_rank) const {
    return static_cast<int>(static_cast<long>(cells()) * of_rank / size);
  }
  [[nodiscard]] int own_cells(int of_rank) const { return first_cell(of_rank + 1) - first_cell(of_rank); }
  [[nodiscard]] int owner(int field) const { return field % size; }  // of a member, counted from 0
};

/// A state of the whole plane, [plane][cell].
using Whole = std::vector<double>;

/// Cells of a tile in the whole plane's values, row by row.
template <typename Copy>
void rows_of_tile(const Run& run, int plane, int x0, int y0, int nx, int ny, const Copy& copy) {
  for (int j = 0; j < ny; ++j)
    copy((static_cast<std::ptrdiff_t>(plane) * run.grid.ny + y0 + j) * run.grid.nx + x0,
         static_cast<std::ptrdiff_t>(j) * nx, nx);
}

Whole read_member(const Run& run, const std::string& prefix) {
  Whole whole(static_cast<std::size_t>(kPlanes) * run.cells());
  for (int tile = 0; tile < run.tiles.count(); ++tile) {
    OldFile file(tile_name(prefix, tile), false);
    for (int v = 0; v < 3; ++v) {
      const std::vector<double> part = file.get(kNames[v]);
      for (int layer = 0; layer < kLayers; ++layer)
        rows_of_tile(run, v * kLayers + layer, file.x0(), file.y0(), file.nx(), file.ny(),
                     [&](auto to, auto from, int n) {
                       std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(layer) * file.nx() * file.ny() + from, n,
                                   whole.begin() + to);
                     });
    }
    file.close();
  }
  return whole;
}

std::vector<double> of_tile(const Run& run, const Whole& whole, const Tile& tile, int v) {
  std::vector<double> part(static_cast<std::size_t>(kLayers) * tile.nx() * tile.ny());
  for (int layer = 0; layer < kLayers; ++layer)
    rows_of_tile(run, v * kLayers + layer, tile.x0(), tile.y0(), tile.nx(), tile.ny(), [&](auto from, auto to, int n) {
      std::copy_n(whole.begin() + from, n,
                  part.begin() + static_cast<std::ptrdiff_t>(layer) * tile.nx() * tile.ny() + to);
    });
  return part;
}

/// Into the files that are there.
void overwrite_member(const Run& run, const Whole& whole, const std::string& prefix) {
  for (int number = 0; number < run.tiles.count(); ++number) {
    OldFile file(tile_name(prefix, number), true);
    for (int v = 0; v < 3; ++v) file.put(kNames[v], of_tile(run, whole, Tile{run.grid, run.tiles, number}, v));
    file.close();
  }
}

void write_new(const Run& run, const Whole& whole, const std::string& prefix, const std::string& title) {
  for (int number = 0; number < run.tiles.count(); ++number) {
    const Tile tile{run.grid, run.tiles, number};
    NewFile file(tile_name(prefix, number), tile, title, false, 0);
    const int variables[] = {file.add_double("U", "wind along the channel", "m/s", Place::east),
                             file.add_double("V", "wind across the channel", "m/s", Place::north),
                             file.add_double("H", "thickness of the layer", "m", Place::centre)};
    file.put_axes();
    for (int v = 0; v < 3; ++v) file.put(variables[v], of_tile(run, whole, tile, v));
    file.sync();
    file.close();
  }
}

/// Counts and places for MPI_Alltoallv between `fields` whole states at their owners and all of them in each one's
/// cells.
struct Exchange {
  std::vector<int> whole_counts, whole_at, cell_counts, cell_at;
  Exchange(const Run& run, int fields) {
    int whole_sum = 0, cell_sum = 0, own = 0;
    for (int f = 0; f < fields; ++f) own += run.owner(f) == run.rank;
    for (int r = 0; r < run.size; ++r) {
      int theirs = 0;
      for (int f = 0; f < fields; ++f) theirs += run.owner(f) == r;
      whole_counts.push_back(own * kPlanes * run.own_cells(r));
      cell_counts.push_back(theirs * kPlanes * run.own_cells(run.rank));
      whole_at.push_back(whole_sum);
      cell_at.push_back(cell_sum);
      whole_sum += whole_counts.back();
      cell_sum += cell_counts.back();
    }
  }
};

/// Whole states at their owners → [field][plane][own cell].
std::vector<double> to_cells(const Run& run, const std::vector<Whole>& own, int fields) {
  const Exchange e(run, fields);
  std::vector<double> out, in(static_cast<std::size_t>(fields) * kPlanes * run.own_cells(run.rank)), sorted(in.size());
  for (int r = 0; r < run.size; ++r)
    for (const Whole& whole : own)
      for (int p = 0; p < kPlanes; ++p) {
        const auto from = whole.begin() + static_cast<std::ptrdiff_t>(p) * run.cells() + run.first_cell(r);
        out.insert(out.end(), from, from + run.own_cells(r));
      }
  MPI_Alltoallv(out.data(), e.whole_counts.data(), e.whole_at.data(), MPI_DOUBLE, in.data(), e.cell_counts.data(),
                e.cell_at.data(), MPI_DOUBLE, MPI_COMM_WORLD);
  const std::size_t block = static_cast<std::size_t>(kPlanes) * run.own_cells(run.rank);
  std::size_t n = 0;
  for (int r = 0; r < run.size; ++r)
    for (int f = 0; f < fields; ++f)
      if (run.owner(f) == r)
        std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(block * n++), block,
                    sorted.begin() + static_cast<std::ptrdiff_t>(block * f));
  return sorted;
}

/// And back.
std::vector<Whole> to_owners(const Run& run, const std::vector<double>& cells, int fields) {
  const Exchange e(run, fields);
  const std::size_t block = static_cast<std::size_t>(kPlanes) * run.own_cells(run.rank);
  std::vector<double> out, in;
  for (int r = 0; r < run.size; ++r)
    for (int f = 0; f < fields; ++f)
      if (run.owner(f) == r)
        out.insert(out.end(), cells.begin() + static_cast<std::ptrdiff_t>(block * f),
                   cells.begin() + static_cast<std::ptrdiff_t>(block * (f + 1)));
  in.resize(e.whole_at.back() + e.whole_counts.back());
  MPI_Alltoallv(out.data(), e.cell_counts.data(), e.cell_at.data(), MPI_DOUBLE, in.data(), e.whole_counts.data(),
                e.whole_at.data(), MPI_DOUBLE, MPI_COMM_WORLD);
  std::vector<Whole> own;
  for (int f = 0; f < fields; ++f)
    if (run.owner(f) == run.rank) own.emplace_back(static_cast<std::size_t>(kPlanes) * run.cells());
  auto from = in.begin();
  for (int r = 0; r < run.size; ++r)
    for (Whole& whole : own)
      for (int p = 0; p < kPlanes; ++p) {
        std::copy_n(from, run.own_cells(r),
                    whole.begin() + static_cast<std::ptrdiff_t>(p) * run.cells() + run.first_cell(r));
        from += run.own_cells(r);
      }
  return own;
}

/// What each member would have observed: [observation][member].
std::vector<double> all_equivalents(const Run& run, const Observations& observations, const std::string& directory) {
  std::vector<double> seen(observations.count() * run.members);
  for (int m = 0; m < run.members; ++m) {
    if (run.owner(m) != run.rank) continue;
    const std::vector<double> own =
        equivalents(observations, run.grid, run.tiles, directory + "history." + member_name(m + 1));
    for (std::size_t o = 0; o < own.size(); ++o) seen[o * run.members + m] = own[o];
  }
  MPI_Allreduce(MPI_IN_PLACE, seen.data(), static_cast<int>(seen.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return seen;
}

/// The analysis of this process' cells: `cells` has the members' guess [member][plane][cell] and is given their
/// analysis; behind the members come the four fields of kDone.
void analyse(const Run& run, const Observations& observations, const std::vector<double>& equivalents,
             std::vector<double>& cells) {
  const int k = run.members, own = run.own_cells(run.rank);
  const std::size_t count = observations.count(), block = static_cast<std::size_t>(kPlanes) * own;
  std::vector<double> departures(count), perturbations(equivalents);
  for (std::size_t o = 0; o < count; ++o) {
    double mean = 0;
    for (int m = 0; m < k; ++m) mean += equivalents[o * k + m];
    mean /= k;
    for (int m = 0; m < k; ++m) perturbations[o * k + m] -= mean;
    departures[o] = observations.value[o] - mean;
  }
  Letkf letkf(k, run.inflation);
  LocalObservations local;
  std::vector<double> guess(k), analysis(k);
  for (int c = 0; c < own; ++c) {
    const int cell = run.first_cell(run.rank) + c;
    const double x = (cell % run.grid.nx + 0.5) * run.grid.dx, y = (cell / run.grid.nx + 0.5) * run.grid.dx;
    local.perturbations.clear();
    local.departures.clear();
    local.weights.clear();
    for (std::size_t o = 0; o < count; ++o) {
      double dx = std::fabs(observations.x[o] - x);
      dx = std::min(dx, run.grid.length() - dx);
      const double near = gaspari_cohn(std::hypot(dx, observations.y[o] - y) / run.radius);
      if (near < 1e-6) continue;
      local.perturbations.insert(local.perturbations.end(), perturbations.begin() + static_cast<std::ptrdiff_t>(o * k),
                                 perturbations.begin() + static_cast<std::ptrdiff_t>((o + 1) * k));
      local.departures.push_back(departures[o]);
      local.weights.push_back(near / (observations.error[o] * observations.error[o]));
    }
    const std::vector<double>* weights = local.departures.empty() ? nullptr : &letkf.weights(local);
    for (int p = 0; p < kPlanes; ++p) {
      const auto at = [&](int field) -> double& {
        return cells[block * field + static_cast<std::size_t>(p) * own + c];
      };
      double mean = 0, variance = 0, new_mean = 0, new_variance = 0;
      for (int m = 0; m < k; ++m) mean += at(m);
      mean /= k;
      for (int m = 0; m < k; ++m) {
        guess[m] = at(m) - mean;
        variance += guess[m] * guess[m];
      }
      for (int m = 0; m < k; ++m) {
        double sum = weights == nullptr ? guess[m] : 0;
        if (weights != nullptr)
          for (int n = 0; n < k; ++n) sum += (*weights)[static_cast<std::size_t>(n) * k + m] * guess[n];
        analysis[m] = mean + sum;
        new_mean += analysis[m];
      }
      new_mean /= k;
      for (int m = 0; m < k; ++m) new_variance += (analysis[m] - new_mean) * (analysis[m] - new_mean);
      // Relaxation to the spread of the guess (Whitaker and Hamill 2012).
      const double before = std::sqrt(variance / (k - 1)), after = std::sqrt(new_variance / (k - 1));
      const double wider = after > 0 ? 1 + run.relaxation * (before - after) / after : 1;
      for (int m = 0; m < k; ++m) at(m) = new_mean + wider * (analysis[m] - new_mean);
      at(k) = mean;
      at(k + 1) = before;
      at(k + 2) = new_mean;
      at(k + 3) = wider * after;
    }
  }
}

void filter(const Run& run, int cycle) {
  const double began = MPI_Wtime();
  const FileTimes before = file_times();
  const std::string directory = cycle_directory(cycle);
  const Observations observations = read_observations(run.observations + "/" + directory + "observations.nc");
  const std::vector<double> seen = all_equivalents(run, observations, directory);
  std::vector<Whole> own;
  for (int m = 0; m < run.members; ++m)
    if (run.owner(m) == run.rank) own.push_back(read_member(run, directory + "restart." + member_name(m + 1)));
  std::vector<double> cells = to_cells(run, own, run.members);
  const int fields = run.members + 4;
  cells.resize(static_cast<std::size_t>(fields) * kPlanes * run.own_cells(run.rank));
  analyse(run, observations, seen, cells);
  own = to_owners(run, cells, fields);
  int n = 0;
  for (int f = 0; f < fields; ++f) {
    if (run.owner(f) != run.rank) continue;
    if (f < run.members)
      overwrite_member(run, own[n++], directory + "restart." + member_name(f + 1));
    else
      write_new(run, own[n++], directory + kDone[f - run.members], kDone[f - run.members]);
  }
  const FileTimes& now = file_times();
  const double spent[] = {MPI_Wtime() - began, now.opening - before.opening, now.reading - before.reading,
                          now.writing - before.writing};
  double most[4];
  MPI_Reduce(spent, most, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (run.rank != 0) return;
  std::printf(
      "filter: cycle %d took %.4f s; files, of the slowest process: open %.4f read %.4f write %.4f; %zu observations\n",
      cycle, most[0], most[1], most[2], most[3], observations.count());
  std::fflush(stdout);
}

int run_all(int argc, char** argv) {
  Run run;
  MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &run.size);
  Options options(argc, argv);
  run.members = options.count("--members", "10", "of the ensemble, 2 or more");
  run.grid = options.grid();
  run.tiles = options.tiles(run.grid);
  run.first_cycle = options.count("--first-cycle", "1", "whose guess the filter reads");
  run.cycles = options.count("--cycles", "1", "how many, one after the other");
  run.observations = options.text("--observations", ".", "directory above the cycles' observations.nc");
  run.radius = 1000 * options.number("--radius", "700", "of the localization, km; nothing is felt beyond its double");
  run.inflation = options.number("--inflation", "1.3", "factor of the guess' covariance");
  run.relaxation = options.number("--relaxation", "0.5", "of the analysis' spread to that of the guess, 0 to 1");
  if (!options.complete("A local ensemble transform Kalman filter, in cycles.", run.rank)) return 0;
  if (run.members < 2 || run.radius <= 0 || run.inflation <= 0)
    fail("--members has to be 2 or more, --radius and --inflation more than 0");
  for (int cycle = run.first_cycle; cycle < run.first_cycle + run.cycles; ++cycle) filter(run, cycle);
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
