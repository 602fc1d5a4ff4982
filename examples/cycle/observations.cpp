#include "observations.h"

#include <mpi.h>

#include <algorithm>
#include <cmath>

#include "files.h"

namespace cycle {
namespace {

/// One frame of one variable, on the whole plane.
struct Plane {
  Grid grid;
  std::vector<float> values;
  explicit Plane(const Grid& g) : grid(g), values(static_cast<std::size_t>(kLayers) * g.ny * g.nx) {}
  [[nodiscard]] double at(int layer, int j, int i) const {
    return values[(static_cast<std::size_t>(layer) * grid.ny + j) * grid.nx + i];
  }
  [[nodiscard]] double between(int layer, double x, double y) const {
    const double column = x / grid.dx - 0.5, row = std::clamp(y / grid.dx - 0.5, 0.0, grid.ny - 1.0);
    const int i = static_cast<int>(std::floor(column)), j = std::min(static_cast<int>(row), grid.ny - 2);
    const double a = column - i, b = row - j;
    const int west = (i + grid.nx) % grid.nx, east = (i + 1) % grid.nx;
    return (1 - b) * ((1 - a) * at(layer, j, west) + a * at(layer, j, east)) +
           b * ((1 - a) * at(layer, j + 1, west) + a * at(layer, j + 1, east));
  }
};

}  // namespace

Observations read_observations(const std::string& path) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Observations o;
  std::vector<double>* parts[] = {&o.x, &o.y, &o.time, &o.kind, &o.layer, &o.value, &o.error};
  if (rank == 0) {
    OldFile file(path, false);
    int n = 0;
    for (const char* name : {"x", "y", "time", "kind", "layer", "value", "error"}) *parts[n++] = file.get_all(name);
    file.close();
  }
  int count = static_cast<int>(o.count());
  MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (std::vector<double>* part : parts) {
    part->resize(count);
    MPI_Bcast(part->data(), count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  return o;
}

std::vector<double> equivalents(const Observations& observations, const Grid& grid, const Tiles& tiles,
                                const std::string& history) {
  const char* names[] = {"U", "V", "H"};
  std::vector<std::vector<Plane>> planes;  // [frame][variable]
  std::vector<double> times;
  for (int tile = 0; tile < tiles.count(); ++tile) {
    OldFile file(tile_name(history, tile), false);
    if (tile == 0) {
      times = file.times();
      planes.assign(times.size(), std::vector<Plane>(3, Plane(grid)));
    }
    for (std::size_t frame = 0; frame < times.size(); ++frame)
      for (int v = 0; v < 3; ++v) {
        const std::vector<float> part = file.frame(names[v], static_cast<int>(frame));
        for (int row = 0; row < kLayers * file.ny(); ++row) {
          const int layer = row / file.ny(), j = file.y0() + row % file.ny();
          std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(row) * file.nx(), file.nx(),
                      planes[frame][v].values.begin() + (static_cast<std::ptrdiff_t>(layer) * grid.ny + j) * grid.nx +
                          file.x0());
        }
      }
    file.close();
  }
  std::vector<double> seen;
  for (std::size_t n = 0; n < observations.count(); ++n) {
    const double time = observations.time[n];
    if (times.empty() || time < times.front() || time > times.back())
      fail("an observation is of a time that " + history + " does not have");
    std::size_t after = std::upper_bound(times.begin(), times.end(), time) - times.begin();
    after = std::min(std::max<std::size_t>(after, 1), times.size() - 1);
    const double late = times.size() == 1 ? 0.0 : (time - times[after - 1]) / (times[after] - times[after - 1]);
    const int v = static_cast<int>(observations.kind[n]), layer = static_cast<int>(observations.layer[n]);
    const double x = observations.x[n], y = observations.y[n];
    seen.push_back((1 - late) * planes[after - 1][v].between(layer, x, y) +
                   late * planes[after][v].between(layer, x, y));
  }
  return seen;
}

}  // namespace cycle
