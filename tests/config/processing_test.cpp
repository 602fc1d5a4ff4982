#include "config/processing.h"

#include <gtest/gtest.h>

#include "config/nearest.h"

namespace advectio {
namespace {

std::string wrong(const std::string& text) {
  const auto rules = parse_process_rules(text, "rules.yaml");
  EXPECT_FALSE(rules.ok()) << text;
  return rules ? "" : rules.error().message;
}
std::string wrong_output(const std::string& keys) {
  return wrong("outputs:\n  - {path: a, " + keys + "}\n");
}

TEST(ProcessRules, AreReadWithTheirOrigins) {
  const auto rules = parse_process_rules(
      "outputs:\n"
      "  - {path: \"daily/{name}\", variables: [T2, \"U*\"], mean: 1d, min_count: 20, codec: zstd, level: 3}\n"
      "  - path: weekly.nc\n"
      "    time: [{mean: 1d}, {min: 1w, closed: left}]\n",
      "rules.yaml");
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  ASSERT_EQ(rules->outputs.size(), 2U);
  const auto& daily = rules->outputs[0];
  EXPECT_EQ(daily.origin, "rules.yaml:2");
  EXPECT_EQ(daily.variables[1].name, "U*");
  EXPECT_EQ(daily.stored.codec, Codec::zstd);
  ASSERT_EQ(daily.time.size(), 1U);
  EXPECT_EQ(daily.time[0].statistic, Statistic::mean);
  EXPECT_EQ(daily.time[0].window, (Window{86'400'000, 0}));
  EXPECT_EQ(daily.time[0].min_count, 20U);
  const auto& weekly = rules->outputs[1];
  ASSERT_EQ(weekly.time.size(), 2U);
  EXPECT_EQ(weekly.time[1].statistic, Statistic::minimum);
  EXPECT_EQ(weekly.time[1].origin, "rules.yaml:4");
  EXPECT_FALSE(weekly.time[0].closed_left);
  EXPECT_TRUE(weekly.time[1].closed_left);
  EXPECT_EQ(process_path(daily, "out", "/run/wrfout_d01"), "out/daily/wrfout_d01");
  EXPECT_EQ(process_path(weekly, "out", "/run/wrfout_d01"), "out/weekly.nc");
}

TEST(ProcessRules, RefuseWhatCannotBeInOneLine) {
  EXPECT_EQ(wrong(""), "rules.yaml:1: outputs: a list is wanted, like - {path: \"daily/{name}\", mean: 1d}");
  EXPECT_EQ(wrong("outputs: []\n"),
            "rules.yaml:1: outputs: a list is wanted, like - {path: \"daily/{name}\", mean: 1d}");
  EXPECT_EQ(wrong("datasets: []\n"),
            "rules.yaml:1: unknown key datasets; rules of advectio process have outputs, and may have overlap");
  EXPECT_EQ(wrong("outputs:\n  - {mean: 1d}\n"), "rules.yaml:2: outputs[0]: path is missing");
  EXPECT_EQ(wrong_output("meen: 1d"), "rules.yaml:2: outputs[0]: unknown key meen; did you mean mean?");
  EXPECT_EQ(
      wrong_output("mean: 1x"),
      "rules.yaml:2: outputs[0].mean: '1x' has the unknown unit 'x'; write e.g. 6h (units: s, min, h, d, w, mo, y)");
  EXPECT_EQ(wrong_output("mean: 6"),
            "rules.yaml:2: outputs[0].mean: '6' has no unit; write e.g. 6h (units: s, min, h, d, w, mo, y)");
  EXPECT_EQ(wrong_output("mean: daily"),
            "rules.yaml:2: outputs[0].mean: 'daily' is no window; write e.g. 6h, 1d, 1mo, or all");
  EXPECT_EQ(wrong_output("mean: 0h"), "rules.yaml:2: outputs[0].mean: '0h' is no length of a window");
  EXPECT_EQ(wrong_output("mean: 1d, max: 6h"),
            "rules.yaml:2: outputs[0] has mean and max; one statistic an output, or a chain: time: [{mean: 1d}, "
            "{minimum: 1w}]");
  EXPECT_EQ(wrong_output("min_count: 3"),
            "rules.yaml:2: outputs[0]: min_count and closed are of a statistic, like mean: 1d, and there is none");
  EXPECT_EQ(wrong_output("mean: 1d, min_count: 0"),
            "rules.yaml:2: outputs[0].min_count: a whole number from 1 is wanted, this is '0'");
  EXPECT_EQ(wrong_output("point: 1d, min_count: 2"),
            "rules.yaml:2: outputs[0].min_count: point looks at single samples, and counts none");
  EXPECT_EQ(wrong_output("mean: 1d, closed: both"),
            "rules.yaml:2: outputs[0].closed: left or right is wanted, this is 'both'");
  EXPECT_EQ(wrong_output("difference: 1d, closed: left"),
            "rules.yaml:2: outputs[0].closed: the difference is that of a window's ends: right only");
  EXPECT_EQ(wrong_output("time: [{mean: 1d}], max: 6h"),
            "rules.yaml:2: outputs[0].time: the statistics of this output stand in its list, and not beside it");
  EXPECT_EQ(
      wrong_output("time: [{medium: 1d}]"),
      "rules.yaml:2: outputs[0].time[0]: unknown key medium; known: mean, minimum, maximum, sum, difference, point, "
      "min_count, closed");
  EXPECT_EQ(wrong_output("variables: T2"),
            "rules.yaml:2: outputs[0].variables: a list of names is wanted, like [T2, U10], this is 'T2'");
  EXPECT_EQ(wrong_output("codec: zstd, format: classic"),
            "rules.yaml:2: outputs[0].codec: zstd cannot be: the classic formats have no compression");
  EXPECT_EQ(wrong_output("level: 3"),
            "rules.yaml:2: outputs[0].level: the scale belongs to a codec; name the codec in the same rule");
  EXPECT_EQ(
      wrong_output("split: 1d"),
      "rules.yaml:2: outputs[0]: split makes a file for each 1d, and path gives all of them one name; add {time} to "
      "it, like \"daily/{time}.nc\"");
  EXPECT_EQ(wrong_output("split: all"),
            "rules.yaml:2: outputs[0].split: all is one file, which is what an output has without split");
  EXPECT_EQ(wrong("outputs:\n  - {path: \"{time}.nc\"}\n"),
            "rules.yaml:2: outputs[0]: {time} in path is the period of split, which is missing");
  EXPECT_EQ(wrong("outputs:\n  - {path: \"{time}.nc\", split: 1mo, mean: all}\n"),
            "rules.yaml:2: outputs[0]: split and mean: all; one of them an output");
  EXPECT_EQ(wrong_output("promise: durable").substr(0, 60),
            "rules.yaml:2: outputs[0]: unknown key promise; known: path, ");
}

TEST(ProcessRules, HaveLevelsAndExpressions) {
  const auto rules = parse_process_rules(
      "outputs:\n"
      "  - {path: a, levels: {pressure: [850, 500 hPa], preset: wrf, below: nearest}}\n"
      "  - {path: b, levels: {height: [0.1, 2km], coordinate: z}}\n"
      "  - {path: c, levels: {pressure: [50000 Pa], coordinate: p, method: linear}}\n"
      "  - path: d\n"
      "    expressions:\n"
      "      speed: \"hypot(U10, V10)\"\n"
      "      TC: {formula: T2 - 273.15, units: degC, long_name: air temperature}\n",
      "rules.yaml");
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  const auto& wrf = *rules->outputs[0].levels;
  EXPECT_EQ(wrf.levels, (std::vector<double>{850, 500}));
  EXPECT_EQ(wrf.units, "hPa");
  EXPECT_EQ(wrf.coordinate, "P + PB");
  EXPECT_EQ(wrf.method, LevelsRule::Method::linear);
  EXPECT_EQ(wrf.below, LevelsRule::Below::nearest);
  EXPECT_EQ(rules->outputs[1].levels->units, "km");
  EXPECT_EQ(rules->outputs[1].levels->kind, LevelsRule::Kind::height);
  EXPECT_EQ(rules->outputs[2].levels->method, LevelsRule::Method::linear);
  const auto& made = rules->outputs[3].expressions;
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[0].formula, "hypot(U10, V10)");
  EXPECT_EQ(made[1].units, "degC");
  EXPECT_EQ(made[1].origin, "rules.yaml:8");
}

TEST(ProcessRules, RefuseLevelsAndExpressionsThatCannotBe) {
  const std::string at = "rules.yaml:2: outputs[0].levels: ";
  EXPECT_EQ(wrong_output("levels: {pressure: [850, 500]}"),
            at + "pressure: the levels have no unit; write e.g. [850, 500, 250 hPa] (units: Pa, hPa)");
  EXPECT_EQ(wrong_output("levels: {pressure: [850 m]}"),
            at + "pressure: unknown unit 'm'; write e.g. [850, 500, 250 hPa] (units: Pa, hPa)");
  EXPECT_EQ(wrong_output("levels: {pressure: [850 hPa, 500]}"),
            at + "pressure: the unit stands behind the last level, as in [850, 500, 250 hPa]");
  EXPECT_EQ(wrong_output("levels: {pressure: [8500, 500 hPa], preset: wrf}"),
            at + "pressure: a level lies outside of any atmosphere; 0 to 1200 hPa can be");
  EXPECT_EQ(wrong_output("levels: {pressure: [500, 500 hPa]}"), at + "pressure: '500 hPa' stands there twice");
  EXPECT_EQ(wrong_output("levels: {pressure: [500 hPa]}"),
            at +
                "coordinate is missing: what has the pressure at model levels, like coordinate: \"P + PB\"; or preset: "
                "wrf, or preset: hybrid");
  EXPECT_EQ(wrong_output("levels: {height: [500 m], coordinate: z, method: log}"),
            at + "method: log is for pressure; heights may be 0");
  EXPECT_EQ(wrong_output("levels: {pressure: [500 hPa], preset: wfr}"), at + "preset: 'wfr' is none of: wrf, hybrid");
  EXPECT_EQ(wrong_output("levels: {preset: wrf}"),
            at + "a map is wanted, like {pressure: [850, 500, 250 hPa], preset: wrf}");
  EXPECT_EQ(
      wrong_output("expressions: {a: {formul: b}}"),
      "rules.yaml:2: outputs[0].expressions: a: unknown key formul; known: formula, units, long_name, standard_name");
  EXPECT_EQ(wrong_output("expressions: [a]"),
            "rules.yaml:2: outputs[0].expressions: a map is wanted, like {speed: \"hypot(U10, V10)\"}");
}

TEST(ProcessRules, HavePartsAndBlocksOfCells) {
  const auto rules = parse_process_rules(
      "outputs:\n"
      "  - {path: a, region: {lon: [170, -170], lat: [25, 35]}}\n"
      "  - path: b\n"
      "    subset: {x: 10:60, y: \"-5:\", z: \"::2\", k: 7, l: -1}\n"
      "    coarsen: {y: 2, method: maximum}\n"
      "    units: {T2: degC, RAINNC: kg m-2}\n",
      "rules.yaml");
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  const auto& region = *rules->outputs[0].region;
  EXPECT_EQ(region.lon->least, 170);
  EXPECT_EQ(region.lon->most, 190);
  EXPECT_EQ(region.lat->most, 35);
  const auto& subset = rules->outputs[1].subset;
  ASSERT_EQ(subset.size(), 5U);
  using Number = std::optional<std::int64_t>;
  EXPECT_EQ(std::pair(subset[0].start, subset[0].stop), (std::pair<Number, Number>(10, 60)));
  EXPECT_EQ(std::pair(subset[1].start, subset[1].stop), (std::pair<Number, Number>(-5, {})));
  EXPECT_EQ(std::pair(subset[2].start, subset[2].stop), (std::pair<Number, Number>({}, {})));
  EXPECT_EQ(subset[2].step, 2U);
  EXPECT_EQ(std::pair(subset[3].start, subset[3].stop), (std::pair<Number, Number>(7, 8)));
  EXPECT_EQ(std::pair(subset[4].start, subset[4].stop), (std::pair<Number, Number>(-1, {}))) << "the last";
  EXPECT_EQ(rules->outputs[1].coarsen->method, CoarsenRule::Method::maximum);
  EXPECT_EQ(rules->outputs[1].coarsen->along[0].cells, 2U);
  const auto& units = rules->outputs[1].units;
  ASSERT_EQ(units.size(), 2U);
  EXPECT_EQ(units[1].variable, "RAINNC");
  EXPECT_EQ(units[1].units, "kg m-2");
  EXPECT_EQ(units[1].origin, "rules.yaml:6");
}

TEST(ProcessRules, RefusePartsAndBlocksThatCannotBe) {
  const std::string at = "rules.yaml:2: outputs[0].";
  EXPECT_EQ(wrong_output("region: {lon: [1]}"),
            at + "region: lon: two numbers of degrees are wanted, like [-95, -85] (from west eastwards)");
  EXPECT_EQ(wrong_output("region: {lat: [10, 100]}"),
            at + "region: lat: two numbers of degrees are wanted, like [25, 35]");
  EXPECT_EQ(wrong_output("region: {lon: [-190, 180]}"),
            at + "region: lon: from west eastwards, and no more than once around");
  EXPECT_EQ(wrong_output("region: {x: [1, 2]}"), at + "region: unknown key x; known: lon, lat");
  EXPECT_EQ(wrong_output("subset: {x: a:b}"),
            at + "subset: x: start:stop or start:stop:step is wanted, like 10:60, this is 'a:b'");
  EXPECT_EQ(wrong_output("subset: {x: \"1:2:-1\"}"), at + "subset: x: a step from 1 is wanted, this is '1:2:-1'");
  EXPECT_EQ(wrong_output("subset: {x: 1:2, x: 1:3}"), at + "subset: x stands there twice");
  EXPECT_EQ(wrong_output("coarsen: {method: max}"),
            at + "coarsen: a map is wanted, like {south_north: 2, west_east: 2, method: mean}");
  EXPECT_EQ(wrong_output("coarsen: {x: -2}"),
            at + "coarsen: x: how many cells become one, from 2, is wanted, this is '-2'");
  EXPECT_EQ(wrong_output("units: {T2: [K]}"), at + "units: T2: a unit is wanted, like degC, this is a list");
  EXPECT_EQ(wrong_output("region: {lat: [1, 2]}, regrid: w.nc"),
            "rules.yaml:2: outputs[0]: region and regrid: one of them an output; regrid begins at the whole grid");
}

TEST(ProcessRules, WindowsAreWrittenAsTheyAreRead) {
  for (const char* text : {"30s", "10min", "6h", "1d", "1w", "5d", "1mo", "18mo", "1y", "all"}) {
    const auto window = parse_window(text);
    ASSERT_TRUE(window.ok()) << text;
    EXPECT_EQ(window_text(*window), text);
  }
}

TEST(Nearest, IsTheNameThatIsMeant) {
  const std::vector<std::string> names = {"T2", "TH2", "U10", "RAINNC"};
  EXPECT_EQ(nearest("RAINC", names), "RAINNC");
  EXPECT_EQ(nearest("T3", names), "T2");
  EXPECT_EQ(nearest("XYZ", names), "");
}

}  // namespace
}  // namespace advectio
