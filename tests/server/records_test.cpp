// Frames of programs that never sync: they go on to the next record (the config's `frames`).
#include "server/server_fixture.h"

namespace advectio {
namespace {

constexpr std::uint64_t part = 200;  // values of one writer in a record

/// Its part of record `r`.
template <typename Dataset>
bool put_record(Dataset& d, std::uint32_t writer, std::uint64_t r) {
  const std::vector<float> row(part, static_cast<float>(r * 10 + writer));
  return d.put(0, {{r, writer * part}, {1, part}}, {}, {row.data(), {}}, 4).ok();
}

class RecordsTest : public ServerTest {
 protected:
  void expect_records(std::uint64_t records, std::uint32_t writers) {
    const auto f = image("a.nc");
    EXPECT_EQ(f.committed.size(), records * writers);
    for (std::uint64_t r = 0; r < records; ++r)
      for (std::uint32_t w = 0; w < writers; ++w) {
        const auto at = f.committed.find(r + ((w * part) << 32U));
        ASSERT_NE(at, f.committed.end()) << "record " << r << " of writer " << w;
        EXPECT_EQ(at->second, static_cast<float>(r * 10 + w));
      }
  }
  [[nodiscard]] json row() const {
    const auto status = json::parse(server_->status());
    return status["datasets"].empty() ? json::object() : status["datasets"][0];
  }
  void wait_for_frames(std::uint64_t frames) {
    ASSERT_TRUE(eventually([&] { return row().value("frames_visible", std::uint64_t{0}) >= frames; }))
        << server_->status();
  }
};

TEST_F(RecordsTest, AreWholeInTheFileWhenTheirProgramIsKilled) {
  for (const auto& [frames, kept] : {std::pair{Frames::automatic, 4U}, {Frames::record, 4U}, {Frames::sync, 0U}}) {
    SCOPED_TRACE(kept);
    DatasetRule rule;
    rule.match = "*.nc";
    rule.values.frames = frames;
    rule.origins["frames"] = "test";
    config_.datasets = {rule};
    Program a(run_dir(), [this](Session& s) {
      auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
      if (!d || !(*d)->schema(series(width))) return 1;
      for (std::uint64_t r = 0; r < 5; ++r)
        if (!put_record(**d, 0, r)) return 2;
      return ::kill(::getpid(), SIGKILL);
    });
    start();
    a.go();
    EXPECT_EQ(a.wait(), 128 + SIGKILL);
    const auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(status["datasets"][0]["frames_visible"], kept);
    EXPECT_EQ(status["datasets"][0]["state"], kept > 0 ? "finished" : "dropped");
    expect_records(kept, 1);
  }
}

TEST_F(RecordsTest, AreVisibleBeforeAnythingIsSynced) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    for (std::uint64_t r = 0; r < 3; ++r)
      if (!put_record(**d, 0, r)) return 2;
    const auto may_end = [this] { return std::filesystem::exists(out("seen")); };
    return eventually(may_end) && (*d)->close().ok() ? 0 : 3;
  });
  start();
  a.go();
  wait_for_frames(2);
  expect_records(2, 1);
  std::ofstream(out("seen")).close();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(drain()["datasets"][0]["frames_visible"], 3);
  expect_records(3, 1);
}

TEST_F(RecordsTest, OfASyncedFrameIsSaidOnce) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    for (std::uint64_t r = 0; r < 3; ++r)
      if (!put_record(**d, 0, r) || !(*d)->sync()) return 2;
    return (*d)->close().ok() ? 0 : 3;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(drain()["datasets"][0]["frames_visible"], 3);
  expect_records(3, 1);
}

/// Several writers, each with its part of each record.
class SharedRecordsTest : public RecordsTest {
 protected:
  static constexpr std::uint32_t writers = 3;
  SharedRecordsTest() { store_.row = part; }
  using Body = std::function<int(SharedDataset&, std::uint32_t)>;
  void programs(const Body& body) {
    for (std::uint32_t w = 0; w < writers; ++w)
      programs_.push_back(std::make_unique<Program>(run_dir(), [this, body, w](Session& s) {
        auto d = meeting_.meet(s, out("a.nc"), w);
        if (!d || (w == 0 && !d->schema(series(width)))) return 1;
        d->end_collective_call();
        const int code = body(*d, w);
        if (code == 0) s.finish();
        return code;
      }));
  }
  static bool put_together(SharedDataset& d, std::uint32_t w, std::uint64_t r) {
    const Collective in_call(&d);
    return put_record(d, w, r);
  }
  static bool put_records(SharedDataset& d, std::uint32_t w, std::uint64_t records, unsigned pause_us = 0) {
    for (std::uint64_t r = 0; r < records; ++r) {
      if (!put_together(d, w, r)) return false;
      if (pause_us > 0) ::usleep(pause_us);
    }
    return true;
  }
  void go() {
    for (auto& p : programs_) p->go();
  }
  json end() {
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    return status;
  }
  void let_write(std::uint64_t r) const { std::ofstream(out("record " + std::to_string(r))).close(); }
  [[nodiscard]] bool may_write(std::uint64_t r) const {
    return eventually([&] { return std::filesystem::exists(out("record " + std::to_string(r))); });
  }
  /// Records up to `records`, each when `let_write` says so.
  void programs_that_wait(std::uint64_t records) {
    programs([this, records](SharedDataset& d, std::uint32_t w) {
      for (std::uint64_t r = 0; r < records; ++r)
        if (!may_write(r) || !put_together(d, w, r)) return 2;
      return d.close().ok() ? 0 : 3;
    });
  }
  /// The programs write three records. The first is visible when they have begun the second.
  void see_the_first_of_three() {
    start();
    go();
    let_write(0);
    let_write(1);
    wait_for_frames(1);
    expect_records(1, writers);
    let_write(2);
  }
  Meeting meeting_{writers};
  std::vector<std::unique_ptr<Program>> programs_;
};

TEST_F(SharedRecordsTest, AreVisibleBeforeAnythingIsSynced) {
  programs_that_wait(3);
  see_the_first_of_three();
  const auto status = end();
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 3);
  EXPECT_EQ(status["datasets"][0]["frames_synced"], 3);
  expect_records(3, writers);
}

TEST_F(SharedRecordsTest, AreWholeInTheFileWhenTheirProgramsAreKilled) {
  programs([](SharedDataset& d, std::uint32_t w) {
    if (!put_records(d, w, 5)) return 2;
    return ::kill(::getpid(), SIGKILL);
  });
  start();
  go();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 128 + SIGKILL);
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 4);
  expect_records(4, writers);
}

// The disk refuses the first record until all writers have died. The last call ends the third record. Writers 1 and 2
// make that call, but put nothing in it.
TEST_F(SharedRecordsTest, AreWholeWhereTheDiskRefusedThemUntilTheirProgramsWereKilled) {
  programs([](SharedDataset& d, std::uint32_t w) {
    if (!put_records(d, w, 3)) return 2;
    {
      const Collective in_call(&d);
      if (w == 0 && !put_record(d, w, 3)) return 3;
    }
    return ::kill(::getpid(), SIGKILL);
  });
  store_.fail_commit_of = "a.nc";
  start();
  go();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 128 + SIGKILL);
  wait_turns();
  store_.allow();
  EXPECT_EQ(drain()["datasets"][0]["frames_visible"], 3);
  expect_records(3, writers);
}

TEST_F(SharedRecordsTest, ThatAreAbortedStayAsFarAsTheyHadEnded) {
  programs([](SharedDataset& d, std::uint32_t w) {
    if (!put_records(d, w, 3)) return 2;
    return d.abort().ok() ? 0 : 3;
  });
  start();
  go();
  const auto status = end();
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 2);
  expect_records(2, writers);
}

TEST_F(SharedRecordsTest, AreCountedOnceHoweverOftenTheServerIsReplaced) {
  // A server knows only what is in flight while it lives: the last records are put when the last one is there.
  constexpr std::uint64_t last = 140;
  programs([this](SharedDataset& d, std::uint32_t w) {
    for (std::uint64_t r = 0; r < 150; ++r) {
      if ((r == last && !may_write(r)) || !put_together(d, w, r)) return 2;
      ::usleep(800 + 300 * w);
    }
    return d.close().ok() ? 0 : 3;
  });
  start(8);
  go();
  for (std::size_t life = 1; life <= 4; ++life) {
    ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() >= life * 20; }));
    stop();
    start(8);
  }
  let_write(last);
  const auto status = end();
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 150);
  expect_records(150, writers);
}

// Writer 0's slot is the last word on whether its record has ended.
TEST_F(SharedRecordsTest, KeepTheirNumbersWhenTheServerDiesWithinACommit) {
  for (const std::uint32_t untold : {0U, writers - 1}) {
    SCOPED_TRACE(untold);
    programs_that_wait(4);
    start();
    go();
    for (const int r : {0, 1}) let_write(r);
    wait_for_frames(1);
    std::vector<std::uint64_t> visible;
    change_pages(run_dir(), [&](const auto& stage, const std::string& name, journal::SharedState&) {
      const auto of = stage.open_slots(name, writers);
      for (std::uint32_t w = 0; w < writers; ++w) visible.push_back((*of)[w].visible.load());
    });
    let_write(2);
    wait_for_frames(2);
    stop();
    change_pages(run_dir(), [&](const auto& stage, const std::string& name, journal::SharedState&) {
      const auto of = stage.open_slots(name, writers);
      (*of)[untold].visible.store(visible[untold]);
    });
    start();
    let_write(3);
    const auto status = end();
    EXPECT_EQ(status["datasets"][0]["frames_visible"], 4);
    EXPECT_EQ(image("a.nc").begun.back(), 4U);
    expect_records(4, writers);
    programs_.clear();
    for (int r = 0; r < 4; ++r) std::filesystem::remove(out("record " + std::to_string(r)));
    std::filesystem::remove(out("a.nc"));
    const std::lock_guard guard(store_.mutex);
    store_.files.clear();
  }
}

TEST_F(SharedRecordsTest, OfWritersFarApartFitASmallStage) {
  programs([](SharedDataset& d, std::uint32_t w) {
    if (!put_records(d, w, 300, w == 0 ? 0 : 1000)) return 2;
    return d.close().ok() ? 0 : 3;
  });
  start(6);
  go();
  (void)end();
  expect_records(300, writers);
}

TEST_F(SharedRecordsTest, AreEndedByPostedBlocksWhereThoseBeforeAreSettled) {
  programs([this](SharedDataset& d, std::uint32_t w) {
    for (std::uint64_t r = 0; r < 3; ++r) {
      if (!may_write(r)) return 2;
      std::vector<std::uint64_t> posted;
      d.put_pending(&posted);
      const bool put = put_record(d, w, r);
      d.put_pending(nullptr);
      const Collective in_call(&d);
      if (!put || !d.settle(posted, {})) return 3;
    }
    return d.close().ok() ? 0 : 4;
  });
  see_the_first_of_three();
  EXPECT_EQ(end()["datasets"][0]["frames_visible"], 3);
  expect_records(3, writers);
}

}  // namespace
}  // namespace advectio
