#include "server/server_fixture.h"

namespace advectio {
namespace {

/// Programs that each write a tile of one domain, as WRF does.
class TilesTest : public ServerTest {
 protected:
  static constexpr std::uint64_t tiles = 3;

  TilesTest() { config_ = *parse_config("datasets: [{match: \"*\", join: true}]", "test"); }

  /// P is of no place, the same in all.
  static Schema tile_schema(std::uint64_t tile, bool more = false) {
    Schema s = tile_of_series(width, tile, tiles);
    s.dimensions.push_back({"levels", 2, false});
    s.variables.push_back(s.variables[0]);
    s.variables[1].name = "P";
    s.variables[1].dimensions = {0, 2};
    s.variables[1].chunks = {1, 2};
    if (more) {
      s.variables.push_back(s.variables[0]);
      s.variables[2].name = "U";
    }
    return s;
  }
  static void touch(const std::string& path) { (void)!::close(::creat(path.c_str(), 0600)); }
  std::string path(std::uint64_t tile) const { return out("a_000" + std::to_string(tile)); }
  static bool put(CapturedDataset& d, std::uint32_t variable, std::uint64_t frame, float value) {
    const std::vector<float> row(width, value);
    return d.put(variable, {{frame, 0}, {1, variable == 1 ? 2 : width}}, {}, {row.data(), {}}, 4).ok();
  }
  static bool put_frame(CapturedDataset& d, std::uint64_t tile, std::uint64_t frame, float level = -1) {
    return put(d, 0, frame, static_cast<float>(10 * frame + tile)) &&
           put(d, 1, frame, level < 0 ? static_cast<float>(frame) : level) && d.sync().ok();
  }
  std::unique_ptr<CapturedDataset> begin(Session& s, std::uint64_t tile) const {
    auto d = s.create({path(tile), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(tile_schema(tile))) return nullptr;
    return std::move(d).value();
  }
  int write(Session& s, std::uint64_t tile, std::uint64_t frames, unsigned pause_us = 0) const {
    auto d = begin(s, tile);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < frames; ++f) {
      if (!put_frame(*d, tile, f)) return 3;
      ::usleep(pause_us);
    }
    if (!d->close()) return 4;
    s.finish();
    return 0;
  }
  void programs(const std::function<int(Session&, std::uint64_t)>& body, std::uint64_t count = tiles) {
    for (std::uint64_t t = 0; t < count; ++t)
      programs_.push_back(std::make_unique<Program>(run_dir(), [body, t](Session& s) { return body(s, t); }));
  }
  void go() {
    for (auto& p : programs_) p->go();
  }
  /// All has been synced and closed, and nothing of it is in the one file.
  void write_and_stop_before_the_first_commit() {
    programs([this](Session& s, std::uint64_t t) {
      auto d = begin(s, t);
      for (std::uint64_t f = 0; f < 3; ++f) (void)put_frame(*d, t, f);  // told of the sink's error, and goes on
      (void)d->close();
      s.finish();
      return 0;
    });
    store_.fail_commit_of = "a";
    start();
    go();
    stop_after_a_failure();
    for (auto& p : programs_) (void)p->wait();
  }
  /// Every program to its end, which must be a good one, and then the server. What the status says of each dataset.
  json end(Outcome outcome = Outcome::clean) {
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    auto status = drain();
    EXPECT_EQ(outcome_, outcome);
    return status["datasets"];
  }
  static std::uint64_t at(std::uint32_t variable, std::uint64_t tile, std::uint64_t frame) {
    return (std::uint64_t{variable} << 56U) + ((tile * width) << 32U) + frame;
  }
  /// What the frames are, of the whole or (`only`) in a tile's own file.
  static std::map<std::uint64_t, float> frames(std::uint64_t from, std::uint64_t to,
                                               std::optional<std::uint64_t> only = {}) {
    std::map<std::uint64_t, float> all;
    for (auto f = from; f < to; ++f) {
      for (std::uint64_t t = 0; t < tiles; ++t)
        if (!only || *only == t) all[at(0, only ? 0 : t, f)] = static_cast<float>(10 * f + t);
      all[at(1, 0, f)] = static_cast<float>(f);
    }
    return all;
  }
  /// Three frames, of which nothing can be written.
  void write_and_stop_after_a_failure() {
    store_.fail_commit_of = "a";
    programs([this](Session& s, std::uint64_t t) {
      auto d = begin(s, t);
      for (std::uint64_t f = 0; d && f < 3; ++f) (void)put_frame(*d, t, f);
      (void)d->close();
      return 0;
    });
    start();
    go();
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    programs_.clear();
    stop_after_a_failure();
  }
  void expect_whole(std::uint64_t frame_count) {
    EXPECT_EQ(image("a").committed, frames(0, frame_count));
    for (std::uint64_t t = 0; t < tiles; ++t) EXPECT_FALSE(std::filesystem::exists(path(t))) << t;
    const auto names = system_files().list(output_.path());
    ASSERT_TRUE(names.ok());
    EXPECT_EQ(*names, std::vector<std::string>{"a"});
    EXPECT_FALSE(std::filesystem::exists(run_dir()));
  }

  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(TilesTest, BecomeOneFile) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 20); });
  start();
  go();
  const auto datasets = end();
  ASSERT_EQ(datasets.size(), 1U);
  EXPECT_EQ(datasets[0]["path"], out("a"));
  EXPECT_EQ(datasets[0]["state"], "finished");
  EXPECT_EQ(datasets[0]["tiles"], 3);
  EXPECT_EQ(datasets[0]["frames_visible"], 20);
  EXPECT_EQ(datasets[0]["frames_durable"], 20);
  EXPECT_TRUE(image("a").closed);
  expect_whole(20);
}

TEST_F(TilesTest, AreCompleteWhenTheLastOfTheirProcessesHasEnded) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 5); });
  start();
  go();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
  EXPECT_TRUE(image("a").closed);
  EXPECT_EQ(image("a").committed, frames(0, 5));
  (void)drain();
}

TEST_F(TilesTest, MissNothingWhenTheServerIsReplaced) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 150, 2000); });
  start();
  go();
  // Six lives, each after 20 frames more. A slow machine may have committed them already.
  for (std::size_t life = 1; life <= 6; ++life) {
    ASSERT_TRUE(eventually([&] { return image("a").committed.size() >= life * 20; }));
    stop();
    start();
  }
  (void)end();
  expect_whole(150);
}

TEST_F(TilesTest, MissNothingWhenTheServerIsReplacedWithinACommit) {
  // All but the very last of what a commit leaves in the shared states is undone: of some tiles, of all, of the whole.
  for (const int which : {0, 1, 2, 3}) {
    SCOPED_TRACE(which);
    programs_.clear();
    store_.fail_commit_of = "";
    programs([this](Session& s, std::uint64_t t) {
      auto d = begin(s, t);
      for (std::uint64_t f = 0; f < 3; ++f)
        if (!d || !put_frame(*d, t, f)) return 1;
      if (!eventually([this] { return std::filesystem::exists(out("go_on")); })) return 2;
      if (!put_frame(*d, t, 3) || !d->close()) return 3;
      s.finish();
      return 0;
    });
    start();
    go();
    ASSERT_TRUE(eventually([&] { return image("a").committed.size() == 12; }));
    stop();
    for_each_page([which](journal::SharedState& shared_state) {
      const bool tile = shared_state.tiles == 0;
      if (which == 0 || (which == 1 && tile) ||
          (which == 2 && tile && std::string(shared_state.path).ends_with("_0001"))) {
        shared_state.visible.store(0);
        if (tile) shared_state.sync_index.store(0);
      }
      if (which == 3 && !tile) shared_state.visible.store(2);
    });
    start();
    touch(out("go_on"));
    (void)end();
    std::filesystem::remove(out("go_on"));
    expect_whole(4);
    std::filesystem::remove(out("a"));
  }
}

TEST_F(TilesTest, LeaveNoSecondNameWhenTheServerDiesAsItBeginsTheirFile) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 3); });
  const pid_t server = ::fork();
  if (server == 0) {
    dies_at_link = true;
    ::alarm(20);
    start();
    touch(out("go"));
    thread_.join();
    ::_exit(0);
  }
  EXPECT_TRUE(eventually([this] { return std::filesystem::exists(out("go")); }));
  for (auto p = programs_.rbegin(); p != programs_.rend(); ++p) {
    (*p)->go();
    ::usleep(50'000);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(server, &status, 0), server);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  std::filesystem::remove(out("go"));
  // Whoever comes next may have another tile first.
  start();
  (void)end();
  expect_whole(3);
}

TEST_F(TilesTest, AreFilesOfTheirOwnWhereOneOfThemIsDamaged) {
  store_.fail_commit_of = "a";
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    for (std::uint64_t f = 0; d && f < 3; ++f) (void)put_frame(*d, t, f);
    return d ? 0 : 1;
  });
  start();
  go();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
  stop_after_a_failure();
  const auto journals = system_files().list(run_dir() + "/journals").value();
  std::string damaged;
  for_each_page([&](journal::SharedState& shared_state) {
    if (std::string(shared_state.path).ends_with("_0001"))
      for (const auto& name : journals)
        if (name.find(std::to_string(shared_state.writer_pid)) != std::string::npos) damaged = name;
  });
  damage_second_frame(damaged);
  for (int life = 0; life < 2; ++life) {
    start(life == 0 ? 16 : 2, life == 1);
    const auto status = life == 0 ? drain() : json();
    if (life == 0)
      EXPECT_NE(status["errors"].dump().find("a_0001: frame 1: the payload"), std::string::npos) << status;
    else
      thread_.join();
    EXPECT_EQ(outcome_, Outcome::incomplete);
    server_.reset();
    // A server that commits before it has read as far as the damage leaves a whole frame; what follows is not.
    const auto whole = image("a").committed.empty() ? 0U : 1U;
    EXPECT_EQ(image("a").committed, frames(0, whole));
    EXPECT_EQ(image("a_0000").committed, frames(whole, 3, 0));
    EXPECT_EQ(image("a_0001").committed, frames(whole, 1, 1));
    EXPECT_EQ(image("a_0002").committed, frames(whole, 3, 2));
  }
}

TEST_F(TilesTest, LeaveNothingOfAFileThatIsBegunAnew) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 3); });
  const pid_t server = ::fork();
  if (server == 0) {
    ::alarm(20);
    store_.commits_stand = true;
    start();
    touch(out("go"));
    thread_.join();
    ::_exit(0);
  }
  EXPECT_TRUE(eventually([this] { return std::filesystem::exists(out("go")); }));
  std::filesystem::remove(out("go"));
  go();
  std::string beside;
  EXPECT_TRUE(eventually([&] {
    for (const auto& path : hard_links())
      if (path.ends_with("-redo")) beside = path;
    return !beside.empty();
  }));
  ::kill(server, SIGKILL);
  ASSERT_EQ(::waitpid(server, nullptr, 0), server);
  // Whoever comes next may have another tile first, and then the file has another hard link.
  auto other = beside;
  other.replace(other.rfind("-whole") - 1, 1, other[other.rfind("-whole") - 1] == '0' ? "1" : "0");
  std::filesystem::rename(beside, other);
  const auto link = [](const std::string& redo) { return redo.substr(0, redo.size() - 5); };
  std::filesystem::rename(link(beside), link(other));
  for_each_page([&](journal::SharedState& shared_state) {
    if (shared_state.tiles == 0) return;
    std::strcpy(shared_state.link, link(other).c_str());
    shared_state.seal = journal::seal_of(shared_state);
  });
  start();
  (void)end();
  expect_whole(3);
}

TEST_F(TilesTest, MissNothingWhereTheirFileIsSaidToBeFurtherThanItIs) {
  write_and_stop_before_the_first_commit();
  for_each_page([](journal::SharedState& shared_state) {
    if (shared_state.tiles > 0) shared_state.visible.fetch_add(256);
  });
  recover(16);
  EXPECT_EQ(outcome_, Outcome::clean);
  expect_whole(3);
}

TEST_F(TilesTest, WhoseFileIsNamedWronglyAreSaidToBeDamaged) {
  write_and_stop_before_the_first_commit();
  for_each_page([](journal::SharedState& shared_state) {
    if (shared_state.tiles == 0 && std::string(shared_state.path).ends_with("_0001"))
      shared_state.whole[3] = shared_state.whole[3] == '1' ? '2' : '1';
  });
  start(16, true);
  thread_.join();
  const auto status = json::parse(server_->status());
  server_.reset();
  EXPECT_NE(outcome_, Outcome::clean);
  EXPECT_NE(status["errors"].dump().find("a_0001: what it says of the file that it goes into is damaged"),
            std::string::npos)
      << status["errors"];
}

TEST_F(TilesTest, ThatGoOnAloneAfterACommitOfWhichTheyWereNotToldKeepTheirDefinitions) {
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    for (std::uint64_t f = 0; f < 3; ++f)
      if (!d || !put_frame(*d, t, f)) return 1;
    if (!eventually([this] { return std::filesystem::exists(out("go_on")); })) return 2;
    (void)put_frame(*d, t, 3);
    (void)d->close();
    return 0;
  });
  start();
  go();
  ASSERT_TRUE(eventually([&] { return image("a").committed.size() == 12; }));
  stop();
  change_pages(run_dir(), [this](const auto&, const std::string& name, journal::SharedState& shared_state) {
    if (shared_state.tiles != 0) return;
    shared_state.visible.store(0);
    shared_state.sync_index.store(0);
    if (std::string(shared_state.path).ends_with("_0001"))
      shared_state.whole[3] = shared_state.whole[3] == '1' ? '2' : '1';
    ASSERT_TRUE(system_files().remove(run_dir() + "/datasets/" + name + ".schema").ok());
  });
  start();
  touch(out("go_on"));
  (void)end(Outcome::incomplete);
  EXPECT_EQ(image("a").committed, frames(0, 3));
  for (const std::uint64_t t : {0U, 2U}) EXPECT_EQ(image("a_000" + std::to_string(t)).committed, frames(3, 4, t)) << t;
}

TEST_F(TilesTest, LetNobodyWaitWhenTheServerDiesBetweenTheLastCommitAndTheEnd) {
  for (const bool said_to_be_finished : {false, true}) {
    SCOPED_TRACE(said_to_be_finished);
    programs_.clear();
    store_.fail_close_of = "a";
    programs([this](Session& s, std::uint64_t t) { return write(s, t, 3); });
    start();
    go();
    stop_after_a_failure();
    if (said_to_be_finished)
      for_each_page([](journal::SharedState& shared_state) {
        if (shared_state.tiles > 0)
          shared_state.state.store(static_cast<std::uint32_t>(journal::DatasetState::finished));
      });
    start();
    for (auto& p : programs_) (void)p->wait();
    (void)drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    expect_whole(3);
  }
}

TEST_F(TilesTest, DropTheFrameThatOneWhichIsKilledHadNotSynced) {
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    for (std::uint64_t f = 0; f < 5; ++f)
      if (!d || !put_frame(*d, t, f)) return 1;
    if (t == 1) {
      (void)put(*d, 0, 5, 1);
      return ::kill(::getpid(), SIGKILL);
    }
    return put_frame(*d, t, 5) ? 0 : 2;
  });
  start();
  go();
  EXPECT_EQ(programs_[1]->wait(), 128 + SIGKILL);
  programs_.erase(programs_.begin() + 1);
  const auto datasets = end();
  EXPECT_EQ(datasets[0]["frames_visible"], 5);
  expect_whole(5);
}

TEST_F(TilesTest, AreTheirOwnFilesWhereOneIsMissing) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 4); }, 2);
  start();
  go();
  const auto datasets = end();
  ASSERT_EQ(datasets.size(), 2U);
  for (std::uint64_t t = 0; t < 2; ++t) {
    EXPECT_EQ(image("a_000" + std::to_string(t)).committed, frames(0, 4, t));
    EXPECT_TRUE(std::filesystem::exists(path(t)));
  }
  EXPECT_FALSE(std::filesystem::exists(out("a")));
}

TEST_F(TilesTest, GoOnAsTheirOwnFilesFromTheFrameInWhichTheyDisagree) {
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    for (std::uint64_t f = 0; f < 5; ++f)
      if (!d || !put_frame(*d, t, f, f == 3 && t == 2 ? 77 : -1)) return 1;
    return d->close().ok() ? 0 : 2;
  });
  start();
  go();
  const auto datasets = end();
  ASSERT_EQ(datasets.size(), 4U);
  EXPECT_EQ(image("a").committed, frames(0, 3));
  EXPECT_TRUE(std::filesystem::exists(out("a")));
  for (std::uint64_t t = 0; t < tiles; ++t) {
    auto expected = frames(3, 5, t);
    if (t == 2) expected[at(1, 0, 3)] = 77;
    EXPECT_EQ(image("a_000" + std::to_string(t)).committed, expected) << t;
    EXPECT_EQ(image("a_000" + std::to_string(t)).begun, (std::vector<std::uint64_t>{4, 5})) << "as in the whole";
  }
}

TEST_F(TilesTest, WithAnotherNumberOfFramesGoOnAsTheirOwnFiles) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, t == 0 ? 2 : 4); });
  start();
  go();
  (void)end();
  EXPECT_EQ(image("a").committed, frames(0, 2));
  for (std::uint64_t t = 1; t < tiles; ++t)
    EXPECT_EQ(image("a_000" + std::to_string(t)).committed, frames(2, 4, t)) << t;
}

TEST_F(TilesTest, MayDefineMoreBetweenFrames) {
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    if (!d || !put_frame(*d, t, 0) || !d->schema(tile_schema(t, true))) return 1;
    if (!put(*d, 2, 1, static_cast<float>(t)) || !put_frame(*d, t, 1)) return 2;
    if (!d->close()) return 3;
    s.finish();
    return 0;
  });
  start();
  go();
  (void)end();
  auto expected = frames(0, 2);
  for (std::uint64_t t = 0; t < tiles; ++t) expected[at(2, t, 1)] = static_cast<float>(t);
  EXPECT_EQ(image("a").committed, expected);
}

TEST_F(TilesTest, OfFramesLargerThanTheStageAreOneFile) {
  // All have begun before any fills the stage.
  const auto begun = [this](std::uint64_t t) { return out("begun_" + std::to_string(t)); };
  programs([this, begun](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    if (!d || !put(*d, 1, 0, 0)) return 1;
    touch(begun(t));
    for (std::uint64_t other = 0; other < tiles; ++other)
      if (!eventually([&] { return std::filesystem::exists(begun(other)); })) return 2;
    for (std::uint64_t f = 0; f < 200; ++f)  // one frame of 2.4 MB through 384 KiB
      if (!put(*d, 0, f, static_cast<float>(10 * f + t)) || !put(*d, 1, f, static_cast<float>(f))) return 3;
    if (!d->close()) return 4;
    s.finish();
    return 0;
  });
  start(6);
  go();
  (void)end();
  for (std::uint64_t t = 0; t < tiles; ++t) std::filesystem::remove(begun(t));
  expect_whole(200);
}

TEST_F(TilesTest, OfAFrameThatCannotBeCommittedInPartsNothingLeavesTheStage) {
  store_.checkpoints = false;
  const auto begun = [this](std::uint64_t t) { return out("begun_" + std::to_string(t)); };
  const auto full = [this](std::uint64_t t) { return out("full_" + std::to_string(t)); };
  programs([this, begun, full](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    if (!d || !put(*d, 1, 0, 0)) return 1;
    touch(begun(t));
    for (std::uint64_t other = 0; other < tiles; ++other)
      if (!eventually([&] { return std::filesystem::exists(begun(other)); })) return 2;
    for (std::uint64_t f = 0; f < 200; ++f)
      if (!put(*d, 0, f, static_cast<float>(f)) || !put(*d, 1, f, 0)) break;
    touch(full(t));
    ::pause();
    return 0;
  });
  start(6, false, 500'000'000);
  go();
  for (std::uint64_t t = 0; t < tiles; ++t) ASSERT_TRUE(eventually([&] { return std::filesystem::exists(full(t)); }));
  stop();
  EXPECT_TRUE(image("a").committed.empty());
  for_each_page([](const journal::SharedState& shared_state) {
    EXPECT_STREQ(shared_state.whole, journal::alone) << "a file of its own, when somebody makes space";
    EXPECT_EQ(shared_state.sync_index.load(), 0U) << shared_state.path;
  });
}

TEST_F(TilesTest, AreTheirOwnFilesWhereTheStageIsFullBeforeAllAreThere) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 100); }, 2);
  start(4);
  go();
  (void)end();
  for (std::uint64_t t = 0; t < 2; ++t) EXPECT_EQ(image("a_000" + std::to_string(t)).committed, frames(0, 100, t));
}

/// A segment that is counted and still being made looks like a full stage. Tiles came apart for it.
TEST_F(TilesTest, StayTogetherWhereSomebodyHasAskedForASegmentAndGotIt) {
  const auto go_on = out("go on"), synced = out("synced");
  programs([this, go_on, synced](Session& s, std::uint64_t t) {
    if (t > 0 && !eventually([&] { return std::filesystem::exists(go_on); })) return 1;
    auto d = begin(s, t);
    if (!d || !put_frame(*d, t, 0)) return 2;
    touch(synced);
    if (!eventually([&] { return std::filesystem::exists(go_on); }) || !put_frame(*d, t, 1) || !d->close()) return 3;
    s.finish();
    return 0;
  });
  start();
  go();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(synced); }));
  {
    auto stage = journal::Stage::open(system_files(), run_dir()).value();
    auto& control = stage.control();
    const auto limit = control.segments_limit.exchange(0);
    const auto named = [&stage](const std::string& from, const std::string& to) {
      const auto names = system_files().list(stage.pool()).value();
      for (const auto& name : names)
        if (name.rfind(from, 0) == 0)
          (void)system_files().rename(stage.pool() + "/" + name, stage.pool() + "/" + to + name.substr(from.size()));
    };
    for (int i = 0; i < 80; ++i) {
      named("s", ".s");  // what is given back meanwhile, too
      control.starved_ns.store(journal::monotonic_ns());
      ::usleep(2000);
      control.relieved_ns.store(journal::monotonic_ns());
      ::usleep(1000);
    }
    named(".s", "s");
    control.segments_limit.store(limit);
  }
  touch(go_on);
  (void)end();
  for (const auto& path : {go_on, synced}) std::filesystem::remove(path);
  expect_whole(2);
}

/// One has said no more than what is in the one file already, part of it kept to be compared with what others say.
TEST_F(TilesTest, ThatComeApartBehindAPartOfAFrameAreNoLessInTheFile) {
  const auto begun = [this](std::uint64_t t) { return out("begun_" + std::to_string(t)); };
  const auto apart = out("apart");
  programs([this, begun, apart](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    if (!d || !put_frame(*d, t, 0) || (t != 2 && !put_frame(*d, t, 1))) return 1;
    touch(begun(t));
    for (std::uint64_t other = 0; other < tiles; ++other)
      if (!eventually([&] { return std::filesystem::exists(begun(other)); })) return 2;
    if (t == 1)
      for (;;) ::pause();
    if (t == 0) {
      for (std::uint64_t f = 2; f < 300; ++f)  // 1.2 MB through 384 KiB, before the last has its second frame
        if (!put_frame(*d, t, f)) return 3;
      touch(apart);
    } else {
      if (!eventually([&] { return std::filesystem::exists(apart); })) return 4;
      if (!put_frame(*d, t, 1, 77)) return 5;
      for (std::uint64_t f = 2; f < 300; ++f)  // no sync: files are committed in the midst of a frame
        if (!put(*d, 0, f, 0)) return 5;
    }
    if (!d->close()) return 6;
    s.finish();
    return 0;
  });
  start(6);
  go();
  EXPECT_EQ(programs_[0]->wait(), 0);
  EXPECT_EQ(programs_[2]->wait(), 0);
  programs_[1]->kill();
  programs_.clear();
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(status["datasets"].size(), 4U);
  EXPECT_EQ(status["errors"].size(), 0U) << status["errors"];
  EXPECT_EQ(image("a").committed.at(at(0, 1, 1)), 11.0F);
}

TEST_F(TilesTest, AreToldOfAFullDiskAndRecoveryFinishes) {
  store_.fail_commit_of = "a";
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    int told = 0;
    for (std::uint64_t f = 0; d && f < 5; ++f) {
      if (f == 4 && !full_disk_is_said()) return 2;
      (void)put(*d, 0, f, static_cast<float>(10 * f + t));
      (void)put(*d, 1, f, static_cast<float>(f));
      if (auto r = d->sync(); !r && r.error().sys == ENOSPC) ++told;
    }
    if (auto r = d->close(); !r && r.error().sys == ENOSPC) ++told;
    s.finish();
    return told > 0 ? 0 : 1;
  });
  start();
  go();
  say_full_disk();
  const auto datasets = end(Outcome::incomplete);
  ASSERT_EQ(datasets.size(), 1U);
  EXPECT_EQ(datasets[0]["state"], "failed");
  EXPECT_NE(datasets[0]["error"].get<std::string>().find("No space left"), std::string::npos);
  EXPECT_TRUE(image("a").committed.empty());
  store_.allow();
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  expect_whole(5);
}

TEST_F(TilesTest, GoOnWhenSpaceIsMadeBeforeTheEnd) {
  store_.fail_commit_of = "a";
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    for (std::uint64_t f = 0; d && f < 3; ++f) (void)put_frame(*d, t, f);
    (void)d->close();
    return 0;
  });
  start();
  go();
  ASSERT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
  for (auto& p : programs_) (void)p->wait();
  programs_.clear();
  store_.allow();
  (void)end();
  expect_whole(3);
}

TEST_F(TilesTest, LeaveNothingOfTheOneFileThatCouldNotBeRemovedAtFirst) {
  write_and_stop_after_a_failure();
  // What the death of a server leaves of its sink; and the next cannot remove it.
  for_each_page([](journal::SharedState& shared_state) {
    if (shared_state.tiles > 0) std::ofstream(std::string(shared_state.link) + "-redo");
  });
  names_stay = true;
  start();
  ASSERT_TRUE(eventually([&] { return server_->status().find("its hard link") != std::string::npos; }));
  names_stay = false;
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  expect_whole(3);
}

TEST_F(TilesTest, BecomeOneFileThoughTwoServersDieBeforeAnythingIsInIt) {
  write_and_stop_after_a_failure();
  // The second had begun to let go of the file.
  for_each_page([](journal::SharedState& shared_state) {
    if (shared_state.tiles > 0)
      shared_state.state.store(static_cast<std::uint32_t>(journal::DatasetState::dropped));
    else
      journal::set_whole(shared_state, {});
  });
  start();
  (void)end();
  expect_whole(3);
}

// They come apart when what failed is tried again, and a frame is half put then.
TEST_F(TilesTest, ThatDisagreeBehindAFullDiskGoOnAsTheirOwnFilesWhenSpaceIsMade) {
  store_.fail_commit_of = "a";
  programs([this](Session& s, std::uint64_t t) {
    auto d = begin(s, t);
    if (!d) return 1;
    (void)put_frame(*d, t, 0);
    (void)put_frame(*d, t, 1, t == 2 ? 77 : -1);
    (void)put(*d, 0, 2, static_cast<float>(20 + t));
    touch(out("half-" + std::to_string(t)));
    while (!system_files().exists(out("now"))) ::usleep(1000);
    (void)put(*d, 1, 2, 2);
    (void)d->close();  // told of the disk
    s.finish();
    return 0;
  });
  start();
  go();
  ASSERT_TRUE(eventually([&] {
    for (std::uint64_t t = 0; t < tiles; ++t)
      if (!system_files().exists(out("half-" + std::to_string(t)))) return false;
    return server_->status().find("No space") != std::string::npos;
  }));
  wait_turns();  // the last puts have been read
  store_.allow();
  ASSERT_TRUE(eventually([&] { return image("a_0000").commits > 0; }));
  touch(out("now"));
  (void)end();
  EXPECT_EQ(image("a").committed, frames(0, 1));
  for (std::uint64_t t = 0; t < tiles; ++t) {
    auto expected = frames(1, 3, t);
    if (t == 2) expected[at(1, 0, 1)] = 77;
    EXPECT_EQ(image("a_000" + std::to_string(t)).committed, expected) << t;
  }
}

TEST_F(TilesTest, CannotBeOpenedReadOrReplacedByTheirWriterOnTheWay) {
  programs([this](Session& s, std::uint64_t t) {
    if (t > 0) {
      if (!eventually([this] { return std::filesystem::exists(out("asked")); })) return 9;
      return write(s, t, 2);
    }
    auto d = begin(s, t);
    if (!d || !put_frame(*d, t, 0)) return 1;
    if (auto r = d->wait_visible(); r.ok() || r.error().code != Code::unsupported) return 2;
    if (!put_frame(*d, t, 1) || !d->close()) return 3;
    for (const bool writing : {false, true})
      if (auto r = s.wait_for_file(path(0), writing); r.ok() || r.error().code != Code::unsupported) return 4;
    s.finish();  // and does not wait for the others, who wait for this
    touch(out("asked"));
    return 0;
  });
  start();
  go();
  (void)end();
  std::filesystem::remove(out("asked"));
  expect_whole(2);
}

TEST_F(TilesTest, CreatedAgainOnTheWayAreTheNextFileOfThatName) {
  // One process is through with two of them before the others have begun the first.
  programs([this](Session& s, std::uint64_t t) {
    if (t > 0 && !eventually([this] { return std::filesystem::exists(out("ahead")); })) return 9;
    if (const int code = write(s, t, 2); code != 0) return code;
    const int code = write(s, t, 3);
    if (t == 0) touch(out("ahead"));
    return code;
  });
  start();
  go();
  const auto datasets = end();
  std::filesystem::remove(out("ahead"));
  ASSERT_EQ(datasets.size(), 2U);
  EXPECT_EQ(datasets[0]["frames_visible"], 2);
  EXPECT_EQ(datasets[1]["frames_visible"], 3);
  expect_whole(3);
}

TEST_F(TilesTest, DoNotReplaceAnotherFileOfTheRun) {
  Program other(run_dir(), [this](Session& s) { return write_frames(s, out("a"), 1); });
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 2); });
  start();
  other.go();
  EXPECT_EQ(other.wait(), 0);
  go();
  const auto datasets = end();
  EXPECT_EQ(datasets.size(), 4U);
  EXPECT_EQ(image("a").committed.size(), 1U);
  for (std::uint64_t t = 0; t < tiles; ++t)
    EXPECT_EQ(image("a_000" + std::to_string(t)).committed, frames(0, 2, t)) << t;
}

}  // namespace
}  // namespace advectio
