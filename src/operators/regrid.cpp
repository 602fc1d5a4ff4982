#include "operators/regrid.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "operators/values.h"

namespace advectio {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();
// More would not be one horizontal grid.
constexpr std::uint64_t cells_max = std::numeric_limits<std::uint32_t>::max();

std::uint64_t product(const std::vector<std::uint64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{1}, std::multiplies<>());
}

std::optional<std::uint32_t> variable_named(const Schema& schema, std::initializer_list<std::string_view> names) {
  for (const auto name : names)
    for (std::uint32_t i = 0; i < schema.variables.size(); ++i)
      if (schema.variables[i].name == name && is_numeric(schema.variables[i].type)) return i;
  return std::nullopt;
}

std::optional<std::uint32_t> variable_named(const SmallFile& file, std::initializer_list<std::string_view> names) {
  return variable_named(file.schema, names);
}

std::optional<std::uint64_t> length_of(const SmallFile& file, std::string_view name) {
  for (std::size_t i = 0; i < file.schema.dimensions.size(); ++i)
    if (file.schema.dimensions[i].name == name) return file.lengths[i];
  return std::nullopt;
}

Error refuse(const SmallFile& file, Code code, const std::string& what) {
  return Error{code, file.path + ": " + what, 0};
}

/// In degrees, without what the way from radians has added.
Result<std::vector<double>> degrees(const SmallFile& file, std::uint32_t variable) {
  auto values = file.read(variable);
  if (!values) return values;
  if (text_of(file.schema.variables[variable].attributes, "units").starts_with("rad"))
    for (auto& v : *values) v = std::round(v * (180 / std::numbers::pi) * 1e10) / 1e10;
  return values;
}

/// Grids of rows and columns are shorter said.
void look_for_rows(GridPoints& points) {
  if (points.lengths.size() != 2 || points.rectilinear) return;
  const auto rows = points.lengths[0], columns = points.lengths[1];
  for (std::uint64_t y = 0; y < rows; ++y)
    for (std::uint64_t x = 0; x < columns; ++x)
      if (points.lat[y * columns + x] != points.lat[y * columns] || points.lon[y * columns + x] != points.lon[x])
        return;
  for (std::uint64_t y = 0; y < rows; ++y) points.lat[y] = points.lat[y * columns];
  points.lat.resize(rows);
  points.lon.resize(columns);
  points.rectilinear = true;
}

/// `src_grid_dims` and the like: the fastest dimension first.
Result<std::vector<std::uint64_t>> grid_lengths(const SmallFile& file, std::string_view variable,
                                                std::optional<std::uint64_t> size) {
  std::vector<std::uint64_t> lengths;
  if (const auto number = variable_named(file, {variable})) {
    auto values = file.read(*number);
    if (!values) return std::move(values).error();
    for (const auto v : *values)
      lengths.insert(lengths.begin(), v >= 1 && v <= double(cells_max) ? std::uint64_t(v) : 0);
    if (lengths.size() > 2)
      return refuse(file, Code::unsupported, std::string(variable) + " has more than two dimensions");
  } else if (size) {
    lengths = {*size};
  }
  const auto cells = product(lengths);
  if (!lengths.empty() && (cells == 0 || cells > cells_max || (size && cells != *size)))
    return refuse(file, Code::invalid, std::string(variable) + " does not fit the number of cells");
  return lengths;
}

}  // namespace

std::optional<GridVariables> grid_variables(const Schema& schema) {
  const auto find = [&](std::string_view standard, std::initializer_list<std::string_view> names) {
    for (std::uint32_t i = 0; i < schema.variables.size(); ++i)
      if (text_of(schema.variables[i].attributes, "standard_name") == standard && is_numeric(schema.variables[i].type))
        return std::optional(i);
    return variable_named(schema, names);
  };
  const auto lat = find("latitude", {"lat", "latitude", "nav_lat", "XLAT_M", "XLAT"});
  const auto lon = find("longitude", {"lon", "longitude", "nav_lon", "XLONG_M", "XLONG"});
  if (!lat || !lon) return std::nullopt;
  GridVariables out{*lat, *lon, schema.variables[*lat].dimensions};
  const auto& columns = schema.variables[*lon].dimensions;
  if (out.dimensions.size() == 1 && columns.size() == 1 && columns != out.dimensions)
    out.dimensions.push_back(columns.front());
  if (out.dimensions.size() == 3) out.dimensions.erase(out.dimensions.begin());
  return out;
}

Result<GridPoints> grid_points(const SmallFile& file) {
  const auto grid = grid_variables(file.schema);
  if (!grid) return refuse(file, Code::unsupported, "has no latitudes and longitudes");
  const std::optional lat = grid->lat, lon = grid->lon;
  const auto lengths = [&](std::uint32_t v) {
    std::vector<std::uint64_t> out;
    for (const auto d : file.schema.variables[v].dimensions) out.push_back(file.lengths[d]);
    // WRF's have a record for each time, all alike.
    if (out.size() == 3 && out.front() >= 1) out.erase(out.begin());
    return out;
  };
  const auto rows = lengths(*lat), columns = lengths(*lon);
  auto north = degrees(file, *lat);
  if (!north) return std::move(north).error();
  auto east = degrees(file, *lon);
  if (!east) return std::move(east).error();
  GridPoints points;
  if (rows.size() == 1 && columns.size() == 1 &&
      file.schema.variables[*lat].dimensions != file.schema.variables[*lon].dimensions) {
    points.lengths = {rows[0], columns[0]};
    points.rectilinear = true;
  } else if (rows == columns && (rows.size() == 1 || rows.size() == 2)) {
    points.lengths = rows;
    north->resize(product(rows));
    east->resize(product(rows));
  } else {
    return refuse(file, Code::unsupported,
                  file.schema.variables[*lat].name + " and " + file.schema.variables[*lon].name +
                      " are not the points of a grid");
  }
  if (product(points.lengths) == 0) return refuse(file, Code::invalid, "its grid has no points");
  points.lat = std::move(north).value();
  points.lon = std::move(east).value();
  look_for_rows(points);
  return points;
}

Result<RegridWeights> regrid_weights(const SmallFile& file, const GridPoints* grid) {
  RegridWeights out;
  auto s = variable_named(file, {"S"}), row = variable_named(file, {"row"}), column = variable_named(file, {"col"});
  const bool esmf = s && row && column;
  if (!esmf) {
    s = variable_named(file, {"remap_matrix"});
    row = variable_named(file, {"dst_address"});
    column = variable_named(file, {"src_address"});
  }
  if (!s || !row || !column)
    return refuse(
        file, Code::unsupported,
        "has no weights: neither ESMF's S, row and col nor SCRIP's remap_matrix, dst_address and src_address");
  out.method = text_of(file.schema.attributes, "map_method");
  const auto normalization = text_of(file.schema.attributes, "normalization");
  if (!esmf && normalization == "none" && (out.method.find("onserv") != std::string::npos || out.method.empty()))
    return refuse(file, Code::unsupported,
                  "its weights are areas (normalization = none), not shares; make them with normalization fracarea");
  auto source = grid_lengths(file, "src_grid_dims", length_of(file, esmf ? "n_a" : "src_grid_size"));
  if (!source) return std::move(source).error();
  out.source_lengths = std::move(source).value();
  auto destination = grid_lengths(file, "dst_grid_dims", length_of(file, esmf ? "n_b" : "dst_grid_size"));
  if (!destination) return std::move(destination).error();

  const auto lat = variable_named(file, {esmf ? "yc_b" : "dst_grid_center_lat"});
  const auto lon = variable_named(file, {esmf ? "xc_b" : "dst_grid_center_lon"});
  if (grid != nullptr) {
    if (!destination->empty() && product(*destination) != product(grid->lengths))
      return refuse(file, Code::invalid,
                    "its destination has " + std::to_string(product(*destination)) +
                        " cells, and the grid of the rule " + std::to_string(product(grid->lengths)));
    out.destination = *grid;
  } else if (lat && lon && !destination->empty()) {
    auto north = degrees(file, *lat);
    if (!north) return std::move(north).error();
    auto east = degrees(file, *lon);
    if (!east) return std::move(east).error();
    out.destination.lengths = std::move(destination).value();
    out.destination.lat = std::move(north).value();
    out.destination.lon = std::move(east).value();
    if (out.destination.lat.size() != product(out.destination.lengths) ||
        out.destination.lon.size() != out.destination.lat.size())
      return refuse(file, Code::invalid, "its destination has not a latitude and a longitude for each cell");
    look_for_rows(out.destination);
  } else {
    return refuse(file, Code::unsupported,
                  "does not say where its destination lies; name a file with its latitudes and longitudes: grid: FILE");
  }

  auto weights = file.read(*s);
  if (!weights) return std::move(weights).error();
  auto rows = file.read(*row);
  if (!rows) return std::move(rows).error();
  auto columns = file.read(*column);
  if (!columns) return std::move(columns).error();
  const auto links = rows->size();
  // Of several weights a link (gradients of second order) only the first is one of the value.
  const auto each = links == 0 ? 0 : weights->size() / links;
  if (links == 0 || columns->size() != links || weights->size() != each * links)
    return refuse(file, Code::invalid, "it has not as many weights as addresses");
  if (each != 1)
    return refuse(file, Code::unsupported,
                  "it has " + std::to_string(each) + " weights a link; first-order weights have one");
  const auto cells = product(out.destination.lengths);
  const auto from = out.source_lengths.empty() ? cells_max : product(out.source_lengths);
  out.first.assign(cells + 1, 0);
  for (std::size_t i = 0; i < links; ++i) {
    const auto to = (*rows)[i], at = (*columns)[i];
    if (!(to >= 1 && to <= double(cells) && at >= 1 && at <= double(from)))
      return refuse(file, Code::invalid,
                    "link " + std::to_string(i) + " goes from cell " + std::to_string(std::int64_t(at)) + " to " +
                        std::to_string(std::int64_t(to)) + ", and there are " + std::to_string(from) + " and " +
                        std::to_string(cells));
    if (!std::isfinite((*weights)[i]))
      return refuse(file, Code::invalid, "link " + std::to_string(i) + " has no weight");
    ++out.first[std::size_t(to)];
  }
  for (std::size_t i = 1; i <= cells; ++i) out.first[i] += out.first[i - 1];
  auto next = out.first;
  out.source.resize(links);
  out.weight.resize(links);
  for (std::size_t i = 0; i < links; ++i) {
    const auto place = next[std::size_t((*rows)[i]) - 1]++;
    out.source[place] = static_cast<std::uint32_t>((*columns)[i]) - 1;
    out.weight[place] = (*weights)[i];
  }
  return out;
}

namespace {

struct Unit {
  double x, y, z;
};

/// On the unit sphere.
Unit unit(double lat, double lon) {
  constexpr double radians = std::numbers::pi / 180;
  return {std::cos(lat * radians) * std::cos(lon * radians), std::cos(lat * radians) * std::sin(lon * radians),
          std::sin(lat * radians)};
}

std::string place_text(double lat, double lon) {
  char text[64];
  std::snprintf(text, sizeof text, "lat %.6g, lon %.6g", lat, lon);
  return text;
}

/// Of the chord; grows with the distance on the sphere.
double apart(const Unit& a, const Unit& b) {
  const auto x = a.x - b.x, y = a.y - b.y, z = a.z - b.z;
  return x * x + y * y + z * z;
}

}  // namespace

Result<RegridWeights> nearest_cells(const GridPoints& grid, const std::vector<PointRule>& places) {
  constexpr double earth_km = 6371;
  const bool flat = grid.lengths.size() == 1;
  const auto rows = flat ? 1 : grid.lengths[0], columns = grid.lengths.back();
  std::vector<Unit> cells;
  for (std::uint64_t y = 0; y < rows; ++y)
    for (std::uint64_t x = 0; x < columns; ++x)
      cells.push_back(grid.rectilinear ? unit(grid.lat[y], grid.lon[x])
                                       : unit(grid.lat[y * columns + x], grid.lon[y * columns + x]));
  RegridWeights out;
  out.method = "nearest cell";
  out.source_lengths = grid.lengths;
  out.destination.lengths = {places.size()};
  out.first = {0};
  for (const auto& place : places) {
    const auto at = unit(place.lat, place.lon);
    std::size_t best = cells.size();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (const auto d = apart(at, cells[i]); d < least) {
        least = d;
        best = i;
      }
    if (best == cells.size()) return Error{Code::invalid, "the grid has no latitudes and longitudes", 0};
    // How far the cell is from its neighbours; a list of cells does not say.
    double step = flat ? 4 : 0;
    const auto neighbour = [&](bool there, std::size_t i) {
      if (there) step = std::max(step, apart(cells[best], cells[i]));
    };
    if (!flat) {
      neighbour(best % columns > 0, best - 1);
      neighbour(best % columns + 1 < columns, best + 1);
      neighbour(best >= columns, best - columns);
      neighbour(best + columns < cells.size(), best + columns);
    }
    if (least > step && cells.size() > 1) {
      const auto km = std::lround(2 * earth_km * std::asin(std::min(1.0, std::sqrt(least) / 2)));
      const auto [lat, lon] = grid.rectilinear ? std::pair(grid.lat[best / columns], grid.lon[best % columns])
                                               : std::pair(grid.lat[best], grid.lon[best]);
      return Error{Code::invalid,
                   place.name + " (" + place_text(place.lat, place.lon) +
                       ") lies outside of the grid: the nearest cell (" + place_text(lat, lon) + ") is " +
                       std::to_string(km) + " km away",
                   0};
    }
    out.source.push_back(static_cast<std::uint32_t>(best));
    out.weight.push_back(1);
    out.first.push_back(out.source.size());
    out.destination.lat.push_back(place.lat);
    out.destination.lon.push_back(place.lon);
    out.destination.names.push_back(place.name);
  }
  return out;
}

namespace {

/// Numbers of a box's cells in its whole grid, row by row: the start of each run and its length.
template <typename Visit>
void each_run(const std::vector<std::uint64_t>& lengths, const Box& box, std::size_t leading, Visit visit) {
  const auto rank = lengths.size();
  const auto rows = rank == 2 ? box.count[leading] : 1;
  const auto last = leading + rank - 1;
  for (std::uint64_t r = 0; r < rows; ++r) {
    const auto row = rank == 2 ? (box.start[leading] + r) * lengths[1] : 0;
    visit(row + box.start[last], box.count[last]);
  }
}

}  // namespace

Box Regridded::source(const Box& box) const {
  const auto& to = weights_->destination.lengths;
  const auto leading = box.rank() - to.size();
  const auto width = source_lengths_.back();
  std::uint64_t top = UINT64_MAX, bottom = 0, left = UINT64_MAX, right = 0;
  each_run(to, box, leading, [&](std::uint64_t cell, std::uint64_t count) {
    for (auto i = weights_->first[cell]; i < weights_->first[cell + count]; ++i) {
      const auto y = weights_->source[i] / width, x = weights_->source[i] % width;
      top = std::min(top, y);
      bottom = std::max(bottom, y);
      left = std::min(left, x);
      right = std::max(right, x);
    }
  });
  if (top == UINT64_MAX) top = left = 0;  // no cell has weights
  Box out;
  out.start.assign(box.start.begin(), box.start.begin() + static_cast<std::ptrdiff_t>(leading));
  out.count.assign(box.count.begin(), box.count.begin() + static_cast<std::ptrdiff_t>(leading));
  if (source_lengths_.size() == 2) {
    out.start.push_back(top);
    out.count.push_back(bottom - top + 1);
  }
  out.start.push_back(left);
  out.count.push_back(right - left + 1);
  return out;
}

void Regridded::make(const Box& box, Needed& values, std::span<double> result) const {
  const auto from = source(box);
  std::vector<double> points(from.volume());
  of_->make(from, values, points);
  const auto& to = weights_->destination.lengths;
  const auto leading = box.rank() - to.size();
  const bool flat = source_lengths_.size() == 1;
  const auto width = source_lengths_.back(), columns = from.count.back(), left = from.start.back();
  const auto top = flat ? 0 : from.start[from.rank() - 2];
  const auto plane = columns * (flat ? 1 : from.count[from.rank() - 2]);
  std::uint64_t next = 0;
  for (std::uint64_t offset = 0; offset < points.size(); offset += plane)
    each_run(to, box, leading, [&](std::uint64_t cell, std::uint64_t count) {
      for (; count > 0; --count, ++cell) {
        double sum = 0, present = 0, total = 0;
        for (auto i = weights_->first[cell]; i < weights_->first[cell + 1]; ++i) {
          const auto y = weights_->source[i] / width, x = weights_->source[i] % width;
          const auto v = points[offset + (y - top) * columns + (x - left)];
          const auto w = weights_->weight[i];
          total += w;
          if (std::isnan(v)) continue;
          present += w;
          sum += w * v;
        }
        const bool any = weights_->first[cell] < weights_->first[cell + 1];
        const auto lost = total - present;
        result[next++] = !any || (lost != 0 && !(present > 0 && lost <= missing_max_ * total)) ? missing
                         : lost == 0                                                           ? sum
                                     : sum * (total / present);
      }
    });
}

}  // namespace advectio
