#include "server/server_fixture.h"

namespace advectio {
namespace {

/// A program writes first.nc. While the server commits it, programs write other files. The stage has them in the order
/// of their writing when that commit ends.
class UrgencyTest : public ServerTest {
 protected:
  UrgencyTest() { disk_threads_ = 0; }  // the loop itself stands in the commit
  using Body = std::function<int(Session&)>;
  void config(const std::string& text) { config_ = parse_config(text, "test").value(); }
  int write_first(Session& s, const Body& rest) const {
    if (write_frames(s, out("first.nc"), 1, true, false) != 0 || !is_told("go")) return 5;
    const int done = rest(s);
    s.finish();
    return done;
  }
  void add(const Body& body) { programs_.push_back(std::make_unique<Program>(run_dir(), body)); }
  void begin(const Body& rest) {
    store_.commits_stand = true;
    programs_.insert(programs_.begin(),
                     std::make_unique<Program>(run_dir(), [this, rest](Session& s) { return write_first(s, rest); }));
    start();
    for (const auto& p : programs_) p->go();
    ASSERT_TRUE(eventually([this] { return store_.is_standing.load(); }));
    tell("go");
  }
  void tell(const std::string& what) const { (void)!::close(::creat((scratch_ / what).c_str(), 0600)); }
  [[nodiscard]] bool is_told(const std::string& what) const {
    return eventually([&] { return std::filesystem::exists(scratch_ / what); });
  }
  /// Until that is true of the dataset's shared state.
  [[nodiscard]] bool becomes(const std::string& name,
                             const std::function<bool(const journal::SharedState&)>& so) const {
    const auto stage = journal::Stage::open(system_files(), run_dir()).value();
    return eventually([&] {
      const auto state = journal::Stage::state_name_of(present(name));
      if (!state) return false;
      const auto shared_state = stage.open_state(*state);
      return shared_state && so(**shared_state);
    });
  }
  [[nodiscard]] bool is_closed(const std::string& name) const {
    return becomes(name, [](const auto& s) { return s.closed.load() != 0; });
  }
  [[nodiscard]] bool is_synced(const std::string& name) const {
    return becomes(name, [](const auto& s) { return s.synced.load() != 0; });
  }
  /// The server goes on; all programs end. The order in which files were committed.
  std::vector<std::string> go_on() {
    store_.commits_stand = false;
    for (const auto& p : programs_) EXPECT_EQ(p->wait(), 0);
    (void)drain();
    EXPECT_EQ(outcome_, Outcome::clean);
    return store_.order;
  }
  void expect_frames(const std::string& name, std::uint64_t frames) {
    const auto f = image(name);
    EXPECT_TRUE(f.closed);
    ASSERT_EQ(f.committed.size(), frames);
    for (const auto& [at, value] : f.committed) EXPECT_EQ(value, static_cast<float>(at));
  }
  int write(Session& s, const std::string& name, int frames = 1) const {
    return write_frames(s, out(name), frames, true, false);
  }
  std::vector<std::unique_ptr<Program>> programs_;
};

using Order = std::vector<std::string>;

TEST_F(UrgencyTest, OfFilesThatNobodyWaitsForTheFirstWrittenIsTheFirst) {
  begin([this](Session& s) { return write(s, "hist.nc") + write(s, "rst.nc"); });
  ASSERT_TRUE(is_closed("rst.nc"));
  EXPECT_EQ(go_on(), (Order{"first.nc", "hist.nc", "rst.nc"}));
}

TEST_F(UrgencyTest, AHighPriorityGoesBeforeWhatWasWrittenBefore) {
  config("datasets: [{match: 'rst*', priority: high}]");
  begin([this](Session& s) { return write(s, "a.nc", 3) + write(s, "b.nc", 2) + write(s, "rst.nc", 2); });
  ASSERT_TRUE(is_closed("rst.nc"));
  EXPECT_EQ(go_on(), (Order{"first.nc", "rst.nc", "a.nc", "b.nc"}));
  expect_frames("a.nc", 3);
  expect_frames("b.nc", 2);
  expect_frames("rst.nc", 2);
}

TEST_F(UrgencyTest, AFurtherOutputGivesWayToo) {
  config("datasets: [{match: 'rst*', priority: high}, {match: 'a.nc', outputs: [{path: 'more_{name}'}]}]");
  begin([this](Session& s) { return write(s, "a.nc", 2) + write(s, "rst.nc"); });
  ASSERT_TRUE(is_closed("rst.nc"));
  EXPECT_EQ(go_on()[1], "rst.nc");
  expect_frames("a.nc", 2);
  expect_frames("more_a.nc", 2);
}

TEST_F(UrgencyTest, AFileForWhichAMarkerIsHeldBackGoesFirst) {
  begin([this](Session& s) { return write(s, "hist.nc") + write(s, "b.nc"); });
  ASSERT_TRUE(is_closed("b.nc"));
  const auto stage = journal::Stage::open(system_files(), run_dir()).value();
  const auto state = journal::Stage::state_name_of(journal::held_name_of(stage, out("b.nc"))).value();
  {
    const auto b = stage.open_state(state);
    ASSERT_TRUE(b.ok());
    const auto notes = journal::Markers::await(stage);
    ASSERT_TRUE(notes.ok());
    auto marker = notes->make(out("log.f001"));
    marker.files = {{state, (*b)->journal, (*b)->number, (*b)->synced.load(), true}};
    std::ofstream(marker.held).close();
    ASSERT_TRUE(notes->keep(marker).ok());
  }
  EXPECT_EQ(go_on(), (Order{"first.nc", "b.nc", "hist.nc"}));
  EXPECT_TRUE(std::filesystem::exists(out("log.f001")));
}

TEST_F(UrgencyTest, AFileThatAProcessOpensAgainGoesFirst) {
  config("datasets: [{match: 'rst*', priority: high}]");
  add([this](Session& s) { return is_told("open") && s.wait_for_file(out("b.nc"), false) ? 0 : 1; });
  begin([this](Session& s) { return write(s, "hist.nc") + write(s, "rst.nc") + write(s, "b.nc"); });
  ASSERT_TRUE(is_closed("b.nc"));
  tell("open");
  ASSERT_TRUE(becomes("b.nc", [](const auto& s) { return s.waited_ns.load() != 0; }));
  EXPECT_EQ(go_on(), (Order{"first.nc", "b.nc", "rst.nc", "hist.nc"}));
}

TEST_F(UrgencyTest, AFileWhoseProgramWaitsForItsPromiseGoesFirst) {
  config("datasets: [{match: 'b.nc', promise: visible}]");
  begin([this](Session& s) { return write(s, "hist.nc") + write(s, "b.nc"); });
  ASSERT_TRUE(is_synced("b.nc"));
  EXPECT_EQ(go_on(), (Order{"first.nc", "b.nc", "hist.nc"}));
}

TEST_F(UrgencyTest, WhatSeveralProcessesWriteTogetherGivesWay) {
  config("datasets: [{match: 'rst*', priority: high}]");
  constexpr std::uint64_t writers = 2, frames = 3;
  const Meeting meeting(writers);
  const auto together = [this, &meeting](Session& s, std::uint32_t writer) {
    auto d = meeting.meet(s, out("hist.nc"), writer);
    if (!d || (writer == 0 && !d->schema(series(width)))) return 1;
    d->end_collective_call();
    for (std::uint64_t f = 0; f < frames; ++f) {
      const auto step = f * writers + writer;
      const std::vector<float> row(width, static_cast<float>(step));
      if (!d->put(0, {{step, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 2;
      d->end_collective_call();
      if (!d->sync()) return 3;
      d->end_collective_call();
    }
    return d->close() ? 0 : 4;
  };
  add([this, together](Session& s) {
    const int done = is_told("go") ? together(s, 1) : 5;
    tell("hist");
    s.finish();
    return done;
  });
  begin([this, together](Session& s) {
    const int done = together(s, 0);
    return is_told("hist") ? done + write(s, "rst.nc") : 5;
  });
  ASSERT_TRUE(is_closed("rst.nc"));
  EXPECT_EQ(go_on(), (Order{"first.nc", "rst.nc", "hist.nc"}));
  expect_frames("hist.nc", writers * frames);
}

TEST_F(UrgencyTest, OthersGoOnWhileAnUrgentOneFails) {
  config("datasets: [{match: 'rst*', priority: high}]");
  store_.fail_commit_of = "rst.nc";
  begin([this](Session& s) { return write(s, "rst.nc") * 0 + write(s, "hist.nc"); });
  ASSERT_TRUE(is_closed("hist.nc"));
  store_.commits_stand = false;
  ASSERT_TRUE(eventually([this] { return image("hist.nc").closed; }));
  store_.allow();
  (void)go_on();
  expect_frames("rst.nc", 1);
}

TEST_F(UrgencyTest, OthersGoOnWhileAnUrgentOneWaitsForItsWriters) {
  config("datasets: [{match: 'rst*', priority: high}]");
  const Meeting meeting(2);
  const auto together = [this, &meeting](Session& s, std::uint32_t writer) {
    auto d = meeting.meet(s, out("rst.nc"), writer);
    if (!d || (writer == 0 && !d->schema(series(width)))) return 1;
    d->end_collective_call();
    if (writer == 1 && !is_told("late")) return 2;
    const std::vector<float> row(width, static_cast<float>(writer));
    if (!d->put(0, {{writer, 0}, {1, width}}, {}, {row.data(), {}}, 4)) return 3;
    d->end_collective_call();
    return d->close() ? 0 : 4;
  };
  add([this, together](Session& s) {
    const int done = is_told("go") ? together(s, 1) : 5;
    s.finish();
    return done;
  });
  begin([this, together](Session& s) { return together(s, 0) + write(s, "hist.nc", 3); });
  ASSERT_TRUE(is_synced("rst.nc"));
  ASSERT_TRUE(is_closed("hist.nc"));
  store_.commits_stand = false;
  ASSERT_TRUE(eventually([this] { return image("hist.nc").closed; }));
  expect_frames("hist.nc", 3);
  tell("late");
  (void)go_on();
  expect_frames("rst.nc", 2);
}

TEST_F(UrgencyTest, WhatWasPostponedIsInItsFileWhenItsProgramIsKilled) {
  config("datasets: [{match: 'rst*', priority: high}]");
  begin([this](Session& s) {
    if (write_frames(s, out("hist.nc"), 2, false, false) + write(s, "rst.nc") != 0) return 1;
    tell("written");
    ::pause();
    return 0;
  });
  ASSERT_TRUE(is_told("written"));
  programs_.front()->kill();
  programs_.clear();
  EXPECT_EQ(go_on(), (Order{"first.nc", "rst.nc", "hist.nc"}));
  EXPECT_EQ(image("hist.nc").committed.size(), 2U);
}

}  // namespace
}  // namespace advectio
