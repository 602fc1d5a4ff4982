#include "operators/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace advectio {
namespace {

double converted(const std::string& from, const std::string& to, double value) {
  const auto made = unit_conversion(from, to);
  EXPECT_TRUE(made.ok()) << from << " " << to << ": " << (made ? "" : made.error().message);
  std::vector<double> values = {std::numeric_limits<double>::quiet_NaN(), value};
  if (made) (*made)->convert(values);
  EXPECT_TRUE(std::isnan(values[0])) << "missing";
  return values[1];
}

TEST(UnitConversion, IsThatOfUdunits) {
  EXPECT_NEAR(converted("K", "degC", 273.15), 0, 1e-12);
  EXPECT_NEAR(converted("degF", "K", 32), 273.15, 1e-9);
  EXPECT_DOUBLE_EQ(converted("Pa", "hPa", 101325), 1013.25);
  EXPECT_DOUBLE_EQ(converted("m s-1", "knot", 1852.0 / 3600), 1);
  EXPECT_DOUBLE_EQ(converted(" m/s ", "km h-1", 10), 36);
  EXPECT_DOUBLE_EQ(converted("kg kg-1", "g/kg", 0.012), 12);
  EXPECT_DOUBLE_EQ(converted("degrees_north", "radian", 180), std::acos(-1));
  EXPECT_DOUBLE_EQ(converted("K", "K", 300), 300);
  EXPECT_TRUE((*unit_conversion("K", "degC"))->shifts());
  EXPECT_FALSE((*unit_conversion("K", "mK"))->shifts());
}

TEST(UnitConversion, KnowsWater) {
  EXPECT_DOUBLE_EQ(converted("mm", "kg m-2", 3), 3);
  EXPECT_DOUBLE_EQ(converted("m", "kg m-2", 0.003), 3);
  EXPECT_DOUBLE_EQ(converted("mm h-1", "kg m-2 s-1", 3600), 1);
  EXPECT_TRUE((*unit_conversion("mm", "kg m-2"))->of_water());
  EXPECT_FALSE((*unit_conversion("mm", "inch"))->of_water());
  EXPECT_FALSE(unit_conversion("1", "kg m-3").ok()) << "a depth, and nothing else";
}

TEST(UnitConversion, SaysWhatDoesNotFit) {
  EXPECT_EQ(unit_conversion("K", "Pa").error().message, "'K' cannot become 'Pa'");
  EXPECT_EQ(unit_conversion("K", "dgeC").error().message, "UDUNITS does not know the unit 'dgeC'; did you mean degC?");
  EXPECT_EQ(unit_conversion("furlongs per frob", "m").error().message,
            "its unit is 'furlongs per frob': UDUNITS does not know the unit 'furlongs per frob'");
  EXPECT_EQ(unit_conversion("K", " ").error().code, Code::config);
}

}  // namespace
}  // namespace advectio
