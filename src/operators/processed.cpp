#include "operators/processed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>

#include "config/glob.h"
#include "config/nearest.h"
#include "operators/expression.h"
#include "operators/vertical.h"
#include "operators/wrf_diagnostics.h"

namespace advectio {
namespace {

// Of a chunk of places: 256 KiB of float32.
constexpr std::uint64_t chunk_cells = 1U << 16U;

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
  Plan(const Schema& input, const TimeAxis& axis, const ProcessRule& rule, const std::vector<bool>& packed_alike,
       std::shared_ptr<const RegridWeights> weights)
      : input_(input), axis_(axis), rule_(rule), packed_alike_(packed_alike), weights_(std::move(weights)) {}

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
  /// A variable that is made, on its way to the schema.
  struct Item {
    Variable variable;  ///< name, attributes
    Typed made;
    std::string origin;
    bool named = false;       ///< by the rule
    bool from_file = false;   ///< and nothing has been done to it yet
    bool statistics = false;  ///< it has those of the rule; else single samples
    Packing packing;          ///< of what is from the file
    std::optional<std::size_t> whole;
  };
  Result<void> make_expressions();
  Result<void> find_levels();
  Result<void> add_file_variable(std::uint32_t number);
  Result<void> add(Item item);
  Result<void> to_levels(Item& item);
  void add_levels();
  Result<void> find_grid();
  [[nodiscard]] bool on_grid(const std::vector<std::uint32_t>& dimensions) const;
  [[nodiscard]] bool of_grid(const Variable& v) const;
  [[nodiscard]] std::string grid_key() const { return rule_.regrid ? "regrid" : "points"; }
  [[nodiscard]] std::string grid_origin() const { return rule_.origins.at(grid_key()); }
  [[nodiscard]] bool has_a_place(std::uint32_t number) const;
  Result<void> to_grid(Item& item);
  void add_grid();
  void say_feature_type();
  void add_coordinate(const std::string& name, std::vector<std::uint32_t> dimensions, std::vector<double> values,
                      const std::vector<std::pair<std::string, std::string>>& attributes);
  [[nodiscard]] const Variable* like(const std::vector<std::uint32_t>& dimensions,
                                     const std::vector<std::uint32_t>& first) const;
  void fit_coordinates(Variable& v) const;
  [[nodiscard]] std::string cell_methods(const std::string& before) const;

  const Schema& input_;
  const TimeAxis& axis_;
  const ProcessRule& rule_;
  const std::vector<bool>& packed_alike_;
  std::set<std::uint32_t> time_bounds_;
  std::set<std::uint32_t> selected_, along_;
  std::vector<ExpressionRule> to_make_;  ///< WRF's diagnostics among the rule's variables, then its expressions
  std::vector<Item> expressions_;
  std::optional<Typed> coordinate_;  ///< of the levels
  std::uint32_t level_dimension_ = 0;
  std::vector<double> levels_;  ///< in the coordinate's units
  std::shared_ptr<const RegridWeights> weights_;
  std::vector<std::uint32_t> grid_;      ///< dimensions that go
  std::vector<std::uint32_t> new_grid_;  ///< dimensions that come
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
    if (const auto* const known = find_wrf_diagnostic(pattern)) {
      ExpressionRule made;
      made.name = pattern;
      made.formula = known->formula;
      made.units = known->units;
      made.long_name = known->long_name;
      made.standard_name = known->standard_name;
      made.origin = origin;
      to_make_.push_back(std::move(made));
      continue;
    }
    for (const auto& d : wrf_diagnostics()) names.emplace_back(d.name);
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
  std::erase_if(along_, [&](std::uint32_t i) { return of_grid(input_.variables[i]); });
  // What has only a part of the grid's dimensions belongs to the grid that goes.
  std::erase_if(selected_, [&](std::uint32_t i) {
    if (has_a_place(i)) return false;
    out_.left_out.push_back(input_.variables[i].name);
    return true;
  });
  std::vector<std::uint32_t> open(selected_.begin(), selected_.end());
  open.insert(open.end(), along_.begin(), along_.end());
  const auto take = [&](const std::vector<std::string>& names) {
    for (const auto& name : names) {
      const auto other = find_variable(input_, name);
      if (!other || says_time(*other) || selected_.contains(*other) || along_.contains(*other)) continue;
      const auto& v = input_.variables[*other];
      if (timed(v) && (!is_numeric(v.type) || v.dimensions.front() != axis_.dimension)) continue;
      if (of_grid(v)) continue;  // the new grid has coordinates of its own
      along_.insert(*other);
      open.push_back(*other);
    }
  };
  // What is taken to mass points has the coordinates of these.
  if (coordinate_)
    if (const auto* const other = like(coordinate_->dimensions, coordinate_->variables)) take(named_by(*other));
  for (const auto& item : expressions_) {
    auto like_it = item.variable;
    like_it.dimensions = item.made.dimensions;
    take(named_by(like_it));
  }
  while (!open.empty()) {
    const auto i = open.back();
    open.pop_back();
    take(named_by(input_.variables[i]));
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

/// A variable of the files along these dimensions (and time), those of `first` before all others.
const Variable* Plan::like(const std::vector<std::uint32_t>& dimensions,
                           const std::vector<std::uint32_t>& first) const {
  const auto fits = [&](const Variable& v) {
    return timed(v) && v.dimensions.size() == dimensions.size() + 1 &&
           std::equal(dimensions.begin(), dimensions.end(), v.dimensions.begin() + 1);
  };
  for (const auto i : first)
    if (fits(input_.variables[i])) return &input_.variables[i];
  for (const auto& v : input_.variables)
    if (fits(v) && find_attribute(v.attributes, "coordinates") != nullptr) return &v;
  return nullptr;
}

Result<void> Plan::make_expressions() {
  to_make_.insert(to_make_.end(), rule_.expressions.begin(), rule_.expressions.end());
  for (const auto& rule : to_make_) {
    const auto where = rule.name + " = ";
    auto made = compile_expression(rule.formula, input_, axis_.dimension);
    if (!made) return refuse(rule.origin, where + made.error().message);
    if (!made->timed) return refuse(rule.origin, where + "'" + rule.formula + "' does not change with time");
    Item item;
    item.variable.name = rule.name;
    item.origin = rule.origin;
    item.named = item.statistics = true;
    const auto units = rule.units.empty() ? made->units : rule.units;
    if (!units.empty()) set_text(item.variable.attributes, "units", units);
    if (!rule.long_name.empty()) set_text(item.variable.attributes, "long_name", rule.long_name);
    if (!rule.standard_name.empty()) set_text(item.variable.attributes, "standard_name", rule.standard_name);
    set_text(item.variable.attributes, "expression", rule.formula);
    if (const auto* const other = like(made->dimensions, made->variables)) {
      for (const char* name : {"coordinates", "grid_mapping"})
        if (const auto text = text_of(other->attributes, name); !text.empty())
          set_text(item.variable.attributes, name, text);
    }
    item.made = std::move(made).value();
    expressions_.push_back(std::move(item));
  }
  return {};
}

Result<void> Plan::find_levels() {
  if (!rule_.levels) return {};
  const auto& rule = *rule_.levels;
  auto made = compile_expression(rule.coordinate, input_, axis_.dimension);
  if (!made) return refuse(rule.origin, "levels: coordinate: " + made.error().message);
  if (made->dimensions.empty()) return refuse(rule.origin, "levels: '" + rule.coordinate + "' has no levels");
  const auto& units = rule.coordinate_units.empty() ? made->units : rule.coordinate_units;
  const auto factor = unit_factor(rule.kind, rule.units, units);
  if (factor == 0)
    return refuse(rule.origin, "levels: '" + rule.coordinate + "' has " +
                                   (units.empty() ? "no known units" : "the units '" + units + "'") +
                                   ", and the levels are in " + rule.units);
  for (const auto level : rule.levels) levels_.push_back(level * factor);
  coordinate_ = std::move(made).value();
  const bool pressure = rule.kind == LevelsRule::Kind::pressure;
  std::string name = pressure ? "plev" : "height";
  if (find_variable(input_, name)) name += "_of_rule";
  level_dimension_ = static_cast<std::uint32_t>(out_.schema.dimensions.size());
  out_.schema.dimensions.push_back({name, rule.levels.size(), false});
  return {};
}

void Plan::add_coordinate(const std::string& name, std::vector<std::uint32_t> dimensions, std::vector<double> values,
                          const std::vector<std::pair<std::string, std::string>>& attributes) {
  Variable v;
  v.name = name;
  v.type = DataType::float64;
  v.dimensions = std::move(dimensions);
  for (const auto& [key, text] : attributes) set_text(v.attributes, key, text);
  out_.schema.variables.push_back(std::move(v));
  ProcessedVariable p;
  p.kind = ProcessedVariable::Kind::coordinate;
  p.values = std::move(values);
  out_.variables.push_back(std::move(p));
}

void Plan::add_levels() {
  const auto& rule = *rule_.levels;
  const bool pressure = rule.kind == LevelsRule::Kind::pressure;
  std::vector<std::pair<std::string, std::string>> attributes = {{"units", rule.units}};
  // Whether a height is above the sea or the ground, only the coordinate's author knows.
  if (pressure) attributes.emplace_back("standard_name", "air_pressure");
  attributes.emplace_back("positive", pressure ? "down" : "up");
  attributes.emplace_back("axis", "Z");
  add_coordinate(out_.schema.dimensions[level_dimension_].name, {level_dimension_}, rule.levels, attributes);
}

/// The dimensions of the weights' source: the last ones of the first variable that has as many cells.
Result<void> Plan::find_grid() {
  if (!weights_) return {};
  const auto& wanted = weights_->source_lengths;
  const auto length = [&](std::uint32_t d) { return input_.dimensions[d].length; };
  const auto look_at = [&](const std::vector<std::uint32_t>& dimensions) {
    const auto rank = dimensions.size();
    if (!grid_.empty() || rank == 0) return;
    const std::vector<std::uint32_t> one = {dimensions.back()};
    const auto two = rank < 2 ? std::vector<std::uint32_t>() : std::vector(dimensions.end() - 2, dimensions.end());
    const auto cells = two.empty() ? 0 : length(two[0]) * length(two[1]);
    if (wanted.size() == 2 && !two.empty() && length(two[0]) == wanted[0] && length(two[1]) == wanted[1]) {
      grid_ = two;
    } else if (wanted.size() == 1 && length(one[0]) == wanted[0]) {
      grid_ = one;
    } else if (wanted.size() == 1 && cells == wanted[0]) {
      grid_ = two;
    } else if (wanted.empty() && cells > *std::max_element(weights_->source.begin(), weights_->source.end())) {
      grid_ = two;  // the file does not say how many
    }
  };
  for (const auto& item : expressions_) look_at(item.made.dimensions);
  for (const auto i : selected_) {
    const auto& v = input_.variables[i];
    if (!is_numeric(v.type) || !timed(v)) continue;
    auto dimensions = v.dimensions;
    dimensions.erase(dimensions.begin());
    if (rule_.levels && rule_.levels->wrf && coordinate_)
      if (auto mass = destaggered(typed_variable(input_, i, axis_.dimension), input_)) dimensions = mass->dimensions;
    look_at(dimensions);
  }
  if (grid_.empty()) {
    std::string text;
    for (const auto n : wanted) text += (text.empty() ? "" : " x ") + std::to_string(n);
    return refuse(grid_origin(), grid_key() + ": no variable of this output is on the grid of the weights" +
                                     (text.empty() ? "" : " (" + text + " cells)"));
  }
  for (const auto& [name, origin] : rule_.variables) {
    const auto i = find_variable(input_, name);
    if (!i || !selected_.contains(*i) || has_a_place(*i)) continue;
    return refuse(origin, grid_key() + ": variable " + name + " has only a part of the grid's dimensions");
  }
  const auto& to = weights_->destination;
  const bool rows = to.lengths.size() == 2 && to.rectilinear;
  const std::vector<std::string> names = !to.names.empty()        ? std::vector<std::string>{"station"}
                                         : to.lengths.size() == 1 ? std::vector<std::string>{"cell"}
                                         : rows                   ? std::vector<std::string>{"lat", "lon"}
                                                                  : std::vector<std::string>{"y", "x"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    new_grid_.push_back(static_cast<std::uint32_t>(out_.schema.dimensions.size()));
    out_.schema.dimensions.push_back({names[i], to.lengths[i], false});
  }
  return {};
}

bool Plan::on_grid(const std::vector<std::uint32_t>& dimensions) const {
  return !grid_.empty() && dimensions.size() >= grid_.size() &&
         std::equal(grid_.begin(), grid_.end(), dimensions.end() - static_cast<std::ptrdiff_t>(grid_.size()));
}

/// It says something of the grid that goes, and is no field: a coordinate, or a part of one.
bool Plan::of_grid(const Variable& v) const {
  const auto of_it = [&](std::uint32_t d) { return std::find(grid_.begin(), grid_.end(), d) != grid_.end(); };
  return !grid_.empty() && std::any_of(v.dimensions.begin(), v.dimensions.end(), of_it);
}

/// It has nothing of the grid that goes, or can come to the one that comes.
bool Plan::has_a_place(std::uint32_t number) const {
  const auto& v = input_.variables[number];
  // What is staggered is taken to mass points first.
  return !of_grid(v) ||
         (is_numeric(v.type) && (on_grid(v.dimensions) || (rule_.levels && rule_.levels->wrf && timed(v))));
}

void Plan::add_grid() {
  const auto& to = weights_->destination;
  const bool rows = to.rectilinear;
  std::vector<std::pair<std::string, std::string>> lat = {{"standard_name", "latitude"}, {"units", "degrees_north"}},
                                                   lon = {{"standard_name", "longitude"}, {"units", "degrees_east"}};
  if (rows) {
    lat.emplace_back("axis", "Y");
    lon.emplace_back("axis", "X");
  }
  add_coordinate("lat", rows ? std::vector{new_grid_[0]} : new_grid_, to.lat, lat);
  add_coordinate("lon", rows ? std::vector{new_grid_[1]} : new_grid_, to.lon, lon);
  if (to.names.empty()) return;
  // CF-1.11, appendix H: places as discrete sampling geometries.
  std::size_t length = 1;
  for (const auto& name : to.names) length = std::max(length, name.size());
  const auto characters = static_cast<std::uint32_t>(out_.schema.dimensions.size());
  out_.schema.dimensions.push_back({"station_name_length", length, false});
  add_coordinate("station_name", {new_grid_[0], characters}, {},
                 {{"cf_role", "timeseries_id"}, {"long_name", "name of the station"}, {"_Encoding", "utf-8"}});
  out_.schema.variables.back().type = DataType::text;
  for (auto name : to.names) {
    name.resize(length, '\0');
    out_.variables.back().text += name;
  }
}

/// CF-1.11, section 9.4: of series at places, where all of them are of one kind.
void Plan::say_feature_type() {
  std::set<std::size_t> ranks;
  for (std::size_t i = 0; i < out_.variables.size(); ++i)
    if (const auto& d = out_.schema.variables[i].dimensions;
        out_.variables[i].kind == ProcessedVariable::Kind::made && d.back() == new_grid_.front())
      ranks.insert(d.size());
  if (ranks == std::set<std::size_t>{2}) set_text(out_.schema.attributes, "featureType", "timeSeries");
  if (ranks == std::set<std::size_t>{3}) set_text(out_.schema.attributes, "featureType", "timeSeriesProfile");
}

/// What is on the source's grid comes to the destination's.
Result<void> Plan::to_grid(Item& item) {
  auto& v = item.variable;
  auto& made = item.made;
  if (!on_grid(made.dimensions)) {
    if (!item.named || made.dimensions.size() < grid_.size()) return {};
    const auto text = [&](const std::vector<std::uint32_t>& dimensions) {
      std::string out;
      for (const auto d : dimensions)
        out += (out.empty() ? "" : ", ") + out_.schema.dimensions[d].name + " = " +
               std::to_string(out_.schema.dimensions[d].length);
      return "(" + out + ")";
    };
    return refuse(item.origin, grid_key() + ": variable " + v.name + " has " + text(made.dimensions) +
                                   ", and the weights are of " + text(grid_) +
                                   "; destagger(…) takes a staggered variable to the others' points");
  }
  std::vector<std::uint64_t> source;
  for (const auto d : grid_) source.push_back(input_.dimensions[d].length);
  made.quantity = std::make_shared<Regridded>(made.quantity, weights_, std::move(source),
                                              rule_.regrid ? rule_.regrid->missing_max : 0);
  const auto leading = made.dimensions.size() - grid_.size();
  made.dimensions.resize(leading);
  made.dimensions.insert(made.dimensions.end(), new_grid_.begin(), new_grid_.end());
  if (!v.contiguous) {
    v.chunks.resize((made.timed ? 1 : 0) + leading);
    v.chunks.insert(v.chunks.end(), weights_->destination.lengths.begin(), weights_->destination.lengths.end());
  }
  for (const char* name : {"coordinates", "grid_mapping", "cell_measures", "MemoryOrder", "stagger"})
    remove_attribute(v.attributes, name);
  const auto& to = weights_->destination;
  if (!to.rectilinear) set_text(v.attributes, "coordinates", to.names.empty() ? "lat lon" : "lat lon station_name");
  const auto method = weights_->method.empty() ? "" : " (" + weights_->method + ")";
  set_text(v.attributes, "regridding",
           rule_.regrid ? "weights of " + rule_.regrid->weights + method : weights_->method);
  item.from_file = false;
  return {};
}

/// What is on model levels comes to the rule's.
Result<void> Plan::to_levels(Item& item) {
  const auto& rule = *rule_.levels;
  const auto vertical = coordinate_->dimensions.front();
  auto made = item.made;
  const auto at = [&] { return std::find(made.dimensions.begin(), made.dimensions.end(), vertical); };
  if (rule.wrf) {
    const auto staggered = input_.dimensions[vertical].name + "_stag";
    const bool here = at() != made.dimensions.end() ||
                      std::any_of(made.dimensions.begin(), made.dimensions.end(),
                                  [&](std::uint32_t d) { return input_.dimensions[d].name == staggered; });
    if (here)
      if (auto mass = destaggered(made, input_)) made = std::move(mass).value();
  }
  if (at() == made.dimensions.end()) return {};
  auto coordinate = repeated(*coordinate_, made.dimensions, input_);
  if (!coordinate) {
    if (!item.named) return {};  // of all variables those that have no columns there keep their levels
    return refuse(item.origin, "variable " + item.variable.name + " on levels of '" + rule.coordinate +
                                   "': " + coordinate.error().message + (rule.wrf ? "" : ", and preset: wrf does it"));
  }
  const auto place = static_cast<std::size_t>(at() - made.dimensions.begin());
  if (made.dimensions != item.made.dimensions) {
    const auto* const other = like(made.dimensions, coordinate_->variables);
    if (const auto text = other == nullptr ? "" : text_of(other->attributes, "coordinates"); !text.empty())
      set_text(item.variable.attributes, "coordinates", text);
    else
      remove_attribute(item.variable.attributes, "coordinates");
    if (find_attribute(item.variable.attributes, "stagger") != nullptr)
      set_text(item.variable.attributes, "stagger", "");
    if (other != nullptr) {
      item.variable.contiguous = other->contiguous;
      item.variable.chunks = other->chunks;
      item.variable.filters = other->filters;
    } else {
      item.variable.contiguous = true;
      item.variable.chunks.clear();
      item.variable.filters.clear();
    }
  }
  item.from_file = false;
  item.whole = place;
  made.quantity = std::make_shared<OnLevels>(made.quantity, coordinate->quantity, place,
                                             input_.dimensions[vertical].length, levels_, rule);
  made.dimensions[place] = level_dimension_;
  made.timed = true;
  if (!item.variable.contiguous) {
    auto& chunk = item.variable.chunks[place + 1];
    chunk = std::min<std::uint64_t>(chunk, levels_.size());
  }
  set_text(item.variable.attributes, "vertical_interpolation",
           std::string(rule.method == LevelsRule::Method::log ? "linear in the logarithm of " : "linear in ") +
               rule.coordinate + "; below the lowest model level: " +
               (rule.below == LevelsRule::Below::nearest ? "its value" : "missing"));
  item.made = std::move(made);
  return {};
}

Result<void> Plan::add_file_variable(std::uint32_t number) {
  const auto& v = input_.variables[number];
  if (!timed(v) && !(is_numeric(v.type) && on_grid(v.dimensions))) {
    ProcessedVariable p;
    p.kind = ProcessedVariable::Kind::copied;
    p.from = number;
    out_.schema.variables.push_back(v);
    fit_coordinates(out_.schema.variables.back());
    out_.variables.push_back(std::move(p));
    return {};
  }
  Item item;
  item.variable = v;
  item.made = typed_variable(input_, number, axis_.dimension);
  item.from_file = true;
  item.statistics = selected_.contains(number) && timed(v);
  item.named = item.statistics && !rule_.variables.empty();
  item.origin = item.named ? rule_.origins.at("variables") : rule_.origin;
  item.packing = packing_of(v);
  return add(std::move(item));
}

/// Names of variables that have made room for the time coordinate go.
void Plan::fit_coordinates(Variable& v) const {
  const auto coordinates = text_of(v.attributes, "coordinates");
  if (coordinates.empty()) return;
  std::string kept;
  for (const auto& word : words_of(coordinates))
    if (const auto other = find_variable(input_, word); !other || !says_time(*other))
      kept += (kept.empty() ? "" : " ") + word;
  if (kept.empty())
    remove_attribute(v.attributes, "coordinates");
  else if (kept != coordinates)
    set_text(v.attributes, "coordinates", kept);
}

Result<void> Plan::add(Item item) {
  auto& v = item.variable;
  const auto number = item.made.variables.front();
  if (!item.from_file) {
    item.made.quantity = std::make_shared<ReadOnce>(item.made.quantity);
    const auto* const other = like(item.made.dimensions, item.made.variables);
    const auto& stored = other != nullptr ? *other : input_.variables[number];
    v.contiguous = stored.contiguous;
    v.filters = stored.filters;
    v.endian = stored.endian;
    if (other != nullptr) {
      v.chunks = other->chunks;
    } else if (!v.contiguous) {  // of no variable's shape: a record is a chunk
      v.chunks = {1};
      for (const auto d : item.made.dimensions)
        v.chunks.push_back(std::max<std::uint64_t>(1, input_.dimensions[d].length));
    }
  }
  if (coordinate_ && item.statistics) ADVECTIO_TRY(to_levels(item));
  if (weights_) ADVECTIO_TRY(to_grid(item));
  ProcessedVariable p;
  p.kind = item.made.timed ? ProcessedVariable::Kind::made : ProcessedVariable::Kind::made_once;
  p.from = number;
  p.quantity = item.made.quantity;
  p.whole = item.whole;
  p.plan = item.statistics ? plan_ : points_;
  const auto& steps = p.plan->steps();
  p.as_it_is =
      item.from_file && packed_alike_[number] &&
      std::all_of(steps.begin(), steps.end(), [](const TimeStep& s) { return s.statistic == Statistic::point; });
  if (!v.contiguous && !steps.empty() && item.made.timed) v.chunks.front() = 1;
  // Of a few places many records are a chunk.
  if (weights_ && !weights_->destination.names.empty() && !v.contiguous && item.made.timed && !item.from_file) {
    std::uint64_t cells = 1;
    for (std::size_t d = 1; d < v.chunks.size(); ++d) cells *= v.chunks[d];
    v.chunks.front() = std::clamp<std::uint64_t>(chunk_cells / std::max<std::uint64_t>(1, cells), 1, out_.records);
  }
  if (!p.as_it_is) {
    const auto type = item.made.single ? DataType::float32 : DataType::float64;
    const bool changed = type != v.type || item.packing.packed();
    const bool accumulates = std::any_of(steps.begin(), steps.end(), [](const TimeStep& s) {
      return s.statistic == Statistic::sum || s.statistic == Statistic::difference;
    });
    p.fill = fill_of(type, v);
    if (accumulates || changed)
      for (const char* name : {"valid_range", "valid_min", "valid_max"}) remove_attribute(v.attributes, name);
    for (const char* name : {"scale_factor", "add_offset", "actual_range"}) remove_attribute(v.attributes, name);
    v.type = type;
    set_fill(v, p.fill);
  }
  v.dimensions.clear();
  if (item.made.timed) v.dimensions.push_back(axis_.dimension);
  v.dimensions.insert(v.dimensions.end(), item.made.dimensions.begin(), item.made.dimensions.end());
  fit_filters(v);
  if (item.statistics && !rule_.time.empty())
    set_text(v.attributes, "cell_methods", cell_methods(text_of(v.attributes, "cell_methods")));
  fit_coordinates(v);
  out_.schema.variables.push_back(std::move(v));
  out_.variables.push_back(std::move(p));
  return {};
}

Result<Processed> Plan::make(const std::vector<Moment>& series) {
  for (const auto& v : input_.variables)
    if (timed(v) && v.dimensions.size() == 1 && has_since(v))
      if (const auto bounds = find_variable(input_, text_of(v.attributes, "bounds"))) time_bounds_.insert(*bounds);
  if (rule_.expressions.empty() || !rule_.variables.empty()) ADVECTIO_TRY(select());
  ADVECTIO_TRY(make_expressions());
  out_.schema = input_;
  out_.schema.variables.clear();
  ADVECTIO_TRY(find_levels());
  ADVECTIO_TRY(find_grid());
  take_along();
  if (expressions_.empty() &&
      std::none_of(selected_.begin(), selected_.end(), [&](auto i) { return timed(input_.variables[i]); }))
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
  auto& time = out_.schema.dimensions[axis_.dimension];
  if (!time.unlimited) time.length = out_.records;
  time_name_ = time.name;  // a coordinate variable, whatever the input has
  add_time(series);
  if (rule_.levels) add_levels();
  if (weights_) add_grid();
  for (std::uint32_t i = 0; i < input_.variables.size(); ++i)
    if (selected_.contains(i) || along_.contains(i)) ADVECTIO_TRY(add_file_variable(i));
  for (auto& item : expressions_) {
    const auto& there = out_.schema.variables;
    if (std::any_of(there.begin(), there.end(), [&](const Variable& v) { return v.name == item.variable.name; }))
      return refuse(item.origin, item.variable.name + " is the name of another variable of this output");
    ADVECTIO_TRY(add(std::move(item)));
  }
  if (rule_.levels && std::none_of(out_.variables.begin(), out_.variables.end(), [](const auto& p) { return p.whole; }))
    return refuse(rule_.levels->origin,
                  "levels: no variable of this output is on the levels of '" + rule_.levels->coordinate + "'");
  if (!rule_.points.empty()) say_feature_type();
  out_.time = axis_.dimension;
  drop_unused_dimensions(out_);
  return std::move(out_);
}

}  // namespace

void drop_unused_dimensions(Processed& processed) {
  auto& s = processed.schema;
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
  processed.time = place[processed.time];
  s.dimensions = std::move(kept);
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

Result<Processed> process_schema(const Schema& input, const TimeAxis& axis, const std::vector<Moment>& series,
                                 const ProcessRule& rule, const std::vector<bool>& packed_alike,
                                 std::shared_ptr<const RegridWeights> weights) {
  return Plan(input, axis, rule, packed_alike, std::move(weights)).make(series);
}

}  // namespace advectio
