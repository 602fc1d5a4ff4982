#include "sources/grib/dataset.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "sources/grib/attributes.h"
#include "sources/grib/coordinates.h"

namespace advectio::grib {
namespace {

// A variable has no more places than this for each of its fields, beyond the first ones.
constexpr std::uint64_t places_per_field_max = 64, places_free = 4096;
constexpr std::uint32_t deflate_level = 1;

/// Units as CF has them; ecCodes writes those of a ratio in several ways.
std::string units_of(const std::string& units) {
  static const std::set<std::string> none = {"(0 - 1)",  "0-1",          "~", "Numeric", "Proportion",
                                             "Fraction", "dimensionless"};
  if (none.contains(units) || units.starts_with("(Code table") || units.starts_with("(code table")) return "1";
  return units == "unknown" ? "" : units;
}

std::vector<Attribute> attributes_of(const Quantity& q, const Grid& grid, const std::string& coordinates) {
  std::vector<Attribute> a;
  if (!q.standard_name.empty() && q.standard_name != "unknown")
    a.push_back(attribute("standard_name", q.standard_name));
  a.push_back(attribute("long_name", q.name));
  if (const auto units = units_of(q.units); !units.empty()) a.push_back(attribute("units", units));
  if (!coordinates.empty()) a.push_back(attribute("coordinates", coordinates));
  a.push_back(attribute("GRIB_paramId", static_cast<std::int32_t>(q.parameter)));
  a.push_back(attribute("GRIB_shortName", q.short_name));
  a.push_back(attribute("GRIB_units", q.units));
  a.push_back(attribute("GRIB_typeOfLevel", q.level_type));
  a.push_back(attribute("GRIB_stepType", q.step_type));
  a.push_back(attribute("GRIB_numberOfPoints", static_cast<std::int32_t>(q.points)));
  a.insert(a.end(), grid.attributes.begin(), grid.attributes.end());
  return a;
}

/// Values of an axis of members; empty: the quantity does not have it, or no ensemble.
std::vector<long> numbers_of(const Contents& contents, const Group& group, std::size_t axis) {
  const auto no_ensemble = [&](auto f) { return !contents.fields[f].of_ensemble; };
  if (axis == 0 && std::all_of(group.fields.begin(), group.fields.end(), no_ensemble)) return {};
  std::set<long> all;
  for (const auto f : group.fields)
    if (const auto& number = contents.fields[f].members[axis]) all.insert(*number);
  return {all.begin(), all.end()};
}

template <typename T>
std::uint64_t place_in(const std::vector<T>& all, const T& one) {
  return static_cast<std::uint64_t>(std::find(all.begin(), all.end(), one) - all.begin());
}

Result<void> add_group(File& file, const Group& group, Coordinates& coordinates, Dataset& to) {
  const auto& contents = to.contents;
  const auto& q = contents.quantities[group.quantity];
  Variable v;
  Stored stored;
  std::string auxiliary = coordinates.of_times(group);
  v.dimensions = coordinates.time_dimensions();
  std::uint64_t places = coordinates.times();
  const auto add = [&](const Coordinates::Axis& axis, std::uint64_t length) {
    if (axis.dimension)
      v.dimensions.push_back(*axis.dimension);
    else if (!axis.name.empty())
      auxiliary += " " + axis.name;
    places *= length;
  };
  std::array<std::vector<long>, member_axes.size()> members;
  for (std::size_t i = 0; i < member_axes.size(); ++i) {
    members[i] = numbers_of(contents, group, i);
    if (!members[i].empty()) add(coordinates.members(i, members[i]), members[i].size());
  }
  const auto levels = levels_of(q, contents, group.fields);
  const auto axis = coordinates.levels(q, levels);
  add(axis, levels.size());
  if (places > places_free + places_per_field_max * group.fields.size())
    return Error{Code::unsupported,
                 group.name + ": its " + std::to_string(group.fields.size()) + " fields lie in " +
                     std::to_string(places) +
                     " places of times, levels and members, nearly all of which would be fill values: split the file, "
                     "for example with grib_copy of ecCodes",
                 0};
  stored.leading = v.dimensions.size();
  stored.fields.assign(places, no_field);
  for (const auto f : group.fields) {
    const auto& field = contents.fields[f];
    auto at = coordinates.time_of(field.when);
    for (std::size_t i = 0; i < member_axes.size(); ++i)
      if (!members[i].empty()) at = at * members[i].size() + place_in(members[i], *field.members[i]);
    at = at * levels.size() + place_in(levels, field.level);
    if (stored.fields[at] != no_field)
      return Error{Code::bug,
                   text_of(contents.fields[stored.fields[at]].place) + " and " + text_of(field.place) +
                       " have one place in " + group.name,
                   0};
    stored.fields[at] = f;
  }
  const auto grid = coordinates.grid(q.grid);
  v.dimensions.insert(v.dimensions.end(), grid.dimensions.begin(), grid.dimensions.end());
  if (!grid.coordinates.empty()) auxiliary += " " + grid.coordinates;
  const bool wide =
      std::any_of(group.fields.begin(), group.fields.end(), [&](auto f) { return contents.fields[f].wide; });
  v.name = group.name;
  v.type = wide ? DataType::float64 : DataType::float32;
  v.attributes = attributes_of(q, *contents.grids[q.grid], auxiliary);
  if (q.level_type.starts_with("hybrid")) {
    auto coefficients = coefficients_of(file, contents.fields[group.fields.front()].place);
    if (!coefficients) return std::move(coefficients).error();
    if (q.level_type == "hybrid") coordinates.remember_coefficients(axis, levels, *coefficients);
    if (!coefficients->empty()) v.attributes.push_back(numbers_attribute("GRIB_pv", DataType::float64, *coefficients));
  }
  v.has_fill = true;
  v.attributes.push_back({"_FillValue", v.type, 1, default_fill(v.type), {}});
  v.contiguous = false;
  v.chunks.assign(stored.leading, 1);
  const auto& lengths = contents.grids[q.grid]->lengths;
  v.chunks.insert(v.chunks.end(), lengths.begin(), lengths.end());
  v.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {deflate_level}}};
  to.head.schema.variables.push_back(std::move(v));
  to.stored.push_back(std::move(stored));
  return {};
}

}  // namespace

Result<std::shared_ptr<const Dataset>> read_dataset(File& file) {
  auto out = std::make_shared<Dataset>();
  auto contents = scan(file);
  if (!contents) return std::move(contents).error();
  out->contents = std::move(contents).value();
  auto groups = grouped(file, out->contents);
  if (!groups) return std::move(groups).error();
  auto& schema = out->head.schema;
  schema.format = FileFormat::netcdf4;
  const auto& origin = out->contents.origin;
  schema.attributes.push_back(attribute("Conventions", "CF-1.7"));
  if (!origin.centre_name.empty()) schema.attributes.push_back(attribute("institution", origin.centre_name));
  if (out->contents.one_edition)
    schema.attributes.push_back(attribute("GRIB_edition", static_cast<std::int32_t>(origin.edition)));
  schema.attributes.push_back(attribute("GRIB_centre", origin.centre));
  schema.attributes.push_back(attribute("GRIB_subCentre", static_cast<std::int32_t>(origin.sub_centre)));
  Coordinates coordinates(*out, *groups);
  // The plain name of an axis is that of a dimension, where there is one.
  for (const auto& group : *groups) {
    const auto& q = out->contents.quantities[group.quantity];
    for (std::size_t i = 0; i < member_axes.size(); ++i)
      if (const auto numbers = numbers_of(out->contents, group, i); numbers.size() > 1) coordinates.members(i, numbers);
    if (const auto levels = levels_of(q, out->contents, group.fields); levels.size() > 1) coordinates.levels(q, levels);
  }
  for (auto& group : *groups) ADVECTIO_TRY(add_group(file, group, coordinates, *out));
  coordinates.add_shared_times();
  coordinates.add_coefficients();
  // A quantity may be called as a coordinate is.
  for (std::size_t i = 0; i < schema.variables.size(); ++i)
    if (out->stored[i].leading > 0 &&
        std::count_if(schema.variables.begin(), schema.variables.end(),
                      [&](const auto& v) { return v.name == schema.variables[i].name; }) > 1)
      schema.variables[i].name += "_field";
  return std::shared_ptr<const Dataset>(std::move(out));
}

}  // namespace advectio::grib
