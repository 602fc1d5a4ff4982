#include <algorithm>
#include <filesystem>

#include "server/server_fixture.h"

namespace advectio {
namespace {

class FurtherOutputsTest : public ServerTest {
 protected:
  FurtherOutputsTest() {
    config_ = parse_config("datasets: [{match: \"*.nc\", outputs: [{path: \"second_{name}\"}]}]\n", "test").value();
  }
  void TearDown() override {
    directory_refuses = nullptr;
    ServerTest::TearDown();
  }
  /// Server and program die. Three frames are in second_a.nc, and none in a.nc.
  void leave_three_frames() {
    store_.fail_commit_of = "a.nc";
    Program a(run_dir(), [this](Session& s) {
      (void)write_frames(s, out("a.nc"), 3, false, false);
      return ::pause();
    });
    start();
    a.go();
    ASSERT_TRUE(eventually([this] { return image("second_a.nc").committed.size() == 3; }));
    stop_after_a_failure();
    a.kill();
  }
  std::vector<std::string> files() const {
    auto names = system_files().list(output_.path()).value();
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(FurtherOutputsTest, LeaveNothingWhereTheDirectoryRefusesRenamesAndRemovals) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  directory_refuses = "second_a.nc";
  a.go();
  EXPECT_EQ(a.wait(), 0);
  ASSERT_TRUE(eventually([&] { return image("a.nc").closed; }));
  directory_refuses = nullptr;
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_NE(status["errors"].dump().find("is not made"), std::string::npos) << status["errors"].dump(1);
  EXPECT_EQ(files(), std::vector<std::string>{"a.nc"});
}

TEST_F(FurtherOutputsTest, ReplaceAFileAndWhoHasItOpenKeepsIt) {
  std::ofstream(out("second_a.nc")) << "old";
  std::ifstream reader(out("second_a.nc"));
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("second_a.nc").committed, image("a.nc").committed);
  std::string word;
  reader >> word;
  EXPECT_EQ(word, "old");
}

TEST_F(FurtherOutputsTest, DoNotReplaceTheFileOfTheProgram) {
  config_ = parse_config("datasets: [{match: \"*.nc\", outputs: [{path: \"./{name}\"}]}]\n", "test").value();
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  EXPECT_NE(status["errors"].dump().find("a program of this run writes"), std::string::npos);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
}

TEST_F(FurtherOutputsTest, LeaveNothingWhereOneIsGivenUpWhileItsDiskRefuses) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    const std::vector<float> row(width, 1);
    for (std::uint64_t f = 0; f < 200; ++f) {
      if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
      (void)(*d)->sync();
      if (f == 0 && !eventually([this] { return std::filesystem::exists(out("more")); })) return 3;
    }
    (void)(*d)->close();
    s.finish();
    return 0;
  });
  start(4);
  a.go();
  ASSERT_TRUE(eventually([&] { return image("second_a.nc").committed.size() == 1; }));
  store_.fail_commit_of = "second_a.nc";
  store_.disk_refuses = true;  // also to take back what is begun
  std::ofstream(out("more")).close();
  ASSERT_TRUE(eventually([&] { return server_->status().find("is given up") != std::string::npos; }));
  store_.disk_refuses = false;
  store_.allow();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  recover(4);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 200U);
  std::filesystem::remove(out("more"));
  EXPECT_EQ(files(), (std::vector<std::string>{"a.nc", "second_a.nc"}));
}

/// So a server leaves them that dies before it has made all of them.
TEST_F(FurtherOutputsTest, AreMadeAnewWhereOnlySomeAreThere) {
  ASSERT_NO_FATAL_FAILURE(leave_three_frames());
  for_each_page([](journal::SharedState& shared_state) { shared_state.outputs_made.store(0); });
  std::ifstream keeps_its_inode(out("second_a.nc"));
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("second_a.nc").committed.size(), 3U);
  EXPECT_EQ(files(), (std::vector<std::string>{"a.nc", "second_a.nc"}));
}

/// A server has died before it has made any, and a page says that frames of the file are visible.
TEST_F(FurtherOutputsTest, AreMadeWhereADamagedPageSaysThatFramesAreVisible) {
  ASSERT_NO_FATAL_FAILURE(leave_three_frames());
  change_pages(run_dir(), [](const auto& stage, const auto& name, auto& shared_state) {
    if (shared_state.output == 0) return;
    ASSERT_TRUE(system_files().remove(shared_state.link).ok());
    ASSERT_TRUE(system_files().remove(stage.datasets() + "/" + name).ok());
  });
  ASSERT_TRUE(system_files().remove(out("second_a.nc")).ok());
  for_each_page([](journal::SharedState& shared_state) {
    shared_state.outputs_made.store(0);
    shared_state.frames_visible.store(1U << 16U);
  });
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("second_a.nc").committed.size(), 3U);
  EXPECT_EQ(files(), (std::vector<std::string>{"a.nc", "second_a.nc"}));
}

}  // namespace
}  // namespace advectio
