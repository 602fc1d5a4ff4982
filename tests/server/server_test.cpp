// A whole server: its run from the first record to the end, by faults and by deaths of either side.
#include <future>

#include "server/server_fixture.h"

namespace advectio {
namespace {

TEST_F(ServerTest, EveryFrameOfEveryWriterIsCommittedAndTheRunDirectoryGoes) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 20); });
  Program b(run_dir(), [this](Session& s) { return write_frames(s, out("b.nc"), 30); });
  start();
  a.go();
  b.go();
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(b.wait(), 0);
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_TRUE(status["final"].get<bool>());
  ASSERT_EQ(status["datasets"].size(), 2U);
  for (const auto& d : status["datasets"]) {
    EXPECT_EQ(d["state"], "finished");
    EXPECT_EQ(d["frames_visible"], d["frames_synced"]);
    EXPECT_EQ(d["frames_durable"], d["frames_synced"]);
    EXPECT_FALSE(d["stall_s"].is_null());
  }
  EXPECT_EQ(image("a.nc").committed.size(), 20U);
  EXPECT_EQ(image("b.nc").committed.size(), 30U);
  EXPECT_EQ(image("b.nc").committed[29], 29.0F);
  EXPECT_TRUE(image("a.nc").closed);
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
  const auto names = system_files().list(output_.path());
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->size(), 2U);
  for (const auto& name : *names) EXPECT_NE(name[0], '.') << name;
}

TEST_F(ServerTest, AWriterThatIsKilledKeepsItsSyncedFramesAndLosesOnlyTheOneUnderWay) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    (void)(*d)->schema(series(width));
    for (std::uint64_t f = 0; f < 6; ++f) {
      const std::vector<float> row(width, static_cast<float>(f));
      (void)(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4);
      if (f < 5) (void)(*d)->sync();
    }
    auto e = s.create({out("never.nc"), FileFormat::netcdf4, false});
    (void)(*e)->schema(series(width));
    return ::kill(::getpid(), SIGKILL);
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 128 + SIGKILL);
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 5U);
  EXPECT_TRUE(std::filesystem::exists(out("a.nc")));
  EXPECT_FALSE(std::filesystem::exists(out("never.nc")));  // nothing of it had been synced
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(status["datasets"][1]["state"], "dropped");
}

TEST_F(ServerTest, AServerThatIsReplacedMissesNothingAndRepeatsNothingWrong) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    (void)(*d)->schema(series(width));
    for (std::uint64_t f = 0; f < 400; ++f) {
      const std::vector<float> row(width, static_cast<float>(f));
      if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
      if (!(*d)->sync()) return 3;
      ::usleep(1000);
    }
    if (!(*d)->close()) return 4;
    s.finish();
    return 0;
  });
  start(4);
  a.go();
  // Four lives, each after 20 frames more. A slow machine may have committed them already.
  for (std::size_t life = 1; life <= 4; ++life) {
    ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() >= life * 20; }));
    stop();
    start(4);
  }
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  const auto f = image("a.nc");
  ASSERT_EQ(f.committed.size(), 400U);
  for (const auto& [at, value] : f.committed) ASSERT_EQ(value, static_cast<float>(at));
}

/// 100 frames of 4000 bytes at 400 kB/s: a second, but for what the bucket holds at first. Its program has ended long
/// before; nothing of what it has synced is taken for what the dead leave behind.
TEST_F(ServerTest, WritesNoFasterThanItMayAndAnswersMeanwhile) {
  config_.server.drain_max = 400'000;
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 100, true, false); });
  start();
  const auto began = journal::monotonic_ns();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto meanwhile = json::parse(server_->status());
  EXPECT_EQ(meanwhile["server"]["drain_max"].get<std::uint64_t>(), 400'000U);
  const auto status = drain();
  const auto took_s = static_cast<double>(journal::monotonic_ns() - began) * 1e-9;
  EXPECT_GE(took_s, (100 * 4000 - 0.1 * 400'000 - 4000) / 400'000);
  EXPECT_GT(status["server"]["held_back_s"].get<double>(), took_s / 4);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 100U);
}

/// The stage holds less than half of it, and a put would give up after 50 ms without any progress: to wait for the
/// limit is none of these.
TEST_F(ServerTest, KeepsToTheLimitWhenTheStageIsFull) {
  config_.server.drain_max = 400'000;
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 100); });
  start(3, false, 50'000'000);
  const auto began = journal::monotonic_ns();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  const auto took_s = static_cast<double>(journal::monotonic_ns() - began) * 1e-9;
  EXPECT_GE(took_s, (100 * 4000 - 0.1 * 400'000 - 4000) / 400'000);
  EXPECT_GT(status["stage"]["waits"].get<int>(), 0);
  EXPECT_EQ(image("a.nc").committed.size(), 100U);
}

TEST_F(ServerTest, LeavesWhatIsNotWrittenWhenItIsAskedToAndAnotherFinishesIt) {
  config_.server.drain_max = 65'536;
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 100); });
  start(16, false, 20'000'000'000, true);
  a.go();
  EXPECT_EQ(a.wait(), 0) << "it need not wait for its file";
  const auto status = drain("leave");
  EXPECT_EQ(outcome_, Outcome::left);
  EXPECT_TRUE(status["left"].get<bool>());
  EXPECT_LT(status["datasets"][0]["frames_visible"].get<int>(), 100);
  ASSERT_TRUE(std::filesystem::exists(run_dir()));
  config_.server.drain_max.reset();
  recover(16);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 100U);
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

TEST_F(ServerTest, DoesNotLeaveAsLongAsSomebodyWrites) {
  config_.server.drain_max = 65'536;
  Program a(run_dir(), [this](Session& s) {
    const int first = write_frames(s, out("a.nc"), 50, true, false);
    if (!eventually([this] { return std::filesystem::exists(out("taken")); })) return 9;
    return first != 0 ? first : write_frames(s, out("b.nc"), 50);
  });
  start(16, false, 20'000'000'000, true);
  a.go();
  ASSERT_TRUE(eventually([&] { return image("a.nc").declared > 0; }));
  (void)drain("leave", [this] {
    wait_turns();
    std::ofstream(out("taken")) << "leave";
  });
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(outcome_, Outcome::left);
  config_.server.drain_max.reset();
  recover(16);
  EXPECT_EQ(image("a.nc").committed.size() + image("b.nc").committed.size(), 100U);
}

TEST_F(ServerTest, LeavesNothingWhereAllIsWritten) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 20); });
  start(16, false, 20'000'000'000, true);
  a.go();
  EXPECT_EQ(a.wait(), 0);
  ASSERT_TRUE(eventually([&] { return server_->status().find("\"finished\"") != std::string::npos; }));
  wait_turns();  // the journal of the process that has ended goes, too
  EXPECT_FALSE(drain("leave")["left"].get<bool>());
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

TEST_F(ServerTest, AFullStageMakesTheProgramWaitAndTheCapHolds) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 500); });
  start(2);
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  EXPECT_LE(status["stage"]["bytes_allocated_peak"].get<std::uint64_t>(), 2U * 64 * 1024);
  EXPECT_EQ(image("a.nc").committed.size(), 500U);
}

TEST_F(ServerTest, AWriterGetsASegmentThoughAnotherHoldsSomeAheadOfNeed) {
  const std::string ready = scratch_ / "ready";
  Program a(run_dir(), [this, ready](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(100'000))) return 1;  // frames of seven segments
    // It takes all the others that there are.
    const auto taken = [this] {
      const auto all = std::filesystem::recursive_directory_iterator(run_dir() + "/journals");
      return std::count_if(begin(all), end(all),
                           [](const auto& e) { return e.path().filename().string().starts_with("ahead-"); });
    };
    if (!eventually([&] { return taken() >= 6; })) return 3;
    (void)!::close(::creat(ready.c_str(), 0600));
    return eventually([&] { return !std::filesystem::exists(ready); }) ? 0 : 2;
  });
  Program b(run_dir(), [this, ready](Session& s) {
    if (!eventually([&ready] { return std::filesystem::exists(ready); })) return 1;
    const int code = write_frames(s, out("b.nc"), 1, true, false);
    std::filesystem::remove(ready);
    return code;
  });
  start(16, false, 2'000'000'000);
  a.go();
  b.go();
  EXPECT_EQ(b.wait(), 0);
}

TEST_F(ServerTest, AFrameLargerThanTheStageIsCommittedInParts) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    (void)(*d)->schema(series(width));
    for (std::uint64_t f = 0; f < 300; ++f) {  // 1.2 MB without a sync, through 128 KiB
      const std::vector<float> row(width, static_cast<float>(f));
      if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
    }
    if (!(*d)->close()) return 4;
    s.finish();
    return 0;
  });
  start(2);
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 300U);
}

TEST_F(ServerTest, ASinkThatFailsTellsTheProgramKeepsTheDataAndRecoveryFinishes) {
  store_.fail_commit_of = "a.nc";
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    (void)(*d)->schema(series(width));
    int told = 0;
    for (std::uint64_t f = 0; f < 5; ++f) {
      if (f == 4 && !full_disk_is_said()) return 2;
      const std::vector<float> row(width, static_cast<float>(f));
      (void)(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4);
      if (auto r = (*d)->sync(); !r && r.error().sys == ENOSPC) ++told;
    }
    if (auto r = (*d)->close(); !r && r.error().sys == ENOSPC) ++told;
    s.finish();
    return told > 0 ? 0 : 1;
  });
  start();
  a.go();
  say_full_disk();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_EQ(status["datasets"][0]["state"], "failed");
  EXPECT_NE(status["datasets"][0]["error"].get<std::string>().find("No space left"), std::string::npos);
  EXPECT_FALSE(status["errors"].empty());
  EXPECT_TRUE(std::filesystem::exists(run_dir()));
  EXPECT_TRUE(image("a.nc").committed.empty());

  store_.allow();
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 5U);
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

TEST_F(ServerTest, SmallFramesThatCannotBeCommittedTogetherAreCommittedOneByOne) {
  store_.rows_max = 1;
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 6, true, false); });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  store_.commits_stand = false;
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_TRUE(status["errors"].empty()) << status["errors"].dump(1);
  EXPECT_EQ(image("a.nc").committed.size(), 6U);
}

TEST_F(ServerTest, AStageThatStillGrowsIsNotFullForAFileThatCannotBeWritten) {
  store_.fail_commit_of = "a.nc";
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    (void)(*d)->schema(series(width));
    const auto put = [&](std::uint64_t f) {
      const std::vector<float> row(width, static_cast<float>(f));
      return (*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok();
    };
    if (!put(0)) return 1;
    while ((*d)->sync()) ::usleep(1000);
    // Much more than there is at first, and half of what there may be.
    for (std::uint64_t f = 1; f < 1500; ++f)
      if (!put(f)) return 2;
    (void)(*d)->close();
    return 0;
  });
  start(200);
  a.go();
  EXPECT_EQ(a.wait(), 0);
  store_.allow();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 1500U);
}

TEST_F(ServerTest, OfAFrameThatWasNotSyncedNothingIsSaidToBeThereWhereNoPartOfItCouldBeWritten) {
  store_.fail_commit_of = "a.nc";
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    const std::vector<float> row(width, 1);
    while ((*d)->put(0, {{0, 0}, {1, width}}, {}, {row.data(), {}}, 4)) {  // until the stage is full
    }
    return 0;
  });
  start(4);
  a.go();
  EXPECT_EQ(a.wait(), 0);
  store_.allow();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{});
}

TEST_F(ServerTest, ARunGoesOnWhenSpaceIsMadeBeforeItsEnd) {
  // One program goes on whatever sync answers, the other leaves at the first error as models do, its file not closed.
  for (const bool leaves : {false, true}) {
    SCOPED_TRACE(leaves);
    store_.fail_commit_of = "a.nc";
    Program a(run_dir(), [this, leaves](Session& s) {
      auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
      if (!d || !(*d)->schema(series(width))) return 1;
      for (std::uint64_t f = 0; f < 3; ++f) {
        const std::vector<float> row(width, static_cast<float>(f));
        if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
        (void)(*d)->sync();
      }
      if (!leaves) (void)(*d)->close();
      return 0;
    });
    start();
    a.go();
    EXPECT_EQ(a.wait(), 0);
    ASSERT_TRUE(eventually(
        [&] { return json::parse(server_->status())["datasets"].dump().find("No space") != std::string::npos; }));
    store_.allow();
    (void)drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(image("a.nc").committed.size(), 3U);
    EXPECT_FALSE(std::filesystem::exists(run_dir()));
  }
}

TEST_F(ServerTest, ACloseThatFailsIsTriedAgain) {
  store_.fail_close_of = "a.nc";
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3, true, false); });
  start();
  a.go();
  a.wait();
  ASSERT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
  store_.allow();
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_TRUE(image("a.nc").closed);
}

TEST_F(ServerTest, AServerThatDiesBetweenTheLastCommitAndTheEndOfADatasetLetsNobodyWait) {
  // Once before anything else was done, and once when all was done but to remove its shared state.
  for (const bool said_to_be_finished : {false, true}) {
    SCOPED_TRACE(said_to_be_finished);
    store_.fail_close_of = "a.nc";
    Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
    start();
    a.go();
    stop_after_a_failure();
    if (said_to_be_finished) end_all_but_the_page();
    start();
    (void)a.wait();  // it comes back
    const auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(status["datasets"][0]["state"], "finished");
    EXPECT_EQ(status["datasets"][0]["frames_visible"], 3);
    EXPECT_EQ(image("a.nc").committed.size(), 3U);
    EXPECT_EQ(image("a.nc").closed, !said_to_be_finished);
    EXPECT_FALSE(std::filesystem::exists(run_dir()));
  }
}

TEST_F(ServerTest, FramesThatAreCommittedAgainCountOnce) {
  store_.fail_close_of = "a.nc";
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  a.go();
  stop_after_a_failure();
  // As when the server had died after it had counted them and before it said so.
  for_each_page([](journal::SharedState& shared_state) {
    ASSERT_EQ(shared_state.frames_visible, 3U);
    shared_state.visible.store(0);
  });
  start();
  (void)a.wait();
  const auto status = drain();
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 3);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
}

TEST_F(ServerTest, AServerThatTakesOverLooksAtEveryByte) {
  leave_uncommitted();
  damage_second_frame(system_files().list(run_dir() + "/journals").value().at(0));
  start();
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_NE(status["datasets"][0]["error"].get<std::string>().find("CRC"), std::string::npos);
  EXPECT_EQ(image("a.nc").committed.size(), 1U);
}

TEST_F(ServerTest, WhenItsStageIsRemovedTheServerSaysSoAndEnds) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3, false, false); });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  remove_run_dir();
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::stage_gone);
  EXPECT_NE(server_->status().find("has been removed"), std::string::npos);
}

TEST_F(ServerTest, AProgramThatHasWaitedForRoomInVainDoesNotWaitSoLongForEachCall) {
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) {
    ::alarm(8);
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    const std::vector<float> row(width);
    if (!d || !(*d)->schema(series(width))) return 1;
    const auto put = [&](std::uint64_t f) { return (*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok(); };
    std::uint64_t f = 0;
    while (put(f++))
      if (f == 1 && !(*d)->sync()) return 2;
    for (int i = 0; i < 10; ++i)  // 10 s, one after the other
      if (put(f++)) return 3;
    return 0;
  });
  start(4, false, 1'000'000'000);
  a.go();
  EXPECT_EQ(a.wait(), 0);
  store_.commits_stand = false;
  (void)drain();
}

/// A server that takes over just then knows the dataset that came to nothing by its number.
TEST_F(ServerTest, TheNumberOfADatasetThatCouldNotBeCreatedIsNotGivenToAnother) {
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    const std::vector<float> row(width);
    if (!d || !(*d)->schema(series(width))) return 1;
    std::uint64_t f = 0;
    while ((*d)->put(0, {{f++, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok()) {
    }
    std::uint32_t tried = 1;
    std::vector<std::unique_ptr<CapturedDataset>> others;
    for (bool failed = false; !failed;) {
      auto b = s.create({out("b" + std::to_string(++tried) + ".nc"), FileFormat::netcdf4, false});
      failed = !b.ok();
      if (b) others.push_back(std::move(b).value());
    }
    std::ofstream(out("failed")).flush();
    auto last = s.create({out("last.nc"), FileFormat::netcdf4, false});
    while (!last) last = s.create({out("last.nc"), FileFormat::netcdf4, false}), ++tried;
    const auto stage = journal::Stage::open(system_files(), run_dir());
    const auto state = journal::Stage::state_name_of(present("last.nc"));
    if (!stage || !state) return 2;
    const auto shared = stage->open_state(*state);
    return shared && (*shared)->number == tried + 1 ? 0 : 3;
  });
  start(4, false, 100'000'000);
  a.go();
  EXPECT_TRUE(eventually([this] { return std::filesystem::exists(out("failed")); }));
  store_.commits_stand = false;
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
}

/// All of it is there, and the header of its segment says something else.
TEST_F(ServerTest, AJournalWhoseSegmentSaysWhatCannotBeIsReadToItsEndWhenItsWriterHasGone) {
  leave_uncommitted();
  const auto stage = journal::Stage::open(system_files(), run_dir());
  ASSERT_TRUE(stage.ok());
  std::uint64_t damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(stage->journals())) {
    if (!journal::parse_chain_name(entry.path().filename())) continue;
    auto file = system_files().open(entry.path(), OpenMode::read_write, 0600);
    ASSERT_TRUE(file.ok());
    const std::uint64_t nonsense = ~0ULL / 3;
    ASSERT_TRUE(
        (*file)->write(offsetof(journal::SegmentHeader, committed), std::as_bytes(std::span(&nonsense, 1))).ok());
    ++damaged;
  }
  EXPECT_GT(damaged, 0U);
  start();
  const auto status = drain();
  EXPECT_EQ(status["errors"].size(), 0U) << status["errors"];
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
}

TEST_F(ServerTest, WhatIsVisibleAndHowADatasetIsIsNotBelievedWhenItIsDamaged) {
  leave_uncommitted();
  for_each_page([](journal::SharedState& shared_state) {
    shared_state.visible.fetch_xor(64);
    shared_state.state.fetch_xor(1);
  });
  start(2, true);
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
}

TEST_F(ServerTest, ReadersOfAFileInFlightWaitForItsCommit) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    (void)(*d)->schema(series(width));
    const std::vector<float> row(width, 1.0F);
    (void)(*d)->put(0, {{0, 0}, {1, width}}, {}, {row.data(), {}}, 4);
    if (!(*d)->wait_visible()) return 1;
    if (s.wait_for_file(out("a.nc"), true).ok()) return 2;  // open for writing in this very process
    if (!s.wait_for_file(out("a.nc"), false)) return 3;
    if (!(*d)->close()) return 4;
    // Renamed and closed: still known by what it is, not by its name.
    if (::rename(out("a.nc").c_str(), out("b.nc").c_str()) != 0) return 5;
    if (!s.wait_for_file(out("b.nc"), true)) return 6;
    if (!s.wait_for_file(out("nothing.nc"), false)) return 7;
    // And the same name again.
    return write_frames(s, out("b.nc"), 2);
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("b.nc").committed.size(), 2U);
}

TEST_F(ServerTest, CreateAnswersAtOnceWhatTheSystemRefuses) {
  Program a(run_dir(), [this](Session& s) {
    if (s.create({out("no/such/dir/a.nc"), FileFormat::netcdf4, false}).error().sys != ENOENT) return 1;
    const auto made = s.create({out("a.nc"), FileFormat::netcdf4, true});
    if (!made) return 2;
    if (s.create({out("a.nc"), FileFormat::netcdf4, true}).error().sys != EEXIST) return 3;
    if (s.create({"/dev/null", FileFormat::netcdf4, false}).error().code != Code::unsupported) return 4;
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
}

TEST_F(ServerTest, TheFinalStatusIsGivenBeforeTheRunDirectoryGoes) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 2); });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  journals_are_held = true;
  auto asked = std::async(std::launch::async, [this] { return ask_for_the_drain(run_dir()); });
  EXPECT_EQ(asked.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(std::filesystem::exists(run_dir() + "/journals"));
  journals_are_held = false;
  journals_are_held.notify_all();
  EXPECT_TRUE(asked.get()["clean"]);
  thread_.join();
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

TEST_F(ServerTest, TheConfigDecidesWhatIsCarried) {
  auto config = parse_config("datasets:\n  - match: 'skip*'\n    capture: false\n", "test.yaml");
  ASSERT_TRUE(config.ok());
  config_ = *config;
  Program a(run_dir(), [this](Session& s) { return s.wants(out("skip.nc")) ? 1 : s.wants(out("a.nc")) ? 0 : 2; });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
}

TEST_F(ServerTest, ScatteredMemoryAndLongBlocksArriveInOrder) {
  Program a(run_dir(), [this](Session& s) {
    auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
    (void)(*d)->schema(series(width));
    // Memory [x][time], the block [time][x]: 100 steps, more than one segment.
    std::vector<float> memory(width * 100);
    for (std::uint64_t x = 0; x < width; ++x)
      for (std::uint64_t t = 0; t < 100; ++t) memory[x * 100 + t] = static_cast<float>(t);
    Memory m{memory.data(), {4, 400}};
    if (!(*d)->put(0, {{0, 0}, {100, width}}, {}, m, 4)) return 1;
    std::vector<float> dense(width * 100);
    for (std::uint64_t t = 0; t < 100; ++t)
      std::fill_n(dense.begin() + static_cast<long>(t * width), width, static_cast<float>(t + 100));
    if (!(*d)->put(0, {{100, 0}, {100, width}}, {}, {dense.data(), {}}, 4)) return 2;
    if (!(*d)->close()) return 3;
    s.finish();
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
  (void)drain();
  const auto f = image("a.nc");
  ASSERT_EQ(f.committed.size(), 200U);
  for (const auto& [at, value] : f.committed) ASSERT_EQ(value, static_cast<float>(at));
}

}  // namespace
}  // namespace advectio
