// An output on levels: its level coordinate, and its variables from model levels to the levels of the rule.
#include "operators/formula_terms.h"
#include "operators/process_plan.h"
#include "operators/vertical.h"
#include "operators/wrf_diagnostics.h"

namespace advectio {

Result<void> Plan::add_level_coordinate(Typed typed, const std::string& text, const std::string& given_units,
                                        std::uint32_t dimension) {
  const auto& rule = *rule_.levels;
  const auto& units = given_units.empty() ? typed.units : given_units;
  const auto factor = unit_factor(rule.kind, rule.units, units);
  if (factor == 0)
    return refuse(rule.origin,
                  "levels: '" + text + "' has " + (units.empty() ? "no known units" : "the units '" + units + "'") +
                      ", and the levels are in " + rule.units +
                      (units.empty() ? "; say them as coordinate: {formula: \"" + text + "\", units: …}" : ""));
  LevelCoordinate one;
  one.typed = std::move(typed);
  one.dimension = dimension;
  one.text = text;
  for (const auto level : rule.levels) one.levels.push_back(level * factor);
  coordinates_.push_back(std::move(one));
  return {};
}

/// The dimension of an expression that has the levels: the one whose coordinate says so, else the first.
std::uint32_t Plan::vertical_of(const Typed& typed) const {
  for (const auto d : typed.dimensions)
    if (const auto number = find_variable(input_, input_.dimensions[d].name)) {
      const auto& a = input_.variables[*number].attributes;
      if (text_of(a, "axis") == "Z" || !text_of(a, "positive").empty()) return d;
    }
  return typed.dimensions.front();
}

Result<void> Plan::find_levels() {
  if (!rule_.levels) return {};
  const auto& rule = *rule_.levels;
  if (rule.hybrid) {
    auto formulas = level_formulas(input_, rule.kind);
    if (!formulas) return refuse(rule.origin, "levels: preset hybrid: " + formulas.error().message);
    for (const auto& formula : *formulas) {
      // cdo's coefficients have a dimension of their own, which means the levels'.
      auto schema = input_;
      for (const auto profile : formula.profiles) schema.variables[profile].dimensions = {formula.dimension};
      auto made = compile_expression(formula.formula, schema, axis_.dimension);
      if (!made) return refuse(rule.origin, "levels: preset hybrid: " + made.error().message);
      ADVECTIO_TRY(add_level_coordinate(std::move(made).value(), formula.formula, formula.units, formula.dimension));
    }
  } else {
    auto made = compile_expression(rule.coordinate, input_, axis_.dimension, definitions_);
    if (!made) return refuse(rule.origin, "levels: coordinate: " + made.error().message);
    if (made->dimensions.empty()) return refuse(rule.origin, "levels: '" + rule.coordinate + "' has no levels");
    const auto vertical = vertical_of(*made);
    ADVECTIO_TRY(add_level_coordinate(std::move(made).value(), rule.coordinate, rule.coordinate_units, vertical));
  }
  const bool pressure = rule.kind == LevelsRule::Kind::pressure;
  std::string name = pressure ? "plev" : "height";
  // A height above the sea is none of CF's `height`, which is above the ground.
  if (const auto of_cf = pressure ? std::string() : height_name(); rule_.cf && !of_cf.empty()) name = of_cf;
  if (find_variable(input_, name)) name += "_of_rule";
  level_dimension_ = static_cast<std::uint32_t>(out_.schema.dimensions.size());
  out_.schema.dimensions.push_back({name, rule.levels.size(), false});
  return {};
}

/// The `standard_name` of the heights. Empty: not known.
std::string Plan::height_name() const {
  const auto& rule = *rule_.levels;
  if (rule.of_preset) return "geopotential_height";
  if (rule.hybrid) return "altitude";
  for (const auto& own : rule_.expressions)
    if (own.name == rule.coordinate && !own.standard_name.empty()) return own.standard_name;
  if (const auto number = find_variable(input_, rule.coordinate))
    return text_of(input_.variables[*number].attributes, "standard_name");
  const auto* const known = find_wrf_diagnostic(rule.coordinate);
  return known != nullptr ? std::string(known->standard_name) : "";
}

void Plan::add_levels() {
  const auto& rule = *rule_.levels;
  const bool pressure = rule.kind == LevelsRule::Kind::pressure;
  std::vector<std::pair<std::string, std::string>> attributes = {{"units", rule.units}};
  // Whether a height is above the sea or the ground, only the coordinate's author knows.
  const auto name = pressure ? "air_pressure" : height_name();
  if (!name.empty()) attributes.emplace_back("standard_name", name);
  if (!pressure) attributes.emplace_back("long_name", "height: " + coordinates_.front().text);
  attributes.emplace_back("positive", pressure ? "down" : "up");
  attributes.emplace_back("axis", "Z");
  add_coordinate(out_.schema.dimensions[level_dimension_].name, {level_dimension_}, rule.levels, attributes);
}

/// Interpolates a variable on model levels to the levels of the rule.
Result<void> Plan::to_levels(Item& item) {
  for (const auto& coordinate : coordinates_) {
    auto here = to_levels(item, coordinate);
    if (!here) return std::move(here).error();
    if (*here) break;
  }
  return {};
}

Result<bool> Plan::to_levels(Item& item, const LevelCoordinate& levels) {
  const auto& rule = *rule_.levels;
  const auto vertical = levels.dimension;
  auto made = item.made;
  // Records of it would be as many as the coordinate has: that is another variable than the one of the rule.
  if (levels.typed.timed && !made.timed) return false;
  const auto at = [&] { return std::find(made.dimensions.begin(), made.dimensions.end(), vertical); };
  if (rule.wrf) {
    const auto staggered = input_.dimensions[vertical].name + "_stag";
    const bool here = at() != made.dimensions.end() ||
                      std::any_of(made.dimensions.begin(), made.dimensions.end(),
                                  [&](std::uint32_t d) { return input_.dimensions[d].name == staggered; });
    if (here)
      if (auto mass = destaggered(made, input_)) made = std::move(mass).value();
  }
  if (at() == made.dimensions.end()) return false;
  auto coordinate = repeated(levels.typed, made.dimensions, input_);
  if (!coordinate) {
    if (!item.named) return false;  // of all variables those that have no columns there keep their levels
    return refuse(item.origin, "variable " + item.variable.name + " on levels of '" + levels.text +
                                   "': " + coordinate.error().message + (rule.wrf ? "" : ", and preset: wrf does it"));
  }
  const auto place = static_cast<std::size_t>(at() - made.dimensions.begin());
  if (made.dimensions != item.made.dimensions) {
    auto its = levels.typed;
    its.dimensions = made.dimensions;
    const auto* const other = like(its);
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
                                             input_.dimensions[vertical].length, levels.levels, rule);
  made.dimensions[place] = level_dimension_;
  if (!item.variable.contiguous) {
    auto& chunk = item.variable.chunks[place + (made.timed ? 1 : 0)];
    chunk = std::min<std::uint64_t>(chunk, levels.levels.size());
  }
  set_text(
      item.variable.attributes, "vertical_interpolation",
      std::string(rule.method == LevelsRule::Method::log ? "linear in the logarithm of " : "linear in ") + levels.text +
          "; below the lowest model level: " + (rule.below == LevelsRule::Below::nearest ? "its value" : "missing"));
  item.made = std::move(made);
  return true;
}

}  // namespace advectio
