#include "operators/formula_terms.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>

#include "operators/references.h"
#include "operators/values.h"
#include "operators/vertical.h"

namespace advectio {
namespace {

using Terms = std::map<std::string, std::string>;  // of the formula → of the file

Error refuse(const std::string& what) {
  return Error{Code::config, what, 0};
}

const Variable* find(const Schema& schema, const std::string& name) {
  const auto it = std::find_if(schema.variables.begin(), schema.variables.end(),
                               [&](const Variable& v) { return v.name == name && is_numeric(v.type); });
  return it == schema.variables.end() ? nullptr : &*it;
}

/// CF's standard names, with the alias of ECHAM's levels by cdo.
struct Known {
  std::string_view standard_name;
  LevelsRule::Kind kind;
};
constexpr std::array<Known, 5> known = {{
    {"atmosphere_hybrid_sigma_pressure_coordinate", LevelsRule::Kind::pressure},
    {"hybrid_sigma_pressure", LevelsRule::Kind::pressure},
    {"atmosphere_sigma_coordinate", LevelsRule::Kind::pressure},
    {"atmosphere_ln_pressure_coordinate", LevelsRule::Kind::pressure},
    {"atmosphere_hybrid_height_coordinate", LevelsRule::Kind::height},
}};

/// The surface's pressure where the formula does not say it: by CF's name of it, and by names of models.
std::string surface_pressure(const Schema& schema) {
  for (const auto& v : schema.variables)
    if (is_numeric(v.type) && text_of(v.attributes, "standard_name") == "surface_air_pressure") return v.name;
  for (const char* name : {"PS", "ps", "aps", "sp"})
    if (find(schema, name) != nullptr) return name;
  return "";
}

std::string logarithm_of_pressure(const Schema& schema) {
  for (const char* name : {"lnsp", "lsp"})
    if (find(schema, name) != nullptr) return name;
  return "";
}

/// A name as an expression can have it.
bool is_word(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// One unit for all that is added.
Result<std::string> common_unit(const Schema& schema, const std::string& of, LevelsRule::Kind kind,
                                const std::vector<std::string>& names) {
  std::string unit, first;
  for (const auto& name : names) {
    const auto its = text_of(find(schema, name)->attributes, "units");
    if (its.empty() || its == "1") continue;
    if (unit.empty()) {
      unit = its;
      first = name;
    } else if (its != unit && unit_factor(kind, unit, its) != 1) {
      return refuse("the formula of " + of + " adds " + first + " in '" + unit + "' and " + name + " in '" + its +
                    "'; say it with one unit, as in coordinate: {formula: \"100 * " + first + " + …\", units: " + its +
                    "}");
    }
  }
  return unit;
}

/// A formula of these terms. `of` is what errors call it.
Result<LevelFormula> made_of(const Schema& schema, const std::string& of, const std::string& standard_name, Terms terms,
                             std::uint32_t dimension) {
  const auto kind =
      standard_name == "atmosphere_hybrid_height_coordinate" ? LevelsRule::Kind::height : LevelsRule::Kind::pressure;
  const auto has = [&](const char* term) { return terms.contains(term); };
  std::string surface;
  if (const auto ps = terms.find("ps"); ps == terms.end() || find(schema, ps->second) == nullptr) {
    // cdo names aps whatever the file's own variable is called.
    if (kind == LevelsRule::Kind::pressure && standard_name != "atmosphere_ln_pressure_coordinate") {
      const auto named = surface_pressure(schema);
      const auto logarithm = logarithm_of_pressure(schema);
      if (!named.empty())
        terms["ps"] = named;
      else if (!logarithm.empty())
        surface = "exp(" + logarithm + ")";
    }
  }
  const auto lacks = [&](const std::string& term) {
    const auto it = terms.find(term);
    const bool pressure = term == "ps";
    return refuse("the formula of " + of + " needs " + (pressure ? "the surface's pressure" : "its term " + term) +
                  (it == terms.end() ? ", which formula_terms does not name"
                                     : ": " + it->second + ", which is not in the files") +
                  "; add it to the files, or say the formula as coordinate: {formula: …, units: " +
                  (kind == LevelsRule::Kind::pressure ? "Pa" : "m") + "}");
  };
  std::vector<std::string> wanted, added, profiles;
  std::string formula;
  const auto term = [&](const char* name) { return terms.contains(name) ? terms[name] : std::string(name); };
  if (standard_name == "atmosphere_ln_pressure_coordinate") {
    wanted = {"p0", "lev"};
    formula = term("p0") + " * exp(-" + term("lev") + ")";
    added = {term("p0")};
    profiles = {term("lev")};
  } else if (standard_name == "atmosphere_sigma_coordinate") {
    wanted = {"sigma", "ps", "ptop"};
    const auto ps = surface.empty() ? term("ps") : surface;
    formula = term("ptop") + " + " + term("sigma") + " * (" + ps + " - " + term("ptop") + ")";
    added = {term("ptop"), term("ps")};
    profiles = {term("sigma")};
  } else if (standard_name == "atmosphere_hybrid_height_coordinate") {
    wanted = {"a", "b", "orog"};
    formula = term("a") + " + " + term("b") + " * " + term("orog");
    added = {term("a"), term("orog")};
    profiles = {term("a"), term("b")};
  } else {
    const auto ps = surface.empty() ? term("ps") : surface;
    const bool scaled = !has("ap");
    wanted = scaled ? std::vector<std::string>{"a", "b", "p0", "ps"} : std::vector<std::string>{"ap", "b", "ps"};
    formula = (scaled ? term("a") + " * " + term("p0") : term("ap")) + " + " + term("b") + " * " + ps;
    added = {term(scaled ? "p0" : "ap"), term("ps")};
    profiles = {term(scaled ? "a" : "ap"), term("b")};
  }
  for (const auto& name : wanted) {
    if (name == "ps" && !surface.empty()) continue;
    if (!terms.contains(name) || find(schema, terms[name]) == nullptr) return lacks(name);
    if (!is_word(terms[name]))
      return refuse("the formula of " + of + " has the name '" + terms[name] +
                    "', which no expression can have; rename the variable");
  }
  if (!surface.empty()) std::erase(added, term("ps"));
  auto unit = common_unit(schema, of, kind, added);
  if (!unit) return std::move(unit).error();
  LevelFormula out;
  out.dimension = dimension;
  out.formula = std::move(formula);
  out.units = !unit->empty() ? *unit : kind == LevelsRule::Kind::pressure ? "Pa" : "m";
  for (const auto& name : profiles) {
    const auto& v = *find(schema, name);
    const auto number = static_cast<std::uint32_t>(&v - schema.variables.data());
    if (v.dimensions.empty() || v.dimensions.back() == dimension) continue;
    const auto &mine = schema.dimensions[dimension], &its = schema.dimensions[v.dimensions.back()];
    if (v.dimensions.size() > 1 || its.length != mine.length)
      return refuse("the formula of " + of + ": " + name + " is along " + its.name + " with " +
                    std::to_string(its.length) + " values, and " + mine.name + " has " + std::to_string(mine.length) +
                    " levels; files with all model levels are wanted");
    out.profiles.push_back(number);
  }
  return out;
}

/// The dimension of fields to which hyam(nhym) belongs: its own, or one of levels that is as long.
std::optional<std::uint32_t> levels_of(const Schema& schema, const Variable& profile) {
  const auto own = profile.dimensions.front();
  const auto has_fields = [&](std::uint32_t d) {
    return std::any_of(schema.variables.begin(), schema.variables.end(), [&](const Variable& v) {
      return v.dimensions.size() > 2 && std::find(v.dimensions.begin(), v.dimensions.end(), d) != v.dimensions.end();
    });
  };
  if (has_fields(own)) return own;
  for (std::uint32_t d = 0; d < schema.dimensions.size(); ++d) {
    const auto& dimension = schema.dimensions[d];
    const bool named = dimension.name.find("lev") != std::string::npos || dimension.name.starts_with("hybrid");
    if (named && dimension.length == schema.dimensions[own].length && has_fields(d)) return d;
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<LevelFormula>> level_formulas(const Schema& schema, LevelsRule::Kind kind) {
  std::vector<LevelFormula> out;
  std::optional<Error> wrong;
  const auto take = [&](Result<LevelFormula> made) {
    if (!made) {
      if (!wrong) wrong = std::move(made).error();
      return;
    }
    if (std::none_of(out.begin(), out.end(), [&](const auto& other) { return other.dimension == made->dimension; }))
      out.push_back(std::move(made).value());
  };
  for (const auto& v : schema.variables) {
    const auto name = text_of(v.attributes, "standard_name");
    const auto it = std::find_if(known.begin(), known.end(), [&](const Known& k) { return k.standard_name == name; });
    if (it == known.end() || it->kind != kind || v.dimensions.size() != 1) continue;
    const auto terms = named_terms_of(v);
    if (!terms.empty()) take(made_of(schema, v.name, name, terms, v.dimensions.front()));
  }
  if (out.empty() && !wrong && kind == LevelsRule::Kind::pressure)
    for (const auto& [a, b] : {std::pair("hyam", "hybm"), std::pair("hyai", "hybi"), std::pair("ap", "b")}) {
      const auto *const profile = find(schema, a), *const other = find(schema, b);
      if (profile == nullptr || other == nullptr || profile->dimensions.size() != 1) continue;
      const auto dimension = levels_of(schema, *profile);
      if (!dimension) continue;
      const auto* const p0 = find(schema, "P0") != nullptr ? "P0" : "p0";
      // CAM's coefficients are of a reference pressure, those of ECHAM and the IFS are in Pa.
      const auto units = text_of(profile->attributes, "units");
      Terms terms = {{"b", b}};
      if (find(schema, p0) != nullptr && (units.empty() || units == "1"))
        terms.insert({{"a", a}, {"p0", p0}});
      else
        terms.insert({"ap", a});
      take(made_of(schema, std::string(a) + " and " + b, std::string(known.front().standard_name), std::move(terms),
                   *dimension));
    }
  if (out.empty() && wrong) return std::move(*wrong);
  if (out.empty())
    return refuse(kind == LevelsRule::Kind::pressure
                      ? "the files have no levels of hybrid sigma: neither formula_terms with the standard_name "
                        "atmosphere_hybrid_sigma_pressure_coordinate, nor hyam and hybm; say the pressure as coordinate"
                      : "the files have no levels of hybrid height: no formula_terms with the standard_name "
                        "atmosphere_hybrid_height_coordinate; say the height as coordinate");
  return out;
}

}  // namespace advectio
