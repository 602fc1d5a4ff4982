// The interposer under programs that know nothing of it: what they see and what they leave must be as without it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "capture/netcdf/compare_files.h"

namespace {

namespace fs = std::filesystem;

class Interposer : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::temp_directory_path() / ("advectio-" + std::to_string(getpid()) + "-" + info->name());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  [[nodiscard]] std::string at(const std::string& name) const { return (directory_ / name).string(); }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }

  /// The exit code; what the command printed is in `name`.out and `name`.err.
  int plainly(const std::string& name, const std::string& command, const std::string& environment = "") {
    const std::string line = "cd '" + directory_.string() + "' && env " + environment + " " + command + " > '" +
                             at(name + ".out") + "' 2> '" + at(name + ".err") + "'";
    return std::system(line.c_str());
  }
  int captured(const std::string& name, const std::string& command, const std::string& environment = "") {
    return plainly(name, command,
                   "ADVECTIO_RUN=here ADVECTIO_TEST_LOG=" + at(name + ".log") + " " + environment +
                       " LD_PRELOAD=" ADVECTIO_REPLAYING);
  }

  fs::path directory_;
};

class RandomCalls : public Interposer, public testing::WithParamInterface<int> {};

TEST_P(RandomCalls, GetTheSameAnswersAndLeaveTheSameFile) {
  const std::string format = std::to_string(GetParam());
  for (int seed = 0; seed < 150; ++seed) {
    const std::string arguments = std::to_string(seed) + " " + format;
    ASSERT_EQ(plainly("plain", RANDOM_CALLS " " + arguments + " plain.nc"), 0) << "seed " << seed;
    ASSERT_EQ(captured("captured", RANDOM_CALLS " " + arguments + " captur.nc"), 0) << "seed " << seed;
    ASSERT_NE(text_of(at("captured.log")).find("closed"), std::string::npos) << "was not captured";
    ASSERT_EQ(text_of(at("plain.out")), text_of(at("captured.out"))) << "seed " << seed;
    ASSERT_EQ(difference(at("plain.nc"), at("captur.nc")), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RandomCalls, testing::Values(1, 2, 3, 4, 5));

}  // namespace
