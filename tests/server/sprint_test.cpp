#include "server/server_fixture.h"

namespace advectio {
namespace {

/// A pool with one thread, on a machine of three cores.
class SprintTest : public ServerTest {
 protected:
  SprintTest() {
    encoders_ = &pool_;
    cores_ = 3;
  }
  void tell(const std::string& what) const { (void)!::close(::creat((scratch_ / what).c_str(), 0600)); }
  [[nodiscard]] bool is_told(const std::string& what) const {
    return eventually([&] { return std::filesystem::exists(scratch_ / what); });
  }
  /// Writes, computes until told `go`, and waits for its file.
  int compute(Session& s, const std::string& name, const std::string& go) const {
    if (write_frames(s, out(name), 1, true, false) != 0) return 1;
    tell(name + " written");
    if (!is_told(go)) return 2;
    s.finish();
    return 0;
  }
  [[nodiscard]] bool all_have_ended() const {
    const auto journals = run_dir() + "/journals";
    const auto names = system_files().list(journals).value();
    return !names.empty() && std::all_of(names.begin(), names.end(), [&](const auto& name) {
      const auto reader = journal::Reader::open(system_files(), journals + "/" + name, journal::Trust::published);
      return reader && (*reader)->writer().has_ended();
    });
  }
  Executor pool_{1};
};

TEST_F(SprintTest, AllCoresDrainWhenAllProgramsWaitAtTheirEnd) {
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) { return compute(s, "a.nc", "end a"); });
  Program b(run_dir(), [this](Session& s) { return compute(s, "b.nc", "end b"); });
  start();
  a.go();
  b.go();
  ASSERT_TRUE(is_told("a.nc written"));
  ASSERT_TRUE(is_told("b.nc written"));
  ASSERT_TRUE(eventually([this] { return store_.is_standing.load(); }));
  tell("end a");
  const auto stage = journal::Stage::open(system_files(), run_dir()).value();
  ASSERT_TRUE(eventually([&] { return stage.control().ends.load() == 1; }));
  EXPECT_EQ(pool_.threads(), 1U) << "b computes";
  tell("end b");
  // The commit has not ended yet.
  ASSERT_TRUE(eventually([this] { return pool_.threads() == 3; }));
  store_.commits_stand = false;
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(b.wait(), 0);
  const auto status = drain();
  EXPECT_EQ(status["server"]["threads"], 1);
  EXPECT_EQ(status["server"]["sprint_threads"], 3);
  EXPECT_GT(status["server"]["sprint_s"], 0.0);
}

TEST_F(SprintTest, AllCoresDrainWhenTheProgramWasKilled) {
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) { return compute(s, "a.nc", "never"); });
  start();
  a.go();
  ASSERT_TRUE(is_told("a.nc written"));
  ASSERT_TRUE(eventually([this] { return store_.is_standing.load(); }));
  a.kill();
  server_->drain();
  ASSERT_TRUE(eventually([this] { return pool_.threads() == 3; }));
  store_.commits_stand = false;
  (void)drain();
}

TEST_F(SprintTest, EndsWhenAnotherProgramBegins) {
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) { return compute(s, "a.nc", "end a"); });
  Program b(run_dir(), [this](Session& s) { return compute(s, "b.nc", "end b"); });
  start();
  tell("end a");
  a.go();
  ASSERT_TRUE(eventually([this] { return pool_.threads() == 3; }));
  b.go();
  ASSERT_TRUE(eventually([this] { return pool_.threads() == 1; }));
  tell("end b");
  ASSERT_TRUE(eventually([this] { return pool_.threads() == 3; }));
  store_.commits_stand = false;
  EXPECT_EQ(a.wait(), 0);
  EXPECT_EQ(b.wait(), 0);
  (void)drain();
}

TEST_F(SprintTest, ThereIsNoneIfTheConfigSaysSo) {
  config_ = parse_config("server: {sprint: false}", "test").value();
  store_.commits_stand = true;
  Program a(run_dir(), [this](Session& s) { return compute(s, "a.nc", "end a"); });
  start();
  tell("end a");
  a.go();
  ASSERT_TRUE(eventually([this] { return all_have_ended(); }));
  store_.commits_stand = false;
  EXPECT_EQ(a.wait(), 0);
  const auto status = drain();
  EXPECT_EQ(pool_.threads(), 1U);
  EXPECT_EQ(status["server"]["sprint_threads"], 0);
}

}  // namespace
}  // namespace advectio
