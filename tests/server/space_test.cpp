#include "server/server_fixture.h"

namespace advectio {
namespace {

/// A stage of 256 KiB that nobody empties until it is told to, and frames of 4 KB.
class FullStageTest : public ServerTest {
 protected:
  static constexpr int frames = 150;
  void write(const std::string& full, int files = 1) {
    config_ = parse_config("stage: {spill: /tmp}\ndatasets: [{match: '*', full: " + full + "}]", "test").value();
    store_.commits_stand = true;
    program_ = std::make_unique<Program>(run_dir(), [this, files](Session& s) {
      int code = write_frames(s, out("a.nc"), frames, true, false);
      for (int f = 1; code == 0 && f < files; ++f) code = write_frames(s, out(std::to_string(f)), 1, true, false);
      std::ofstream(out("written")) << code;
      s.finish();
      return code;
    });
    start(4);
    program_->go();
  }
  bool written() const { return std::filesystem::exists(out("written")); }
  json end() {
    store_.commits_stand = false;
    EXPECT_EQ(program_->wait(), 0);
    auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_FALSE(std::filesystem::exists(run_dir()));
    return status;
  }
  /// How often programs have begun to wait for a segment. The server's loop stands in a commit: the stage says it.
  std::uint64_t waits() const { return journal::Stage::open(system_files(), run_dir())->control().waits.load(); }
  std::size_t spilled_files() const {
    const auto all = std::filesystem::recursive_directory_iterator(disk_.path());
    return static_cast<std::size_t>(std::distance(begin(all), std::filesystem::recursive_directory_iterator()));
  }
  Scratch disk_;
  std::unique_ptr<Program> program_;
};

TEST_F(FullStageTest, SpillsToADiskAndTheProgramGoesOn) {
  for (const std::string full : {"auto", "spill"}) {
    SCOPED_TRACE(full);
    spill_ = disk_.path();
    write(full);
    EXPECT_TRUE(eventually([&] { return written(); }));
    EXPECT_GT(spilled_files(), 3U);
    const auto status = end();
    EXPECT_EQ(image("a.nc").committed.size(), static_cast<std::size_t>(frames));
    EXPECT_GT(status["stage"]["spilled_bytes"].get<std::uint64_t>(), 256U * 1024U);
    EXPECT_EQ(spilled_files(), 0U);
    std::filesystem::remove(out("written"));
  }
}

TEST_F(FullStageTest, WhatHasSpilledOutlivesTheServer) {
  spill_ = disk_.path();
  write("auto");
  ASSERT_TRUE(eventually([&] { return written(); }));
  server_->stop();
  store_.commits_stand = false;
  thread_.join();
  server_.reset();
  start(4);
  (void)end();
  EXPECT_EQ(image("a.nc").committed.size(), static_cast<std::size_t>(frames));
  EXPECT_EQ(spilled_files(), 0U);
}

TEST_F(FullStageTest, WaitsWhereItIsToldToAndWhereTheSpillIsFullToo) {
  for (const bool full_too : {false, true}) {
    SCOPED_TRACE(full_too);
    spill_ = disk_.path();
    spill_max_ = full_too ? 2 * 64 * 1024 : 64 << 20;
    write(full_too ? "spill" : "wait");
    EXPECT_TRUE(eventually([&] { return waits() > 0; }));
    EXPECT_FALSE(written());
    EXPECT_LE(spilled_files(), full_too ? 3U : 1U);
    (void)end();
    EXPECT_EQ(image("a.nc").committed.size(), static_cast<std::size_t>(frames));
    std::filesystem::remove(out("written"));
  }
}

TEST_F(FullStageTest, LeavesOutWholeFramesAndSaysWhich) {
  write("drop-frame");
  ASSERT_TRUE(eventually([&] { return written(); }));
  store_.commits_stand = false;
  const auto status = end();
  const auto& d = status["datasets"][0];
  const auto dropped = d["frames_dropped"].get<std::size_t>();
  EXPECT_GT(dropped, 0U);
  EXPECT_LT(dropped, static_cast<std::size_t>(frames));
  EXPECT_EQ(d["frames_visible"].get<std::size_t>() + dropped, static_cast<std::size_t>(frames));
  const auto committed = image("a.nc").committed;
  EXPECT_EQ(committed.size() + dropped, static_cast<std::size_t>(frames));
  for (const auto& [frame, value] : committed) EXPECT_EQ(value, static_cast<float>(frame));
}

TEST_F(FullStageTest, AFileOfWhichEveryFrameIsLeftOutIsNone) {
  // The first fills the stage; those after it have one frame each.
  write("drop-frame", 6);
  ASSERT_TRUE(eventually([&] { return written(); }));
  const auto status = end();
  for (std::size_t f = 1; f < 6; ++f) {
    EXPECT_FALSE(std::filesystem::exists(out(std::to_string(f)))) << f;
    EXPECT_EQ(status["datasets"][f]["state"], "dropped") << f;
    EXPECT_EQ(status["datasets"][f]["frames_dropped"], 1) << f;
  }
}

}  // namespace
}  // namespace advectio
