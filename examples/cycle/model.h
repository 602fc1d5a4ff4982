// Two layers of fluid on a turning plane: the smallest model that makes weather (Phillips 1956).
//
// The layers have thickness h, wind (u, v) and slightly different densities. M is the pressure over the density, η the
// height of a layer's upper side:
//
//   ∂u/∂t = +(f + ζ) v - ∂/∂x (M + ½(u² + v²)) - drag u                 M₁ = g η₁
//   ∂v/∂t = -(f + ζ) u - ∂/∂y (M + ½(u² + v²)) - drag v                 M₂ = g η₁ + g' η₂
//   ∂h/∂t = -∇·(h u, h v) ± (η₂ - η₂ᵉ) / τ                              η₂ = h₂ + ground, η₁ = η₂ + h₁
//
// The last term draws the height of the interface towards a slope η₂ᵉ with a strong westerly jet above it, as heating
// in the south and cooling in the north do. The jet is unstable: it sheds cyclones and anticyclones, for ever and never
// twice the same. A ridge on the ground steers them. The lower layer rubs on the ground.
//
// Space: Arakawa's C grid, advection of vorticity that conserves potential enstrophy (Sadourny 1975), ∇⁴ mixing. Time:
// Runge-Kutta of three stages (Wicker and Skamarock 2002). Every cell is computed by the same operations in the same
// order on any number of processes: so are its bits.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <vector>

#include "grid.h"

namespace cycle {

constexpr int kHalo = 2;

/// Values of a tile's cells and of kHalo more on each side; indices from -kHalo.
class Field {
 public:
  explicit Field(const Tile& tile)
      : across_(tile.nx() + 2 * kHalo), values_(static_cast<std::size_t>(across_) * (tile.ny() + 2 * kHalo)) {}
  double& operator()(int j, int i) { return values_[at(j, i)]; }
  double operator()(int j, int i) const { return values_[at(j, i)]; }

 private:
  [[nodiscard]] std::size_t at(int j, int i) const { return static_cast<std::size_t>(j + kHalo) * across_ + i + kHalo; }
  int across_;
  std::vector<double> values_;
};

struct Layer {
  explicit Layer(const Tile& tile) : u(tile), v(tile), h(tile) {}
  Field u, v, h;  // u on the eastern face of a cell (m/s), v on the northern, h in the middle (m)
};

using State = std::array<Layer, kLayers>;  // the upper layer first

class Model {
 public:
  /// `comm`: the processes of one member, as many as there are tiles.
  Model(const Tile& tile, MPI_Comm comm);

  /// The jet, and small waves that differ by `seed`.
  void start(std::uint64_t seed);

  /// Whole steps, as near as can be to `seconds`, which they share equally.
  void advance(double seconds);

  State& state() { return state_; }

  /// Of the middle of each cell, as history has it: u, v, h and potential vorticity (1/(m s)).
  struct Seen {
    double u, v, h, pv;
  };
  [[nodiscard]] Seen seen(int layer, int j, int i) const;

  /// After the state was set from outside: the halos, too.
  void exchange(State& s);

 private:
  void tendencies(const State& s, State& d);
  [[nodiscard]] double coriolis(double row) const;  // of the row's middle; row + 0.5 is its northern face
  [[nodiscard]] double pv_at_corner(const Layer& s, int j, int i) const;

  Tile tile_;
  MPI_Comm comm_;
  State state_, stage_, rate_;
  Field ground_, mass_x_, mass_y_, pv_, head_, smooth_;
  std::vector<double> interface_;  // η₂ᵉ of the tile's rows
  int neighbour_[4];               // west, east, south, north; MPI_PROC_NULL beyond a wall
  std::vector<double> out_[2], in_[2];
};

}  // namespace cycle
