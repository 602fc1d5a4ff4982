#include <array>
#include <cmath>

#include "operators/process_plan.h"

namespace advectio {
namespace {

/// "10 min": the unit is UDUNITS' name, as CF's cell methods want it.
std::string interval_text(Time ms) {
  for (const auto& [unit, length] : {std::pair{"day", day_ms}, std::pair{"h", Time{3'600'000}},
                                     std::pair{"min", Time{60'000}}, std::pair{"s", Time{1000}}})
    if (ms % length == 0) return std::to_string(ms / length) + " " + unit;
  return std::to_string(ms) + " ms";
}

}  // namespace

std::optional<Time> interval_of(std::span<const Moment> records) {
  for (std::size_t i = 2; i < records.size(); ++i)
    if (records[i].at - records[i - 1].at != records[1].at - records[0].at) return std::nullopt;
  if (records.size() < 2) return std::nullopt;
  return records[1].at - records[0].at;
}

std::string Plan::cell_methods(const std::string& before) const {
  std::string out = before;
  for (std::size_t s = 0; s < rule_.time.size(); ++s) {
    const auto statistic = rule_.time[s].statistic;
    out += (out.empty() ? "" : " ") + time_name_ + ": ";
    const auto interval = intervals_[s] ? "interval: " + interval_text(*intervals_[s]) : std::string();
    switch (statistic) {
      case Statistic::point: out += "point"; break;
      // CF has no word for it. Of an accumulated quantity it is the window's sum.
      case Statistic::difference:
        out += "sum (" + interval + (interval.empty() ? "" : " ") + "comment: difference of the window's ends)";
        break;
      default: out += std::string(name_of(statistic)) + (interval.empty() ? "" : " (" + interval + ")");
    }
  }
  return out;
}

void Plan::add_time(const std::vector<Moment>& series) {
  const auto& moments = plan_->moments();
  auto units = axis_.units;
  if (axis_.text) {
    units.since = series.front().at;
    units.text = "minutes since " + time_text(units.since, units.calendar);
  }
  Variable v;
  v.name = time_name_;
  v.type = DataType::float64;
  v.dimensions = {axis_.dimension};
  if (!axis_.text) {
    v.attributes = input_.variables[axis_.variable].attributes;
    for (const char* name : {"bounds", "_FillValue", "missing_value", "valid_range", "valid_min", "valid_max",
                             "actual_range", "climatology"})
      remove_attribute(v.attributes, name);
  }
  set_text(v.attributes, "standard_name", "time");
  set_text(v.attributes, "axis", "T");
  set_text(v.attributes, "units", units.text);
  set_text(v.attributes, "calendar", std::string(name_of(units.calendar)));
  const bool spans = std::any_of(moments.begin(), moments.end(), [](const Moment& m) { return !m.instant(); });
  const auto bounds_name = time_name_ + "_bnds";
  if (spans) set_text(v.attributes, "bounds", bounds_name);
  out_.schema.variables.push_back(v);
  out_.variables.emplace_back().kind = ProcessedVariable::Kind::time;
  for (const auto& m : moments) out_.times.push_back(units.value_of(m.at));
  if (!spans) return;
  const auto next = static_cast<std::uint32_t>(out_.schema.dimensions.size());
  auto two = next;
  std::string name = "bnds";
  for (std::uint32_t d = 0; d < input_.dimensions.size(); ++d) {
    if (input_.dimensions[d].name != name) continue;
    if (input_.dimensions[d].length == 2 && !input_.dimensions[d].unlimited)
      two = d;
    else
      name = "time_bnds_ends";
  }
  if (two == next) out_.schema.dimensions.push_back({name, 2, false});
  Variable b;
  b.name = bounds_name;
  b.type = DataType::float64;
  b.dimensions = {axis_.dimension, two};
  out_.schema.variables.push_back(b);
  out_.variables.emplace_back().kind = ProcessedVariable::Kind::bounds;
  for (const auto& m : moments) {
    out_.bounds.push_back(units.value_of(m.begin));
    out_.bounds.push_back(units.value_of(m.end));
  }
}

TimeAxis undated_axis(const Schema& schema, const std::string& why) {
  TimeAxis axis;
  axis.undated = why;
  axis.dimension = axis.variable = TimeAxis::none;
  axis.text = std::any_of(schema.variables.begin(), schema.variables.end(),
                          [](const Variable& v) { return v.name == "Times" && v.type == DataType::text; });
  for (const auto& v : schema.variables)
    if ((v.name == "Times" && v.type == DataType::text && v.dimensions.size() == 2) ||
        (v.dimensions.size() == 1 && is_numeric(v.type) && has_since(v) && !axis.has_dimension()))
      axis.dimension = v.dimensions[0];
  for (std::uint32_t d = 0; d < schema.dimensions.size() && !axis.has_dimension(); ++d)
    if (schema.dimensions[d].unlimited) axis.dimension = d;
  return axis;
}

Result<TimeAxis> find_time_axis(const Schema& schema) {
  TimeAxis axis;
  std::optional<std::uint32_t> best;
  int rank = 0;
  for (std::uint32_t i = 0; i < schema.variables.size(); ++i) {
    const auto& v = schema.variables[i];
    if (v.name == "Times" && v.type == DataType::text && v.dimensions.size() == 2) {
      axis.dimension = v.dimensions[0];
      axis.variable = i;
      axis.text = true;
      axis.units.calendar = Calendar::proleptic_gregorian;
      axis.units.unit_ms = 60'000;
      return axis;
    }
    if (v.dimensions.size() != 1 || !is_numeric(v.type) || !has_since(v)) continue;
    const auto& d = schema.dimensions[v.dimensions[0]];
    const int its = 1 + (d.unlimited ? 2 : 0) + (d.name == v.name ? 4 : 0);
    if (its <= rank) continue;
    rank = its;
    best = i;
  }
  if (!best)
    return Error{Code::unsupported,
                 "has no time axis: neither a variable with units like \"hours since 2000-01-01\" nor WRF's Times", 0};
  const auto& v = schema.variables[*best];
  axis.variable = *best;
  axis.dimension = v.dimensions[0];
  const auto named = text_of(v.attributes, "calendar");
  const auto calendar = named.empty() ? std::optional(Calendar::standard) : calendar_named(named);
  if (!calendar) return Error{Code::unsupported, "variable " + v.name + " has the unknown calendar '" + named + "'", 0};
  auto units = parse_time_units(text_of(v.attributes, "units"), *calendar);
  if (!units) return std::move(units).error().with("variable " + v.name);
  axis.units = std::move(units).value();
  if (const auto bounds = find_variable(schema, text_of(v.attributes, "bounds"))) {
    const auto& b = schema.variables[*bounds];
    if (b.dimensions.size() == 2 && b.dimensions[0] == axis.dimension && is_numeric(b.type) &&
        schema.dimensions[b.dimensions[1]].length == 2)
      axis.bounds = bounds;
  }
  return axis;
}

Result<std::vector<Moment>> moments_of_numbers(const TimeAxis& axis, std::span<const double> values,
                                               std::span<const double> bounds) {
  std::vector<Moment> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || std::abs(values[i] * axis.units.unit_ms) > 1e17)
      return Error{Code::invalid, "record " + std::to_string(i) + " has no time", 0};
    auto& m = out.emplace_back();
    m.at = m.begin = m.end = axis.units.time_of(values[i]);
    if (bounds.empty() || !std::isfinite(bounds[2 * i]) || !std::isfinite(bounds[2 * i + 1])) continue;
    m.begin = axis.units.time_of(bounds[2 * i]);
    m.end = axis.units.time_of(bounds[2 * i + 1]);
  }
  return out;
}

Result<std::vector<Moment>> moments_of_text(const TimeAxis& axis, std::string_view dates, std::size_t length) {
  std::vector<Moment> out;
  for (std::size_t i = 0; length > 0 && (i + 1) * length <= dates.size(); ++i) {
    auto text = dates.substr(i * length, length);
    text = text.substr(0, text.find('\0'));
    auto time = parse_time(text, axis.units.calendar);
    if (!time) return std::move(time).error().with("record " + std::to_string(i));
    out.push_back({*time, *time, *time});
  }
  return out;
}

}  // namespace advectio
