// Beginnings of netCDF-4 files that are kept for the next ones of their kind.
#include <gtest/gtest.h>

#include "sinks/netcdf4/skeletons.h"

namespace advectio {
namespace {

TEST(SkeletonsOfFiles, AreKeptForAllTilesOfADomainAndWithinTheirMemory) {
  const auto tile = [](std::uint64_t width) {
    Schema s;
    s.dimensions = {{"x", width, false}};
    return s;
  };
  Skeletons skeletons;
  const auto make = [&](const Schema& s, std::size_t bytes) {
    EXPECT_FALSE(skeletons.is_wanted(s)) << "the first of its kind";
    EXPECT_TRUE(skeletons.is_wanted(s));
    skeletons.keep(s, {{}, std::vector<std::byte>(bytes)});
  };
  for (std::uint64_t width = 1; width <= 16; ++width) make(tile(width), 1000);
  for (std::uint64_t width = 1; width <= 16; ++width) EXPECT_NE(skeletons.find(tile(width)), nullptr) << width;
  make(tile(100), 40U << 20U);
  make(tile(101), 40U << 20U);
  EXPECT_EQ(skeletons.find(tile(100)), nullptr);
  EXPECT_EQ(skeletons.find(tile(1)), nullptr) << "the ones used longest ago go first";
  EXPECT_NE(skeletons.find(tile(101)), nullptr);
}

}  // namespace
}  // namespace advectio
