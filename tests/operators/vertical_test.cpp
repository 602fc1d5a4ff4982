#include "operators/vertical.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace advectio {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

LevelsRule rule(LevelsRule::Kind kind, LevelsRule::Method method = LevelsRule::Method::linear,
                LevelsRule::Below below = LevelsRule::Below::missing) {
  LevelsRule r;
  r.kind = kind;
  r.method = method;
  r.below = below;
  return r;
}
const auto pressure = rule(LevelsRule::Kind::pressure);

double at(const std::vector<double>& coordinate, const std::vector<double>& values, double level, const LevelsRule& r) {
  double out = 0;
  interpolate_column(coordinate, values, {&level, 1}, r, {&out, 1});
  return out;
}

TEST(Levels, AreLinearBetweenModelLevelsBothEndsIncluded) {
  const std::vector<double> p = {1000, 800, 400}, x = {10, 20, 40};
  EXPECT_EQ(at(p, x, 900, pressure), 15);
  EXPECT_EQ(at(p, x, 500, pressure), 35);
  for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(at(p, x, p[k], pressure), x[k]) << k;
  EXPECT_EQ(at({400, 800, 1000}, {40, 20, 10}, 900, pressure), 15) << "from the top down, too";
}

TEST(Levels, AreLinearInTheLogarithmWhereThatIsAskedFor) {
  const auto log = rule(LevelsRule::Kind::pressure, LevelsRule::Method::log);
  EXPECT_DOUBLE_EQ(at({1000, 500}, {0, 1}, std::sqrt(1000.0 * 500), log), 0.5);
  EXPECT_EQ(at({1000, 500}, {0, 1}, 500, log), 1) << "a model level keeps its very value";
}

TEST(Levels, BelowTheGroundAreMissingOrAsTheLowestModelLevel) {
  const auto nearest = rule(LevelsRule::Kind::pressure, LevelsRule::Method::linear, LevelsRule::Below::nearest);
  const std::vector<double> p = {900, 800, 400}, x = {10, 20, 40};
  EXPECT_TRUE(std::isnan(at(p, x, 950, pressure)));
  EXPECT_EQ(at(p, x, 950, nearest), 10);
  EXPECT_EQ(at({400, 800, 900}, {40, 20, 10}, 950, nearest), 10);
  EXPECT_TRUE(std::isnan(at(p, x, 300, nearest))) << "above the top";
  const auto height = rule(LevelsRule::Kind::height, LevelsRule::Method::linear, LevelsRule::Below::nearest);
  EXPECT_EQ(at({50, 150}, {1, 2}, 100, height), 1.5);
  EXPECT_EQ(at({50, 150}, {1, 2}, 10, height), 1);
  EXPECT_TRUE(std::isnan(at({50, 150}, {1, 2}, 200, height)));
}

TEST(Levels, BesideMissingValuesAreMissing) {
  EXPECT_TRUE(std::isnan(at({1000, 800}, {1, missing}, 900, pressure)));
  EXPECT_TRUE(std::isnan(at({1000, missing, 400}, {1, 2, 3}, 900, pressure)));
  EXPECT_EQ(at({1000, 800, missing}, {1, 2, missing}, 900, pressure), 1.5);
  EXPECT_TRUE(std::isnan(at({}, {}, 900, pressure)));
}

TEST(Levels, TakeWholeColumnsOfEachBox) {
  const auto field = std::make_shared<StoredVariable>(1), p = std::make_shared<StoredVariable>(2);
  const OnLevels levels(field, p, 0, 3, {900, 600}, pressure);
  const Box box{{1, 0}, {1, 2}};  // the second level of two columns
  std::vector<Need> needs;
  levels.needs(box, needs);
  ASSERT_EQ(needs.size(), 2U);
  EXPECT_EQ(needs[0].variable, 1U);
  EXPECT_EQ(needs[0].box, (Box{{0, 0}, {3, 2}}));
  const std::vector<double> x = {1, 10, 2, 20, 3, 30}, c = {1000, 1000, 700, 800, 500, 400};
  const std::vector<std::span<const double>> values = {x, c};
  std::vector<double> result(2);
  Needed needed(values);
  levels.make(box, needed, result);
  EXPECT_EQ(result, (std::vector<double>{2.5, 25}));
}

TEST(Levels, KnowTheUnitsOfPressureAndHeight) {
  EXPECT_EQ(unit_factor(LevelsRule::Kind::pressure, "hPa", "Pa"), 100);
  EXPECT_EQ(unit_factor(LevelsRule::Kind::pressure, "Pa", "mb"), 0.01);
  EXPECT_EQ(unit_factor(LevelsRule::Kind::height, "km", "m"), 1000);
  EXPECT_EQ(unit_factor(LevelsRule::Kind::pressure, "hPa", "m"), 0);
  EXPECT_EQ(unit_factor(LevelsRule::Kind::pressure, "hPa", ""), 0);
}

}  // namespace
}  // namespace advectio
