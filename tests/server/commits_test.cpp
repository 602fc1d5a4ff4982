// While the threads of one file compress, or its disk hangs, the loop goes on with everything else.
#include "server/server_fixture.h"

namespace advectio {
namespace {

class CommitsTest : public ServerTest {
 protected:
  int write(Session& s, const std::string& name, int frames, bool close = true) const {
    return write_frames(s, out(name), frames, close, false);
  }
  void add(const std::function<int(Session&)>& body) {
    programs_.push_back(std::make_unique<Program>(run_dir(), body));
  }
  virtual void hold(const std::set<std::string>& names) { store_.encode(names); }
  void begin(std::uint64_t segments_max = 16) {
    hold({"a.nc"});
    start(segments_max);
    for (const auto& p : programs_) p->go();
  }
  void await_programs() {
    for (const auto& p : programs_) EXPECT_EQ(p->wait(), 0);
  }
  [[nodiscard]] bool is_asked(const std::string& name) {
    return eventually([&] {
      const std::lock_guard guard(store_.mutex);
      return store_.asked[name] > 0;
    });
  }
  [[nodiscard]] bool has_commits(const std::string& name, int commits) {
    return eventually([&] { return image(name).commits >= commits; });
  }
  void expect_frames(const std::string& name, std::uint64_t frames) {
    const auto f = image(name);
    EXPECT_TRUE(f.closed);
    ASSERT_EQ(f.committed.size(), frames);
    for (const auto& [at, value] : f.committed) EXPECT_EQ(value, static_cast<float>(at));
  }
  void go_on(std::uint64_t frames_of_a) {
    hold({});
    await_programs();
    (void)drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    expect_frames("a.nc", frames_of_a);
  }
  std::vector<std::unique_ptr<Program>> programs_;
};

enum class Slow { threads, disk };

class SlowCommitsTest : public CommitsTest, public ::testing::WithParamInterface<Slow> {
 protected:
  void hold(const std::set<std::string>& names) override {
    GetParam() == Slow::disk ? store_.hang(names) : store_.encode(names);
  }
};
INSTANTIATE_TEST_SUITE_P(, SlowCommitsTest, ::testing::Values(Slow::threads, Slow::disk),
                         [](const auto& p) { return p.param == Slow::disk ? "disk" : "threads"; });

TEST_P(SlowCommitsTest, OfOneFileLetAnotherOfTheSameProgramBeComplete) {
  add([this](Session& s) { return write(s, "a.nc", 2) + write(s, "b.nc", 3); });
  begin();
  ASSERT_TRUE(eventually([&] { return image("b.nc").closed; }));
  EXPECT_EQ(image("a.nc").commits, 0);
  EXPECT_TRUE(is_asked("a.nc"));
  go_on(2);
  expect_frames("b.nc", 3);
}

TEST_P(SlowCommitsTest, LetFramesBehindThemWait) {
  add([this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    for (std::uint64_t f = 0; f < 3; ++f) {
      const std::vector<float> row(width, static_cast<float>(f));
      if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4) || !(*d)->sync()) return 2;
      if (f == 0 && !eventually([this] { return std::filesystem::exists(scratch_ / "go"); })) return 3;
    }
    return (*d)->close().ok() ? 0 : 4;
  });
  begin();
  ASSERT_TRUE(is_asked("a.nc"));
  ::close(::creat((scratch_ / "go").c_str(), 0600));
  wait_turns();
  EXPECT_EQ(image("a.nc").begun, (std::vector<std::uint64_t>{1}));
  go_on(3);
}

TEST_P(SlowCommitsTest, GoOnWhenTheProgramIsKilled) {
  add([this](Session& s) {
    (void)write(s, "a.nc", 1, false);
    ::pause();
    return 0;
  });
  begin();
  ASSERT_TRUE(is_asked("a.nc"));
  programs_[0]->kill();
  programs_.clear();
  wait_turns();
  EXPECT_EQ(image("a.nc").commits, 0);
  hold({});
  const auto status = drain();
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 1);
  EXPECT_EQ(image("a.nc").committed.size(), 1U);
}

TEST_F(CommitsTest, AreBegunAgainByTheNextServer) {
  add([this](Session& s) { return write(s, "a.nc", 2); });
  begin();
  ASSERT_TRUE(is_asked("a.nc"));
  stop();
  start();
  go_on(2);
}

TEST_F(CommitsTest, ThatFailAreTriedAgainWithTheFramesThatWaitedForThem) {
  add([this](Session& s) { return write(s, "a.nc", 5) == 0 || full_disk_is_said() ? 0 : 1; });
  {
    const std::lock_guard guard(store_.mutex);
    store_.fail_advance_of = "a.nc";
  }
  begin();
  say_full_disk();
  {
    const std::lock_guard guard(store_.mutex);
    store_.fail_advance_of.clear();
  }
  hold({});
  await_programs();
  (void)drain();
  expect_frames("a.nc", 5);
}

TEST_P(SlowCommitsTest, LetOthersMakeRoomInAFullStage) {
  add([this](Session& s) { return write(s, "a.nc", 1) + write(s, "b.nc", 100); });
  begin(4);
  ASSERT_TRUE(has_commits("b.nc", 2));
  EXPECT_EQ(image("a.nc").commits, 0);
  go_on(1);
  expect_frames("b.nc", 100);
}

TEST_P(SlowCommitsTest, OfRanksLetOtherFilesBeComplete) {
  constexpr std::uint32_t writers = 2;
  const Meeting meeting(writers);
  for (std::uint32_t w = 0; w < writers; ++w)
    add([this, &meeting, w](Session& s) {
      auto d = meeting.meet(s, out("a.nc"), w);
      if (!d || (w == 0 && !d->schema(series(width)))) return 1;
      d->end_collective_call();
      for (std::uint64_t f = 0; f < 3; ++f) {
        const std::vector<float> row(width / writers, static_cast<float>(f));
        if (!d->put(0, {{f, w * (width / writers)}, {1, width / writers}}, {}, {row.data(), {}}, 4)) return 2;
        if (!d->sync()) return 3;
      }
      if (!d->close()) return 4;
      return w == 0 ? write(s, "b.nc", 2) : 0;
    });
  begin();
  ASSERT_TRUE(eventually([&] { return image("b.nc").closed; }));
  EXPECT_EQ(image("a.nc").commits, 0);
  hold({});
  await_programs();
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3 * writers);
  EXPECT_EQ(image("a.nc").begun, (std::vector<std::uint64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace advectio
