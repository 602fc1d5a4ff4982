// What the rule's units do to the variables of an output.
#include "config/nearest.h"
#include "operators/cf.h"
#include "operators/process_plan.h"

namespace advectio {

const UnitsRule* Plan::units_rule(const std::string& name) const {
  for (const auto& rule : rule_.units)
    if (rule.variable == name) return &rule;
  return nullptr;
}

/// The last of all: of statistics, too.
Result<void> Plan::to_units(Item& item, ProcessedVariable& p) const {
  auto& v = item.variable;
  const auto* const rule = units_rule(v.name);
  if (rule == nullptr) return {};
  const auto where = "units: " + v.name + ": ";
  const auto given = text_of(v.attributes, "units");
  if (find_attribute(v.attributes, "units") == nullptr)
    return refuse(rule->origin,
                  where + "it has no known units; of an expression say them there: {formula: …, units: …}");
  if (!text_of(v.attributes, "bounds").empty())
    return refuse(rule->origin, where + "it has bounds, whose units would be others");
  auto made = unit_conversion(cf_units(given), rule->units);
  if (!made) return refuse(rule->origin, where + made.error().message);
  const auto& conversion = **made;
  const auto& steps = p.plan->steps();
  const bool adds = std::any_of(steps.begin(), steps.end(), [](const TimeStep& s) {
    return s.statistic == Statistic::sum || s.statistic == Statistic::difference;
  });
  const bool adds_cells = selection_.method == CoarsenRule::Method::sum && rule_.coarsen &&
                          has_along(item.made.dimensions, &Selection::Along::thinned);
  if (conversion.shifts() && (adds || adds_cells))
    return refuse(rule->origin, where + "a sum or difference in '" + given + "' has no value in '" + rule->units +
                                    "', whose zero is another");
  p.units = std::move(made).value();
  item.from_file = false;
  set_text(v.attributes, "units", rule->units);
  for (const char* name : {"valid_range", "valid_min", "valid_max"}) remove_attribute(v.attributes, name);
  if (!p.units->of_water()) return {};
  set_text(v.attributes, "units_conversion", "from " + given + ", with 1000 kg m-3 of liquid water");
  if (const auto name = text_of(v.attributes, "standard_name"); !name.empty()) {
    if (const auto mass = cf_name_of_mass(name); !mass.empty())
      set_text(v.attributes, "standard_name", mass);
    else
      remove_attribute(v.attributes, "standard_name");
  }
  return {};
}

/// Each rule has found its variable.
Result<void> Plan::check_units() const {
  for (const auto& rule : rule_.units) {
    std::vector<std::string> names;
    bool found = false;
    for (std::size_t i = 0; i < out_.variables.size(); ++i) {
      const auto& name = out_.schema.variables[i].name;
      found = found || (name == rule.variable && out_.variables[i].units);
      using Kind = ProcessedVariable::Kind;
      if (const auto kind = out_.variables[i].kind; kind == Kind::made || kind == Kind::made_once)
        names.push_back(name);
    }
    if (found) continue;
    const auto meant = nearest(rule.variable, names);
    return refuse(rule.origin, "units: " + rule.variable + " is no variable of this output that has units to change" +
                                   (meant.empty() || meant == rule.variable ? "" : "; did you mean " + meant + "?"));
  }
  return {};
}

}  // namespace advectio
