#include "operators/formula_terms.h"

#include <gtest/gtest.h>

#include "operators/values.h"

namespace advectio {
namespace {

/// lev and ilev as layers and interfaces, nhym as long as lev, fields along all of them.
class Formulas : public testing::Test {
 protected:
  Formulas() {
    schema.dimensions = {{"time", 0, true}, {"lev", 3, false},  {"y", 4, false},
                         {"x", 5, false},   {"nhym", 3, false}, {"other", 2, false}};
    add("T", {0, 1, 2, 3}, "K");
  }
  Variable& add(const std::string& name, std::vector<std::uint32_t> dimensions, const std::string& units) {
    Variable v;
    v.name = name;
    v.type = DataType::float64;
    v.dimensions = std::move(dimensions);
    if (!units.empty()) set_text(v.attributes, "units", units);
    schema.variables.push_back(std::move(v));
    return schema.variables.back();
  }
  void add_levels(const std::string& standard_name, const std::string& terms) {
    auto& v = add("lev", {1}, "1");
    set_text(v.attributes, "standard_name", standard_name);
    set_text(v.attributes, "formula_terms", terms);
  }
  std::string formula(LevelsRule::Kind kind = LevelsRule::Kind::pressure) {
    const auto made = level_formulas(schema, kind);
    EXPECT_TRUE(made.ok()) << (made ? "" : made.error().message);
    if (!made || made->size() != 1) return "";
    EXPECT_EQ(made->front().dimension, 1U);
    return made->front().formula + " in " + made->front().units;
  }
  std::string refused(LevelsRule::Kind kind = LevelsRule::Kind::pressure) {
    const auto made = level_formulas(schema, kind);
    EXPECT_FALSE(made.ok());
    return made ? "" : made.error().message;
  }
  Schema schema;
};

TEST_F(Formulas, AreThoseOfAppendixD) {
  add("ptop", {}, "Pa");
  add("s", {1}, "1");
  add("ps", {0, 2, 3}, "Pa");
  add_levels("atmosphere_sigma_coordinate", "sigma: s ps: ps ptop: ptop");
  EXPECT_EQ(formula(), "ptop + s * (ps - ptop) in Pa");
  schema.variables.pop_back();
  add("p0", {}, "hPa");
  add_levels("atmosphere_ln_pressure_coordinate", "p0: p0 lev: s");
  EXPECT_EQ(formula(), "p0 * exp(-s) in hPa");
  EXPECT_NE(refused(LevelsRule::Kind::height).find("no levels of hybrid height"), std::string::npos);
  schema.variables.pop_back();
  add("orog", {2, 3}, "m");
  add("a", {1}, "m");
  add_levels("atmosphere_hybrid_height_coordinate", "a: a b: s orog: orog");
  EXPECT_EQ(formula(LevelsRule::Kind::height), "a + s * orog in m");
  schema.variables.pop_back();
  add_levels("atmosphere_hybrid_sigma_pressure_coordinate", "a: s b: s p0: p0 ps: ps");
  EXPECT_NE(refused().find("adds p0 in 'hPa' and ps in 'Pa'"), std::string::npos);
}

TEST_F(Formulas, AreFoundByTheNamesOfModels) {
  add("hyam", {4}, "Pa");
  add("hybm", {4}, "1");
  EXPECT_NE(refused().find("needs the surface's pressure, which formula_terms does not name"), std::string::npos);
  add("lnsp", {0, 2, 3}, "~");
  EXPECT_EQ(formula(), "hyam + hybm * exp(lnsp) in Pa");
  add("aps", {0, 2, 3}, "Pa");
  EXPECT_EQ(formula(), "hyam + hybm * aps in Pa");
  // CAM's coefficients have no units, and a pressure beside them.
  set_text(schema.variables[1].attributes, "units", "1");
  add("P0", {}, "Pa");
  EXPECT_EQ(formula(), "hyam * P0 + hybm * aps in Pa");
  EXPECT_EQ(level_formulas(schema, LevelsRule::Kind::pressure)->front().profiles, (std::vector<std::uint32_t>{1, 2}));
}

TEST_F(Formulas, NeedAllTheirTerms) {
  EXPECT_NE(refused().find("neither formula_terms"), std::string::npos);
  add("b", {1}, "1");
  add("ps", {0, 2, 3}, "Pa");
  add_levels("atmosphere_hybrid_sigma_pressure_coordinate", "ap: ap b: b ps: ps");
  EXPECT_EQ(refused(),
            "the formula of lev needs its term ap: ap, which is not in the files; add it to the files, or say the "
            "formula as coordinate: {formula: …, units: Pa}");
  add("ap", {5}, "Pa");
  EXPECT_EQ(
      refused(),
      "the formula of lev: ap is along other with 2 values, and lev has 3 levels; files with all model levels are "
      "wanted");
}

}  // namespace
}  // namespace advectio
