// A program opens a file again for writing that it has created and closed (docs/decisions/0029).
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "server/server_fixture.h"

namespace advectio {
namespace {

class ReopenedTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    store_.files_grow = true;
    config_.outside.events = scratch_ / "events";
  }
  /// One row in record `t`, synced.
  static bool frame(CapturedDataset& d, std::uint64_t t, float value) {
    const std::vector<float> row(width, value);
    return d.put(0, {{t, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok() && d.sync().ok();
  }
  /// Created, with one record, and closed.
  static bool create(Session& s, const std::string& path) {
    auto d = s.create({path, FileFormat::netcdf4, false});
    return d.ok() && (*d)->schema(series(width)).ok() && frame(**d, 0, 0) && (*d)->close().ok();
  }
  /// The record `t` is put by one that opens the file for it.
  static int append(Session& s, const std::string& path, std::uint64_t t, bool close = true) {
    auto d = s.reopen(path);
    if (!d) return 2;
    if (!(*d)->schema(series(width)) || !frame(**d, t, static_cast<float>(t))) return 3;
    if (!close) return 0;
    return (*d)->close().ok() ? 0 : 4;
  }
  /// So many records, each by one that opens the file. Then the file `put` is there.
  [[nodiscard]] int put_all(Session& s, std::uint64_t records) const {
    if (!create(s, out("a.nc"))) return 1;
    for (std::uint64_t t = 1; t < records; ++t)
      if (const int failed = append(s, out("a.nc"), t); failed != 0) return failed;
    (void)!::close(::creat((scratch_ / "put").c_str(), 0600));
    s.finish();
    return 0;
  }
  static bool is_finished(Session& s, const std::string& path) {
    return eventually([&] { return !s.is_in_flight(path); });
  }
  [[nodiscard]] int events_of(const std::string& event) const {
    std::ifstream in(scratch_ / "events");
    int n = 0;
    for (std::string line; std::getline(in, line);) n += json::parse(line)["event"] == event ? 1 : 0;
    return n;
  }
  void expect_records(int records) {
    const auto file = image("a.nc");
    EXPECT_EQ(file.committed.size(), static_cast<std::size_t>(records));
    for (int t = 0; t < records; ++t)
      EXPECT_EQ(file.committed.count(static_cast<std::uint64_t>(t)) != 0
                    ? file.committed.at(static_cast<std::uint64_t>(t))
                    : -1,
                static_cast<float>(t));
    EXPECT_TRUE(file.closed);
  }
  /// Of a summary that has one row.
  static json row_of(const json& status) {
    EXPECT_EQ(status["datasets"].size(), 1U) << status["datasets"];
    return status["datasets"][0];
  }
};

TEST_F(ReopenedTest, InFlightItGoesOnAsTheSameDatasetAndNothingWaits) {
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) { return put_all(s, 4); });
  start();
  a.go();
  // All of it is put while the server has not committed anything.
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "put"); }));
  EXPECT_EQ(image("a.nc").commits, 0);
  store_.commits_stand = false;
  EXPECT_EQ(a.wait(), 0);
  const auto row = row_of(drain());
  EXPECT_EQ(row["state"], "finished");
  EXPECT_EQ(row["frames_synced"], 4);
  EXPECT_EQ(row["frames_visible"], 4);
  expect_records(4);
  EXPECT_EQ(events_of("begun"), 1);
  EXPECT_EQ(events_of("frame"), 4);
  EXPECT_EQ(events_of("complete"), 1);
}

TEST_F(ReopenedTest, CompleteItIsGoneOnWithAndIsOneRowOfTheSummary) {
  Program a(run_dir(), [this](Session& s) {
    if (!create(s, out("a.nc"))) return 1;
    for (std::uint64_t t = 1; t < 4; ++t) {
      if (!is_finished(s, out("a.nc"))) return 9;
      if (const int failed = append(s, out("a.nc"), t); failed != 0) return failed;
    }
    s.finish();
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto row = row_of(drain());
  EXPECT_EQ(row["state"], "finished");
  EXPECT_EQ(row["frames_visible"], 4);
  EXPECT_EQ(row["bytes_put"], 4 * width * sizeof(float));
  expect_records(4);
  EXPECT_EQ(image("a.nc").begun, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(events_of("frame"), 4);
  EXPECT_EQ(events_of("complete"), 4);
  EXPECT_TRUE(hard_links().empty());
}

TEST_F(ReopenedTest, OpenedAndNotChangedItIsAsItWas) {
  Program a(run_dir(), [this](Session& s) {
    if (!create(s, out("a.nc")) || !is_finished(s, out("a.nc"))) return 1;
    auto d = s.reopen(out("a.nc"));
    if (!d || !(*d)->schema(series(width)) || !(*d)->close()) return 2;
    if (!is_finished(s, out("a.nc"))) return 3;
    d = s.reopen(out("a.nc"));  // given up without a schema
    if (!d) return 4;
    d->reset();
    if (!is_finished(s, out("a.nc"))) return 5;
    return append(s, out("a.nc"), 1);
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(row_of(drain())["frames_visible"], 2);
  expect_records(2);
}

TEST_F(ReopenedTest, AServerThatDiesIsFollowedByOneThatGoesOnInFlight) {
  store_.commits_stand = true;
  store_.fail_commit_of = "a.nc";
  Program a(run_dir(), [&](Session& s) {
    if (!create(s, out("a.nc"))) return 1;
    for (std::uint64_t t = 1; t < 3; ++t)
      if (const int failed = append(s, out("a.nc"), t); failed != 0) return failed;
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  store_.commits_stand = false;
  stop_after_a_failure();
  recover(16);
  EXPECT_EQ(outcome_, Outcome::clean);
  expect_records(3);
}

TEST_F(ReopenedTest, AServerThatDiesIsFollowedByOneThatGoesOnInTheFile) {
  Program a(run_dir(), [&](Session& s) {
    if (!create(s, out("a.nc")) || !is_finished(s, out("a.nc"))) return 1;
    (void)!::close(::creat((scratch_ / "finished").c_str(), 0600));
    if (!eventually([&] { return std::filesystem::exists(scratch_ / "fails"); })) return 9;
    const int first = append(s, out("a.nc"), 1);
    return first == 0 || first == 3 || first == 4 ? append(s, out("a.nc"), 2) : first;
  });
  start();
  a.go();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "finished"); }));
  {
    const std::lock_guard guard(store_.mutex);
    store_.fail_commit_of = "a.nc";
  }
  (void)!::close(::creat((scratch_ / "fails").c_str(), 0600));
  // The second time it waits, or is opened by the library: the first has failed.
  EXPECT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
  a.kill();
  stop_after_a_failure();
  recover(16);
  EXPECT_EQ(outcome_, Outcome::clean);
  const auto file = image("a.nc");
  EXPECT_GE(file.committed.size(), 2U);
  EXPECT_EQ(file.committed.at(0), 0.0F);
  EXPECT_EQ(file.committed.at(1), 1.0F);
  EXPECT_TRUE(file.closed);
}

TEST_F(ReopenedTest, AProgramThatDiesLeavesWhatWasSynced) {
  for (const bool finished : {false, true}) {
    SCOPED_TRACE(finished);
    store_.files.clear();
    store_.commits_stand = !finished;
    Program a(run_dir(), [&](Session& s) {
      if (!create(s, out("a.nc")) || (finished && !is_finished(s, out("a.nc")))) return 1;
      auto d = s.reopen(out("a.nc"));
      const std::vector<float> row(width, 9);
      if (!d || !(*d)->schema(series(width)) || !frame(**d, 1, 1)) return 2;
      if (!(*d)->put(0, {{2, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 3;
      ::kill(::getpid(), SIGKILL);
      return 0;
    });
    start();
    a.go();
    EXPECT_EQ(a.wait(), 128 + SIGKILL);
    store_.commits_stand = false;
    const auto row = row_of(drain());
    EXPECT_EQ(row["state"], "finished");
    EXPECT_EQ(row["frames_visible"], 2);
    const auto file = image("a.nc");
    EXPECT_EQ(file.committed.size(), 2U);
    EXPECT_TRUE(std::filesystem::exists(out("a.nc")));
    remove_run_dir();
  }
}

TEST_F(ReopenedTest, AProgramThatDiesBeforeItPutsAnythingLeavesTheFile) {
  Program a(run_dir(), [&](Session& s) {
    if (!create(s, out("a.nc")) || !is_finished(s, out("a.nc"))) return 1;
    auto d = s.reopen(out("a.nc"));
    ::kill(::getpid(), SIGKILL);
    return 2;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 128 + SIGKILL);
  const auto row = row_of(drain());
  EXPECT_EQ(row["state"], "finished");
  EXPECT_EQ(row["frames_visible"], 1);
  EXPECT_TRUE(std::filesystem::exists(out("a.nc")));
  EXPECT_EQ(image("a.nc").committed.size(), 1U);
}

TEST_F(ReopenedTest, AFileThatSomebodyElseHasChangedIsTheLibrarys) {
  Program a(run_dir(), [&](Session& s) {
    if (!create(s, out("a.nc")) || !is_finished(s, out("a.nc"))) return 1;
    std::ofstream(out("a.nc"), std::ios::app) << "changed";
    return append(s, out("a.nc"), 1) == 2 ? 0 : 3;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(row_of(drain())["frames_visible"], 1);
}

TEST_F(ReopenedTest, AChangeBySomebodyElseBeforeTheFirstCommitIsNeverWrittenOver) {
  Program a(run_dir(), [&](Session& s) {
    if (!create(s, out("a.nc")) || !is_finished(s, out("a.nc"))) return 1;
    auto d = s.reopen(out("a.nc"));
    if (!d) return 2;
    std::ofstream(out("a.nc"), std::ios::app) << "changed";
    const std::vector<float> row(width, 1);
    if (!(*d)->schema(series(width)) || !(*d)->put(0, {{1, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 3;
    // One call returns the error: the sync, if the server has met it by then, else `wait_visible`.
    const auto synced = (*d)->sync(), seen = (*d)->wait_visible();
    const auto& said = synced ? seen : synced;
    return !said && said.error().message.find("somebody else has changed the file") != std::string::npos ? 0 : 4;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(image("a.nc").commits, 1);
  EXPECT_TRUE(
      eventually([&] { return server_->status().find("somebody else has changed the file") != std::string::npos; }));
  stop();
}

TEST_F(ReopenedTest, AFileWithFurtherNamesIsTheLibrarys) {
  Program a(run_dir(), [&](Session& s) {
    if (!create(s, out("a.nc")) || !is_finished(s, out("a.nc"))) return 1;
    std::filesystem::create_hard_link(out("a.nc"), out("b.nc"));
    return append(s, out("a.nc"), 1) == 2 ? 0 : 3;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
}

TEST_F(ReopenedTest, FilesOfOthersAreTheLibrarys) {
  Program a(run_dir(), [&](Session& s) { return create(s, out("a.nc")) && is_finished(s, out("a.nc")) ? 0 : 1; });
  Program b(run_dir(),
            [&](Session& s) { return append(s, out("a.nc"), 1) == 2 && append(s, out("none.nc"), 0) == 2 ? 0 : 1; });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  b.go();
  EXPECT_EQ(b.wait(), 0);
  (void)drain();
}

TEST_F(ReopenedTest, AMarkerOfTheFirstCloseDoesNotWaitForTheSecond) {
  store_.commits_stand = true;
  Program a(run_dir(), [&](Session& s) {
    if (!create(s, out("a.nc"))) return 1;
    const auto stage = journal::Stage::open(system_files(), run_dir());
    auto awaited = journal::not_visible(*stage);
    if (!awaited || awaited->size() != 1) return 2;
    auto d = s.reopen(out("a.nc"));
    if (!d || journal::has_come(*stage, awaited->front())) return 3;
    (void)!::close(::creat((scratch_ / "opened").c_str(), 0600));
    if (!eventually([&] { return journal::has_come(*stage, awaited->front()); })) return 4;
    if (!(*d)->schema(series(width)) || !frame(**d, 1, 1) || !(*d)->close()) return 5;
    s.finish();
    return 0;
  });
  start();
  a.go();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "opened"); }));
  store_.commits_stand = false;
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  expect_records(2);
}

TEST_F(ReopenedTest, AFurtherOutputGoesOnToo) {
  store_.commits_stand = true;
  config_ = parse_config("datasets: [{match: \"*.nc\", outputs: [{path: \"more-{name}\"}]}]\n", "test").value();
  Program a(run_dir(), [this](Session& s) { return put_all(s, 3); });
  start();
  a.go();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "put"); }));
  store_.commits_stand = false;
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  expect_records(3);
  EXPECT_EQ(image("more-a.nc").committed.size(), 3U);
}

TEST_F(ReopenedTest, AFurtherOutputGoesOnWhoseCommitsEndAfterTheFileHasEnded) {
  config_ = parse_config("datasets: [{match: \"*.nc\", outputs: [{path: \"more-{name}\"}]}]\n", "test").value();
  store_.encode({"a.nc", "more-a.nc"});
  Program a(run_dir(), [this](Session& s) { return put_all(s, 3); });
  start();
  a.go();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "put"); }));
  store_.encode({"more-a.nc"});
  EXPECT_TRUE(eventually([&] { return image("a.nc").closed; }));
  wait_turns();
  store_.encode({});
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  expect_records(3);
  EXPECT_EQ(image("more-a.nc").committed.size(), 3U);
}

}  // namespace
}  // namespace advectio
