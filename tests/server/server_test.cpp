// The server against real journals written by other processes, and a sink that keeps its files in memory.
#include "server/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "journal/reader.h"
#include "server/programs.h"

/// A server or program of these tests dies when it has made a file's hard link, or is about to.
static bool dies_at_link = false, dies_before_link = false;
extern "C" int link(const char* from, const char* to) noexcept {
  if (dies_before_link) (void)::kill(::getpid(), SIGKILL);
  const int done = ::linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
  if (dies_at_link) (void)::kill(::getpid(), SIGKILL);
  return done;
}

/// The hard links of files cannot be removed.
static std::atomic<bool> names_stay{false};
extern "C" int unlink(const char* path) noexcept {
  if (names_stay && std::strstr(path, ".advectio-") != nullptr) {
    errno = EROFS;
    return -1;
  }
  return ::unlinkat(AT_FDCWD, path, 0);
}

namespace advectio {
namespace {

class ServerTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t width = 1000;

  /// Under a server, which may be making a segment in it.
  void remove_run_dir() const {
    std::error_code not_empty;
    while (std::filesystem::exists(run_dir())) std::filesystem::remove_all(run_dir(), not_empty);
  }
  std::string run_dir() const { return scratch_ / "run"; }
  std::string out(const std::string& name) const { return output_ / name; }
  /// Runs are started there, so that hard links lie in it, too.
  void SetUp() override { ASSERT_EQ(::chdir(output_.path().c_str()), 0); }
  /// Hard links, and what sinks keep beside those: paths.
  [[nodiscard]] std::vector<std::string> hard_links() const {
    const auto directory = out(".advectio-" + std::to_string(::geteuid()) + "/");
    if (!system_files().exists(directory)) return {};
    auto names = system_files().list(directory).value();
    for (auto& name : names) name = directory + name;
    return names;
  }

  void start(std::uint64_t segments_max = 16, bool recover = false, std::uint64_t wait_max_ns = 20'000'000'000,
             bool drain_later = false) {
    ServerOptions o;
    o.run_dir = run_dir();
    o.segment_bytes = 64 * 1024;
    o.segments_max = segments_max;
    o.warm_segments = 2;
    o.wait_max_ns = wait_max_ns;
    o.recover = recover;
    o.spill = spill_;
    o.spill_max = spill_max_;
    o.drain_later = drain_later;
    o.survives_power = survives_power_;
    o.boot = boot_;
    auto server = Server::open(system_files(), o, config_, sinks_of(store_), log_);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    thread_ = std::thread([this] { outcome_ = server_->run(); });
  }
  /// Ask for the drain as `advectio run` does, and wait for the end. The final status.
  json drain(const std::string& what = "drain") {
    auto status = ask_for_the_drain(run_dir(), what);
    thread_.join();
    server_.reset();
    return status;
  }
  /// Another one finishes what is there, and ends.
  void recover(std::uint64_t segments_max) {
    start(segments_max, true);
    thread_.join();
    server_.reset();
  }
  /// A program has closed "a.nc" with three frames and ended; the disk is full, so that the file is not complete.
  void leave_in_flight() {
    store_.fail_commit_of = "a.nc";
    Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3, true, false); });
    start();
    a.go();
    (void)a.wait();  // its code says whether it has heard of the full disk already
    ASSERT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
  }
  /// End the server as its death would: nothing more is written.
  void stop() {
    server_->stop();
    thread_.join();
    server_.reset();
  }
  /// The same when a sink has said that its disk is full; after that none is any more.
  void stop_after_a_failure() {
    ASSERT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
    stop();
    store_.allow();
  }
  void TearDown() override {
    if (thread_.joinable()) stop();
  }
  Store::FileImage image(const std::string& name) {
    const std::lock_guard guard(store_.mutex);
    return store_.files[name];
  }
  void for_each_page(const std::function<void(journal::DatasetPage&)>& change) const {
    change_pages(run_dir(), [&change](const auto&, const auto&, auto& page) { change(page); });
  }
  /// In the midst of its block: create, schema and the first frame take less than a frame.
  void damage_second_frame(const std::string& journal) const {
    const auto directory = run_dir() + "/journals/" + journal;
    const auto names = system_files().list(directory).value();
    for (const auto& name : names) {
      if (!journal::parse_chain_name(name)) continue;
      auto segment = system_files().open(directory + "/" + name, OpenMode::read_write);
      std::byte byte{};
      const auto at = 4096 + 2 * width * sizeof(float);
      ASSERT_TRUE((*segment)->read(at, {&byte, 1}).ok());
      byte ^= std::byte{1};
      ASSERT_TRUE((*segment)->write(at, {&byte, 1}).ok());
    }
  }
  /// As a server leaves the stage that dies when it has nothing more to do for its datasets than to remove their pages.
  void end_all_but_the_page() {
    for_each_page([](journal::DatasetPage& page) {
      page.state.store(static_cast<std::uint32_t>(journal::DatasetState::finished));
      ASSERT_TRUE(system_files().remove(page.link).ok());
    });
  }

  /// Writes `frames` frames into `name`; 0 when all calls succeeded.
  static int write_frames(Session& session, const std::string& path, int frames, bool close = true,
                          bool finish = true) {
    auto d = session.create({path, FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    int result = 0;  // what a sync says is of frames before
    for (int f = 0; f < frames; ++f) {
      const std::vector<float> row(width, static_cast<float>(f));
      if (!(*d)->put(0, {{static_cast<std::uint64_t>(f), 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
      if (!(*d)->sync()) result = 3;
    }
    if (close && !(*d)->close() && result == 0) result = 4;
    if (finish) session.finish();
    return result;
  }
  /// A program has written and closed a.nc and ended, the server's disk was full, and the server has ended, too.
  void leave_uncommitted(int frames = 3) {
    store_.fail_commit_of = "a.nc";
    Program a(run_dir(), [&](Session& s) { return write_frames(s, out("a.nc"), frames, true, false); });
    start();
    a.go();
    (void)a.wait();
    stop_after_a_failure();
  }

  std::string spill_;
  std::uint64_t spill_max_ = 64 << 20;
  bool survives_power_ = false;
  std::string boot_;
  Scratch scratch_{"/dev/shm"};
  Scratch output_;
  Config config_ = default_config();
  Log log_{LogLevel::error};
  Store store_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  Outcome outcome_ = Outcome::incomplete;
};

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
  for (int life = 0; life < 4; ++life) {
    const auto before = image("a.nc").committed.size();
    ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() > before + 20; }));
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
    ::usleep(400'000);
    return first != 0 ? first : write_frames(s, out("b.nc"), 50);
  });
  start(16, false, 20'000'000'000, true);
  a.go();
  ::usleep(100'000);
  (void)drain("leave");
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
    ::usleep(300'000);                                   // takes as many ahead as are made
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
      const std::vector<float> row(width, static_cast<float>(f));
      (void)(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4);
      if (auto r = (*d)->sync(); !r && r.error().sys == ENOSPC) ++told;
      ::usleep(100'000);
    }
    if (auto r = (*d)->close(); !r && r.error().sys == ENOSPC) ++told;
    s.finish();
    return told > 0 ? 0 : 1;
  });
  start();
  a.go();
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
    std::uint64_t f = 0;
    while ((*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4)) ++f;  // until the stage is full
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

TEST_F(ServerTest, AFileThatItsProgramRemovesInFlightIsDropped) {
  for (const bool with_link : {false, true}) {
    SCOPED_TRACE(with_link);
    ASSERT_NO_FATAL_FAILURE(leave_in_flight());
    ASSERT_EQ(hard_links().empty(), false);
    if (with_link)
      for (const auto& link : hard_links()) std::filesystem::remove(link);
    std::filesystem::remove(out("a.nc"));
    const auto status = drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    EXPECT_EQ(status["datasets"][0]["state"], "dropped");
    EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{});
  }
}

TEST_F(ServerTest, AFileThatItsProgramRenamesInFlightIsWhereTheProgramHasPutIt) {
  ASSERT_NO_FATAL_FAILURE(leave_in_flight());
  std::filesystem::create_directory(out("kept"));
  std::filesystem::rename(out("a.nc"), out("kept/b.nc"));
  store_.allow();
  const auto status = drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"kept"});
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
    ::usleep(300'000);
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

/// A program that says how many of its calls of sync and close have returned.
class PromiseTest : public ServerTest {
 protected:
  void write(const std::string& promise, bool closes) {
    config_ = parse_config("datasets: [{match: '*', promise: " + promise + "}]", "test").value();
    program_ = std::make_unique<Program>(run_dir(), [this, closes](Session& s) {
      auto d = s.create({out("a.nc"), FileFormat::netcdf4, false});
      if (!d || !(*d)->schema(series(width))) return 1;
      const std::vector<float> row(width, 1.0F);
      if (!(*d)->put(0, {{0, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
      const auto done = closes ? (*d)->close() : (*d)->sync();
      std::ofstream(out("returned")) << (done ? 0 : done.error().sys);
      s.finish();
      return 0;
    });
    start();
    program_->go();
  }
  std::string result() const {
    std::string text;
    std::ifstream(out("returned")) >> text;
    return text;
  }
  /// And has said what came back, not only begun to.
  bool returned() const { return !result().empty(); }
  std::size_t segments_in_journals() const {
    std::size_t n = 0;
    for (const auto& e : std::filesystem::recursive_directory_iterator(run_dir() + "/journals"))
      n += journal::parse_chain_name(e.path().filename()) ? 1 : 0;
    return n;
  }
  Outcome end() {
    EXPECT_EQ(program_->wait(), 0);
    std::filesystem::remove(out("returned"));
    (void)drain();
    return outcome_;
  }
  std::unique_ptr<Program> program_;
};

TEST_F(PromiseTest, DurableWaitsForTheDisk) {
  for (const bool closes : {false, true}) {
    SCOPED_TRACE(closes);
    store_.disk_stands = true;
    write("durable", closes);
    ASSERT_TRUE(eventually([&] { return image("a.nc").commits > 0; }));
    ::usleep(100'000);
    EXPECT_FALSE(returned());
    store_.disk_stands = false;
    ASSERT_TRUE(eventually([&] { return returned(); }));
    EXPECT_GT(image("a.nc").durable, 0);
    EXPECT_EQ(result(), "0");
    EXPECT_EQ(end(), Outcome::clean);
  }
}

TEST_F(PromiseTest, DurableOutlivesTheServerThatWasToKeepIt) {
  store_.disk_stands = true;
  write("durable", true);
  ASSERT_TRUE(eventually([&] { return image("a.nc").closed; }));
  server_->stop();
  store_.disk_stands = false;  // the thread ends with the server
  thread_.join();
  server_.reset();
  start();
  ASSERT_TRUE(eventually([&] { return returned(); }));
  EXPECT_EQ(result(), "0");
  EXPECT_EQ(end(), Outcome::clean);
}

TEST_F(PromiseTest, DurableThatCannotBeKeptIsAnError) {
  store_.disk_fails = true;
  write("durable", false);
  ASSERT_TRUE(eventually([&] { return returned(); }));
  EXPECT_EQ(result(), std::to_string(EIO));
  EXPECT_EQ(end(), Outcome::incomplete);
}

TEST_F(PromiseTest, VisibleWaitsForTheCommitAndNotForTheDisk) {
  store_.disk_stands = true;
  write("visible", false);
  ASSERT_TRUE(eventually([&] { return returned(); }));
  EXPECT_EQ(image("a.nc").commits, 1);
  store_.disk_stands = false;
  EXPECT_EQ(end(), Outcome::clean);
}

TEST_F(PromiseTest, DurableIsTheStageWhereThatSurvivesALossOfPower) {
  survives_power_ = true;
  for (const bool closes : {false, true}) {
    SCOPED_TRACE(closes);
    store_.files.clear();
    store_.disk_stands = true;
    write("durable", closes);
    ASSERT_TRUE(eventually([&] { return returned(); }));
    EXPECT_EQ(result(), "0");
    ASSERT_TRUE(eventually([&] { return image("a.nc").commits > 0; }));
    EXPECT_EQ(image("a.nc").durable, 0);
    // What is in the file only is in the stage, too.
    for_each_page([](const journal::DatasetPage& page) {
      EXPECT_GT(page.kept.load(), 0);
      EXPECT_EQ(page.durable.load(), 0);
    });
    EXPECT_EQ(segments_in_journals(), 1U);
    store_.disk_stands = false;
    EXPECT_EQ(end(), Outcome::clean);
    EXPECT_GT(image("a.nc").durable, 0);
  }
}

TEST_F(PromiseTest, WhatTheDiskOfTheFileRefusesIsWrittenAgainFromTheStage) {
  survives_power_ = true;
  store_.disk_fails = true;
  write("durable", false);
  ASSERT_TRUE(eventually([&] { return returned(); }));  // with the error, if it comes sooner
  ASSERT_TRUE(eventually([&] { return server_->status().find("make durable") != std::string::npos; }));
  const auto commits = image("a.nc").commits;
  store_.disk_fails = false;
  EXPECT_EQ(end(), Outcome::clean);
  EXPECT_GT(image("a.nc").commits, commits);
  EXPECT_GT(image("a.nc").durable, 0);
}

TEST_F(PromiseTest, AStageThatHasLostPowerIsRecoveredAndNotServed) {
  survives_power_ = true;
  boot_ = "one";
  store_.fail_commit_of = "a.nc";
  write("durable", true);
  ASSERT_TRUE(eventually([&] { return returned(); }));
  stop_after_a_failure();
  program_.reset();
  boot_ = "another";
  ServerOptions options;
  options.run_dir = run_dir();
  options.segment_bytes = 64 * 1024;
  options.segments_max = 16;
  options.boot = boot_;
  const auto served = Server::open(system_files(), options, config_, sinks_of(store_), log_);
  ASSERT_FALSE(served.ok());
  EXPECT_NE(served.error().message.find("recover"), std::string::npos);
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 1U);
}

TEST_F(ServerTest, AProgramThatDiesAsItCreatesAFileLeavesNothing) {
  for (const bool has_hard_link : {false, true})
    for (const bool server_dies_too : {false, true}) {
      SCOPED_TRACE(std::string(has_hard_link ? "with" : "without") + " a hard link, and the server " +
                   (server_dies_too ? "dies too" : "lives"));
      Program a(run_dir(), [this, has_hard_link](Session& s) {
        (has_hard_link ? dies_at_link : dies_before_link) = true;
        return write_frames(s, out("a.nc"), 1);
      });
      start();
      a.go();
      EXPECT_EQ(a.wait(), 128 + SIGKILL);
      if (server_dies_too) {
        stop();
        start();
      }
      (void)drain();
      EXPECT_EQ(outcome_, Outcome::clean);
      const auto names = system_files().list(output_.path());
      ASSERT_TRUE(names.ok());
      EXPECT_EQ(*names, std::vector<std::string>{});
    }
}

TEST_F(ServerTest, OneThatIsStoppedLeavesTheStageOfAFileThatNoJournalSpeaksOf) {
  Program a(run_dir(), [this](Session& s) {
    dies_at_link = true;
    return write_frames(s, out("a.nc"), 1);
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 128 + SIGKILL);
  // Its journal, of which nothing is needed, has been forgotten.
  ASSERT_TRUE(eventually([&] { return system_files().list(run_dir() + "/journals")->empty(); }));
  stop();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_TRUE(std::filesystem::exists(run_dir()));
}

TEST_F(ServerTest, AProgramThatDiesAsItCreatesAnotherFileLeavesNothingOfThat) {
  // Its journal is needed to the last moment, and never speaks of that file. (Of what is to be durable one waits.)
  config_ = parse_config("datasets: [{match: '*', durable: false}]", "test").value();
  store_.fail_commit_of = "a.nc";
  Program a(run_dir(), [this](Session& s) {
    (void)write_frames(s, out("a.nc"), 3, true, false);
    dies_at_link = true;
    return write_frames(s, out("b.nc"), 1);
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 128 + SIGKILL);
  ASSERT_TRUE(eventually([&] { return server_->status().find("No space") != std::string::npos; }));
  store_.allow();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
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
  // Once before anything else was done, and once when all was done but to remove its page.
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
  for_each_page([](journal::DatasetPage& page) {
    ASSERT_EQ(page.frames_visible, 3U);
    page.visible.store(0);
  });
  start();
  (void)a.wait();
  const auto status = drain();
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 3);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
}

TEST_F(ServerTest, OfAFileWhoseJournalHasGoneNothingStaysBesideIt) {
  Program a(run_dir(), [this](Session& s) {
    (void)write_frames(s, out("a.nc"), 3, false, false);
    return ::pause();
  });
  start();
  a.go();
  ASSERT_TRUE(eventually([this] { return image("a.nc").commits == 3; }));
  stop();
  a.kill();
  std::filesystem::remove_all(run_dir() + "/journals");
  std::filesystem::create_directory(run_dir() + "/journals");
  // What the death of a server leaves of its sink.
  for_each_page([](journal::DatasetPage& page) { std::ofstream(std::string(page.link) + "-redo"); });
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
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

TEST_F(ServerTest, AHardLinkThatStaysIsReportedAndGoesLater) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 3); });
  start();
  names_stay = true;
  a.go();
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  names_stay = false;
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_NE(status["errors"].dump().find("a.nc: its hard link"), std::string::npos);
  EXPECT_EQ(status["datasets"].size(), 1U) << status["datasets"].dump(1);
  EXPECT_EQ(hard_links().size(), 2U) << "the link, and what its sink had";
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

TEST_F(ServerTest, AFileThatIsDoneIsNotBegunAnewWhereItsHardLinkHasStayed) {
  Program a(run_dir(), [this](Session& s) {
    const int code = write_frames(s, out("a.nc"), 3);
    ::pause();  // its journal stays
    return code;
  });
  start();
  names_stay = true;
  a.go();
  ASSERT_TRUE(eventually([&] { return server_->status().find("its hard link") != std::string::npos; }));
  const auto done = image("a.nc");
  for (int life = 0; life < 2; ++life) {
    stop();
    start();
  }
  names_stay = false;
  a.kill();
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").commits, done.commits);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

/// The first line that the server of a run answers; empty when it hangs up.
std::string answer_to(const std::string& run_dir, const std::string& request) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", run_dir.c_str());
  std::string line;
  char c = 0;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0)
    while (::read(fd, &c, 1) == 1 && c != '\n') line += c;
  ::close(fd);
  return line;
}

TEST_F(ServerTest, WhoDoesNotShowTheSecretIsNotServed) {
  Program a(run_dir(), [this](Session& s) { return write_frames(s, out("a.nc"), 1, true, false); });
  start();
  const auto secret = read_whole(system_files(), run_dir() + "/secret").value();
  const std::string right(reinterpret_cast<const char*>(secret.data()), secret.size());
  EXPECT_EQ(right.size(), 32U);
  for (const auto* wrong :
       {"{\"do\":\"drain\"}\n", "{\"do\":\"drain\",\"secret\":\"\"}\n", "{\"do\":\"drain\",\"secret\":7}\n"})
    EXPECT_NE(answer_to(run_dir(), wrong).find("secret"), std::string::npos) << wrong;
  EXPECT_NE(answer_to(run_dir(), "{\"do\":\"status\",\"secret\":\"" + right + "\"}\n").find("datasets"),
            std::string::npos);
  // It is the run's: a server that is restarted knows it, and so does who has spoken to the one before.
  {
    const std::lock_guard guard(store_.mutex);
    store_.fail_commit_of = "a.nc";
  }
  a.go();
  (void)a.wait();
  stop_after_a_failure();
  start();
  EXPECT_NE(answer_to(run_dir(), "{\"do\":\"status\",\"secret\":\"" + right + "\"}\n").find("datasets"),
            std::string::npos);
}

TEST_F(ServerTest, AnotherUserIsNotHeardWhateverTheModesAre) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  // Forked before the server's threads exist: it is told the request when there is one.
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    ::close(told[1]);
    std::string asked;
    for (char c = 0; ::read(told[0], &c, 1) == 1;) asked += c;
    if (::setuid(65534) != 0) ::_exit(2);
    ::_exit(answer_to(run_dir(), asked).empty() ? 0 : 1);
  }
  ::close(told[0]);
  start();
  const auto secret = read_whole(system_files(), run_dir() + "/secret").value();
  const std::string request = "{\"do\":\"drain\",\"secret\":\"" +
                              std::string(reinterpret_cast<const char*>(secret.data()), secret.size()) + "\"}\n";
  for (const auto& path : {scratch_.path(), run_dir(), run_dir() + "/socket"})
    ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  ASSERT_EQ(::write(told[1], request.data(), request.size()), static_cast<ssize_t>(request.size()));
  ::close(told[1]);
  int status = 0;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(json::parse(server_->status())["final"], false);
  ASSERT_EQ(::chmod(run_dir().c_str(), 0700), 0);
}

TEST_F(ServerTest, AllThatARunHoldsIsItsUsersAlone) {
  const auto old = ::umask(0);
  Program a(run_dir(), [this](Session& s) {
    ::umask(0);
    const int code = write_frames(s, out("a.nc"), 3, false);
    return code != 0 ? code : ::pause();
  });
  start();
  a.go();
  ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() == 3; }));
  struct stat st {};
  ASSERT_EQ(::stat(run_dir().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777U, 0700U);
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir())) {
    ASSERT_EQ(::lstat(entry.path().c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777U, S_ISDIR(st.st_mode) ? 0700U : 0600U) << entry.path();
    ++seen;
  }
  EXPECT_GT(seen, 10U);
  ::umask(old);
}

TEST_F(ServerTest, ARunDirectoryThatOthersMayWriteOrOwnIsLeftAlone) {
  leave_uncommitted(1);
  const auto refused = [&] {
    EXPECT_EQ(journal::Stage::open(system_files(), run_dir()).error().code, Code::permission);
    Program b(run_dir(), [](Session&) { return 0; });
    b.go();
    EXPECT_EQ(b.wait(), 99);  // at once, with a word, and the program's own library does the rest
    ServerOptions o;
    o.run_dir = run_dir();
    o.recover = true;
    EXPECT_EQ(Server::open(system_files(), o, config_, sinks_of(store_), log_).error().code, Code::permission);
  };
  ASSERT_EQ(::chmod(run_dir().c_str(), 0770), 0);
  refused();
  ASSERT_EQ(::chmod(run_dir().c_str(), 0700), 0);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(run_dir().c_str(), 65534, 65534), 0);
  refused();
}

TEST_F(ServerTest, ANameThatHasComeToStandForAnotherFileIsNotWrittenThrough) {
  leave_uncommitted();
  std::string link;
  for_each_page([&link](journal::DatasetPage& page) { link = page.link; });
  const auto valuable = out("valuable");
  std::ofstream(valuable) << "not ours";
  std::filesystem::rename(link, link + "-kept");
  for (const bool soft : {true, false}) {
    std::filesystem::remove(link);
    if (soft)
      std::filesystem::create_symlink(valuable, link);
    else
      std::filesystem::create_hard_link(valuable, link);
    start(2, true);
    thread_.join();
    EXPECT_EQ(outcome_, Outcome::incomplete);
    EXPECT_NE(server_->status().find("no longer the file"), std::string::npos);
    server_.reset();
    EXPECT_EQ(image("a.nc").commits, 0);
  }
  std::filesystem::rename(link + "-kept", link);
  start(2, true);
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
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
  ::usleep(300'000);
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
  ::usleep(300'000);
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
  ASSERT_TRUE(replace_whole(system_files(), out("now"), {}).ok());
  EXPECT_EQ(program_->wait(), 0);
  expect_taken_back_later();
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

class DamagedPageTest : public ServerTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(OfAFileWithASecondName, DamagedPageTest, ::testing::Bool());

TEST_P(DamagedPageTest, IsSaidAndNothingIsWrittenByIt) {
  leave_uncommitted();
  for_each_page([](journal::DatasetPage& page) {
    if (GetParam()) {
      page.link[std::strlen(page.link) - 20] ^= 1;
      return;
    }
    (void)::unlink(page.link);
    std::memcpy(page.link, page.path, sizeof page.link);
    page.link[5] ^= 1;
  });
  start(2, true);
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_NE(server_->status().find(out("a.nc") + ": "), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(run_dir()));
}

TEST_F(ServerTest, WhatIsVisibleAndHowADatasetIsIsNotBelievedWhenItIsDamaged) {
  leave_uncommitted();
  for_each_page([](journal::DatasetPage& page) {
    page.visible.fetch_xor(64);
    page.state.fetch_xor(1);
  });
  start(2, true);
  thread_.join();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(image("a.nc").committed.size(), 3U);
}

class SharedDatasetTest : public ServerTest {
 protected:
  /// Collective puts of one row each: step frame × writers + writer.
  bool put_frame(SharedDataset& d, std::uint32_t writer, std::uint64_t frame, bool synced = true) const {
    const auto step = frame * writers + writer;
    const std::vector<float> row(width, static_cast<float>(step));
    const bool put = d.put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok();
    d.end_turn();
    if (!synced) return put;
    const bool done = d.sync().ok();
    d.end_turn();
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
    d->end_turn();
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
    if (w == 0) d->owe_schema();
    d->end_turn();
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
    (*d)->end_turn();
    // The other has taken its slot, and its journal has never said so.
    auto stage = journal::Stage::open(system_files(), run_dir());
    auto slots = stage->open_slots(i.page, 2);
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
    // Its page stays where its hard link cannot be removed.
    auto stage = journal::Stage::open(system_files(), run_dir());
    (*stage->open_page(i.page))->state.store(static_cast<std::uint32_t>(journal::DatasetState::dropped));
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
  for (int life = 0; life < 4; ++life) {
    const auto before = image("a.nc").committed.size();
    ASSERT_TRUE(eventually([&] { return image("a.nc").committed.size() > before + 20; }));
    stop();
    start(8);
  }
  (void)end();
  expect_frames(200);
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
        d->end_turn();
      }
      if (w == 2) ::usleep(2000);
      if (!d->sync()) return 3;
      d->end_turn();
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
    d->end_turn();
    if (!d->settle(mine, other)) return 4;
    d->end_turn();
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
      const auto step = f * writers + w;
      const std::vector<float> row(width, static_cast<float>(step));
      (void)d->put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4);
      d->end_turn();
      if (auto r = d->sync(); !r && r.error().sys == ENOSPC) ++told;
      d->end_turn();
      ::usleep(100'000);
    }
    (void)d->close();
    s.finish();
    return told > 0 ? 0 : 2;
  });
  start();
  go();
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
    d->end_turn();
    // In call n writer n % 3 makes it n long. Fast ones run ahead; nobody may see their later calls.
    for (std::uint64_t n = 1; n <= 60; ++n) {
      if (n % writers == w) {
        d->grow(n);
        if (d->records() != n) return 2;
      }
      d->end_turn();
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
    if (!d->put(0, {{100, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 5;
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
  for (int life = 0; life < 6; ++life) {
    const auto before = image("a").committed.size();
    ASSERT_TRUE(eventually([&] { return image("a").committed.size() > before + 20; }));
    stop();
    start();
  }
  (void)end();
  expect_whole(150);
}

TEST_F(TilesTest, MissNothingWhenTheServerIsReplacedWithinACommit) {
  // All but the very last of what a commit leaves in the pages is undone: of some tiles, of all, of the whole.
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
    for_each_page([which](journal::DatasetPage& page) {
      const bool tile = page.tiles == 0;
      if (which == 0 || (which == 1 && tile) || (which == 2 && tile && std::string(page.path).ends_with("_0001"))) {
        page.visible.store(0);
        if (tile) page.round.store(0);
      }
      if (which == 3 && !tile) page.visible.store(2);
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
  for_each_page([&](journal::DatasetPage& page) {
    if (std::string(page.path).ends_with("_0001"))
      for (const auto& name : journals)
        if (name.find(std::to_string(page.writer_pid)) != std::string::npos) damaged = name;
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
  for_each_page([&](journal::DatasetPage& page) {
    if (page.tiles == 0) return;
    std::strcpy(page.link, link(other).c_str());
    page.seal = journal::seal_of(page);
  });
  start();
  (void)end();
  expect_whole(3);
}

TEST_F(TilesTest, MissNothingWhereTheirFileIsSaidToBeFurtherThanItIs) {
  write_and_stop_before_the_first_commit();
  for_each_page([](journal::DatasetPage& page) {
    if (page.tiles > 0) page.visible.fetch_add(256);
  });
  recover(16);
  EXPECT_EQ(outcome_, Outcome::clean);
  expect_whole(3);
}

TEST_F(TilesTest, WhoseFileIsNamedWronglyAreSaidToBeDamaged) {
  write_and_stop_before_the_first_commit();
  for_each_page([](journal::DatasetPage& page) {
    if (page.tiles == 0 && std::string(page.path).ends_with("_0001")) page.whole[3] = page.whole[3] == '1' ? '2' : '1';
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
  change_pages(run_dir(), [this](const auto&, const std::string& name, journal::DatasetPage& page) {
    if (page.tiles != 0) return;
    page.visible.store(0);
    page.round.store(0);
    if (std::string(page.path).ends_with("_0001")) page.whole[3] = page.whole[3] == '1' ? '2' : '1';
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
      for_each_page([](journal::DatasetPage& page) {
        if (page.tiles > 0) page.state.store(static_cast<std::uint32_t>(journal::DatasetState::finished));
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

TEST_F(TilesTest, AreTheirOwnFilesWhereTheStageIsFullBeforeAllAreThere) {
  programs([this](Session& s, std::uint64_t t) { return write(s, t, 100); }, 2);
  start(4);
  go();
  (void)end();
  for (std::uint64_t t = 0; t < 2; ++t) EXPECT_EQ(image("a_000" + std::to_string(t)).committed, frames(0, 100, t));
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
      (void)put(*d, 0, f, static_cast<float>(10 * f + t));
      (void)put(*d, 1, f, static_cast<float>(f));
      if (auto r = d->sync(); !r && r.error().sys == ENOSPC) ++told;
      ::usleep(100'000);
    }
    if (auto r = d->close(); !r && r.error().sys == ENOSPC) ++told;
    s.finish();
    return told > 0 ? 0 : 1;
  });
  start();
  go();
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
  for_each_page([](journal::DatasetPage& page) {
    if (page.tiles > 0) std::ofstream(std::string(page.link) + "-redo");
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
  for_each_page([](journal::DatasetPage& page) {
    if (page.tiles > 0)
      page.state.store(static_cast<std::uint32_t>(journal::DatasetState::dropped));
    else
      journal::set_whole(page, {});
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
  ::usleep(100'000);  // the last puts have been read
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
    if (!s.create({out("a.nc"), FileFormat::netcdf4, true})) return 2;
    if (s.create({out("a.nc"), FileFormat::netcdf4, true}).error().sys != EEXIST) return 3;
    if (s.create({"/dev/null", FileFormat::netcdf4, false}).error().code != Code::unsupported) return 4;
    return 0;
  });
  start();
  a.go();
  EXPECT_EQ(a.wait(), 0);
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
