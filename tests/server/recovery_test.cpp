#include "server/server_fixture.h"

namespace advectio {
namespace {

/// Of a program that has synced a frame, put a part of the next and goes on living.
class BegunFrameTest : public ServerTest {
 protected:
  void begin(bool aborts = false) {
    program_ = std::make_unique<Program>(run_dir(), [this, aborts](Session& s) {
      auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
      const std::vector<float> row(width);
      if (!d || !(*d)->schema(series(width))) return 1;
      for (std::uint64_t f = 0; f < 2; ++f)
        if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4) || (f == 0 && !(*d)->sync())) return 2;
      while (aborts && !system_files().exists(out("now"))) ::usleep(1000);
      if (aborts) return (*d)->abort() ? 0 : 3;
      return ::pause();
    });
    start();
    program_->go();
    ASSERT_TRUE(eventually([this] { return image("a.nc").commits == 1 && !beside().empty(); }));
    store_.disk_refuses = true;
  }
  /// Which the disk refuses again.
  void wait_until_it_is_tried_again() const {
    const auto before = store_.refusals.load();
    EXPECT_TRUE(eventually([&] { return store_.refusals >= before + 2; }));
  }
  void expect_taken_back_later() {
    ASSERT_TRUE(
        eventually([this] { return server_->status().find("leave it at its last commit") != std::string::npos; }));
    store_.disk_refuses = false;
    (void)drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_TRUE(beside().empty());
    EXPECT_EQ(image("a.nc").committed.size(), 1U);
  }
  /// What sinks have left beside the files.
  [[nodiscard]] std::vector<std::string> beside() const {
    auto names = hard_links();
    std::erase_if(names, [](const auto& name) { return !name.ends_with("-redo"); });
    return names;
  }
  std::unique_ptr<Program> program_;
};

TEST_F(BegunFrameTest, IsTakenBackWhenTheStageHasGoneAndTheDiskWorksAgain) {
  begin();
  remove_run_dir();
  wait_until_it_is_tried_again();
  EXPECT_EQ(beside().size(), 1U);
  store_.disk_refuses = false;
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::stage_gone);
  EXPECT_EQ(server_->status().find("to be trusted"), std::string::npos);
  EXPECT_TRUE(beside().empty());
}

TEST_F(BegunFrameTest, IsSaidWhenTheStageHasGoneAndTheDiskRefusesToTheEnd) {
  begin();
  remove_run_dir();
  wait_until_it_is_tried_again();
  server_->stop();
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::stage_gone);
  EXPECT_NE(server_->status().find("a.nc: to the end the disk has refused to take back what was begun after frame 1;"),
            std::string::npos);
}

TEST_F(BegunFrameTest, IsTakenBackWhenItsProgramDiesWhileTheDiskRefuses) {
  begin();
  program_->kill();
  expect_taken_back_later();
}

TEST_F(BegunFrameTest, IsTakenBackWhenItsProgramAbortsWhileTheDiskRefuses) {
  begin(true);
  ASSERT_TRUE(replace_file(system_files(), out("now"), {}).ok());
  EXPECT_EQ(program_->wait(), 0);
  expect_taken_back_later();
}

class DamagedPageTest : public ServerTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(OfAFileWithASecondName, DamagedPageTest, ::testing::Bool());

TEST_P(DamagedPageTest, IsSaidAndNothingIsWrittenByIt) {
  leave_uncommitted();
  for_each_page([](journal::SharedState& shared_state) {
    if (GetParam()) {
      shared_state.link[std::strlen(shared_state.link) - 20] ^= 1;
      return;
    }
    (void)::unlink(shared_state.link);
    std::memcpy(shared_state.link, shared_state.path, sizeof shared_state.link);
    shared_state.link[5] ^= 1;
  });
  start(2, true);
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_NE(server_->status().find(out("a.nc") + ": "), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(run_dir()));
}

}  // namespace
}  // namespace advectio
