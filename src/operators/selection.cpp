#include "operators/selection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "config/nearest.h"
#include "operators/values.h"

namespace advectio {
namespace {

using Kind = Selection::Kind;

std::optional<std::uint32_t> find_dimension(const Schema& schema, std::string_view name) {
  for (std::uint32_t d = 0; d < schema.dimensions.size(); ++d)
    if (schema.dimensions[d].name == name) return d;
  return std::nullopt;
}

/// west_east_stag of west_east.
std::optional<std::uint32_t> staggered_to(const Schema& schema, std::uint32_t dimension) {
  const auto& base = schema.dimensions[dimension];
  const auto d = find_dimension(schema, base.name + "_stag");
  return d && schema.dimensions[*d].length == base.length + 1 ? d : std::nullopt;
}

/// For whom a region holds nothing: where the points are.
std::string extent_of(const GridPoints& points) {
  std::string text;
  for (const auto& [name, values] : {std::pair{"lat", &points.lat}, {"lon", &points.lon}}) {
    const auto [least, most] = std::minmax_element(values->begin(), values->end());
    if (least == values->end()) continue;
    std::array<char, 64> one{};
    std::snprintf(one.data(), one.size(), "%s %.6g to %.6g", name, *least, *most);
    text += (text.empty() ? "" : ", ") + std::string(one.data());
  }
  return ", which has " + text;
}

class Selector {
 public:
  Selector(const ProcessRule& rule, const Schema& input, std::uint32_t time, const SmallFile* first)
      : rule_(rule), input_(input), time_(time), first_(first), key_(input.dimensions.size()) {}

  Result<Selection> run() {
    for (const auto& d : input_.dimensions) out_.along.push_back({d.length, 0, d.length, Kind::all, 1});
    if (rule_.region) ADVECTIO_TRY(region(*rule_.region));
    for (const auto& one : rule_.subset) ADVECTIO_TRY(subset(one));
    if (rule_.coarsen) {
      out_.method = rule_.coarsen->method;
      for (const auto& one : rule_.coarsen->along) ADVECTIO_TRY(coarsen(one));
    }
    for (std::uint32_t d = 0; d < input_.dimensions.size(); ++d) take_staggered_along(d);
    return std::move(out_);
  }

 private:
  [[nodiscard]] static Error refuse(const std::string& origin, const std::string& what) {
    return Error{Code::config, origin + ": " + what, 0};
  }

  Result<std::uint32_t> dimension(const std::string& key, const std::string& name, const std::string& origin) {
    const auto d = find_dimension(input_, name);
    if (!d) {
      std::vector<std::string> names;
      for (const auto& other : input_.dimensions) names.push_back(other.name);
      const auto meant = nearest(name, names);
      return refuse(origin, key + ": dimension " + name + " is not in the files" +
                                (meant.empty() ? "" : "; did you mean " + meant + "?"));
    }
    if (*d == time_) return refuse(origin, key + ": " + name + " is time, along which there are statistics");
    if (input_.dimensions[*d].unlimited)
      return refuse(origin, key + ": " + name + " is unlimited, which is supported of time only");
    if (name.ends_with("_stag"))
      if (const auto base = find_dimension(input_, name.substr(0, name.size() - 5));
          base && staggered_to(input_, *base) == d)
        return refuse(origin, key + ": " + name + " goes with " + input_.dimensions[*base].name + "; name that one");
    return *d;
  }

  /// Each key once.
  Result<void> claim(std::uint32_t d, const std::string& key, const std::string& origin) {
    if (!key_[d].empty())
      return refuse(origin,
                    key_[d] + " and " + key + " are both of " + input_.dimensions[d].name + "; one of them an output");
    key_[d] = key;
    return {};
  }

  Result<void> subset(const SubsetRule& one) {
    auto d = dimension("subset", one.dimension, one.origin);
    if (!d) return std::move(d).error();
    ADVECTIO_TRY(claim(*d, "subset", one.origin));
    auto& along = out_.along[*d];
    const auto length = static_cast<std::int64_t>(along.length);
    const auto place = [&](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? i + length : i, 0, length); };
    const auto start = place(one.start.value_or(0)), stop = place(one.stop.value_or(length));
    if (start >= stop)
      return refuse(one.origin,
                    "subset: of the " + std::to_string(length) + " cells along " + one.dimension + " none is chosen");
    along.start = static_cast<std::uint64_t>(start);
    along.count = static_cast<std::uint64_t>(stop - start);
    if (one.step == 1) return {};
    along.kind = Kind::every;
    along.step = one.step;
    // The points between the last cells belong to whole steps, where the file has them.
    const auto steps = (along.count - 1) / one.step + 1;
    along.count = std::min(steps * one.step, along.length - along.start);
    return {};
  }

  Result<void> coarsen(const CoarsenRule::Along& one) {
    auto d = dimension("coarsen", one.dimension, one.origin);
    if (!d) return std::move(d).error();
    auto& along = out_.along[*d];
    if (along.thinned())
      return refuse(one.origin, "coarsen: " + one.dimension + " has a step in subset; one of them an output");
    if (one.cells > along.count)
      return refuse(one.origin, "coarsen: " + std::to_string(one.cells) + " cells become one, and there are " +
                                    std::to_string(along.count) + " along " + one.dimension);
    along.kind = Kind::blocks;
    along.step = one.cells;
    return {};
  }

  void take_staggered_along(std::uint32_t d) {
    const auto of = out_.along[d];
    const auto stag = staggered_to(input_, d);
    if (!stag || (!of.cut() && !of.thinned())) return;
    auto& its = out_.along[*stag];
    its.start = of.start;
    its.count = of.count + 1;
    its.step = of.step;
    its.kind = of.thinned() ? Kind::faces : Kind::all;
  }

  Result<void> region(const RegionRule& region) {
    const auto fail = [&](const std::string& what) { return refuse(region.origin, "region: " + what); };
    if (first_ == nullptr) return fail("the files have no coordinates");
    const auto grid = grid_variables(input_);
    auto points = grid_points(*first_);
    if (!points || !grid) return fail(points ? "the files have no coordinates" : points.error().message);
    if (points->lengths.size() != 2) return fail("the files' cells are a list, and have no rows and columns");
    const auto y = grid->dimensions[0], x = grid->dimensions[1];
    for (const auto d : {y, x}) {
      if (d == time_ || input_.dimensions[d].unlimited)
        return fail(input_.dimensions[d].name + " is unlimited, which is supported of time only");
      ADVECTIO_TRY(claim(d, "region", region.origin));
    }
    const auto rows = points->lengths[0], columns = points->lengths[1];
    std::vector<bool> row(rows, false), column(columns, false);
    const auto north = [&](double lat) { return !region.lat || (lat >= region.lat->least && lat <= region.lat->most); };
    const auto east = [&](double lon) {
      if (!region.lon) return true;
      auto from = std::fmod(lon - region.lon->least, 360);
      if (from < 0) from += 360;
      return from <= region.lon->most - region.lon->least;
    };
    if (points->rectilinear) {
      for (std::uint64_t i = 0; i < rows; ++i) row[i] = north(points->lat[i]);
      for (std::uint64_t i = 0; i < columns; ++i) column[i] = east(points->lon[i]);
    } else {
      for (std::uint64_t j = 0; j < rows; ++j)
        for (std::uint64_t i = 0; i < columns; ++i)
          if (north(points->lat[j * columns + i]) && east(points->lon[j * columns + i])) row[j] = column[i] = true;
    }
    const auto any = [](const std::vector<bool>& of) { return std::find(of.begin(), of.end(), true) != of.end(); };
    if (!any(row) || !any(column)) return fail("it holds no point of the grid" + extent_of(*points));
    box(row, out_.along[y]);
    box(column, out_.along[x]);
    // Both ends of a row of longitudes, and not what lies between: the part goes on across the seam.
    if (!region.lon || input_.variables[grid->lon].dimensions.size() != 1 || !column.front() || !column.back())
      return {};
    const auto gap = std::find(column.begin(), column.end(), false);
    if (gap == column.end()) return {};
    const auto again = std::find(gap, column.end(), true);
    if (std::find(again, column.end(), false) != column.end()) return {};
    if (staggered_to(input_, x))
      return fail("it crosses the seam of the longitudes, which staggered dimensions do not");
    auto& along = out_.along[x];
    along.start = static_cast<std::uint64_t>(again - column.begin());
    along.count = columns - along.start + static_cast<std::uint64_t>(gap - column.begin());
    out_.longitudes = grid->lon;
    out_.west = region.lon->least;
    return {};
  }

  static void box(const std::vector<bool>& chosen, Selection::Along& along) {
    const auto first = std::find(chosen.begin(), chosen.end(), true);
    const auto last = std::find(chosen.rbegin(), chosen.rend(), true).base();
    along.start = static_cast<std::uint64_t>(first - chosen.begin());
    along.count = static_cast<std::uint64_t>(last - first);
  }

  const ProcessRule& rule_;
  const Schema& input_;
  std::uint32_t time_;
  const SmallFile* first_;
  std::vector<std::string> key_;  // of each dimension: who has chosen its part
  Selection out_;
};

/// Keeps the type; nothing where the attribute is not there.
void set_number(std::vector<Attribute>& attributes, const std::string& name, double value) {
  for (auto& a : attributes)
    if (a.name == name && a.count == 1 && is_numeric(a.type)) narrow(a.type, 0, {&value, 1}, a.values.data());
}

}  // namespace

std::uint64_t Selection::Along::cells() const noexcept {
  switch (kind) {
    case Kind::all: return count;
    case Kind::faces: return count < 2 ? count : (count - 2) / step + 2;
    default: return count == 0 ? 0 : (count - 1) / step + 1;
  }
}

bool Selection::empty() const noexcept {
  return std::none_of(along.begin(), along.end(), [](const Along& a) { return a.cut() || a.thinned(); });
}

Result<Selection> select_cells(const ProcessRule& rule, const Schema& input, std::uint32_t time_dimension,
                               const SmallFile* first) {
  return Selector(rule, input, time_dimension, first).run();
}

Schema cut_schema(Schema schema, const Selection& selection) {
  const auto wrf = std::array<std::pair<std::string_view, std::string>, 3>{
      {{"west_east", "WEST-EAST"}, {"south_north", "SOUTH-NORTH"}, {"bottom_top", "BOTTOM-TOP"}}};
  for (std::size_t d = 0; d < selection.along.size(); ++d) {
    const auto& along = selection.along[d];
    auto& dimension = schema.dimensions[d];
    if (!along.cut() && !along.thinned()) continue;
    dimension.length = along.count;
    for (const auto& [name, theirs] : wrf) {
      if (dimension.name != name) continue;
      const auto n = static_cast<double>(along.cells());
      set_number(schema.attributes, theirs + "_GRID_DIMENSION", n + 1);
      set_number(schema.attributes, theirs + "_PATCH_START_UNSTAG", 1);
      set_number(schema.attributes, theirs + "_PATCH_END_UNSTAG", n);
      set_number(schema.attributes, theirs + "_PATCH_START_STAG", 1);
      set_number(schema.attributes, theirs + "_PATCH_END_STAG", n + 1);
      const std::string step = name == "west_east" ? "DX" : name == "south_north" ? "DY" : "";
      const auto was = numbers_of(schema.attributes, step);
      if (along.thinned() && !was.empty())
        set_number(schema.attributes, step, was.front() * static_cast<double>(along.step));
    }
  }
  for (auto& v : schema.variables)
    for (std::size_t i = 0; i < v.chunks.size(); ++i)
      if (const auto d = v.dimensions[i]; selection.along[d].cut())
        v.chunks[i] = std::min(v.chunks[i], std::max<std::uint64_t>(1, selection.along[d].count));
  return schema;
}

GridPoints cut_points(const GridPoints& points, const Schema& input, const Selection& selection) {
  const auto grid = grid_variables(input);
  if (selection.empty() || !grid || grid->dimensions.size() != 2 || points.lengths.size() != 2) return points;
  const auto& y = selection.along[grid->dimensions[0]];
  const auto& x = selection.along[grid->dimensions[1]];
  GridPoints out;
  out.rectilinear = points.rectilinear;
  out.lengths = {y.count, x.count};
  const auto row = [&](std::uint64_t j) { return (y.start + j) % y.length; };
  const auto column = [&](std::uint64_t i) { return (x.start + i) % x.length; };
  if (points.rectilinear) {
    for (std::uint64_t j = 0; j < y.count; ++j) out.lat.push_back(points.lat[row(j)]);
    for (std::uint64_t i = 0; i < x.count; ++i) out.lon.push_back(points.lon[column(i)]);
    return out;
  }
  for (std::uint64_t j = 0; j < y.count; ++j)
    for (std::uint64_t i = 0; i < x.count; ++i) {
      out.lat.push_back(points.lat[row(j) * points.lengths[1] + column(i)]);
      out.lon.push_back(points.lon[row(j) * points.lengths[1] + column(i)]);
    }
  return out;
}

}  // namespace advectio
