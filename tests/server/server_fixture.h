// A server against real journals written by other processes, and a sink that keeps its files in memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "journal/markers.h"
#include "journal/reader.h"
#include "server/programs.h"
#include "server/server.h"

/// A server or program of these tests dies when it has made a file's hard link, or is about to.
extern bool dies_at_link, dies_before_link;
/// Paths below `directory` that were forced to the disk, relative to it.
std::set<std::string> forced_below(const std::string& directory);
/// The hard links of files cannot be removed.
extern std::atomic<bool> names_stay;
/// The directory refuses to remove or rename what has this in its path.
extern std::atomic<const char*> directory_refuses;
/// A run's directory of journals is not removed before this is false, and has told so (notify_all).
extern std::atomic<bool> journals_are_held;
/// The directories of hard links cannot be removed.
extern std::atomic<bool> directories_stay;

namespace advectio {

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
  /// Where the file is that a program calls by this name: it may have nothing to show yet (journal/markers.h).
  [[nodiscard]] std::string present(const std::string& name) const {
    const auto held = journal::held_name_of_new(out(name));
    return system_files().exists(held) ? held : out(name);
  }
  /// In a program: until the test has seen the server say that the disk is full.
  [[nodiscard]] bool full_disk_is_said() const {
    return eventually([this] { return std::filesystem::exists(scratch_ / "full"); });
  }
  /// In the test: wait for that, and let the programs go on.
  void say_full_disk() {
    EXPECT_TRUE(eventually([this] { return server_->status().find("No space left") != std::string::npos; }));
    (void)!::close(::creat((scratch_ / "full").c_str(), 0600));
  }
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
    o.encoders = encoders_;
    o.disk_threads = disk_threads_;
    o.urgencies_share = 0;  // however slow the machine is
    o.cores = cores_;
    auto server = Server::open(*files_, o, config_, sinks_of(store_), log_);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    thread_ = std::thread([this] { outcome_ = server_->run(); });
  }
  /// Until the server's loop has come round so often with nothing to do: what has not happened by
  /// then is not going to happen by itself.
  void wait_turns(std::uint64_t n = 40) const {
    const auto until = server_->turns() + n;
    ASSERT_TRUE(eventually([&] { return server_->turns() >= until; }));
  }
  /// Ask for the drain as `advectio run` does, and wait for the end. The final status.
  json drain(const std::string& what = "drain", const std::function<void()>& taken = nullptr) {
    auto status = ask_for_the_drain(run_dir(), what, taken);
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
  void for_each_page(const std::function<void(journal::SharedState&)>& change) const {
    change_pages(run_dir(), [&change](const auto&, const auto&, auto& shared_state) { change(shared_state); });
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
  /// As a server leaves the stage that dies when it has nothing more to do for its datasets than to remove their shared
  /// states.
  void end_all_but_the_page() {
    for_each_page([](journal::SharedState& shared_state) {
      shared_state.state.store(static_cast<std::uint32_t>(journal::DatasetState::finished));
      ASSERT_TRUE(system_files().remove(shared_state.link).ok());
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

  Executor* encoders_ = nullptr;
  unsigned disk_threads_ = 2;
  unsigned cores_ = 0;
  std::string spill_;
  std::uint64_t spill_max_ = 64 << 20;
  bool survives_power_ = false;
  std::string boot_;
  Scratch scratch_{"/dev/shm"};
  Scratch output_;
  Files* files_ = &system_files();  ///< of the server
  Config config_ = default_config();
  Log log_{LogLevel::error};
  Store store_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  Outcome outcome_ = Outcome::incomplete;
};

}  // namespace advectio
