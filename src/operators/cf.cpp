#include "operators/cf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace advectio {
namespace {

constexpr double radius = 6'370'000;  // m; WRF's earth
constexpr double radians = std::numbers::pi / 180;

struct Named {
  std::string_view variable, standard_name;
};

// CF's standard name table 85; only where quantity and units are the same.
constexpr std::array<Named, 38> standard_names = {{
    {"XLAT", "latitude"},
    {"XLAT_U", "latitude"},
    {"XLAT_V", "latitude"},
    {"XLONG", "longitude"},
    {"XLONG_U", "longitude"},
    {"XLONG_V", "longitude"},
    {"T2", "air_temperature"},
    {"TH2", "air_potential_temperature"},
    {"Q2", "humidity_mixing_ratio"},
    {"PSFC", "surface_air_pressure"},
    {"U10", "x_wind"},
    {"V10", "y_wind"},
    {"U", "x_wind"},
    {"V", "y_wind"},
    {"W", "upward_air_velocity"},
    {"P_HYD", "air_pressure"},
    {"QVAPOR", "humidity_mixing_ratio"},
    {"QCLOUD", "cloud_liquid_water_mixing_ratio"},
    {"QICE", "cloud_ice_mixing_ratio"},
    {"CLDFRA", "cloud_area_fraction_in_atmosphere_layer"},
    {"TSK", "surface_temperature"},
    {"SST", "sea_surface_temperature"},
    {"HGT", "surface_altitude"},
    {"SWDOWN", "surface_downwelling_shortwave_flux_in_air"},
    {"GLW", "surface_downwelling_longwave_flux_in_air"},
    {"OLR", "toa_outgoing_longwave_flux"},
    {"HFX", "surface_upward_sensible_heat_flux"},
    {"LH", "surface_upward_latent_heat_flux"},
    {"PBLH", "atmosphere_boundary_layer_thickness"},
    {"SNOWH", "surface_snow_thickness"},
    {"SNOW", "surface_snow_amount"},
    {"ALBEDO", "surface_albedo"},
    {"LANDMASK", "land_binary_mask"},
    {"RAINC", "lwe_thickness_of_convective_precipitation_amount"},
    {"RAINNC", "lwe_thickness_of_stratiform_precipitation_amount"},
    {"SMOIS", "volume_fraction_of_condensed_water_in_soil"},
    {"TSLB", "soil_temperature"},
    {"REFL_10CM", "equivalent_reflectivity_factor"},
}};

// WRF's spellings that UDUNITS does not read, or reads as something else.
constexpr std::array<std::pair<std::string_view, std::string_view>, 30> units = {{
    {"", "1"},
    {"-", "1"},
    {"fraction", "1"},
    {"dimensionless", "1"},
    {"Dimensionless", "1"},
    {"category", "1"},
    {"index", "1"},
    {"flag", "1"},
    {"degree_north", "degrees_north"},
    {"degree_east", "degrees_east"},
    {"m3 m-3", "1"},
    {"degrees north", "degrees_north"},
    {"W m{-2}", "W m-2"},
    {"Dobson Units", "DU"},
    {"none", "1"},
    {"area/area", "1"},
    {"degrees latitude", "degrees_north"},
    {"degrees longitude", "degrees_east"},
    {"meters MSL", "m"},
    {"Kg m-3", "kg m-3"},
    {"kg(-1)", "kg-1"},  // minus one kilogram
    {"C", "degC"},       // a coulomb
    {"mb", "hPa"},       // a millibarn
    {"mb hour-1", "hPa hour-1"},
    {"dbZ", "dBZ"},
    {"DBZ", "dBZ"},
    {"PBL ACTIVATION TIME in s", "s"},
    {"LW SW ACTIVATION TIME in s", "s"},
    {"LTNG ACTIVATION TIME in s", "s"},
    {"CPS ACTIVATION TIME in s", "s"},
}};

Attribute number_attribute(const std::string& name, const std::vector<double>& values) {
  Attribute a;
  a.name = name;
  a.type = DataType::float64;
  a.count = values.size();
  a.values.resize(values.size() * sizeof(double));
  std::memcpy(a.values.data(), values.data(), a.values.size());
  return a;
}

double number_of(const std::vector<Attribute>& attributes, std::string_view name, double otherwise) {
  const auto values = numbers_of(attributes, name);
  return values.empty() ? otherwise : values.front();
}

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(std::string_view(" \0", 2)) + 1);
  return text;
}

/// Not one that was added for the output.
bool is_field(const ProcessedVariable& p) {
  using Kind = ProcessedVariable::Kind;
  return p.kind == Kind::copied || p.kind == Kind::made || p.kind == Kind::made_once;
}

/// Latitude or longitude.
bool is_position(const Variable& v) {
  const auto name = text_of(v.attributes, "standard_name");
  return name == "latitude" || name == "longitude";
}

/// Coordinates along the projection's axes for the dimensions of WRF's grids.
void add_projection(Processed& out, const WrfProjection& projection, const Schema& input, const GridPoints& points) {
  const auto& attributes = input.attributes;
  const auto dx = number_of(attributes, "DX", 0), dy = number_of(attributes, "DY", 0);
  if (!(dx > 0 && dy > 0) || points.lengths.size() != 2) return;
  const auto rows = points.lengths[0], columns = points.lengths[1];
  const auto corner = projection.project(points.lat.front(), points.lon.front());
  // A moved or edited file may not be on the grid of its attributes.
  const auto last = projection.project(points.lat.back(), points.lon.back());
  const auto near = [](double a, double b, double step) { return std::abs(a - b) < 0.1 * step; };
  if (!near(last.x - corner.x, static_cast<double>(columns - 1) * dx, dx) ||
      !near(last.y - corner.y, static_cast<double>(rows - 1) * dy, dy))
    return;
  struct Axis {
    std::string_view dimension, standard_name, axis;
    double first, step;
    std::uint64_t length;
    Selection::Along cells;
  };
  // Staggered points have their latitudes and longitudes alone: a mapping has one x and one y.
  std::array<Axis, 2> axes = {{{"west_east", "projection_x_coordinate", "X", corner.x, dx, columns, {}},
                               {"south_north", "projection_y_coordinate", "Y", corner.y, dy, rows, {}}}};
  for (auto& axis : axes) {
    axis.cells.count = axis.length;
    for (std::size_t d = 0; d < out.selection.along.size(); ++d)
      if (input.dimensions[d].name == axis.dimension) axis.cells = out.selection.along[d];
    axis.length = axis.cells.cells();
  }
  std::array<std::optional<std::uint32_t>, 2> found;
  for (std::size_t a = 0; a < axes.size(); ++a)
    for (std::uint32_t d = 0; d < out.schema.dimensions.size(); ++d)
      if (out.schema.dimensions[d].name == axes[a].dimension && out.schema.dimensions[d].length == axes[a].length)
        found[a] = d;
  if (!found[0] || !found[1]) return;
  Variable mapping;
  mapping.name = "crs";
  mapping.type = DataType::int32;
  mapping.contiguous = true;
  mapping.attributes = projection.attributes();
  set_text(mapping.attributes, "long_name", "projection of WRF's grid");
  out.schema.variables.push_back(mapping);
  ProcessedVariable none;
  none.kind = ProcessedVariable::Kind::coordinate;
  none.text.assign(sizeof(std::int32_t), '\0');
  out.variables.push_back(none);
  const auto has = [](const Variable& v, std::optional<std::uint32_t> d) {
    return std::find(v.dimensions.begin(), v.dimensions.end(), *d) != v.dimensions.end();
  };
  for (std::size_t i = 0; i < out.variables.size(); ++i) {
    auto& v = out.schema.variables[i];
    if (has(v, found[0]) && has(v, found[1]) && is_field(out.variables[i]) && !is_position(v))
      set_text(v.attributes, "grid_mapping", "crs");
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const auto& names = out.schema.variables;
    if (std::any_of(names.begin(), names.end(), [&](const Variable& v) { return v.name == axes[a].dimension; }))
      continue;
    Variable v;
    v.name = axes[a].dimension;
    v.type = DataType::float64;
    v.dimensions = {*found[a]};
    set_text(v.attributes, "standard_name", std::string(axes[a].standard_name));
    set_text(v.attributes, "units", "m");
    set_text(v.attributes, "axis", std::string(axes[a].axis));
    ProcessedVariable p;
    p.kind = ProcessedVariable::Kind::coordinate;
    const auto& cells = axes[a].cells;
    const bool middle = cells.kind == Selection::Kind::blocks && out.selection.method != CoarsenRule::Method::first;
    for (std::uint64_t n = 0; n < axes[a].length; ++n) {
      const auto from = n * cells.step, to = middle ? std::min(from + cells.step, cells.count) - 1 : from;
      p.values.push_back(axes[a].first + static_cast<double>(from + to) / 2 * axes[a].step);
    }
    out.schema.variables.push_back(std::move(v));
    out.variables.push_back(std::move(p));
  }
}

/// Only coordinates whose dimensions the variable has.
void keep_own_coordinates(Schema& schema) {
  std::map<std::string, const Variable*> named;
  for (const auto& v : schema.variables) named[v.name] = &v;
  for (auto& v : schema.variables) {
    const auto text = text_of(v.attributes, "coordinates");
    if (text.empty()) continue;
    std::istringstream words(text);
    std::string kept;
    for (std::string word; words >> word;) {
      const auto it = named.find(word);
      if (it == named.end() || word == v.name) continue;
      const auto& its = it->second->dimensions;
      // The length of text is not a dimension of what has the text.
      const auto end = it->second->type == DataType::text && !its.empty() ? its.end() - 1 : its.end();
      const bool own = std::all_of(its.begin(), end, [&](std::uint32_t d) {
        return std::find(v.dimensions.begin(), v.dimensions.end(), d) != v.dimensions.end();
      });
      if (own) kept += (kept.empty() ? "" : " ") + word;
    }
    if (kept.empty())
      remove_attribute(v.attributes, "coordinates");
    else
      set_text(v.attributes, "coordinates", kept);
  }
}

/// Latitudes and longitudes of which no other variable knows.
void drop_lost_positions(Processed& out, const ProcessRule& rule) {
  std::string all = " ";
  for (const auto& v : out.schema.variables) all += text_of(v.attributes, "coordinates") + " ";
  for (std::size_t i = out.variables.size(); i-- > 0;) {
    const auto& v = out.schema.variables[i];
    const bool named = std::any_of(rule.variables.begin(), rule.variables.end(),
                                   [&](const NameAt& name) { return name.name == v.name; });
    if (!is_field(out.variables[i]) || !is_position(v) || v.dimensions.size() < 2 || named ||
        all.find(" " + v.name + " ") != std::string::npos)
      continue;
    out.schema.variables.erase(out.schema.variables.begin() + static_cast<std::ptrdiff_t>(i));
    out.variables.erase(out.variables.begin() + static_cast<std::ptrdiff_t>(i));
  }
  drop_unused_dimensions(out);
}

void name_as_cf_does(Variable& v) {
  if (find_attribute(v.attributes, "standard_name") == nullptr)
    for (const auto& [variable, name] : standard_names)
      if (v.name == variable) set_text(v.attributes, "standard_name", std::string(name));
  if (find_attribute(v.attributes, "long_name") == nullptr)
    if (const auto text = trimmed(text_of(v.attributes, "description"));
        !text.empty() || find_attribute(v.attributes, "standard_name") == nullptr)
      set_text(v.attributes, "long_name", text.empty() ? v.name : text);
  // CF-1.11, section 4.3: a vertical quantity that is no pressure says where up is.
  if (const auto name = text_of(v.attributes, "standard_name"); name == "height" || name == "altitude")
    set_text(v.attributes, "positive", "up");
  if (!is_numeric(v.type)) return;
  const auto unit = text_of(v.attributes, "units");
  if (const auto ours = cf_units(unit); ours != trimmed(unit)) set_text(v.attributes, "units", ours);
}

}  // namespace

std::string cf_units(const std::string& text) {
  auto unit = trimmed(text);
  for (const auto& [theirs, ours] : units)
    if (unit == theirs) return std::string(ours);
  std::erase_if(unit, [](char c) { return c == '{' || c == '}'; });  // m s{-1}
  return unit;
}

std::string cf_name_of_mass(const std::string& standard_name) {
  constexpr std::string_view depth = "lwe_thickness_of_";
  return standard_name.starts_with(depth) ? standard_name.substr(depth.size()) : "";
}

std::optional<WrfProjection> WrfProjection::of(const std::vector<Attribute>& attributes) {
  WrfProjection out;
  out.kind_ = static_cast<int>(number_of(attributes, "MAP_PROJ", 0));
  if (out.kind_ < 1 || out.kind_ > 3) return std::nullopt;
  const auto nowhere = std::nan("");
  out.first_ = number_of(attributes, "TRUELAT1", nowhere);
  out.second_ = number_of(attributes, "TRUELAT2", out.first_);
  out.meridian_ = number_of(attributes, "STAND_LON", nowhere);
  out.origin_ = number_of(attributes, "MOAD_CEN_LAT", number_of(attributes, "CEN_LAT", nowhere));
  // Mercator and polar files may have no second parallel: WRF writes 0 or 1e20.
  const auto is_latitude = [](double v) { return std::abs(v) <= 90; };
  if (!is_latitude(out.second_)) out.second_ = out.first_;
  if (!is_latitude(out.first_) || !is_latitude(out.origin_) || !(std::abs(out.meridian_) <= 360)) return std::nullopt;
  if (out.kind_ == 1 && (out.first_ == 0 || out.first_ + out.second_ == 0)) return std::nullopt;
  if (out.kind_ == 2 && out.first_ == 0) return std::nullopt;
  return out;
}

WrfProjection::Place WrfProjection::project(double lat, double lon) const {
  const auto phi = lat * radians, phi1 = first_ * radians, phi2 = second_ * radians;
  auto east = std::fmod(lon - meridian_, 360.0);
  if (east > 180) east -= 360;
  if (east <= -180) east += 360;
  const auto lambda = east * radians;
  const auto half = [](double angle) { return std::tan(std::numbers::pi / 4 + angle / 2); };
  if (kind_ == 3) return {radius * std::cos(phi1) * lambda, radius * std::cos(phi1) * std::log(half(phi))};
  if (kind_ == 2) {
    const auto sign = first_ > 0 ? 1.0 : -1.0;
    const auto rho = radius * (1 + std::sin(sign * phi1)) / half(sign * phi);
    return {rho * std::sin(lambda), -sign * rho * std::cos(lambda)};
  }
  const auto n = first_ == second_ ? std::sin(phi1)
                                   : std::log(std::cos(phi1) / std::cos(phi2)) / std::log(half(phi2) / half(phi1));
  const auto f = std::cos(phi1) * std::pow(half(phi1), n) / n;
  const auto rho = radius * f / std::pow(half(phi), n), rho0 = radius * f / std::pow(half(origin_ * radians), n);
  return {rho * std::sin(n * lambda), rho0 - rho * std::cos(n * lambda)};
}

std::vector<Attribute> WrfProjection::attributes() const {
  std::vector<Attribute> out;
  const auto number = [&](const std::string& name, std::vector<double> values) {
    out.push_back(number_attribute(name, values));
  };
  if (kind_ == 1) {
    set_text(out, "grid_mapping_name", "lambert_conformal_conic");
    number("standard_parallel", first_ == second_ ? std::vector{first_} : std::vector{first_, second_});
    number("longitude_of_central_meridian", {meridian_});
    number("latitude_of_projection_origin", {origin_});
  } else if (kind_ == 2) {
    set_text(out, "grid_mapping_name", "polar_stereographic");
    number("straight_vertical_longitude_from_pole", {meridian_});
    number("latitude_of_projection_origin", {first_ > 0 ? 90.0 : -90.0});
    number("standard_parallel", {first_});
  } else {
    set_text(out, "grid_mapping_name", "mercator");
    number("longitude_of_projection_origin", {meridian_});
    number("standard_parallel", {first_});
  }
  number("earth_radius", {radius});
  return out;
}

void make_cf(Processed& processed, const Schema& input, const ProcessRule& rule, bool is_wrf,
             const GridPoints* points) {
  auto& schema = processed.schema;
  keep_own_coordinates(schema);
  if (is_wrf) {
    for (std::size_t i = 0; i < schema.variables.size(); ++i)
      if (is_field(processed.variables[i])) {
        auto& v = schema.variables[i];
        const bool was_named = find_attribute(v.attributes, "standard_name") != nullptr;
        name_as_cf_does(v);
        const auto& conversion = processed.variables[i].units;
        if (was_named || !conversion || !conversion->of_water()) continue;
        if (const auto name = cf_name_of_mass(text_of(v.attributes, "standard_name")); !name.empty())
          set_text(v.attributes, "standard_name", name);
        else
          remove_attribute(v.attributes, "standard_name");
      }
    drop_lost_positions(processed, rule);
    if (points != nullptr)
      if (const auto projection = WrfProjection::of(input.attributes))
        add_projection(processed, *projection, input, cut_points(*points, input, processed.selection));
    for (std::size_t i = 0; i < schema.variables.size(); ++i)  // WRF knows no leap seconds
      if (processed.variables[i].kind == ProcessedVariable::Kind::time)
        set_text(schema.variables[i].attributes, "units_metadata", "leap_seconds: none");
  }
  for (auto& v : schema.variables)
    if (text_of(v.attributes, "standard_name").find("temperature") != std::string::npos &&
        find_attribute(v.attributes, "units_metadata") == nullptr)
      set_text(v.attributes, "units_metadata", "temperature: on_scale");
  for (auto& a : schema.attributes) std::replace(a.name.begin(), a.name.end(), '-', '_');
  if (find_attribute(schema.attributes, "title") == nullptr)
    if (const auto title = trimmed(text_of(schema.attributes, "TITLE")); !title.empty())
      set_text(schema.attributes, "title", title);
  const auto before = text_of(schema.attributes, "history");
  set_text(schema.attributes, "history",
           before + (before.empty() ? "" : "\n") + "advectio process, rule at " + rule.origin);
  set_text(schema.attributes, "Conventions", "CF-1.11");
}

}  // namespace advectio
