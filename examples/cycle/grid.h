// The plane, and the part of it that one process has.
#pragma once

#include <string>

namespace cycle {

constexpr int kLayers = 2;

/// Periodic in x, walls in y. Cells are numbered from 0; x of a cell's centre is (i + 0.5) dx.
struct Grid {
  int nx = 72, ny = 32;
  double dx = 150e3;  // m, in both directions
  [[nodiscard]] double length() const { return nx * dx; }
  [[nodiscard]] double width() const { return ny * dx; }
};

/// The tiles that a plane is cut into, all of the same size. Numbers count along x first, as SCALE's do.
struct Tiles {
  int along_x = 1, along_y = 1;
  [[nodiscard]] int count() const { return along_x * along_y; }
};

struct Tile {
  Grid grid;
  Tiles tiles;
  int number = 0;
  [[nodiscard]] int column() const { return number % tiles.along_x; }
  [[nodiscard]] int row() const { return number / tiles.along_x; }
  [[nodiscard]] int nx() const { return grid.nx / tiles.along_x; }
  [[nodiscard]] int ny() const { return grid.ny / tiles.along_y; }
  [[nodiscard]] int x0() const { return column() * nx(); }  // the first cell
  [[nodiscard]] int y0() const { return row() * ny(); }
};

/// `prefix` and the number of the process, as SCALE names its files: history.0003.pe000001.nc
std::string tile_name(const std::string& prefix, int number);

/// Member 3 is 0003.
std::string member_name(int member);

/// The directory of a cycle's files, in the directory that the program was started in.
std::string cycle_directory(int cycle);

}  // namespace cycle
