#include "capture/netcdf/present_name.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "journal/scratch.h"

namespace advectio::netcdf {
namespace {

namespace fs = std::filesystem;

class PresentNameTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(at(".links"));
    fs::create_directories(at("below"));
    std::ofstream(at("out.nc")) << "values";
    fs::create_hard_link(at("out.nc"), at(".out.nc.ours"));
    fs::create_hard_link(at("out.nc"), at(".links/1"));
  }
  [[nodiscard]] std::string at(const std::string& name) const { return directory_ / name; }
  [[nodiscard]] std::optional<std::string> name() const {
    return present_name(at(".out.nc.ours"), at("out.nc"), at(".links/1"));
  }
  Scratch directory_;
};

TEST_F(PresentNameTest, IsTheOneItHadOrAnotherInItsDirectory) {
  EXPECT_EQ(name(), fs::canonical(at("out.nc")));
  fs::rename(at("out.nc"), at("other.nc"));
  EXPECT_EQ(name(), at("other.nc"));
  fs::remove(at(".links/1"));
  EXPECT_EQ(name(), at("other.nc"));
}

TEST_F(PresentNameTest, OfARemovedFileIsNoneWhetherOrNotTheServersLinkIsThere) {
  fs::remove(at("out.nc"));
  EXPECT_EQ(name(), "");
  fs::remove(at(".links/1"));
  EXPECT_EQ(name(), "");
}

TEST_F(PresentNameTest, OfAFileInAnotherDirectoryIsNotFoundWhetherOrNotTheServersLinkIsThere) {
  fs::rename(at("out.nc"), at("below/out.nc"));
  EXPECT_EQ(name(), std::nullopt);
  fs::remove(at(".links/1"));
  EXPECT_EQ(name(), std::nullopt);
}

}  // namespace
}  // namespace advectio::netcdf
