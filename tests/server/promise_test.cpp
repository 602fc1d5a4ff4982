#include "server/server_fixture.h"

namespace advectio {
namespace {

/// A program that says how many of its calls of sync and close have returned.
class PromiseTest : public ServerTest {
 protected:
  void write(const std::string& promise, bool closes) {
    prepare(promise, closes);
    start();
    program_->go();
  }
  void prepare(const std::string& promise, bool closes) {
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
    wait_turns();
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

/// Its records are visible: the next server does not handle them again.
TEST_F(PromiseTest, DurableOfASyncOutlivesTheDeathOfTheServer) {
  store_.disk_stands = true;
  prepare("durable", false);
  const pid_t first = ::fork();
  if (first == 0) {
    start();
    for (;;) ::pause();
  }
  const auto stage = [this] { return journal::Stage::open(system_files(), run_dir()); };
  ASSERT_TRUE(eventually([&] { return stage().ok() && std::filesystem::exists(run_dir() + "/socket"); }));
  program_->go();
  EXPECT_TRUE(eventually([&] {
    bool is_visible = false;
    for_each_page([&](const journal::SharedState& state) { is_visible = state.frames_visible > 0; });
    return is_visible;
  }));
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  EXPECT_FALSE(returned());
  store_.disk_stands = false;
  start();
  ASSERT_TRUE(eventually([&] { return returned(); }));
  EXPECT_EQ(result(), "0");
  EXPECT_GT(image("a.nc").durable, 0);
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
    for_each_page([](const journal::SharedState& shared_state) {
      EXPECT_GT(shared_state.kept.load(), 0);
      EXPECT_EQ(shared_state.durable.load(), 0);
    });
    EXPECT_EQ(segments_in_journals(), 1U);
    store_.disk_stands = false;
    EXPECT_EQ(end(), Outcome::clean);
    EXPECT_GT(image("a.nc").durable, 0);
  }
}

// Nobody looks at the store again when its shared state has gone.
TEST_F(PromiseTest, AStoreThatTheStageForgetsIsOnTheDiskWhateverWasPromised) {
  survives_power_ = true;
  config_ = parse_config("datasets: [{match: \"*\", format: zarr, durable: false}]\n", "test").value();
  for (const bool synced : {true, false}) {
    SCOPED_TRACE(synced);
    const std::string name = synced ? "kept" : "dropped";
    std::filesystem::create_directories(out(name + ".zarr/T"));
    std::ofstream(out(name + ".zarr/T/chunk")) << "values";
    Program p(run_dir(), [&](Session& s) {
      auto d = s.create({out(name + ".nc"), FileFormat::netcdf4, false});
      if (!d || !(*d)->schema(series(width))) return 1;
      if (synced && !(*d)->close()) return 2;
      if (synced) s.finish();
      return 0;
    });
    start();
    p.go();
    EXPECT_EQ(p.wait(), 0);
    (void)drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    const auto forced = forced_below(out(""));
    for (const auto& path : {name + ".zarr", name + ".zarr/T", name + ".zarr/T/chunk"})
      EXPECT_TRUE(forced.contains(path)) << path;
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

}  // namespace
}  // namespace advectio
