#include "operators/processed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "operators/references.h"

namespace advectio {
namespace {

Attribute text(const std::string& name, const std::string& value) {
  std::vector<Attribute> one;
  set_text(one, name, value);
  return one.front();
}

Variable variable(const std::string& name, DataType type, std::vector<std::uint32_t> dimensions,
                  std::vector<Attribute> attributes = {}) {
  Variable v;
  v.name = name;
  v.type = type;
  v.dimensions = std::move(dimensions);
  v.attributes = std::move(attributes);
  return v;
}

/// As WRF writes it, and a packed variable.
Schema wrf() {
  Schema s;
  s.dimensions = {{"Time", 0, true}, {"DateStrLen", 19, false}, {"y", 3, false}, {"x", 4, false}, {"z", 2, false}};
  s.variables = {variable("Times", DataType::text, {0, 1}),
                 variable("XTIME", DataType::float32, {0}, {text("units", "minutes since 2001-01-01 00:00:00")}),
                 variable("XLAT", DataType::float32, {0, 2, 3}, {text("coordinates", "XLONG XLAT")}),
                 variable("XLONG", DataType::float32, {0, 2, 3}, {text("coordinates", "XLONG XLAT")}),
                 variable("T2", DataType::float32, {0, 2, 3}, {text("coordinates", "XLONG XLAT XTIME")}),
                 variable("I", DataType::int32, {0, 2, 3}),
                 variable("HGT", DataType::float32, {2, 3}),
                 variable("NOTE", DataType::text, {0, 1})};
  auto& t2 = s.variables[4];
  t2.contiguous = false;
  t2.chunks = {8, 3, 4};
  t2.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}};
  return s;
}

std::vector<Moment> hours(std::size_t n) {
  std::vector<Moment> out;
  const Time start = days_of({2001, 1, 1}, Calendar::proleptic_gregorian) * day_ms;
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = start + static_cast<Time>(i) * 3'600'000;
    out.push_back({at, at, at});
  }
  return out;
}

Result<Processed> processed(const Schema& schema, const std::string& keys) {
  const auto rules = parse_process_rules("outputs:\n  - {path: a, " + keys + "}\n", "rules.yaml");
  EXPECT_TRUE(rules.ok()) << (rules ? "" : rules.error().message);
  const auto axis = find_time_axis(schema);
  EXPECT_TRUE(axis.ok());
  return process_schema(schema, *axis, hours(12), rules->outputs[0], std::vector(schema.variables.size(), true));
}

std::vector<std::string> names(const Processed& p) {
  std::vector<std::string> out;
  for (const auto& v : p.schema.variables) out.push_back(v.name);
  return out;
}

const Variable& named(const Processed& p, const std::string& name) {
  for (const auto& v : p.schema.variables)
    if (v.name == name) return v;
  ADD_FAILURE() << name;
  return p.schema.variables.front();
}

TEST(Processed, HasItsVariablesTheirCoordinatesAndTheTime) {
  const auto p = processed(wrf(), "variables: [T2], mean: 6h, closed: left");
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ(names(*p), (std::vector<std::string>{"Time", "Time_bnds", "XLAT", "XLONG", "T2"}));
  const auto& time = p->schema.variables[0];
  EXPECT_EQ(text_of(time.attributes, "units"), "minutes since 2001-01-01 00:00:00");
  EXPECT_EQ(text_of(time.attributes, "bounds"), "Time_bnds");
  EXPECT_EQ(text_of(time.attributes, "calendar"), "proleptic_gregorian");
  EXPECT_EQ(p->times, (std::vector<double>{180, 540}));
  EXPECT_EQ(p->bounds, (std::vector<double>{0, 360, 360, 720}));
  const auto& t2 = named(*p, "T2");
  EXPECT_EQ(text_of(t2.attributes, "cell_methods"), "Time: mean (interval: 1 h)");
  EXPECT_EQ(text_of(t2.attributes, "coordinates"), "XLONG XLAT") << "XTIME is replaced";
  EXPECT_EQ(t2.chunks, (std::vector<std::uint64_t>{1, 3, 4}));
  EXPECT_EQ(t2.filters.size(), 2U) << "compressed as the input";
  EXPECT_TRUE(t2.has_fill);
  EXPECT_TRUE(text_of(named(*p, "XLAT").attributes, "cell_methods").empty());
  EXPECT_TRUE(p->variables[2].as_it_is) << "coordinates have no mean";
}

TEST(Processed, TakesAllThatHasNumbersWhereNoneIsNamed) {
  const auto p = processed(wrf(), "max: all");
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ(names(*p), (std::vector<std::string>{"Time", "Time_bnds", "XLAT", "XLONG", "T2", "I", "HGT"}));
  EXPECT_EQ(p->left_out, (std::vector<std::string>{"NOTE"}));
  EXPECT_EQ(named(*p, "I").type, DataType::float64);
  EXPECT_EQ(p->variables[6].kind, ProcessedVariable::Kind::copied);
}

TEST(Processed, SingleSamplesStayAsTheyAre) {
  const auto p = processed(wrf(), "variables: [I], point: 6h");
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ(named(*p, "I").type, DataType::int32);
  EXPECT_EQ(text_of(named(*p, "I").attributes, "cell_methods"), "Time: point");
  EXPECT_EQ(names(*p), (std::vector<std::string>{"Time", "I"})) << "no bounds";
  EXPECT_EQ(p->times, (std::vector<double>{0, 360, 660})) << "of the samples themselves";
}

TEST(Processed, AChainSaysAllItsSteps) {
  const auto p = processed(wrf(), "variables: [T2], time: [{mean: 2h, closed: left}, {minimum: 1d, closed: left}]");
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ(text_of(named(*p, "T2").attributes, "cell_methods"),
            "Time: mean (interval: 1 h) Time: minimum (interval: 2 h)");
  const auto difference = processed(wrf(), "variables: [T2], difference: all");
  ASSERT_TRUE(difference.ok());
  EXPECT_EQ(text_of(named(*difference, "T2").attributes, "cell_methods"),
            "Time: sum (interval: 1 h comment: difference of the window's ends)");
}

TEST(Processed, RefusesWhatIsNotThere) {
  const auto refused = [](const std::string& keys) {
    const auto p = processed(wrf(), keys);
    EXPECT_FALSE(p.ok()) << keys;
    return p ? "" : p.error().message;
  };
  EXPECT_EQ(refused("variables: [T3], mean: 1d"), "rules.yaml:2: variable T3 is not in the files; did you mean T2?");
  EXPECT_EQ(refused("variables: [NOTE], mean: 1d"), "rules.yaml:2: variable NOTE is text, and has no statistics");
  EXPECT_EQ(refused("variables: [HGT], mean: 1d"),
            "rules.yaml:2: no variable that this output has changes with time; leave mean out");
}

TEST(TimeAxis, IsACoordinateVariableRatherThanAnother) {
  Schema s;
  s.dimensions = {{"time", 4, false}, {"run", 1, false}, {"nv", 2, false}};
  s.variables = {
      variable("reftime", DataType::float64, {1}, {text("units", "hours since 2000-01-01")}),
      variable("leadtime", DataType::float64, {0}, {text("units", "hours since 2000-01-01")}),
      variable("time", DataType::float64, {0},
               {text("units", "days since 2000-01-01"), text("calendar", "noleap"), text("bounds", "time_b")}),
      variable("time_b", DataType::float64, {0, 2})};
  const auto axis = find_time_axis(s);
  ASSERT_TRUE(axis.ok());
  EXPECT_EQ(axis->variable, 2U);
  EXPECT_EQ(axis->bounds, std::optional<std::uint32_t>(3));
  EXPECT_EQ(axis->units.calendar, Calendar::noleap);
  const auto moments = moments_of_numbers(*axis, std::vector<double>{0.5}, std::vector<double>{0, 1});
  ASSERT_TRUE(moments.ok());
  EXPECT_EQ((*moments)[0].end - (*moments)[0].begin, day_ms);
  s.variables.resize(1);
  s.variables[0].attributes.clear();
  EXPECT_EQ(find_time_axis(s).error().code, Code::unsupported);
}

// --- what attributes name ---

/// T on hybrid levels, with all that CF lets it name; some of it is nowhere.
Schema of_hybrid_levels() {
  Schema s;
  s.dimensions = {{"time", 0, true}, {"lev", 3, false}, {"x", 4, false}};
  s.variables = {variable("time", DataType::float64, {0}),    variable("lev", DataType::float64, {1}),
                 variable("hyam", DataType::float64, {1}),    variable("P0", DataType::float64, {}),
                 variable("PS", DataType::float32, {0, 2}),   variable("T", DataType::float32, {0, 1, 2}),
                 variable("T_qc", DataType::int8, {0, 1, 2}), variable("lon", DataType::float32, {2}),
                 variable("Q", DataType::float32, {0, 2})};
  set_text(s.variables[0].attributes, "units", "hours since 2001-01-01");
  set_text(s.variables[0].attributes, "calendar", "proleptic_gregorian");
  set_text(s.variables[1].attributes, "formula_terms", "a: hyam p0: P0 ps: PS");
  set_text(s.variables[5].attributes, "coordinates", "lon nowhere");
  set_text(s.variables[5].attributes, "ancillary_variables", "T_qc T_err");
  set_text(s.variables[5].attributes, "cell_measures", "area: areacella volume: volcello");
  set_text(s.variables[5].attributes, "grid_mapping", "crs");
  set_text(s.attributes, "external_variables", "volcello");
  return s;
}

TEST(Processed, BringsTheTermsOfTheLevelsFormulaWithTheStatisticsOfTheOthers) {
  const auto p = processed(of_hybrid_levels(), "variables: [T], mean: 6h");
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_THAT(names(*p), ::testing::IsSupersetOf({"lev", "hyam", "P0", "PS", "T"}));
  EXPECT_EQ(text_of(named(*p, "lev").attributes, "formula_terms"), "a: hyam p0: P0 ps: PS");
  EXPECT_THAT(text_of(named(*p, "PS").attributes, "cell_methods"), ::testing::HasSubstr("time: mean"));
  const auto without = processed(of_hybrid_levels(), "variables: [Q], mean: 6h");
  ASSERT_TRUE(without.ok());
  EXPECT_THAT(names(*without), ::testing::Not(::testing::Contains("PS")));
}

TEST(Processed, NamesNoVariablesThatAreNotThere) {
  auto schema = of_hybrid_levels();
  const auto p = processed(schema, "variables: [T], mean: 6h");
  ASSERT_TRUE(p.ok()) << p.error().message;
  const auto& t = named(*p, "T").attributes;
  EXPECT_EQ(text_of(t, "coordinates"), "lon");
  EXPECT_EQ(find_attribute(t, "ancillary_variables"), nullptr);
  EXPECT_EQ(text_of(t, "cell_measures"), "volume: volcello");
  EXPECT_EQ(find_attribute(t, "grid_mapping"), nullptr);
  schema.variables[3].name = "p_zero";
  const auto half = processed(schema, "variables: [T], mean: 6h");
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(find_attribute(named(*half, "lev").attributes, "formula_terms"), nullptr)
      << "a part of a formula means nothing";
}

TEST(References, StayWhereWhatTheyNameIsThere) {
  auto s = of_hybrid_levels();
  s.variables.push_back(variable("crs", DataType::int32, {}));
  s.variables.push_back(variable("bnds", DataType::float64, {1}));
  set_text(s.variables[5].attributes, "grid_mapping", "crs: lon gone: x");
  set_text(s.variables[1].attributes, "bounds", "bnds");
  set_text(s.variables[0].attributes, "bounds", "time_bnds");
  set_text(s.variables[0].attributes, "climatology", "clim");
  drop_dangling_names(s);
  EXPECT_EQ(text_of(s.variables[5].attributes, "ancillary_variables"), "T_qc");
  EXPECT_EQ(find_attribute(s.variables[5].attributes, "grid_mapping"), nullptr);
  EXPECT_EQ(text_of(s.variables[1].attributes, "bounds"), "bnds");
  EXPECT_EQ(text_of(s.variables[1].attributes, "formula_terms"), "a: hyam p0: P0 ps: PS");
  EXPECT_EQ(find_attribute(s.variables[0].attributes, "bounds"), nullptr);
  EXPECT_EQ(find_attribute(s.variables[0].attributes, "climatology"), nullptr);
  set_text(s.variables[5].attributes, "grid_mapping", "crs: lon");
  const auto before = s.variables[5].attributes.size();
  drop_dangling_names(s);
  EXPECT_EQ(s.variables[5].attributes.size(), before);
}

}  // namespace
}  // namespace advectio
