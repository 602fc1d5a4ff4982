#include "sources/grib/grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "sources/grib/attributes.h"

namespace advectio::grib {
namespace {

using Counts = std::pair<std::uint64_t, std::uint64_t>;  // rows, columns

// Grids of which ecCodes gives the places in the order of the values, whichever corner comes first.
const std::set<std::string> in_order = {"regular_ll", "regular_gg", "rotated_ll",         "rotated_gg",
                                        "reduced_ll", "reduced_gg", "reduced_rotated_gg", "unstructured_grid"};

// ecCodes gives what a message lacks as a number that is larger than any of these.
constexpr double known_below = 1e9;

/// Rows from the south, each from the west: ecCodes has nothing to put in another order.
bool scans_plainly(const Message& m) {
  return m.integer("iScansNegatively") == 0L && m.integer("jScansPositively") == 1L &&
         m.integer("jPointsAreConsecutive") == 0L;
}

/// None: rows differ, or there are none.
std::optional<Counts> counts_of(const Message& m, std::uint64_t points) {
  for (const auto& [along, across] : {std::pair("Nj", "Ni"), std::pair("Ny", "Nx")}) {
    const auto rows = m.integer(along), columns = m.integer(across);
    if (rows && columns && *rows > 0 && *columns > 0 &&
        static_cast<std::uint64_t>(*rows) == points / static_cast<std::uint64_t>(*columns) &&
        points % static_cast<std::uint64_t>(*columns) == 0)
      return Counts(*rows, *columns);
  }
  return std::nullopt;
}

/// Of `slow` × `fast` points: `slowly` is the same in each run of `fast`, and all runs of `fastly` are alike.
bool separable(const std::vector<double>& slowly, const std::vector<double>& fastly, std::uint64_t slow,
               std::uint64_t fast) {
  for (std::uint64_t i = 0; i < slow; ++i)
    for (std::uint64_t j = 0; j < fast; ++j)
      if (slowly[i * fast + j] != slowly[i * fast] || fastly[i * fast + j] != fastly[j]) return false;
  return true;
}

std::vector<double> every(const std::vector<double>& all, std::uint64_t count, std::uint64_t step) {
  std::vector<double> out(count);
  for (std::uint64_t i = 0; i < count; ++i) out[i] = all[i * step];
  return out;
}

Numbers shared(std::vector<double> all) {
  return std::make_shared<const std::vector<double>>(std::move(all));
}

/// Longitudes of a row that crosses Greenwich: -2, -1, 0 for 358, 359, 0. An axis has to rise or fall throughout, and
/// ecCodes sees to that only for some rows, in this way.
std::vector<double> unbroken(std::vector<double> x) {
  constexpr double whole = 360, half = 180;
  const auto jumps = [](double a, double b) { return std::abs(a - b) > half; };
  const auto before = std::adjacent_find(x.begin(), x.end(), jumps);
  if (before == x.end() || std::adjacent_find(before + 1, x.end(), jumps) != x.end()) return x;
  const auto jump = before + 1;
  const auto [begin, end] = *before > *jump ? std::pair(x.begin(), jump) : std::pair(jump, x.end());
  // Nanodegrees: 330.1 becomes -29.9.
  std::transform(begin, end, begin, [](double longitude) { return std::round((longitude - whole) * 1e9) / 1e9; });
  return x;
}

void place_points(const Message& m, Message::Points places, std::uint64_t points, Grid& to) {
  const auto counts = counts_of(m, points);
  to.kind = Grid::Kind::points;
  to.lengths = {points};
  if (counts) {
    const auto [rows, columns] = *counts;
    if (separable(places.latitudes, places.longitudes, rows, columns)) {
      to.kind = Grid::Kind::rows;
      to.lengths = {rows, columns};
      to.latitudes = shared(every(places.latitudes, rows, columns));
      to.longitudes = shared(unbroken(every(places.longitudes, columns, 1)));
      return;
    }
    if (separable(places.longitudes, places.latitudes, columns, rows)) {
      to.kind = Grid::Kind::columns;
      to.lengths = {columns, rows};
      to.longitudes = shared(unbroken(every(places.longitudes, columns, rows)));
      to.latitudes = shared(every(places.latitudes, rows, 1));
      return;
    }
    const bool by_columns = m.integer("jPointsAreConsecutive").value_or(0) != 0;
    to.kind = by_columns ? Grid::Kind::curvilinear_columns : Grid::Kind::curvilinear;
    to.lengths = by_columns ? std::vector{columns, rows} : std::vector{rows, columns};
  }
  to.latitudes = shared(std::move(places.latitudes));
  to.longitudes = shared(std::move(places.longitudes));
}

void describe(const Message& m, Grid& to) {
  auto& a = to.attributes;
  a.push_back(attribute("GRIB_gridType", to.type));
  for (const char* key : {"Nx", "Ny", "N", "isOctahedral", "iScansNegatively", "jScansPositively",
                          "jPointsAreConsecutive", "numberOfGridUsed", "numberOfGridInReference", "J", "K", "M"})
    if (const auto value = m.integer(key); value && *value >= 0 && *value < INT32_MAX)
      a.push_back(attribute(std::string("GRIB_") + key, static_cast<std::int32_t>(*value)));
  for (const char* key :
       {"latitudeOfFirstGridPointInDegrees", "longitudeOfFirstGridPointInDegrees", "latitudeOfLastGridPointInDegrees",
        "longitudeOfLastGridPointInDegrees", "iDirectionIncrementInDegrees", "jDirectionIncrementInDegrees",
        "latitudeOfSouthernPoleInDegrees", "longitudeOfSouthernPoleInDegrees", "angleOfRotationInDegrees", "DxInMetres",
        "DyInMetres", "LaDInDegrees", "LoVInDegrees", "Latin1InDegrees", "Latin2InDegrees"})
    if (const auto value = m.number(key); value && std::abs(*value) < known_below)
      a.push_back(attribute(std::string("GRIB_") + key, *value));
  if (const auto id = m.text("uuidOfHGrid"); to.type == "unstructured_grid" && !id.empty())
    a.push_back(attribute("GRIB_uuidOfHGrid", id));
  if (const auto points = m.integers("pl"); !points.empty())
    a.push_back(numbers_attribute("GRIB_pl", DataType::int32, std::vector<std::int32_t>(points.begin(), points.end())));
}

}  // namespace

Result<Grid> read_grid(File& file, const FieldPlace& place, std::uint64_t points) {
  auto bytes = field_bytes(file, place, false);
  if (!bytes) return std::move(bytes).error();
  auto message = Message::decode(std::move(bytes).value());
  if (!message) return std::move(message).error().with(text_of(place));
  auto& m = *message;
  Grid out;
  out.type = m.text("gridType");
  out.lengths = {points};
  describe(m, out);
  auto values = m.numbers("values");
  if (!values) return std::move(values).error().with(text_of(place));
  if (values->size() != points)
    return Error{Code::corrupt,
                 text_of(place) + " has " + std::to_string(values->size()) + " values for a grid of " +
                     std::to_string(points) + " points",
                 0};
  const bool known_order =
      m.integer("alternativeRowScanning").value_or(0) == 0 && (in_order.contains(out.type) || scans_plainly(m));
  auto places = m.points(points);
  if (!places || !known_order) return out;
  if (std::memcmp(places->values.data(), values->data(), points * sizeof(double)) != 0) return out;
  if (std::any_of(places->latitudes.begin(), places->latitudes.end(), [](double x) { return std::isnan(x); }))
    return Error{Code::corrupt,
                 text_of(place) + " says that its grid has " + std::to_string(points) + " points, and describes fewer",
                 0};
  place_points(m, std::move(places).value(), points, out);
  return out;
}

}  // namespace advectio::grib
