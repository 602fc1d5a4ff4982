#include "operators/cf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "operators/values.h"

namespace advectio {
namespace {

Attribute number(const std::string& name, double value) {
  Attribute a;
  a.name = name;
  a.type = DataType::float64;
  a.count = 1;
  a.values.resize(sizeof value);
  std::memcpy(a.values.data(), &value, sizeof value);
  return a;
}

std::vector<Attribute> wrf(double projection, double first, double second, double meridian, double origin) {
  return {number("MAP_PROJ", projection), number("TRUELAT1", first), number("TRUELAT2", second),
          number("STAND_LON", meridian), number("MOAD_CEN_LAT", origin)};
}

TEST(CfUnits, AreWhatWrfMeans) {
  EXPECT_EQ(cf_units("dbZ"), "dBZ");
  EXPECT_EQ(cf_units("C"), "degC") << "no coulomb";
  EXPECT_EQ(cf_units("mb hour-1"), "hPa hour-1") << "no millibarn";
  EXPECT_EQ(cf_units(" kg(-1)"), "kg-1");
  EXPECT_EQ(cf_units("m s{-1}"), "m s-1");
  EXPECT_EQ(cf_units("W m{-2}"), "W m-2");
  EXPECT_EQ(cf_units("area/area"), "1");
  EXPECT_EQ(cf_units("K"), "K");
}

TEST(WrfProjection, HasItsOriginWhereItsAttributesSay) {
  const auto lambert = WrfProjection::of(wrf(1, 30, 60, -98, 40));
  ASSERT_TRUE(lambert);
  EXPECT_NEAR(lambert->project(40, -98).x, 0, 1e-6);
  EXPECT_NEAR(lambert->project(40, -98).y, 0, 1e-6);
  // True to scale along the standard parallels: a degree of longitude at 60 N.
  const auto a = lambert->project(60, -98), b = lambert->project(60, -97.999);
  EXPECT_NEAR(std::hypot(b.x - a.x, b.y - a.y), 6'370'000 * 0.5 * 0.001 * 3.14159265358979 / 180, 1e-4);
  EXPECT_EQ(lambert->project(50, 262).x, lambert->project(50, -98).x) << "longitudes from 0 to 360";
  EXPECT_EQ(text_of(lambert->attributes(), "grid_mapping_name"), "lambert_conformal_conic");
  EXPECT_EQ(numbers_of(lambert->attributes(), "standard_parallel"), (std::vector<double>{30, 60}));

  const auto north = WrfProjection::of(wrf(2, 60, 1e20, 10, 70));
  ASSERT_TRUE(north);
  EXPECT_NEAR(north->project(90, 0).y, 0, 1e-6);
  EXPECT_LT(north->project(80, 10).y, 0) << "the standard longitude points down";
  const auto south = WrfProjection::of(wrf(2, -60, 0, 10, -70));
  ASSERT_TRUE(south);
  EXPECT_GT(south->project(-80, 10).y, 0);
  EXPECT_EQ(numbers_of(south->attributes(), "latitude_of_projection_origin"), (std::vector<double>{-90}));

  const auto mercator = WrfProjection::of(wrf(3, 20, 0, -90, 24));
  ASSERT_TRUE(mercator);
  EXPECT_NEAR(mercator->project(0, -90).y, 0, 1e-6);
  EXPECT_EQ(numbers_of(mercator->attributes(), "longitude_of_projection_origin"), (std::vector<double>{-90}));

  EXPECT_FALSE(WrfProjection::of(wrf(0, 0, 0, 0, 0))) << "idealised";
  EXPECT_FALSE(WrfProjection::of(wrf(6, 30, 60, 0, 0)));
  EXPECT_FALSE(WrfProjection::of({number("MAP_PROJ", 1)})) << "nothing is known";
  EXPECT_FALSE(WrfProjection::of(wrf(1, 0, 0, 0, 0))) << "no cone";
}

}  // namespace
}  // namespace advectio
