// The interposer under programs that know nothing of it: what they see and what they leave must be as without it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
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

  /// The exit code of the command in a new directory `name`; what it printed is in `name`.out and `name`.err.
  int plainly(const std::string& name, const std::string& command, const std::string& environment = "") {
    fs::remove_all(at(name));
    fs::create_directories(at(name));
    std::ostringstream line;
    // What netCDF and HDF5 leak is not ours.
    line << "cd '" << at(name) << "' && LSAN_OPTIONS=print_suppressions=0:suppressions=" LEAKS " timeout 60 env "
         << environment << " " << command << " > '" << at(name + ".out") << "' 2> '" << at(name + ".err") << "'";
    return std::system(line.str().c_str());
  }
  int captured(const std::string& name, const std::string& command, const std::string& environment = "") {
    fs::remove(at(name + ".log"));
    return plainly(name, command,
                   "ADVECTIO_RUN=here ADVECTIO_TEST_LOG=" + at(name + ".log") + " " + environment +
                       " LD_PRELOAD=" ADVECTIO_REPLAYING);
  }

  [[nodiscard]] std::set<std::string> files_of(const std::string& name) const {
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(at(name)))
      if (entry.is_regular_file()) files.insert(entry.path().filename().string());
    return files;
  }

  /// What was printed and what was left by "plain" and "captured".
  void expect_the_same() const {
    EXPECT_EQ(text_of(at("plain.out")), text_of(at("captured.out")));
    EXPECT_EQ(files_of("plain"), files_of("captured"));
    for (const auto& file : files_of("plain"))
      EXPECT_EQ(difference(at("plain") + "/" + file, at("captured") + "/" + file), "") << file;
  }

  fs::path directory_;
};

class RandomCalls : public Interposer, public testing::WithParamInterface<int> {};

TEST_P(RandomCalls, GetTheSameAnswersAndLeaveTheSameFile) {
  const std::string format = std::to_string(GetParam());
  const char* more = std::getenv("ADVECTIO_SEEDS");
#ifdef __SANITIZE_ADDRESS__
  const int few = 12;
#else
  const int few = 40;
#endif
  const int seeds = more != nullptr ? std::atoi(more) : few;
  for (int seed = 0; seed < seeds; ++seed) {
    const std::string arguments = std::to_string(seed) + " " + format;
    ASSERT_EQ(plainly("plain", RANDOM_CALLS " " + arguments + " out.nc"), 0) << "seed " << seed;
    ASSERT_EQ(captured("captured", RANDOM_CALLS " " + arguments + " out.nc"), 0) << "seed " << seed;
    ASSERT_NE(text_of(at("captured.log")).find("closed"), std::string::npos) << "was not captured";
    expect_the_same();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RandomCalls, testing::Values(1, 2, 3, 4, 5));

class ChosenCalls : public Interposer, public testing::WithParamInterface<int> {};

TEST_P(ChosenCalls, GetTheSameAnswersAndLeaveTheSameFiles) {
  ASSERT_EQ(plainly("names", CHOSEN_CALLS), 0);
  std::istringstream names(text_of(at("names.out")));
  for (std::string name; names >> name;) {
    SCOPED_TRACE(name);
    const std::string command = CHOSEN_CALLS " " + name + " " + std::to_string(GetParam());
    EXPECT_EQ(plainly("plain", command), 0);
    EXPECT_EQ(captured("captured", command), 0);
    EXPECT_NE(text_of(at("captured.log")).find("created"), std::string::npos) << "was not captured";
    expect_the_same();
  }
}

#ifndef __SANITIZE_ADDRESS__
// What runs out, runs out one at a time; in turn with the classic format and with netCDF-4.
TEST_F(Interposer, AnswersWhicheverAllocationFails) {
  int failed = 0;
  for (int n = 1; !HasFailure(); ++n) {
    const std::string number = std::to_string(n), format = n % 2 == 0 ? "3" : "1";
    const int status =
        captured("captured", "env LD_PRELOAD=" RUNS_OUT ":" ADVECTIO_REPLAYING " RUNS_OUT_MEMORY=" + number +
                                 " " CHOSEN_CALLS " netcdf_2_on_netcdf_3 " + format);
    const auto said = text_of(at("captured.err"));
    // 124 and more: a signal, or the end of its time.
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 124)
        << "allocation " << n << ", format " << format << ", status " << status << ": " << said;
    if (said.find("runs out: memory") == std::string::npos) break;
    ++failed;
  }
  EXPECT_GT(failed, 100);
}
#endif

INSTANTIATE_TEST_SUITE_P(Formats, ChosenCalls, testing::Values(1, 2, 3, 4, 5));

}  // namespace
