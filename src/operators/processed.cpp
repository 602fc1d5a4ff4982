#include "operators/processed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>

#include "config/glob.h"
#include "config/nearest.h"

namespace advectio {
namespace {

bool has_since(const Variable& v) {
  return text_of(v.attributes, "units").find(" since ") != std::string::npos;
}

std::optional<std::uint32_t> find_variable(const Schema& schema, std::string_view name) {
  for (std::uint32_t i = 0; i < schema.variables.size(); ++i)
    if (schema.variables[i].name == name) return i;
  return std::nullopt;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

/// "10 min": the unit is UDUNITS' name, as CF's cell methods want it.
std::string interval_text(Time ms) {
  for (const auto& [unit, length] : {std::pair{"day", day_ms}, std::pair{"h", Time{3'600'000}},
                                     std::pair{"min", Time{60'000}}, std::pair{"s", Time{1000}}})
    if (ms % length == 0) return std::to_string(ms / length) + " " + unit;
  return std::to_string(ms) + " ms";
}

/// The distance of records, where it is the same between all of them.
std::optional<Time> interval_of(std::span<const Moment> records) {
  for (std::size_t i = 2; i < records.size(); ++i)
    if (records[i].at - records[i - 1].at != records[1].at - records[0].at) return std::nullopt;
  if (records.size() < 2) return std::nullopt;
  return records[1].at - records[0].at;
}

double fill_of(DataType type, const Variable& input) {
  const auto own = numbers_of(input.attributes, "_FillValue");
  if (!own.empty() && input.type == type) return own.front();
  double fill = 0;
  const auto bytes = default_fill(type);
  if (type == DataType::float32) {
    float f = 0;
    std::memcpy(&f, bytes.data(), sizeof f);
    fill = f;
  } else {
    std::memcpy(&fill, bytes.data(), sizeof fill);
  }
  return fill;
}

void set_fill(Variable& v, double fill) {
  remove_attribute(v.attributes, "_FillValue");
  remove_attribute(v.attributes, "missing_value");
  Attribute a;
  a.name = "_FillValue";
  a.type = v.type;
  a.count = 1;
  a.values.resize(size_of(v.type));
  narrow(v.type, fill, {&fill, 1}, a.values.data());
  v.no_fill = false;
  v.has_fill = true;
  v.fill = a.values == default_fill(v.type) ? Bytes() : a.values;
  v.attributes.insert(v.attributes.begin(), std::move(a));
}

class Plan {
 public:
  Plan(const Schema& input, const TimeAxis& axis, const ProcessRule& rule, const std::vector<bool>& packed_alike)
      : input_(input), axis_(axis), rule_(rule), packed_alike_(packed_alike) {}

  Result<Processed> make(const std::vector<Moment>& series);

 private:
  [[nodiscard]] Error refuse(const std::string& origin, const std::string& what) const {
    return Error{Code::config, origin + ": " + what, 0};
  }
  [[nodiscard]] bool timed(const Variable& v) const {
    return std::find(v.dimensions.begin(), v.dimensions.end(), axis_.dimension) != v.dimensions.end();
  }
  /// Variables that say the time, and make room for ours.
  [[nodiscard]] bool says_time(std::uint32_t i) const {
    const auto& v = input_.variables[i];
    return i == axis_.variable || i == axis_.bounds || (v.name == "Times" && v.type == DataType::text && timed(v)) ||
           time_bounds_.contains(i) || (v.dimensions.size() == 1 && timed(v) && has_since(v));
  }
  [[nodiscard]] std::vector<std::string> named_by(const Variable& v) const;
  Result<void> select();
  void take_along();
  void add_time(const std::vector<Moment>& series);
  void add(std::uint32_t number);
  void drop_unused_dimensions();
  [[nodiscard]] std::string cell_methods(const std::string& before) const;

  const Schema& input_;
  const TimeAxis& axis_;
  const ProcessRule& rule_;
  const std::vector<bool>& packed_alike_;
  std::set<std::uint32_t> time_bounds_;
  std::set<std::uint32_t> selected_, along_;
  std::string time_name_;
  std::shared_ptr<const TimePlan> plan_, points_;
  std::vector<std::optional<Time>> intervals_;  // of the records that each step takes
  Processed out_;
};

/// Other variables that belong to one: its coordinates, their bounds, its grid mapping.
std::vector<std::string> Plan::named_by(const Variable& v) const {
  std::vector<std::string> names;
  for (const auto d : v.dimensions) names.push_back(input_.dimensions[d].name);
  for (const char* attribute : {"coordinates", "grid_mapping", "bounds", "climatology", "cell_measures"})
    for (auto& word : words_of(text_of(v.attributes, attribute))) {
      if (word.ends_with(':')) word.pop_back();
      names.push_back(std::move(word));
    }
  return names;
}

Result<void> Plan::select() {
  std::vector<std::string> names;
  for (const auto& v : input_.variables) names.push_back(v.name);
  for (const auto& [pattern, origin] : rule_.variables) {
    bool found = false;
    for (std::uint32_t i = 0; i < input_.variables.size(); ++i) {
      const auto& v = input_.variables[i];
      const bool very = v.name == pattern;
      if (!very && !glob_matches(pattern, v.name)) continue;
      found = true;
      if (says_time(i)) continue;
      if (!timed(v)) {
        selected_.insert(i);
        continue;
      }
      if (v.dimensions.front() != axis_.dimension)
        return refuse(origin, "variable " + v.name + ": " + input_.dimensions[axis_.dimension].name +
                                  " is not its first dimension, which is not supported");
      if (is_numeric(v.type))
        selected_.insert(i);
      else if (very)
        return refuse(origin, "variable " + v.name + " is text, and has no statistics");
    }
    if (found) continue;
    const auto meant = nearest(pattern, names);
    return refuse(origin, "variable " + pattern + " is not in the files" +
                              (meant.empty() ? "" : "; did you mean " + meant + "?"));
  }
  if (!rule_.variables.empty()) return {};
  for (std::uint32_t i = 0; i < input_.variables.size(); ++i) {
    const auto& v = input_.variables[i];
    if (says_time(i)) continue;
    if (timed(v) && (!is_numeric(v.type) || v.dimensions.front() != axis_.dimension))
      out_.left_out.push_back(v.name);
    else
      selected_.insert(i);
  }
  // Where nobody names them, coordinates are taken along and have no statistics.
  std::set<std::uint32_t> coordinates;
  for (const auto i : selected_)
    for (const auto& name : named_by(input_.variables[i]))
      if (const auto other = find_variable(input_, name); other && *other != i) coordinates.insert(*other);
  for (const auto i : selected_)
    if (const auto& v = input_.variables[i];
        v.dimensions.size() == 1 && input_.dimensions[v.dimensions[0]].name == v.name)
      coordinates.insert(i);
  for (const auto i : coordinates)
    if (selected_.erase(i) != 0) along_.insert(i);
  return {};
}

void Plan::take_along() {
  std::vector<std::uint32_t> open(selected_.begin(), selected_.end());
  open.insert(open.end(), along_.begin(), along_.end());
  while (!open.empty()) {
    const auto i = open.back();
    open.pop_back();
    for (const auto& name : named_by(input_.variables[i])) {
      const auto other = find_variable(input_, name);
      if (!other || says_time(*other) || selected_.contains(*other) || along_.contains(*other)) continue;
      const auto& v = input_.variables[*other];
      if (timed(v) && (!is_numeric(v.type) || v.dimensions.front() != axis_.dimension)) continue;
      along_.insert(*other);
      open.push_back(*other);
    }
  }
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
  out_.variables.push_back({ProcessedVariable::Kind::time, 0, nullptr, nullptr, false, 0});
  for (const auto& m : moments) out_.times.push_back(units.value_of(m.at));
  if (!spans) return;
  auto two = static_cast<std::uint32_t>(input_.dimensions.size());
  std::string name = "bnds";
  for (std::uint32_t d = 0; d < input_.dimensions.size(); ++d) {
    if (input_.dimensions[d].name != name) continue;
    if (input_.dimensions[d].length == 2 && !input_.dimensions[d].unlimited)
      two = d;
    else
      name = "time_bnds_ends";
  }
  if (two == input_.dimensions.size()) out_.schema.dimensions.push_back({name, 2, false});
  Variable b;
  b.name = bounds_name;
  b.type = DataType::float64;
  b.dimensions = {axis_.dimension, two};
  out_.schema.variables.push_back(b);
  out_.variables.push_back({ProcessedVariable::Kind::bounds, 0, nullptr, nullptr, false, 0});
  for (const auto& m : moments) {
    out_.bounds.push_back(units.value_of(m.begin));
    out_.bounds.push_back(units.value_of(m.end));
  }
}

/// What the pipeline of a variable's filters says of its elements, after those have changed.
void fit_filters(Variable& v) {
  std::erase_if(v.filters, [](const Filter& f) {
    static constexpr std::array known = {filter_id::deflate,    filter_id::shuffle, filter_id::fletcher32,
                                         filter_id::szip,       filter_id::blosc,   filter_id::lz4,
                                         filter_id::bitshuffle, filter_id::zstd};
    return std::find(known.begin(), known.end(), f.id) == known.end();
  });
  const auto element = static_cast<std::uint32_t>(size_of(v.type));
  std::uint64_t chunk = element;
  for (const auto c : v.chunks) chunk *= c;
  for (auto& f : v.filters) {
    if (f.id == filter_id::blosc && f.parameters.size() > 3) {
      f.parameters[2] = element;
      f.parameters[3] = static_cast<std::uint32_t>(chunk);
    }
    if (f.id == filter_id::bitshuffle && f.parameters.size() > 2) f.parameters[2] = element;
  }
}

void Plan::add(std::uint32_t number) {
  auto v = input_.variables[number];
  ProcessedVariable p;
  p.from = number;
  const bool is_selected = selected_.contains(number);
  if (!timed(v)) {
    p.kind = ProcessedVariable::Kind::copied;
  } else {
    p.quantity = std::make_shared<FileVariable>(number);
    p.plan = is_selected ? plan_ : points_;
    const auto& steps = p.plan->steps();
    p.as_it_is = packed_alike_[number] && std::all_of(steps.begin(), steps.end(), [](const TimeStep& s) {
                   return s.statistic == Statistic::point;
                 });
    if (!v.contiguous && !steps.empty()) v.chunks.front() = 1;
    if (!p.as_it_is) {
      const auto packing = packing_of(v);
      const bool accumulates = std::any_of(steps.begin(), steps.end(), [](const TimeStep& s) {
        return s.statistic == Statistic::sum || s.statistic == Statistic::difference;
      });
      p.fill = fill_of(packing.unpacked, v);
      if (accumulates || packing.unpacked != v.type)
        for (const char* name : {"valid_range", "valid_min", "valid_max"}) remove_attribute(v.attributes, name);
      for (const char* name : {"scale_factor", "add_offset", "actual_range"}) remove_attribute(v.attributes, name);
      v.type = packing.unpacked;
      set_fill(v, p.fill);
    }
    fit_filters(v);
    if (is_selected && !rule_.time.empty())
      set_text(v.attributes, "cell_methods", cell_methods(text_of(v.attributes, "cell_methods")));
  }
  if (const auto coordinates = text_of(v.attributes, "coordinates"); !coordinates.empty()) {
    std::string kept;
    for (const auto& word : words_of(coordinates))
      if (const auto other = find_variable(input_, word); !other || !says_time(*other))
        kept += (kept.empty() ? "" : " ") + word;
    if (kept.empty())
      remove_attribute(v.attributes, "coordinates");
    else if (kept != coordinates)
      set_text(v.attributes, "coordinates", kept);
  }
  out_.schema.variables.push_back(std::move(v));
  out_.variables.push_back(std::move(p));
}

void Plan::drop_unused_dimensions() {
  auto& s = out_.schema;
  std::set<std::uint32_t> used;
  for (const auto& v : s.variables) used.insert(v.dimensions.begin(), v.dimensions.end());
  std::vector<std::uint32_t> place(s.dimensions.size(), 0);
  std::vector<Dimension> kept;
  for (std::uint32_t d = 0; d < s.dimensions.size(); ++d) {
    if (!used.contains(d)) continue;
    place[d] = static_cast<std::uint32_t>(kept.size());
    kept.push_back(s.dimensions[d]);
  }
  for (auto& v : s.variables)
    for (auto& d : v.dimensions) d = place[d];
  out_.time = place[axis_.dimension];
  s.dimensions = std::move(kept);
}

Result<Processed> Plan::make(const std::vector<Moment>& series) {
  for (const auto& v : input_.variables)
    if (timed(v) && v.dimensions.size() == 1 && has_since(v))
      if (const auto bounds = find_variable(input_, text_of(v.attributes, "bounds"))) time_bounds_.insert(*bounds);
  ADVECTIO_TRY(select());
  take_along();
  if (std::none_of(selected_.begin(), selected_.end(), [&](auto i) { return timed(input_.variables[i]); }))
    return refuse(rule_.variables.empty() ? rule_.origin : rule_.variables.front().origin,
                  "no variable that this output has changes with time");
  auto plan = TimePlan::make(series, rule_.time, axis_.units.calendar);
  if (!plan) {
    plan.error().code = Code::config;
    return std::move(plan).error();
  }
  plan_ = std::make_shared<TimePlan>(std::move(plan).value());
  points_ = std::make_shared<TimePlan>(plan_->points());
  for (std::size_t s = 0; s < rule_.time.size(); ++s) intervals_.push_back(interval_of(plan_->taken(s)));
  out_.records = plan_->moments().size();
  out_.schema = input_;
  out_.schema.variables.clear();
  auto& time = out_.schema.dimensions[axis_.dimension];
  if (!time.unlimited) time.length = out_.records;
  time_name_ = time.name;  // a coordinate variable, whatever the input has
  add_time(series);
  for (std::uint32_t i = 0; i < input_.variables.size(); ++i)
    if (selected_.contains(i) || along_.contains(i)) add(i);
  drop_unused_dimensions();
  return std::move(out_);
}

}  // namespace

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

Result<Processed> process_schema(const Schema& input, const TimeAxis& axis, const std::vector<Moment>& series,
                                 const ProcessRule& rule, const std::vector<bool>& packed_alike) {
  return Plan(input, axis, rule, packed_alike).make(series);
}

}  // namespace advectio
