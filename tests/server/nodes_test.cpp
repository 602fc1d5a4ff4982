// Servers of several nodes and programs on each of them, all in this one process but for the programs. What MPI does
// for them otherwise is done by a switchboard in memory.
#include <deque>
#include <thread>

#include "server/programs.h"

namespace advectio {
namespace {

class Switchboard {
 public:
  explicit Switchboard(unsigned nodes) : in_(nodes) {}
  struct Message {
    unsigned from = 0;
    int kind = 0;
    std::vector<std::byte> bytes;
  };
  std::mutex mutex;
  std::vector<std::array<std::deque<Message>, Transport::lanes>>& in() { return in_; }

 private:
  std::vector<std::array<std::deque<Message>, Transport::lanes>> in_;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(Switchboard& board, unsigned node, unsigned nodes, unsigned io_nodes)
      : board_(board), node_(node), io_nodes_(io_nodes) {
    for (unsigned n = 0; n < nodes; ++n) names_.push_back("n" + std::to_string(n));
  }
  [[nodiscard]] unsigned node() const noexcept override { return node_; }
  [[nodiscard]] unsigned nodes() const noexcept override { return static_cast<unsigned>(names_.size()); }
  [[nodiscard]] unsigned io_nodes() const noexcept override { return io_nodes_; }
  [[nodiscard]] const std::string& name(unsigned node) const noexcept override { return names_[node]; }
  void send(unsigned to, Lane lane, int kind, std::span<const std::byte> bytes, std::uint64_t ticket) override {
    const std::lock_guard guard(board_.mutex);
    board_.in()[to][static_cast<std::size_t>(lane)].push_back({node_, kind, {bytes.begin(), bytes.end()}});
    sent_.push_back(ticket);
  }
  void sent(std::vector<std::uint64_t>& tickets) override { tickets = std::exchange(sent_, {}); }
  std::optional<Arrival> arrived(Lane lane) override {
    const std::lock_guard guard(board_.mutex);
    auto& queue = board_.in()[node_][static_cast<std::size_t>(lane)];
    if (queue.empty()) return std::nullopt;
    auto& message = taken_[++handle_] = std::move(queue.front());
    queue.pop_front();
    return Arrival{message.from, lane, message.kind, message.bytes.size(), handle_};
  }
  void receive(const Arrival& arrival, std::byte* to) override {
    const auto it = taken_.find(arrival.handle);
    std::copy(it->second.bytes.begin(), it->second.bytes.end(), to);
    taken_.erase(it);
  }
  void leave(bool) override {}

 private:
  Switchboard& board_;
  unsigned node_, io_nodes_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> sent_;
  std::map<std::uint64_t, Switchboard::Message> taken_;
  std::uint64_t handle_ = 0;
};

/// Two nodes with a writer each, and one for output only: every dataset is its.
class NodesTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t width = 1000;
  static constexpr std::uint32_t writers = 2;
  static constexpr unsigned nodes = 3;
  static constexpr std::uint64_t segment_bytes = 64 * 1024;

  [[nodiscard]] std::string run_dir(unsigned node) const { return scratch_ / ("n" + std::to_string(node)); }
  [[nodiscard]] std::string out(const std::string& name) const { return output_ / name; }
  /// Runs are started there, so that hard links lie in it, too.
  void SetUp() override { ASSERT_EQ(::chdir(output_.path().c_str()), 0); }

  /// `of_output`: the cap of the last node's stage, where it is another. `late`: the server that has no thread yet.
  void start(std::uint64_t segments_max = 16, std::uint64_t of_output = 0, unsigned late = nodes) {
    board_ = std::make_unique<Switchboard>(nodes);
    for (unsigned n = 0; n < nodes; ++n) {
      transport_.push_back(std::make_unique<LocalTransport>(*board_, n, nodes, 1));
      ServerOptions o;
      o.run_dir = run_dir(n);
      o.segment_bytes = segment_bytes;
      o.segments_max = of_output != 0 && n + 1 == nodes ? of_output : segments_max;
      o.warm_segments = 2;
      o.wait_max_ns = wait_max_ns_;
      o.transport = transport_.back().get();
      auto server = Server::open(system_files(), o, config_, sinks_of(store_), log_);
      ASSERT_TRUE(server.ok()) << server.error().message;
      servers_.push_back(std::move(server).value());
    }
    for (unsigned n = 0; n < nodes; ++n)
      if (n != late) run(n);
  }
  void run(unsigned node) {
    threads_.emplace_back([this, node] { outcomes_[node] = servers_[node]->run(); });
  }
  void join() {
    for (auto& t : threads_) t.join();
    threads_.clear();
    servers_.clear();
    transport_.clear();
  }
  void stop() {
    for (auto& s : servers_) s->stop();
    join();
  }
  json drain() {
    auto status = ask_for_the_drain(run_dir(0));
    join();
    return status;
  }
  void TearDown() override {
    if (!threads_.empty()) stop();
  }
  /// One program for each writer, on the node of its number.
  void programs(const std::function<int(Session&, std::uint32_t)>& body) {
    for (std::uint32_t w = 0; w < writers; ++w)
      programs_.push_back(std::make_unique<Program>(run_dir(w), [body, w](Session& s) { return body(s, w); }));
  }
  void go() {
    for (auto& p : programs_) p->go();
  }
  bool put_frame(SharedDataset& d, std::uint32_t writer, std::uint64_t frame) const {
    const auto step = frame * writers + writer;
    const std::vector<float> row(width, static_cast<float>(step));
    const bool put = d.put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4).ok();
    d.end_collective_call();
    const bool done = d.sync().ok();
    d.end_collective_call();
    return put && done;
  }
  std::unique_ptr<SharedDataset> meet(Session& s, std::uint32_t writer) const {
    auto d = meeting_.meet(s, out("a.nc"), writer);
    if (!d || (writer == 0 && !d->schema(series(width)))) return nullptr;
    d->end_collective_call();
    return d;
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
  std::map<std::uint64_t, float> written() {
    const std::lock_guard guard(store_.mutex);
    return store_.files["a.nc"].committed;
  }
  void write_what_cannot_be_closed() {
    store_.fail_close_of = "a.nc";
    programs([this](Session& s, std::uint32_t w) {
      (void)write(s, w, 5);
      return 0;
    });
    start();
    go();
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
  }
  void expect_frames(std::uint64_t frames) {
    const auto held = written();
    ASSERT_EQ(held.size(), frames * writers);
    for (const auto& [at, value] : held) ASSERT_EQ(value, static_cast<float>(at));
  }
  /// All of so many frames is in the file, and every node knows.
  [[nodiscard]] bool known_everywhere(std::uint64_t frames) const {
    for (unsigned n = 0; n < nodes; ++n) {
      const auto stage = journal::Stage::open(system_files(), run_dir(n));
      const auto names =
          stage ? system_files().list(stage->datasets()) : Result<std::vector<std::string>>(stage.error());
      if (!names) return false;
      const auto it = std::find_if(names->begin(), names->end(), [](const auto& x) { return x.find('.') == x.npos; });
      if (it == names->end()) return false;
      const auto shared_state = stage->open_state(*it);
      if (!shared_state || (*shared_state)->frames_visible < frames) return false;
    }
    return true;
  }
  [[nodiscard]] bool holds_no_segment(unsigned node) const {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir(node) + "/journals", ignored))
      if (std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0])) != 0 && entry.is_regular_file())
        return false;
    return true;
  }
  json end() {
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    auto status = drain();
    for (const auto outcome : outcomes_) EXPECT_EQ(outcome, Outcome::clean);
    for (unsigned n = 0; n < nodes; ++n) EXPECT_FALSE(std::filesystem::exists(run_dir(n)));
    return status;
  }

  Scratch scratch_{"/dev/shm"};
  Scratch output_;
  Config config_ = default_config();
  Log log_{LogLevel::error};
  Store store_;
  Meeting meeting_{writers};
  std::vector<std::unique_ptr<Program>> programs_;
  std::uint64_t wait_max_ns_ = 20'000'000'000;
  std::unique_ptr<Switchboard> board_;
  std::vector<std::unique_ptr<LocalTransport>> transport_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::thread> threads_;
  std::array<Outcome, nodes> outcomes_{};
};

TEST_F(NodesTest, FramesOfProcessesOnSeveralNodesAreOneFileEach) {
  programs([this](Session& s, std::uint32_t w) { return write(s, w, 30); });
  start();
  go();
  const auto status = end();
  ASSERT_EQ(status["datasets"].size(), 1U);
  EXPECT_EQ(status["datasets"][0]["frames_visible"], 30);
  EXPECT_EQ(status["datasets"][0]["node"], "n2");
  EXPECT_EQ(status["nodes"].size(), nodes);
  EXPECT_EQ(status["errors"].size(), 0U);
  expect_frames(30);
}

TEST_F(NodesTest, WhatOneProcessWritesGoesToTheNodeForOutput) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = s.create({out(w == 0 ? "a.nc" : "b.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    for (std::uint64_t f = 0; f < 10; ++f) {
      const std::vector<float> row(width, static_cast<float>(f));
      if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4) || !(*d)->sync()) return 2;
    }
    // The process waits for what another node has done of it.
    return (*d)->hand_over().ok() ? 0 : 3;
  });
  start();
  go();
  const auto status = end();
  ASSERT_EQ(status["datasets"].size(), 2U);
  for (const auto& d : status["datasets"]) EXPECT_EQ(d["node"], "n2");
  EXPECT_EQ(written().size(), 10U);
}

TEST_F(NodesTest, ServersThatBeginAgainLoseNothing) {
  programs([this](Session& s, std::uint32_t w) { return write(s, w, 60, 10'000); });
  start();
  go();
  for (const std::size_t frames : {10, 60}) {
    ASSERT_TRUE(eventually([&] { return written().size() >= frames; }));
    stop();
    start();
  }
  const auto status = end();
  EXPECT_EQ(status["errors"].size(), 0U);
  expect_frames(60);
}

/// The owner begins when its stage is full of what the others have said, and all are to end. Its count of steps may be
/// anything when it first looks whether there have been any.
class FullAtOnceTest : public NodesTest, public ::testing::WithParamInterface<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Steps, FullAtOnceTest, ::testing::Range<std::uint64_t>(0, 4));

TEST_P(FullAtOnceTest, TheOwnerGoesOn) {
  constexpr std::uint64_t steps = 100;  // of which a third fits
  programs([this](Session& s, std::uint32_t w) {
    auto d = s.create({out(w == 0 ? "a.nc" : "b.nc"), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(series(width))) return 1;
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::vector<float> row(width, static_cast<float>(step));
      if (!(*d)->put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
    }
    return (*d)->close().ok() ? 0 : 3;
  });
  start(64, 4, 2);
  go();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
  programs_.clear();
  for (auto& server : servers_) server->drain();
  const auto stage = journal::Stage::open(system_files(), run_dir(2));
  ASSERT_TRUE(stage.ok());
  EXPECT_TRUE(eventually([&] { return stage->control().starved_ns.load() != 0 && stage->free_segments() == 0; }));
  stage->control().activity = 0 - GetParam();
  run(2);
  join();
  for (const auto outcome : outcomes_) EXPECT_EQ(outcome, Outcome::clean);
  for (const char* name : {"a.nc", "b.nc"}) EXPECT_EQ(store_.files[name].committed.size(), steps) << name;
}

/// Programs end while no server is there to hear of it: one has nothing left to say, the other a frame of its own.
TEST_F(NodesTest, WritersThatDieWhenAllTheyHaveSaidIsInTheFileAreKnownToBeOver) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < 5 + w; ++f)
      if (!put_frame(*d, w, f)) return 2;
    for (;;) ::pause();
  });
  start();
  go();
  ASSERT_TRUE(eventually([this] { return known_everywhere(5); }));
  stop();
  for (auto& p : programs_) p->kill();
  programs_.clear();
  start();
  EXPECT_EQ(end()["errors"].size(), 0U);
  expect_frames(5);
}

TEST_F(NodesTest, AFileThatCouldNotBeClosedIsClosedByServersThatBeginAgain) {
  write_what_cannot_be_closed();
  programs_.clear();
  ASSERT_TRUE(eventually([this] {
    return known_everywhere(5) && servers_[2]->status().find("truncate") != std::string::npos && holds_no_segment(0) &&
           holds_no_segment(1);
  }));
  stop();
  store_.allow();
  start();
  EXPECT_EQ(end()["errors"].size(), 0U);
  expect_frames(5);
  EXPECT_TRUE(store_.files["a.nc"].closed);
}

/// Servers that begin again after the owner has died between the end of a file and the news of it to the others.
class EndedNodesTest : public NodesTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(WithItsHardLinkStillThere, EndedNodesTest, ::testing::Bool());

TEST_P(EndedNodesTest, AFileThatItsOwnerHasFinishedIsNotBegunAgain) {
  write_what_cannot_be_closed();
  ASSERT_TRUE(eventually([this] { return servers_[2]->status().find("truncate") != std::string::npos; }));
  stop();
  programs_.clear();
  store_.allow();
  change_pages(run_dir(2), [](const auto&, const auto&, auto& shared_state) {
    shared_state.state.store(static_cast<std::uint32_t>(journal::DatasetState::finished));
    if (!GetParam()) {
      ASSERT_TRUE(system_files().remove(shared_state.link).ok());
    }
  });
  start();
  EXPECT_EQ(end()["errors"].size(), 0U);
  expect_frames(5);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a.nc"});
}

/// A tile of one file on each node.
class TilesOfNodesTest : public NodesTest {
 protected:
  TilesOfNodesTest() { config_ = *parse_config("datasets: [{match: \"*\", join: true}]", "test"); }
  int write_tile(Session& s, std::uint32_t tile, std::uint64_t frames = 5) const {
    auto d = s.create({out("a_000" + std::to_string(tile)), FileFormat::netcdf4, false});
    if (!d || !(*d)->schema(tile_of_series(width, tile, writers))) return 1;
    for (std::uint64_t f = 0; f < frames; ++f) {
      const std::vector<float> row(width, static_cast<float>(f * writers + tile));
      if (!(*d)->put(0, {{f, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
      (void)(*d)->sync();  // told of the sink's error, and goes on
      while (waits_after_first_ && ::access(run_dir(tile).c_str(), F_OK) == 0 &&
             ::access(out("go on").c_str(), F_OK) != 0)
        ::usleep(1000);
    }
    (void)(*d)->close();
    s.finish();
    return 0;
  }
  bool waits_after_first_ = false;                           ///< until there is a file "go on"
  static constexpr std::uint64_t frames_without_room = 400;  ///< more than the owner's stage holds, however it grows
  /// The owner could not write, and had no room for all that the others had to say.
  json end_without_room() {
    store_.fail_commit_of = "a";
    wait_max_ns_ = 1'000'000'000;
    waits_after_first_ = true;  // for the one file to be begun: else the tiles stay files of their own
    programs([this](Session& s, std::uint32_t w) { return write_tile(s, w, frames_without_room); });
    start(64, 4);
    go();
    EXPECT_TRUE(eventually([&] { return servers_[2]->status().find("append to") != std::string::npos; }));
    EXPECT_TRUE(replace_file(system_files(), out("go on"), {}).ok());
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    programs_.clear();
    return drain();
  }
  /// The owner dies when it has finished the file, and before it has ended its tiles; or (`tiles_too`) before it could
  /// remove what is beside those.
  void write_and_die(const std::string& error, bool tiles_too) {
    programs([this](Session& s, std::uint32_t w) { return write_tile(s, w); });
    start();
    go();
    for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    ASSERT_TRUE(eventually([&] { return servers_[2]->status().find(error) != std::string::npos; }));
    stop();
    programs_.clear();
    store_.allow();
    change_pages(run_dir(2), [tiles_too](const auto& stage, const auto& name, auto& shared_state) {
      if (shared_state.tiles == 0) {
        if (tiles_too) shared_state.state.store(static_cast<std::uint32_t>(journal::DatasetState::finished));
        return;
      }
      ASSERT_TRUE(system_files().remove(shared_state.link).ok());
      stage.remove_dataset(name, shared_state.journal, shared_state.number);
    });
  }
};

TEST_F(TilesOfNodesTest, LeaveNothingWhereItCouldNotBeRemovedAtFirst) {
  store_.fail_close_of = "a";
  write_and_die("truncate", true);
  start();
  EXPECT_EQ(end()["errors"].size(), 0U);
  EXPECT_EQ(store_.files["a"].committed.size(), 5U * writers);
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a"});
}

TEST_F(TilesOfNodesTest, OfAFileThatIsFinishedAreNotBegunAgain) {
  store_.fail_commit_of = "a";  // so that the other nodes have all of it and say it again
  write_and_die("append to", false);
  start();
  EXPECT_EQ(end()["errors"].size(), 0U);
  EXPECT_EQ(store_.files["a"].committed.size(), 0U) << "what is finished has been written again";
  EXPECT_EQ(*system_files().list(output_.path()), std::vector<std::string>{"a"});
}

TEST_F(TilesOfNodesTest, StayWithTheOthersWhereTheirOwnerCanNeitherWriteNorHasRoom) {
  const auto status = end_without_room();
  EXPECT_EQ(outcomes_[2], Outcome::incomplete);
  EXPECT_NE(status["errors"].dump().find("has no room for what other nodes still have to say"), std::string::npos);
  store_.allow();
  start();
  EXPECT_EQ(end()["errors"].size(), 0U);
  EXPECT_EQ(store_.files["a"].committed.size(), frames_without_room * writers);
}

TEST_F(TilesOfNodesTest, BecomeOneAlthoughOneNodeFillsTheStageBeforeAnotherSaysAnything) {
  (void)end_without_room();
  store_.allow();
  start(16, 0, 1);
  ASSERT_TRUE(eventually([this] {
    return json::parse(servers_[2]->status())["stage"]["bytes_allocated"] > 16 * segment_bytes;  // beyond its cap
  }));
  run(1);
  EXPECT_EQ(end()["errors"].size(), 0U);
  EXPECT_EQ(store_.files["a"].committed.size(), frames_without_room * writers);
}

TEST_F(NodesTest, StagesSmallerThanAFrameAreEnough) {
  // 2 MB of each writer through stages of 4 × 64 KiB.
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    for (std::uint64_t step = w; step < 1000; step += writers) {
      const std::vector<float> row(width, static_cast<float>(step));
      if (!d->put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
    }
    d->end_collective_call();
    if (!d->sync() || !d->close()) return 3;
    s.finish();
    return 0;
  });
  start(4);
  go();
  (void)end();
  expect_frames(500);
}

TEST_F(NodesTest, AnErrorOfTheSinkReachesTheProcessesOfAllNodes) {
  store_.fail_commit_of = "a.nc";
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    Result<void> synced;
    for (std::uint64_t f = 0; f < 1000 && synced; ++f) {
      const auto step = f * writers + w;
      const std::vector<float> row(width, static_cast<float>(step));
      if (!d->put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
      d->end_collective_call();
      synced = d->sync();
      d->end_collective_call();
      ::usleep(20'000);
    }
    return !synced && synced.error().sys == ENOSPC ? 0 : 3;
  });
  start(400);
  go();
  for (auto& p : programs_) EXPECT_EQ(p->wait(), 0);
  store_.allow();
  (void)drain();
  EXPECT_GT(written().size(), 0U);
}

TEST_F(NodesTest, WhenOneIsKilledTheFramesThatAllHadSyncedAreThere) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < (w == 0 ? 8U : 5U); ++f)
      if (!put_frame(*d, w, f)) return 2;
    if (w == 1) ::raise(SIGKILL);
    return 0;
  });
  start();
  go();
  EXPECT_EQ(programs_[0]->wait(), 0);
  EXPECT_EQ(programs_[1]->wait(), 128 + SIGKILL);
  const auto status = drain();
  EXPECT_EQ(status["datasets"][0]["state"], "finished");
  expect_frames(5);
}

TEST_F(NodesTest, TheLengthThatAProcessOnAnotherNodeHasMadeIsKnown) {
  programs([this](Session& s, std::uint32_t w) {
    auto d = meet(s, w);
    if (!d) return 1;
    for (std::uint64_t f = 0; f < 40; ++f) {
      if (w == 1) d->grow((f + 1) * 3);
      d->end_collective_call();
      if (d->records() != (f + 1) * 3) return 2;
    }
    return d->close().ok() ? 0 : 3;
  });
  start();
  go();
  (void)end();
}

}  // namespace
}  // namespace advectio
