#include "operators/processed.h"

#include "config/glob.h"
#include "config/nearest.h"
#include "operators/process_plan.h"
#include "operators/references.h"
#include "operators/wrf_diagnostics.h"

namespace advectio {

bool has_since(const Variable& v) {
  return text_of(v.attributes, "units").find(" since ") != std::string::npos;
}

std::optional<std::uint32_t> find_variable(const Schema& schema, std::string_view name) {
  for (std::uint32_t i = 0; i < schema.variables.size(); ++i)
    if (schema.variables[i].name == name) return i;
  return std::nullopt;
}

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
  for (const auto& coordinate : coordinates_)
    if (const auto* const other = like(coordinate.typed)) take(named_by(*other));
  for (const auto& item : expressions_) {
    auto like_it = item.variable;
    like_it.dimensions = item.made.dimensions;
    // Times that nobody can read stay as they are.
    if (item.made.timed && !axis_.dated()) like_it.dimensions.push_back(axis_.dimension);
    take(named_by(like_it));
  }
  while (!open.empty()) {
    const auto i = open.back();
    open.pop_back();
    take(named_by(input_.variables[i]));
    take_formula(input_.variables[i]);
  }
  drop_lost_cells();
}

/// The formula of levels needs other variables, and they come along. A field among them has the statistics of the
/// others: the mean of the surface's pressure belongs to the means on levels. Levels that are interpolated need no
/// formula.
void Plan::take_formula(const Variable& levels) {
  if (rule_.levels) return;
  for (const auto& name : formula_terms_of(levels)) {
    const auto other = find_variable(input_, name);
    if (!other || says_time(*other) || selected_.contains(*other) || along_.contains(*other)) continue;
    const auto& v = input_.variables[*other];
    if (of_grid(v) && !has_a_place(*other)) continue;
    if (!timed(v))
      along_.insert(*other);
    else if (is_numeric(v.type) && v.dimensions.front() == axis_.dimension)
      selected_.insert(*other);
  }
}

Result<Processed> Plan::make(const std::vector<Moment>& series, const TimePlan* whole) {
  for (const auto& v : input_.variables)
    if (timed(v) && v.dimensions.size() == 1 && has_since(v))
      if (const auto bounds = find_variable(input_, text_of(v.attributes, "bounds"))) time_bounds_.insert(*bounds);
  if (rule_.expressions.empty() || !rule_.variables.empty()) ADVECTIO_TRY(select());
  ADVECTIO_TRY(make_expressions());
  out_.schema = input_;
  out_.schema.variables.clear();
  for (std::uint32_t d = 0; d < selection_.along.size(); ++d)
    if (selection_.along[d].thinned()) out_.schema.dimensions[d].length = selection_.along[d].cells();
  ADVECTIO_TRY(find_levels());
  ADVECTIO_TRY(find_grid());
  ADVECTIO_TRY(check_cells());
  take_along();
  const bool fixed =
      std::none_of(selected_.begin(), selected_.end(), [&](auto i) { return timed(input_.variables[i]); }) &&
      std::none_of(expressions_.begin(), expressions_.end(), [](const Item& item) { return item.made.timed; });
  if (fixed && (!rule_.time.empty() || rule_.split))
    return refuse(rule_.variables.empty() ? rule_.origin : rule_.variables.front().origin,
                  "no variable that this output has changes with time; leave " +
                      (rule_.time.empty() ? "split" : std::string(name_of(rule_.time.front().statistic))) + " out");
  auto plan = TimePlan::make(series, rule_.time, axis_.units.calendar, whole);
  if (!plan) {
    plan.error().code = Code::config;
    return std::move(plan).error();
  }
  plan_ = std::make_shared<TimePlan>(std::move(plan).value());
  points_ = std::make_shared<TimePlan>(plan_->points());
  for (std::size_t s = 0; s < rule_.time.size(); ++s) intervals_.push_back(interval_of(plan_->taken(s)));
  out_.records = fixed ? 0 : plan_->moments().size();
  if (axis_.has_dimension()) {
    auto& time = out_.schema.dimensions[axis_.dimension];
    if (!time.unlimited) time.length = out_.records;
    time_name_ = time.name;  // a coordinate variable, whatever the input has
  }
  if (axis_.dated() && !fixed) add_time(whole != nullptr ? whole->taken(0) : series);
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
                  "levels: no variable of this output is on the levels of '" + coordinates_.front().text + "'");
  ADVECTIO_TRY(check_units());
  drop_lost_coordinates();
  for (auto& v : out_.schema.variables) fit_to_cells(v);
  if (!rule_.points.empty()) say_feature_type();
  drop_dangling_names(out_.schema);
  out_.time = axis_.dimension;
  drop_unused_dimensions(out_);
  return std::move(out_);
}

/// Coordinates of what is no longer there: of model levels, of points that were staggered.
void Plan::drop_lost_coordinates() {
  std::set<std::uint32_t> before, now;
  using Kind = ProcessedVariable::Kind;
  const auto is_along = [&](std::size_t i) {
    const auto& p = out_.variables[i];
    if (p.kind != Kind::made && p.kind != Kind::made_once && p.kind != Kind::copied) return false;
    return along_.contains(p.from) && out_.schema.variables[i].name == input_.variables[p.from].name;
  };
  for (const auto i : selected_)
    before.insert(input_.variables[i].dimensions.begin(), input_.variables[i].dimensions.end());
  for (std::size_t i = 0; i < out_.variables.size(); ++i)
    if (!is_along(i))
      now.insert(out_.schema.variables[i].dimensions.begin(), out_.schema.variables[i].dimensions.end());
  for (auto i = out_.variables.size(); i-- > 0;) {
    const auto& dimensions = out_.schema.variables[i].dimensions;
    const bool lost = is_along(i) && std::any_of(dimensions.begin(), dimensions.end(), [&](std::uint32_t d) {
                        return before.contains(d) && !now.contains(d);
                      });
    if (!lost) continue;
    out_.schema.variables.erase(out_.schema.variables.begin() + static_cast<std::ptrdiff_t>(i));
    out_.variables.erase(out_.variables.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

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
  if (processed.time < place.size()) processed.time = place[processed.time];
  s.dimensions = std::move(kept);
}

Result<void> check_dates(const ProcessRule& rule, const TimeAxis& axis) {
  if (axis.dated() || (rule.time.empty() && !rule.split)) return {};
  const auto& origin = rule.time.empty() ? rule.origins.at("split") : rule.time.front().origin;
  const auto key = rule.time.empty() ? "split" : std::string(name_of(rule.time.front().statistic));
  return Error{Code::config, origin + ": " + key + " takes the times of records: " + axis.undated, 0};
}

Result<Processed> process_schema(const Schema& input, const TimeAxis& axis, const std::vector<Moment>& series,
                                 const ProcessRule& rule, const std::vector<bool>& packed_alike,
                                 std::shared_ptr<const RegridWeights> weights, Selection selection,
                                 const TimePlan* whole) {
  if (selection.empty()) {
    selection = {};
    return Plan(input, axis, rule, packed_alike, std::move(weights), selection, nullptr).make(series, whole);
  }
  // Expressions, levels and the like see files that have the part alone.
  const auto cut = cut_schema(input, selection);
  auto parts = std::make_shared<const FileParts>(parts_of(input, axis.dimension, selection));
  auto made = Plan(cut, axis, rule, packed_alike, std::move(weights), selection, std::move(parts)).make(series, whole);
  if (made) made->selection = std::move(selection);
  return made;
}

}  // namespace advectio
