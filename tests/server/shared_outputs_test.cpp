#include "server/server_fixture.h"

namespace advectio {
namespace {

class SharedDatasetTest : public ServerTest {
 protected:
  /// Collective puts of one row each: step frame × writers + writer.
  bool put_frame(SharedDataset& d, std::uint32_t writer, std::uint64_t frame, bool synced = true) const {
    const auto step = frame * writers + writer;
    const std::vector<float> row(width, static_cast<float>(step));
    const bool put = d.put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok();
    d.end_collective_call();
    if (!synced) return put;
    const bool done = d.sync().ok();
    d.end_collective_call();
    return put && done;
  }
  int write(Session& s, std::uint32_t writer, std::uint64_t frames, unsigned pause_us = 0) const {
    auto d = meet(s, writer);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < frames; ++f) {
      if (!put_frame(*d, writer, f)) return 3;
      ::usleep(pause_us);
    }
    if (!d->close()) return 4;
    s.finish();
    return 0;
  }
  /// How every program here begins: the schema is told, nothing put. Nothing where that fails.
  std::unique_ptr<SharedDataset> meet(Session& s, std::uint32_t writer) const {
    auto d = meeting_.meet(s, out("a.nc"), writer);
    if (!d || (writer == 0 && !d->schema(series(width)))) return nullptr;
    d->end_collective_call();
    return d;
  }
  /// Every program to its end, which must be a good one, and then the server. The final status.
  json run_to_end() {
    go();
    return end();
  }
  json end() {
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    return status;
  }
  /// One program for each writer, which all do the same.
  void programs(const std::function<int(Session&, std::uint32_t)>& body) {
    for (std::uint32_t w = 0; w < writers; ++w)
      programs_.push_back(std::make_unique<Program>(run_dir(), [body, w](Session& s) { return body(s, w); }));
  }
  void go() {
    for (auto& p : programs_) p->go();
  }
  void expect_frames(std::uint64_t frames) {
    const auto f = image("a.nc");
    ASSERT_EQ(f.committed.size(), frames * writers);
    for (const auto& [at, value] : f.committed) ASSERT_EQ(value, static_cast<float>(at));
  }

  static constexpr std::uint32_t writers = 3;
  Meeting meeting_{writers};
  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(SharedDatasetTest, FramesOfSeveralProcessesAreOneFileEach) {
  programs([this](Session& s, std::uint32_t w) { return write(s, w, 20); });
  start();
  const auto status = run_to_end();
  ASSERT_EQ(status["datasets"].size(), 1U);
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 20);
  EXPECT_EQ(status["datasets"][0]["frames_synced"], 20);
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  expect_frames(20);
  EXPECT_EQ(image("a.nc").commits, 20);  // the last close says nothing new
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

TEST_F(SharedDatasetTest, NobodysBlocksComeBeforeASchemaThatIsToldLate) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meeting_.meet(s, out("a.nc"), w);
    if (!d) return 1;
    if (w == 0) d->hold_schema();
    d->end_collective_call();
    if (w == 0) ::usleep(100'000);  // the others put meanwhile
    if (w == 0 && !d->schema(series(width))) return 2;
    if (!put_frame(*d, w, 0)) return 3;
    return d->close().ok() ? 0 : 4;
  });
  start();
  const auto status = run_to_end();
  EXPECT_EQ(status["errors"].size(), 0U);
  expect_frames(1);
}

TEST_F(SharedDatasetTest, WhenOneIsKilledTheFrameItHadNotSyncedIsDroppedForAll) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < 5; ++f) put_frame(*d, w, f);
    put_frame(*d, w, 5, w != 1);
    if (w == 1) return ::kill(::getpid(), SIGKILL);
    put_frame(*d, w, 6);
    (void)d->close();
    s.finish();  // comes back, although the frame will never be complete
    return 0;
  });
  start();
  go();
  EXPECT_EQ(programs_[0]->wait(), 0);
  EXPECT_EQ(programs_[1]->wait(), 128 + SIGKILL);
  EXPECT_EQ(programs_[2]->wait(), 0);
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 5);
  expect_frames(5);
}

TEST_F(SharedDatasetTest, AWriterThatDiesWithinItsJoinHoldsNobodyUp) {
  Program alone(run_dir(), [this](Session& s) {
    Invitation i;
    auto d = s.create_shared({out("a.nc"), FileFormat::netcdf4, false}, 2, i);
    if (!d || !(*d)->schema(series(width))) return 1;
    (*d)->end_collective_call();
    // The other has taken its slot, and its journal has never said so.
    auto stage = journal::Stage::open(system_files(), run_dir());
    auto slots = stage->open_slots(i.shared_state, 2);
    (*slots)[1].pid = 1;
    (*slots)[1].journal.store(4711);
    put_frame(**d, 0, 0);
    return ::kill(::getpid(), SIGKILL);
  });
  start();
  alone.go();
  (void)alone.wait();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_FALSE(std::filesystem::exists(out("a.nc")));
}

TEST_F(SharedDatasetTest, WhoComesWhenItIsOverIsTold) {
  Program alone(run_dir(), [this](Session& s) {
    Invitation i;
    auto d = s.create_shared({out("a.nc"), FileFormat::netcdf4, false}, 2, i);
    if (!d) return 1;
    // Its shared state stays where its hard link cannot be removed.
    auto stage = journal::Stage::open(system_files(), run_dir());
    (*stage->open_state(i.shared_state))->state.store(static_cast<std::uint32_t>(journal::DatasetState::dropped));
    const auto late = s.join(i, 1);
    if (late || late.error().code != Code::not_found) return 2;
    return late.error().message.find("the others have ended it") == std::string::npos ? 3 : 0;
  });
  start();
  alone.go();
  EXPECT_EQ(alone.wait(), 0);
}

TEST_F(SharedDatasetTest, NothingIsLostOrRepeatedWrongWhenTheServerIsReplaced) {
  programs([this](Session& s, std::uint32_t w) { return write(s, w, 200, 1000 + 300 * w); });
  start(8);
  go();
  // Four lives, each after 20 frames more. A slow machine may have committed them already.
  for (std::size_t life = 1; life <= 4; ++life) {
    ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() >= life * 20; }));
    stop();
    start(8);
  }
  (void)end();
  expect_frames(200);
}

TEST_F(SharedDatasetTest, AFrameKeepsItsNumberWhenTheServerDiesWithinItsCommit) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    for (std::uint64_t f = 0; f < 4; ++f) {
      const auto may_go_on = [&] { return std::filesystem::exists(out("frame " + std::to_string(f))); };
      if (!d || !eventually(may_go_on) || !put_frame(*d, w, f)) return 1;
    }
    return d->close().ok() ? 0 : 2;
  });
  const auto let_write = [this](int f) { std::ofstream(out("frame " + std::to_string(f))).close(); };
  const auto committed = [this](std::size_t frames) {
    return eventually([&] { return image("a.nc").committed.size() == frames * writers; });
  };
  start();
  go();
  for (const int f : {0, 1}) let_write(f);
  ASSERT_TRUE(committed(2));
  std::uint64_t visible = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> slots;
  ASSERT_TRUE(eventually([&] { return server_->status().find("\"frames_visible\":2") != std::string::npos; }));
  change_pages(run_dir(), [&](const auto& stage, const std::string& name, journal::SharedState& shared_state) {
    visible = shared_state.visible.load();
    const auto of = stage.open_slots(name, writers);
    for (std::uint32_t w = 0; w < writers; ++w) slots.emplace_back((*of)[w].visible.load(), (*of)[w].sync_index.load());
  });
  let_write(2);
  ASSERT_TRUE(committed(3));
  stop();
  // As if it had died in the commit of the third frame, before its last writer was told.
  change_pages(run_dir(), [&](const auto& stage, const std::string& name, journal::SharedState& shared_state) {
    shared_state.visible.store(visible);
    const auto of = stage.open_slots(name, writers);
    (*of)[writers - 1].visible.store(slots[writers - 1].first);
    (*of)[writers - 1].sync_index.store(slots[writers - 1].second);
  });
  start();
  let_write(3);
  const auto status = end();
  expect_frames(4);
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 4);
  EXPECT_EQ(image("a.nc").begun.back(), 4U);
}

TEST_F(SharedDatasetTest, AServerThatDiesBetweenTheLastCommitAndTheEndLetsNobodyWait) {
  for (const bool said_to_be_finished : {false, true}) {
    SCOPED_TRACE(said_to_be_finished);
    store_.fail_close_of = "a.nc";
    programs([this](Session& s, std::uint32_t w) { return write(s, w, 3); });
    start();
    go();
    stop_after_a_failure();
    if (said_to_be_finished) end_all_but_the_page();
    start();
    for (auto& p : programs_) (void)p->wait();  // they come back
    const auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(status["datasets"][0]["state"], "finished");
    EXPECT_EQ(image("a.nc").closed, !said_to_be_finished);
    EXPECT_FALSE(std::filesystem::exists(run_dir()));
    expect_frames(3);
    programs_.clear();
  }
}

TEST_F(SharedDatasetTest, ACloseThatFailsIsTriedAgain) {
  store_.fail_close_of = "a.nc";
  programs([this](Session& s, std::uint32_t w) { return write(s, w, 3); });
  start();
  go();
  ASSERT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
  store_.allow();
  for (auto& p : programs_) (void)p->wait();
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_TRUE(image("a.nc").closed);
}

TEST_F(SharedDatasetTest, AWriterFarAheadOfTheOthersDoesNotStopThemAndTheCapHolds) {
  programs([this](Session& s, std::uint32_t w) { return write(s, w, 100, w == 0 ? 0 : 3000); });
  start(6);
  const auto status = run_to_end();
  EXPECT_LE(status["stage"]["bytes_allocated_peak"].get<std::uint64_t>(), 6U * 64 * 1024);
  expect_frames(100);
}

// The last writer fills the stage before the server that has taken the dataset up has opened its sink: what comes
// before its blocks, the others have not put yet.
TEST_F(SharedDatasetTest, NothingIsWrittenOutOfTurnWhereOnlyWholeFramesCanBeCommitted) {
  constexpr std::uint64_t frames = 10, of_last = 8, in_frame = of_last + writers - 1;
  store_.checkpoints = false;
  const auto replaced = scratch_ / "replaced", full = scratch_ / "full";
  programs([this, replaced, full](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    const bool last = w == writers - 1;
    const auto rows = last ? of_last : 1;
    const std::vector<float> values(rows * width, static_cast<float>(w));
    for (std::uint64_t f = 0; f < frames; ++f) {
      if (f == 1 && !eventually([&] { return std::filesystem::exists(last ? replaced : full); })) return 2;
      if (f == 1) d->end_collective_call();  // of which nobody knows yet whether the others put something in it
      const auto first = f * in_frame + w;
      const bool put = d->put(0, {{first, 0}, {rows, width}}, {}, {values.data(), {}}, 4).ok();
      d->end_collective_call();
      const bool synced = d->sync().ok();
      d->end_collective_call();
      if (!put || !synced) return 3;
    }
    if (!d->close()) return 4;
    s.finish();
    return 0;
  });
  start(6);
  go();
  ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() == in_frame; }));
  stop();
  start(6);
  const auto stage = journal::Stage::open(system_files(), run_dir());
  ASSERT_TRUE(stage.ok());
  const auto before = stage->control().starved_ns.load();
  (void)!::close(::creat(replaced.c_str(), 0600));
  ASSERT_TRUE(eventually([&] { return stage->control().starved_ns.load() > before; }));
  wait_turns();
  (void)!::close(::creat(full.c_str(), 0600));
  (void)end();
  std::uint64_t whole = 0;
  for (const auto rows : image("a.nc").rows) {
    ASSERT_TRUE(rows == in_frame || rows == 0) << rows;
    whole += rows / in_frame;
  }
  EXPECT_EQ(whole, frames);
}

/// Writer 0 puts many records without a sync, and their ends are overtaken in a full stage. Then the server is
/// replaced. Only then the others put; the last one puts fewer, and dies.
class OvertakenEndsTest : public SharedDatasetTest {
 protected:
  static constexpr std::uint64_t frames = 200, of_last = 10;

  [[nodiscard]] std::string replaced() const { return scratch_ / "replaced"; }
  [[nodiscard]] std::string may_die() const { return scratch_ / "may die"; }
  int write_records(Session& s, std::uint32_t w) const {
    const bool last = w == writers - 1;
    auto d = meeting_.meet(s, out("a.nc"), w);
    if (!d || (w == 0 && !d->schema(series(width * writers)))) return 1;
    d->end_collective_call();
    if (w > 0 && !eventually([this] { return std::filesystem::exists(replaced()); })) return 2;
    for (std::uint64_t f = 0; f < (last ? of_last : frames); ++f) {
      const std::vector<float> row(width, static_cast<float>(f));
      d->begin_collective_call();
      if (!d->put(0, {{f, w * width}, {1, width}}, {}, {row.data(), {}}, 4)) return 3;
      d->end_collective_call();
    }
    if (last && !eventually([this] { return std::filesystem::exists(may_die()); })) return 4;
    if (last) return ::kill(::getpid(), SIGKILL);
    (void)d->close();
    s.finish();
    return 0;
  }
  /// The first server has ended when it has let ends be overtaken.
  void begin() {
    config_ = parse_config("datasets: [{match: '*', frames: record}]", "test").value();
    programs([this](Session& s, std::uint32_t w) { return write_records(s, w); });
    start(6);
    go();
    ASSERT_TRUE(eventually([this] { return records_of(0) > of_last; }));
    EXPECT_EQ(records_of(2), 0U);
    stop();
  }
  void finish() {
    std::ofstream(may_die()).close();
    for (auto& p : programs_) (void)p->wait();
    const auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(status["datasets"][0]["frames_visible"], of_last);
    EXPECT_EQ(records_of(2), of_last);
  }
  /// How many records of that writer are in the file.
  std::uint64_t records_of(std::uint32_t w) {
    const auto f = image("a.nc");
    return static_cast<std::uint64_t>(std::count_if(f.committed.begin(), f.committed.end(),
                                                    [w](const auto& row) { return row.first >> 32U == w * width; }));
  }
};

TEST_F(OvertakenEndsTest, OutliveTheServer) {
  ASSERT_NO_FATAL_FAILURE(begin());
  start(6);
  std::ofstream(replaced()).close();
  finish();
}

// The next server dies when it has committed these frames, and before it has said that their ends are done.
TEST_F(OvertakenEndsTest, EndAFrameOnce) {
  ASSERT_NO_FATAL_FAILURE(begin());
  std::string kept;
  for (const auto& file : std::filesystem::directory_iterator(run_dir() + "/datasets"))
    if (file.path().string().ends_with(journal::ends_suffix)) kept = file.path();
  ASSERT_FALSE(kept.empty());
  std::filesystem::copy(kept, scratch_ / "ends");
  start(6);
  std::ofstream(replaced()).close();
  const auto all = "\"frames_visible\":" + std::to_string(of_last) + ",";
  ASSERT_TRUE(eventually([&] { return server_->status().find(all) != std::string::npos; })) << server_->status();
  stop();
  std::filesystem::copy(scratch_ / "ends", kept, std::filesystem::copy_options::overwrite_existing);
  start(6);
  finish();
}

/// Writer 0 closes long before the others, and then writes much more than there is room for.
class EarlyCloseTest : public SharedDatasetTest, public ::testing::WithParamInterface<bool> {};

TEST_P(EarlyCloseTest, DoesNotKeepTheRoomThatTheOthersNeedToClose) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < 30; ++f) {
      if (!put_frame(*d, w, f)) return 3;
      ::usleep(w == 0 ? 0 : 3000);
    }
    if (!d->close()) return 4;
    return w == 0 ? write_frames(s, out("b.nc"), 500) : 0;
  });
  start(6);
  go();
  if (GetParam()) {
    ASSERT_TRUE(eventually([this] { return !image("b.nc").committed.empty(); }));
    stop();
    start(6);
  }
  const auto status = end();
  for (const auto& d : status["datasets"]) EXPECT_EQ(d["state"], "finished") << d;
  EXPECT_TRUE(image("a.nc").closed);
  expect_frames(30);
  EXPECT_EQ(image("b.nc").committed.size(), 500U);
}

INSTANTIATE_TEST_SUITE_P(WhereTheServerIsReplaced, EarlyCloseTest, ::testing::Bool());

TEST_F(SharedDatasetTest, ALaterCollectiveCallWinsOverAnEarlierOfAnotherProcess) {
  // In every frame writer 2 puts first, then writer 0 over it, and the last word is the slowest process's.
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < 30; ++f) {
      for (const std::uint32_t who : {2U, 0U, 1U}) {
        const std::vector<float> row(width, static_cast<float>(who == 1 ? f : 1000 + who));
        if (w == who && !d->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
        d->end_collective_call();
      }
      if (w == 2) ::usleep(2000);
      if (!d->sync()) return 3;
      d->end_collective_call();
    }
    return d->close().ok() ? 0 : 4;
  });
  start();
  (void)run_to_end();
  const auto f = image("a.nc");
  ASSERT_EQ(f.committed.size(), 30U);
  for (const auto& [at, value] : f.committed) ASSERT_EQ(value, static_cast<float>(at));
}

TEST_F(SharedDatasetTest, RequestsCountFromTheirWaitAndCancelledOnesNever) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    std::vector<std::uint64_t> mine, other;
    const std::vector<float> row(width, static_cast<float>(w)), wrong(width, 99.0F);
    d->put_pending(&mine);
    if (!d->put(0, {{w, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
    d->put_pending(&other);
    if (!d->put(0, {{w, 0}, {1, width}}, {}, {wrong.data(), {}}, 4)) return 2;
    if (!d->put(0, {{10 + w, 0}, {1, width}}, {}, {wrong.data(), {}}, 4)) return 2;
    d->put_pending(nullptr);
    if (!d->sync()) return 3;  // not waited for: not in this frame
    d->end_collective_call();
    if (!d->settle(mine, other)) return 4;
    d->end_collective_call();
    return d->close().ok() ? 0 : 5;
  });
  start();
  (void)run_to_end();
  expect_frames(1);
}

TEST_F(SharedDatasetTest, AFullDiskIsSaidToAllAndRecoveryFinishes) {
  store_.fail_commit_of = "a.nc";
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    int told = 0;
    for (std::uint64_t f = 0; f < 5; ++f) {
      if (f == 4 && !full_disk_is_said()) return 3;
      const auto step = f * writers + w;
      const std::vector<float> row(width, static_cast<float>(step));
      (void)d->put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4);
      d->end_collective_call();
      if (auto r = d->sync(); !r && r.error().sys == ENOSPC) ++told;
      d->end_collective_call();
    }
    (void)d->close();
    s.finish();
    return told > 0 ? 0 : 2;
  });
  start();
  go();
  say_full_disk();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_EQ(status["datasets"][0]["state"], "failed");
  EXPECT_TRUE(image("a.nc").committed.empty());

  store_.allow();
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  expect_frames(5);
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

TEST_F(SharedDatasetTest, ARunGoesOnWhenSpaceIsMadeBeforeItsEnd) {
  store_.fail_commit_of = "a.nc";
  programs([this](Session& s, std::uint32_t w) { return write(s, w, 60, 20'000); });
  start();
  go();
  ASSERT_TRUE(eventually(
      [&] { return json::parse(server_->status())["datasets"].dump().find("No space") != std::string::npos; }));
  store_.allow();
  for (auto& p : programs_) (void)p->wait();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
}

TEST_F(SharedDatasetTest, TheRecordDimensionIsAsLongForEachAsItsCollectiveCallsHaveMadeIt) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meeting_.meet(s, out("a.nc"), w);
    if (!d) return 1;
    d->end_collective_call();
    // In call n writer n % 3 makes it n long. Fast ones run ahead; nobody may see their later calls.
    for (std::uint64_t n = 1; n <= 60; ++n) {
      if (n % writers == w) {
        d->grow(n);
        if (d->records() != n) return 2;
      }
      d->end_collective_call();
      if ((n + w) % 7 == 0) ::usleep(500 * w);
      if (n % 5 == 0 && d->records() != n) return 3;
    }
    return d->close().ok() ? 0 : 4;
  });
  start();
  go();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
}

TEST_F(SharedDatasetTest, ReadersInTheMidstOfAFrameSeeWhatEveryWriterHasPut) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    put_frame(*d, w, 0, false);
    std::vector<std::uint64_t> posted;  // and never waited for
    const std::vector<float> row(width, 99.0F);
    d->put_pending(&posted);
    if (!d->put(0, {{0, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 5;
    d->put_pending(nullptr);
    if (!d->wait_visible()) return 2;
    if (!d->settle({}, posted)) return 6;
    return d->close().ok() ? 0 : 3;
  });
  start();
  const auto status = run_to_end();
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 1);
  expect_frames(1);
}

}  // namespace
}  // namespace advectio
