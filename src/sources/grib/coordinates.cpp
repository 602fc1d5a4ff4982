#include "sources/grib/coordinates.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "operators/values.h"
#include "sources/grib/attributes.h"

namespace advectio::grib {
namespace {

constexpr const char* time_units = "seconds since 1970-01-01 00:00:00";
// A chunk of coordinates along the unlimited dimension.
constexpr std::uint64_t times_per_chunk = 512;

std::vector<Attribute> attributes_of_time(const char* standard_name, const char* long_name) {
  std::vector<Attribute> out;
  if (standard_name != nullptr) out.push_back(attribute("standard_name", standard_name));
  out.push_back(attribute("long_name", long_name));
  out.push_back(attribute("units", time_units));
  out.push_back(attribute("calendar", "proleptic_gregorian"));
  return out;
}

std::vector<Attribute> attributes_of_step() {
  return {attribute("standard_name", "forecast_period"), attribute("long_name", "time since forecast_reference_time"),
          attribute("units", "hours")};
}

double hours(std::int64_t seconds) {
  return static_cast<double>(seconds) / 3600;
}

/// Fields of one variable are valid at one time, and of different forecasts.
bool has_runs(const Contents& contents, const std::vector<Group>& groups) {
  for (const auto& g : groups) {
    std::map<std::int64_t, std::int64_t> references;
    for (const auto f : g.fields) {
      const auto& when = contents.fields[f].when;
      if (references.try_emplace(when.valid_s(), when.reference_s).first->second != when.reference_s) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Level> levels_of(const Quantity& quantity, const Contents& contents,
                             const std::vector<std::uint32_t>& fields) {
  std::set<Level> all;
  for (const auto f : fields) all.insert(contents.fields[f].level);
  std::vector<Level> out(all.begin(), all.end());
  const auto* type = level_type_named(quantity.level_type);
  if (type != nullptr && type->standard_name != nullptr && type->standard_name == std::string_view("air_pressure"))
    std::reverse(out.begin(), out.end());
  return out;
}

Coordinates::Coordinates(Dataset& to, const std::vector<Group>& groups)
    : to_(to), runs_(has_runs(to.contents, groups)), grids_(to.contents.grids.size()) {
  std::set<std::int64_t> times, steps;
  for (const auto& f : to.contents.fields) {
    times.insert(runs_ ? f.when.reference_s : f.when.valid_s());
    steps.insert(f.when.step_s);
  }
  times_.assign(times.begin(), times.end());
  steps_.assign(steps.begin(), steps.end());
  time_dimensions_.push_back(add_dimension("time", times_.size(), true));
  auto attributes = runs_ ? attributes_of_time("forecast_reference_time", "initial time of forecast")
                          : attributes_of_time("time", "time");
  attributes.push_back(attribute("axis", "T"));
  add_variable("time", time_dimensions_, std::vector<double>(times_.begin(), times_.end()), std::move(attributes));
  if (!runs_) return;
  time_dimensions_.push_back(add_dimension("step", steps_.size()));
  std::vector<double> lengths, valid;
  for (const auto s : steps_) lengths.push_back(hours(s));
  add_variable("step", {time_dimensions_[1]}, lengths, attributes_of_step());
  for (const auto t : times_)
    for (const auto s : steps_) valid.push_back(static_cast<double>(t + s));
  add_variable("valid_time", time_dimensions_, valid, attributes_of_time("time", "time"));
}

std::uint64_t Coordinates::time_of(const When& when) const {
  const auto place = [](const std::vector<std::int64_t>& all, std::int64_t one) {
    return static_cast<std::uint64_t>(std::lower_bound(all.begin(), all.end(), one) - all.begin());
  };
  if (!runs_) return place(times_, when.valid_s());
  return place(times_, when.reference_s) * steps_.size() + place(steps_, when.step_s);
}

/// The first that says nothing else about any time gets the values; else a new one does.
std::string Coordinates::shared(std::vector<Known>& known, const char* name,
                                const std::vector<std::optional<std::int64_t>>& values) {
  for (auto& k : known) {
    bool fits = true;
    for (std::size_t i = 0; fits && i < values.size(); ++i)
      fits = !values[i] || !k.values[i] || values[i] == k.values[i];
    if (!fits) continue;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i]) k.values[i] = values[i];
    return k.name;
  }
  known.push_back({known.empty() ? name : name + ("_" + std::to_string(known.size() + 1)), values});
  return known.back().name;
}

std::string Coordinates::of_times(const Group& group) {
  const auto& q = to_.contents.quantities[group.quantity];
  std::vector<std::optional<std::int64_t>> references(times()), begins(times());
  bool one_begin = q.step_type != "instant";
  for (const auto f : group.fields) {
    const auto& field = to_.contents.fields[f];
    const auto at = time_of(field.when);
    references[at] = field.when.reference_s;
    const auto begin = field.when.reference_s + field.begin_s;
    one_begin = one_begin && begins[at].value_or(begin) == begin;
    begins[at] = begin;
  }
  std::string out;
  if (runs_) {
    out = "valid_time";
  } else {
    const auto name = shared(references_, "forecast_reference_time", references);
    out = name + " step" + name.substr(std::strlen("forecast_reference_time"));
  }
  if (one_begin) out += " " + shared(begins_, "interval_begin", begins);
  return out;
}

void Coordinates::add_shared_times() {
  const auto add = [&](const std::string& name, const std::vector<std::optional<std::int64_t>>& values,
                       std::vector<Attribute> attributes, const auto& number_of) {
    std::vector<double> numbers;
    double fill = 0;
    std::memcpy(&fill, default_fill(DataType::float64).data(), sizeof fill);
    bool gaps = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      gaps = gaps || !values[i];
      numbers.push_back(values[i] ? number_of(i, *values[i]) : fill);
    }
    if (gaps) attributes.push_back(attribute("_FillValue", fill));
    add_variable(name, time_dimensions_, numbers, std::move(attributes));
    to_.head.schema.variables.back().has_fill = gaps;
  };
  const auto seconds = [](std::size_t, std::int64_t s) { return static_cast<double>(s); };
  for (const auto& k : references_) {
    add(k.name, k.values, attributes_of_time("forecast_reference_time", "initial time of forecast"), seconds);
    add("step" + k.name.substr(std::strlen("forecast_reference_time")), k.values, attributes_of_step(),
        [&](std::size_t i, std::int64_t reference) { return hours(times_[i] - reference); });
  }
  for (const auto& k : begins_)
    add(k.name, k.values, attributes_of_time(nullptr, "time at which the interval of a sum, mean or extreme begins"),
        seconds);
}

std::uint32_t Coordinates::add_dimension(std::string name, std::uint64_t length, bool unlimited) {
  auto& head = to_.head;
  head.schema.dimensions.push_back({std::move(name), unlimited ? 0 : length, unlimited});
  head.lengths.push_back(length);
  return static_cast<std::uint32_t>(head.lengths.size() - 1);
}

void Coordinates::add_variable(std::string name, std::vector<std::uint32_t> dimensions, std::vector<double> values,
                               std::vector<Attribute> attributes) {
  add_variable(std::move(name), std::move(dimensions), std::make_shared<const std::vector<double>>(std::move(values)),
               std::move(attributes));
}

void Coordinates::add_variable(std::string name, std::vector<std::uint32_t> dimensions, Numbers values,
                               std::vector<Attribute> attributes) {
  auto& schema = to_.head.schema;
  Variable v;
  v.name = std::move(name);
  v.type = DataType::float64;
  v.attributes = std::move(attributes);
  if (!dimensions.empty() && schema.dimensions[dimensions.front()].unlimited) {
    v.contiguous = false;
    v.chunks.push_back(times_per_chunk);
    for (std::size_t i = 1; i < dimensions.size(); ++i) v.chunks.push_back(to_.head.lengths[dimensions[i]]);
  }
  v.dimensions = std::move(dimensions);
  schema.variables.push_back(std::move(v));
  to_.stored.push_back({std::move(values), {}, 0});
}

std::string Coordinates::unused(const std::string& name) const {
  const auto& schema = to_.head.schema;
  const auto used = [&](const std::string& n) {
    return std::any_of(schema.variables.begin(), schema.variables.end(), [&](const auto& v) { return v.name == n; }) ||
           std::any_of(schema.dimensions.begin(), schema.dimensions.end(), [&](const auto& d) { return d.name == n; });
  };
  auto out = name;
  for (int i = 2; used(out); ++i) out = name + "_" + std::to_string(i);
  return out;
}

Coordinates::Axis Coordinates::add_axis(const std::string& name, const std::vector<double>& values,
                                        const std::vector<double>& bounds, const std::string& units,
                                        std::vector<Attribute> attributes) {
  for (const auto& known : axes_)
    if (known.base == name && known.values == values && known.bounds == bounds && known.units == units)
      return known.axis;
  Axis axis;
  axis.name = unused(name);
  std::vector<std::uint32_t> dimensions;
  if (values.size() > 1) {
    axis.dimension = add_dimension(axis.name, values.size());
    dimensions.push_back(*axis.dimension);
  }
  if (!units.empty()) attributes.push_back(attribute("units", units));
  if (!bounds.empty()) attributes.push_back(attribute("bounds", axis.name + "_bnds"));
  add_variable(axis.name, dimensions, values, std::move(attributes));
  if (!bounds.empty()) {
    if (!ends_) ends_ = add_dimension("bnds", 2);
    dimensions.push_back(*ends_);
    add_variable(axis.name + "_bnds", dimensions, bounds, {});
  }
  axes_.push_back({name, values, bounds, units, axis});
  return axis;
}

Coordinates::Axis Coordinates::members(std::size_t axis, const std::vector<long>& values) {
  const auto& kind = member_axes[axis];
  std::vector<Attribute> attributes;
  if (kind.standard_name != nullptr) attributes.push_back(attribute("standard_name", kind.standard_name));
  attributes.push_back(attribute("long_name", kind.long_name));
  return add_axis(kind.name, {values.begin(), values.end()}, {}, "1", std::move(attributes));
}

Coordinates::Axis Coordinates::levels(const Quantity& quantity, const std::vector<Level>& levels) {
  const auto* type = level_type_named(quantity.level_type);
  // A type like `surface` is one level without a number.
  if (type == nullptr && levels.size() == 1 && levels[0] == Level{}) return {};
  std::vector<double> values, bounds;
  bool layers = false;
  for (const auto& l : levels) {
    values.push_back(l.at);
    bounds.insert(bounds.end(), {l.top, l.bottom});
    layers = layers || l.top != l.bottom;
  }
  if (!layers) bounds.clear();
  std::vector<Attribute> attributes;
  if (type != nullptr && type->standard_name != nullptr)
    attributes.push_back(attribute("standard_name", type->standard_name));
  attributes.push_back(attribute("long_name", type != nullptr ? type->long_name : quantity.level_type.c_str()));
  attributes.push_back(attribute("axis", "Z"));
  if (type != nullptr) attributes.push_back(attribute("positive", type->positive));
  const auto known = !quantity.level_type.empty() && quantity.level_type != "unknown";
  return add_axis(known ? quantity.level_type : "level", values, bounds, quantity.level_units, std::move(attributes));
}

void Coordinates::remember_coefficients(const Axis& axis, const std::vector<Level>& levels,
                                        const std::vector<double>& coefficients) {
  if (!axis.dimension || coefficients.size() < 4 || coefficients.size() % 2 != 0) return;
  // Editions keep numbers of other lengths.
  const auto alike = [](double x, double y) { return std::abs(x - y) <= 1e-5 * std::max(std::abs(x), std::abs(y)); };
  for (auto& known : hybrid_) {
    if (known.name != axis.name) continue;
    known.one = known.one && std::ranges::equal(known.coefficients, coefficients, alike);
    return;
  }
  const auto half_levels = coefficients.size() / 2;
  Hybrid out{*axis.dimension, axis.name, coefficients, {}, {}, true};
  for (const auto& level : levels) {
    const auto number = static_cast<std::size_t>(level.at);
    const bool is_a_layer = level.at >= 1 && static_cast<double>(number) == level.at && number < half_levels;
    if (!is_a_layer) return;
    const auto middle = [&](std::size_t first) {
      return (coefficients[first + number - 1] + coefficients[first + number]) / 2;
    };
    out.ap.push_back(middle(0));
    out.b.push_back(middle(half_levels));
  }
  hybrid_.push_back(std::move(out));
}

void Coordinates::add_coefficients() {
  auto& variables = to_.head.schema.variables;
  std::string surface;
  for (std::size_t i = 0; i < variables.size(); ++i)
    if (const auto* const name = find_attribute(variables[i].attributes, "standard_name");
        to_.stored[i].leading > 0 && name != nullptr && *name == attribute("standard_name", "surface_air_pressure"))
      surface = variables[i].name;
  for (auto& h : hybrid_) {
    if (!h.one) continue;
    const auto ap = unused("ap"), b = "b" + ap.substr(2);
    add_variable(
        ap, {h.dimension}, std::move(h.ap),
        {attribute("long_name", "coefficient of hybrid levels: pressure is ap + b * ps"), attribute("units", "Pa")});
    add_variable(
        b, {h.dimension}, std::move(h.b),
        {attribute("long_name", "coefficient of hybrid levels: pressure is ap + b * ps"), attribute("units", "1")});
    if (surface.empty()) continue;  // CF's formula has no logarithm of it
    const auto it = std::find_if(variables.begin(), variables.end(), [&](const auto& v) { return v.name == h.name; });
    it->attributes.push_back(attribute("standard_name", "atmosphere_hybrid_sigma_pressure_coordinate"));
    it->attributes.push_back(attribute("formula_terms", "ap: " + ap + " b: " + b + " ps: " + surface));
  }
}

Coordinates::Places Coordinates::grid(std::uint32_t number) {
  auto& made = grids_[number];
  if (made) return *made;
  const auto& grid = *to_.contents.grids[number];
  Places out;
  const auto dimension = [&](const char* name, std::size_t i) {
    out.dimensions.push_back(add_dimension(unused(name), grid.lengths[i]));
    return to_.head.schema.dimensions.back().name;
  };
  const auto attributes = [](const char* name, const char* units, const char* axis) {
    std::vector<Attribute> a = {attribute("standard_name", name), attribute("long_name", name),
                                attribute("units", units)};
    if (axis != nullptr) a.push_back(attribute("axis", axis));
    return a;
  };
  const auto add = [&](const std::string& name, bool latitudes, const std::vector<std::uint32_t>& along,
                       const char* axis) {
    add_variable(
        name, along, latitudes ? grid.latitudes : grid.longitudes,
        latitudes ? attributes("latitude", "degrees_north", axis) : attributes("longitude", "degrees_east", axis));
  };
  switch (grid.kind) {
    case Grid::Kind::rows:
    case Grid::Kind::columns: {
      const bool rows = grid.kind == Grid::Kind::rows;
      const auto slow = dimension(rows ? "latitude" : "longitude", 0),
                 fast = dimension(rows ? "longitude" : "latitude", 1);
      add(slow, rows, {out.dimensions[0]}, rows ? "Y" : "X");
      add(fast, !rows, {out.dimensions[1]}, rows ? "X" : "Y");
      break;
    }
    case Grid::Kind::curvilinear:
    case Grid::Kind::curvilinear_columns:
    case Grid::Kind::points: {
      if (grid.kind == Grid::Kind::points) {
        dimension("values", 0);
      } else {
        const bool rows = grid.kind == Grid::Kind::curvilinear;
        dimension(rows ? "y" : "x", 0);
        dimension(rows ? "x" : "y", 1);
      }
      const auto latitude = unused("latitude"), longitude = unused("longitude");
      add(latitude, true, out.dimensions, nullptr);
      add(longitude, false, out.dimensions, nullptr);
      out.coordinates = latitude + " " + longitude;
      break;
    }
    case Grid::Kind::unplaced: dimension("values", 0); break;
  }
  made = out;
  return out;
}

}  // namespace advectio::grib
