// How a dataset ends whose program can append nothing more: it dies, it was forked, or it is in a signal handler.
#include <sys/wait.h>
#include <unistd.h>

#include "server/server_fixture.h"

namespace advectio {
namespace {

class EndsTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    ASSERT_EQ(::pipe(told_), 0);
    ASSERT_EQ(::pipe(ends_), 0);
  }
  void TearDown() override {
    ServerTest::TearDown();
    for (const int fd : {told_[0], told_[1], ends_[0], ends_[1]}) ::close(fd);
  }
  static bool put(CapturedDataset& d, std::uint64_t record) {
    const std::vector<float> values(width, static_cast<float>(record + 1));
    return d.put(0, Box{{record, 0}, {1, width}}, {}, Memory{reinterpret_cast<const std::byte*>(values.data()), {}}, 4)
        .ok();
  }
  /// A frame, and the next one put and not synced. Null: something failed.
  [[nodiscard]] std::unique_ptr<CapturedDataset> one_and_the_next(Session& s) const {
    auto made = s.create({out("a.nc"), FileFormat::netcdf4, false, 0});
    if (!made) return nullptr;
    auto& d = **made;
    return d.schema(series(width)) && put(d, 0) && d.sync() && put(d, 1) ? std::move(*made) : nullptr;
  }
  void tell() const { (void)!::write(told_[1], "x", 1); }
  void await_told() const {
    char c = 0;
    (void)!::read(told_[0], &c, 1);
  }
  /// Until the test lets it.
  void live_on() const {
    ::close(ends_[1]);
    char c = 0;
    (void)!::read(ends_[0], &c, 1);
  }
  void let_end() {
    ::close(ends_[1]);
    ends_[1] = -1;
  }
  std::size_t rows() { return image("a.nc").committed.size(); }

  int told_[2] = {-1, -1}, ends_[2] = {-1, -1};
};

TEST_F(EndsTest, OfAProgramThatDiesWhatWasSyncedIsKept) {
  Program a(run_dir(), [this](Session& s) { return one_and_the_next(s).release() != nullptr ? 0 : 1; });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  EXPECT_EQ(rows(), 1U);
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 1);
}

TEST_F(EndsTest, OfAProgramThatHasAskedForItInASignalHandlerEverythingIsKept) {
  Program a(run_dir(), [this](Session& s) {
    auto* d = one_and_the_next(s).release();
    if (d == nullptr) return 1;
    d->keep_all();
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(rows(), 2U);
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 2);
  EXPECT_TRUE(image("a.nc").closed);
}

TEST_F(EndsTest, AProcessThatWasForkedKeepsWhatItsDeadParentHadPut) {
  Program a(run_dir(), [this](Session& s) {
    auto* d = one_and_the_next(s).release();
    if (d == nullptr) return 1;
    if (::fork() == 0) {
      d->note_heir();
      tell();
      live_on();
      ::_exit(0);
    }
    await_told();
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  let_end();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(rows(), 2U);
}

TEST_F(EndsTest, AProcessThatWasForkedTakesTheDatasetOver) {
  Program a(run_dir(), [this](Session& s) {
    auto* d = one_and_the_next(s).release();
    if (d == nullptr) return 1;
    const pid_t child = ::fork();
    if (child == 0) {
      const bool foreign = d->inherited() && d->inherited_unsynced() && !put(*d, 2);
      ::_exit(foreign && d->hand_over() ? 0 : 1);
    }
    int code = 0;
    ::waitpid(child, &code, 0);
    if (code != 0) return 2;
    tell();
    live_on();
    // The child owns the file now, so a put of the parent fails.
    return !put(*d, 2) && d->close() ? 0 : 3;
  });
  start();
  a.go();
  await_told();
  EXPECT_EQ(rows(), 2U);
  EXPECT_TRUE(image("a.nc").closed);
  EXPECT_FALSE(std::filesystem::exists(out("a.nc-redo")));
  let_end();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(rows(), 2U);
}

TEST_F(EndsTest, AProcessThatWasForkedMayReadWhatWasSyncedAndEndsNothing) {
  Program a(run_dir(), [this](Session& s) {
    auto* d = one_and_the_next(s).release();
    if (d == nullptr || !d->sync()) return 1;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(!d->inherited_unsynced() && d->wait_visible() && d->close() ? 0 : 1);
    int code = 0;
    ::waitpid(child, &code, 0);
    return code == 0 && put(*d, 2) && d->close() ? 0 : 2;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(rows(), 3U);
}

TEST_F(EndsTest, AProgramThatClosesDescriptorsItDoesNotKnowIsNotTakenForDead) {
  Program a(run_dir(), [this](Session& s) {
    auto* d = one_and_the_next(s).release();
    if (d == nullptr) return 1;
    for (int fd = 3; fd < 256; ++fd)
      if (fd != told_[1] && fd != ends_[0] && fd != ends_[1]) ::close(fd);
    tell();
    live_on();
    return put(*d, 2) && d->close() ? 0 : 2;
  });
  start();
  a.go();
  await_told();
  wait_turns();
  EXPECT_EQ(json::parse(server_->status())["writers"][0]["alive"], true);
  let_end();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(rows(), 3U);
}

TEST_F(EndsTest, AProgramThatBeginsToWriteAfterTheEndIsToldSo) {
  Program a(run_dir(), [this](Session& s) {
    tell();
    live_on();
    const auto made = s.create({out("a.nc"), FileFormat::netcdf4, false, 0});
    return !made.ok() && made.error().code == Code::gone && !std::filesystem::exists(out("a.nc")) ? 0 : 1;
  });
  start();
  a.go();
  await_told();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  let_end();
  EXPECT_EQ(a.wait(), 0);
}

TEST_F(EndsTest, TheServerWaitsForAProgramThatIsAboutToBegin) {
  start();
  auto entering =
      std::make_unique<Result<journal::ProcessLock>>(journal::ProcessLock::take(run_dir() + "/journals.lock"));
  ASSERT_TRUE(entering->ok());
  bool waited = false;
  (void)drain("drain", [&] {
    wait_turns();
    waited = true;
    entering.reset();
  });
  EXPECT_TRUE(waited);
  EXPECT_EQ(outcome_, Outcome::clean);
}

}  // namespace
}  // namespace advectio
