#include "model.h"

#include <cmath>
#include <cstdio>
#include <random>

namespace cycle {
namespace {

constexpr double kGravity = 9.81;          // m/s²
constexpr double kReducedGravity = 1.016;  // m/s²: Rossby's radius of the interface is 420 km
constexpr double kDepth = 5000.0;          // m, of each layer at rest
constexpr double kCoriolis = 1.2e-4;       // 1/s, in the middle
constexpr double kBeta = 1.6e-11;          // 1/(m s)
constexpr double kJet = 28.0;              // m/s, of the slope that the interface is drawn to
constexpr double kJetWidth = 7e5;          // m
constexpr double kDay = 86400.0;           // s
constexpr double kHeating = 5 * kDay;      // τ
constexpr double kDrag = 5 * kDay;         // of the lower layer
constexpr double kMixing = 6 * 3600.0;     // in which waves of two cells lose their amplitude
constexpr double kRidge = 700.0;           // m
constexpr double kRidgeWidth = 9e5;        // m
constexpr double kThinnest = 50.0;         // m: a thinner layer is no forecast any more
constexpr double kCourant = 0.55;          // of the fastest wave, in a step

double square(double x) {
  return x * x;
}

}  // namespace

Model::Model(const Tile& tile, MPI_Comm comm)
    : tile_(tile),
      comm_(comm),
      state_{Layer(tile), Layer(tile)},
      stage_(state_),
      rate_(state_),
      ground_(tile),
      mass_x_(tile),
      mass_y_(tile),
      pv_(tile),
      head_(tile),
      smooth_(tile) {
  const Grid& grid = tile.grid;
  const int cells_y = grid.ny;
  for (int j = -kHalo; j < tile.ny() + kHalo; ++j) {
    int row = tile.y0() + j;  // beyond a wall the plane is its own mirror image
    if (row < 0) row = -1 - row;
    if (row >= cells_y) row = 2 * cells_y - 1 - row;
    for (int i = -kHalo; i < tile.nx() + kHalo; ++i) {
      const int column = (tile.x0() + i + grid.nx) % grid.nx;
      const double x = (column + 0.5) * grid.dx - 0.3 * grid.length(), y = (row + 0.5) * grid.dx - 0.45 * grid.width();
      ground_(j, i) = kRidge * std::exp(-square(x / kRidgeWidth) - square(y / (1.6 * kRidgeWidth)));
    }
  }
  for (int j = 0; j < tile.ny(); ++j) {
    const double y = (tile.y0() + j + 0.5) * grid.dx - 0.5 * grid.width();
    interface_.push_back(kDepth + kCoriolis * kJet * kJetWidth / kReducedGravity * std::tanh(y / kJetWidth));
  }
  const Tiles& t = tile.tiles;
  const int c = tile.column(), r = tile.row();
  neighbour_[0] = r * t.along_x + (c + t.along_x - 1) % t.along_x;
  neighbour_[1] = r * t.along_x + (c + 1) % t.along_x;
  neighbour_[2] = r > 0 ? tile.number - t.along_x : MPI_PROC_NULL;
  neighbour_[3] = r + 1 < t.along_y ? tile.number + t.along_x : MPI_PROC_NULL;
}

void Model::start(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const double turn = 2 * M_PI / 18446744073709551616.0;  // the standard's distributions differ between libraries
  double phase[5];
  for (double& p : phase) p = static_cast<double>(random()) * turn;
  const Grid& grid = tile_.grid;
  for (int j = 0; j < tile_.ny(); ++j) {
    const double y = (tile_.y0() + j + 0.5) * grid.dx - 0.5 * grid.width();
    for (int i = 0; i < tile_.nx(); ++i) {
      const double x = (tile_.x0() + i + 0.5) * grid.dx;
      double wave = 0;
      for (int k = 0; k < 5; ++k) wave += 60 * std::sin(2 * M_PI * (k + 2) * x / grid.length() + phase[k]);
      const double lower = interface_[j] + wave * std::exp(-square(y / kJetWidth));
      // The lower layer is at rest: the surface has the opposite, smaller slope.
      const double surface = 2 * kDepth - kReducedGravity / kGravity * (interface_[j] - kDepth);
      const double slope = kCoriolis * kJet / square(std::cosh(y / kJetWidth)) / coriolis(j);
      state_[0].u(j, i) = slope;
      state_[1].u(j, i) = 0;
      state_[0].v(j, i) = state_[1].v(j, i) = 0;
      state_[0].h(j, i) = surface - lower;
      state_[1].h(j, i) = lower - ground_(j, i);
    }
  }
  exchange(state_);
}

double Model::coriolis(double row) const {
  return kCoriolis + kBeta * ((tile_.y0() + row + 0.5) * tile_.grid.dx - 0.5 * tile_.grid.width());
}

/// Of the north-eastern corner of a cell.
double Model::pv_at_corner(const Layer& s, int j, int i) const {
  const double turning = ((s.v(j, i + 1) - s.v(j, i)) - (s.u(j + 1, i) - s.u(j, i))) / tile_.grid.dx;
  const double h = 0.25 * ((s.h(j, i) + s.h(j, i + 1)) + (s.h(j + 1, i) + s.h(j + 1, i + 1)));
  return (coriolis(j + 0.5) + turning) / h;
}

Model::Seen Model::seen(int layer, int j, int i) const {
  const Layer& s = state_[layer];
  const double pv = 0.25 * ((pv_at_corner(s, j, i) + pv_at_corner(s, j, i - 1)) +
                            (pv_at_corner(s, j - 1, i) + pv_at_corner(s, j - 1, i - 1)));
  return {0.5 * (s.u(j, i) + s.u(j, i - 1)), 0.5 * (s.v(j, i) + s.v(j - 1, i)), s.h(j, i), pv};
}

void Model::tendencies(const State& s, State& d) {
  const int nx = tile_.nx(), ny = tile_.ny();
  const double dx = tile_.grid.dx;
  const double mixing = 1.0 / (64 * kMixing);  // times the undivided ∇⁴
  for (int l = 0; l < kLayers; ++l) {
    const Layer& a = s[l];
    const double drag = l == 1 ? 1.0 / kDrag : 0.0;
    for (int j = -1; j <= ny; ++j)
      for (int i = -1; i <= nx; ++i) {
        mass_x_(j, i) = a.u(j, i) * 0.5 * (a.h(j, i) + a.h(j, i + 1));
        mass_y_(j, i) = a.v(j, i) * 0.5 * (a.h(j, i) + a.h(j + 1, i));
        pv_(j, i) = pv_at_corner(a, j, i);
        const double lower = s[1].h(j, i) + ground_(j, i), upper = lower + s[0].h(j, i);
        const double pressure = kGravity * upper + (l == 1 ? kReducedGravity * lower : 0.0);
        head_(j, i) = pressure + 0.25 * ((square(a.u(j, i)) + square(a.u(j, i - 1))) +
                                         (square(a.v(j, i)) + square(a.v(j - 1, i))));
      }
    for (int j = 0; j < ny; ++j)
      for (int i = 0; i < nx; ++i) {
        const double v = 0.25 * ((mass_y_(j, i) + mass_y_(j, i + 1)) + (mass_y_(j - 1, i) + mass_y_(j - 1, i + 1)));
        const double u = 0.25 * ((mass_x_(j, i) + mass_x_(j, i - 1)) + (mass_x_(j + 1, i) + mass_x_(j + 1, i - 1)));
        d[l].u(j, i) = 0.5 * (pv_(j, i) + pv_(j - 1, i)) * v - (head_(j, i + 1) - head_(j, i)) / dx - drag * a.u(j, i);
        d[l].v(j, i) = -0.5 * (pv_(j, i) + pv_(j, i - 1)) * u - (head_(j + 1, i) - head_(j, i)) / dx - drag * a.v(j, i);
        const double heating = (s[1].h(j, i) + ground_(j, i) - interface_[j]) / kHeating;
        d[l].h(j, i) = -((mass_x_(j, i) - mass_x_(j, i - 1)) + (mass_y_(j, i) - mass_y_(j - 1, i))) / dx +
                       (l == 0 ? heating : -heating);
      }
    // Mixing: of the lower layer's height over the sea, not of its thickness, which has the ridge in it.
    for (int which = 0; which < 3; ++which) {
      const Field& f = which == 0 ? a.u : which == 1 ? a.v : a.h;
      Field& to = which == 0 ? d[l].u : which == 1 ? d[l].v : d[l].h;
      const double ground = which == 2 && l == 1 ? 1.0 : 0.0;
      for (int j = -1; j <= ny; ++j)
        for (int i = -1; i <= nx; ++i)
          smooth_(j, i) = ((f(j, i - 1) + f(j, i + 1)) + (f(j - 1, i) + f(j + 1, i)) - 4 * f(j, i)) +
                          ground * ((ground_(j, i - 1) + ground_(j, i + 1)) + (ground_(j - 1, i) + ground_(j + 1, i)) -
                                    4 * ground_(j, i));
      for (int j = 0; j < ny; ++j)
        for (int i = 0; i < nx; ++i)
          to(j, i) -= mixing * ((smooth_(j, i - 1) + smooth_(j, i + 1)) + (smooth_(j - 1, i) + smooth_(j + 1, i)) -
                                4 * smooth_(j, i));
    }
    if (tile_.row() + 1 == tile_.tiles.along_y)  // the northern wall
      for (int i = 0; i < nx; ++i) d[l].v(ny - 1, i) = 0;
  }
}

void Model::advance(double seconds) {
  const double fastest = std::sqrt(kGravity * 2 * kDepth) + 2 * kJet;
  const int steps = static_cast<int>(std::ceil(seconds * fastest / (kCourant * tile_.grid.dx)));
  const double dt = seconds / steps;
  const int nx = tile_.nx(), ny = tile_.ny();
  for (int step = 0; step < steps; ++step) {
    const State* from = &state_;
    for (const double part : {dt / 3, dt / 2, dt}) {
      tendencies(*from, rate_);
      State& to = part == dt ? state_ : stage_;
      for (int l = 0; l < kLayers; ++l)
        for (int j = 0; j < ny; ++j)
          for (int i = 0; i < nx; ++i) {
            to[l].u(j, i) = state_[l].u(j, i) + part * rate_[l].u(j, i);
            to[l].v(j, i) = state_[l].v(j, i) + part * rate_[l].v(j, i);
            to[l].h(j, i) = state_[l].h(j, i) + part * rate_[l].h(j, i);
          }
      exchange(to);
      from = &to;
    }
  }
  for (const Layer& a : state_)
    for (int j = 0; j < ny; ++j)
      for (int i = 0; i < nx; ++i)
        if (!(a.h(j, i) > kThinnest)) {
          std::fprintf(stderr, "forecast: the model has come to grief: a layer is %g m thick at cell %d, %d\n",
                       a.h(j, i), tile_.x0() + i, tile_.y0() + j);
          MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

void Model::exchange(State& s) {
  const int nx = tile_.nx(), ny = tile_.ny();
  // West and east first; then south and north with the corners.
  for (int axis = 0; axis < 2; ++axis) {
    const int across = axis == 0 ? ny : nx + 2 * kHalo, last = axis == 0 ? nx : ny;
    const std::size_t count = static_cast<std::size_t>(across) * kHalo * 3 * kLayers;
    const auto cell = [axis](Field& f, int along, int place) -> double& {
      return axis == 0 ? f(place, along) : f(along, place - kHalo);
    };
    // A block of values to or from rows (columns) `begin`, ….
    const auto copy = [&](int begin, std::vector<double>& block, bool pack) {
      block.resize(count);
      std::size_t n = 0;
      for (Layer& a : s)
        for (Field* f : {&a.u, &a.v, &a.h})
          for (int k = 0; k < kHalo; ++k)
            for (int place = 0; place < across; ++place, ++n)
              if (pack)
                block[n] = cell(*f, begin + k, place);
              else
                cell(*f, begin + k, place) = block[n];
    };
    const int before = neighbour_[2 * axis], after = neighbour_[2 * axis + 1];
    copy(0, out_[0], true);
    copy(last - kHalo, out_[1], true);
    in_[0].resize(count);
    in_[1].resize(count);
    const int own = tile_.number, words = static_cast<int>(count);
    if (before == own && after == own) {
      in_[0] = out_[1];
      in_[1] = out_[0];
    } else {
      MPI_Request requests[4];
      MPI_Irecv(in_[0].data(), words, MPI_DOUBLE, before, 1, comm_, &requests[0]);
      MPI_Irecv(in_[1].data(), words, MPI_DOUBLE, after, 2, comm_, &requests[1]);
      MPI_Isend(out_[1].data(), words, MPI_DOUBLE, after, 1, comm_, &requests[2]);
      MPI_Isend(out_[0].data(), words, MPI_DOUBLE, before, 2, comm_, &requests[3]);
      MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    }
    if (before != MPI_PROC_NULL) copy(-kHalo, in_[0], false);
    if (after != MPI_PROC_NULL) copy(last, in_[1], false);
    if (axis == 0) continue;
    // Walls: no flow through them, no friction along them.
    for (Layer& a : s)
      for (int i = -kHalo; i < nx + kHalo; ++i) {
        if (before == MPI_PROC_NULL) {
          a.v(-1, i) = 0;
          a.v(-2, i) = -a.v(0, i);
          for (int k = 0; k < kHalo; ++k) {
            a.u(-1 - k, i) = a.u(k, i);
            a.h(-1 - k, i) = a.h(k, i);
          }
        }
        if (after == MPI_PROC_NULL) {
          a.v(ny - 1, i) = 0;
          for (int k = 0; k < kHalo; ++k) {
            a.v(ny + k, i) = -a.v(ny - 2 - k, i);
            a.u(ny + k, i) = a.u(ny - 1 - k, i);
            a.h(ny + k, i) = a.h(ny - 1 - k, i);
          }
        }
      }
  }
}

}  // namespace cycle
