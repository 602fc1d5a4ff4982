#include "platform/machine.h"

#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: mkdtemp

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace advectio {
namespace {

class Machine : public ::testing::Test {
 protected:
  Machine() {
    auto name = (std::filesystem::temp_directory_path() / "machine-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~Machine() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  [[nodiscard]] unsigned cores() const { return cores_of_control_groups(root_ / "self", root_); }

  std::filesystem::path root_;
};

constexpr auto no_quota = std::numeric_limits<unsigned>::max();

TEST_F(Machine, TakesTheLeastQuotaOfAGroupAndThoseAbove) {
  write("self", "0::/job/step");
  EXPECT_EQ(cores(), no_quota);
  write("job/step/cpu.max", "max 100000");
  EXPECT_EQ(cores(), no_quota);
  write("job/cpu.max", "350000 100000");
  EXPECT_EQ(cores(), 3U);
  write("job/step/cpu.max", "50000 100000");
  EXPECT_EQ(cores(), 1U) << "half a core is one thread";
}

TEST_F(Machine, TakesTheQuotaOfTheGroupsVersionOne) {
  write("self", "5:memory:/m\n4:cpu,cpuacct:/job");
  write("m/cpu.max", "100000 100000");
  write("cpu/cpu.cfs_quota_us", "-1");
  write("cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(), no_quota);
  write("cpu/job/cpu.cfs_quota_us", "400000");
  write("cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(), 4U);
}

TEST_F(Machine, HasAtLeastOneCore) {
  EXPECT_GE(usable_cores(), 1U);
}

}  // namespace
}  // namespace advectio
