// The server's events of files come in the order of what happens, each once, whoever dies.
#include "journal/hard_link.h"
#include "server/server_fixture.h"

extern std::atomic<void (*)(const char*)> sees_unlink;

namespace advectio {
namespace {

class EventsTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    config_.outside.events = told();
  }
  [[nodiscard]] std::string told() const { return scratch_ / "events.jsonl"; }
  [[nodiscard]] std::string kept() const { return run_dir() + "/events"; }
  static std::vector<json> lines_of(const std::string& path) {
    std::vector<json> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line, nullptr, false));
    return lines;
  }
  /// "begun", "frame 0", "complete 3" … Without `durable`, as its place among the others is not fixed.
  [[nodiscard]] std::vector<std::string> said(bool with_durable = false) const {
    std::vector<std::string> out;
    for (const auto& line : lines_of(told())) {
      if (!line.is_object()) {
        out.emplace_back("torn");
        continue;
      }
      const std::string event = line["event"];
      if (event == "durable" && !with_durable) continue;
      const auto* number = line.contains("frame") ? "frame" : "frames";
      out.push_back(event + (line.contains(number) ? " " + line[number].dump() : ""));
    }
    return out;
  }
  [[nodiscard]] std::size_t count(const std::string& event) const {
    const auto all = said(true);
    return static_cast<std::size_t>(std::count(all.begin(), all.end(), event));
  }
  void write(int frames, bool close = true, bool finish = true) {
    Program a(run_dir(), [&](Session& s) { return write_frames(s, out("a.nc"), frames, close, finish); });
    start();
    a.go();
    EXPECT_EQ(a.wait(), 0);
  }
};

const std::vector<std::string> three = {"run_begun", "begun",      "frame 0",  "frame 1",
                                        "frame 2",   "complete 3", "run_ended"};

TEST_F(EventsTest, AreSaidInTheOrderInWhichTheyHappen) {
  write(3);
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(said(), three);
  const auto lines = lines_of(told());
  for (const auto& line : lines) {
    EXPECT_EQ(line["run"], run_dir());
    EXPECT_EQ(line["time"].get<std::string>().size(), std::string("2026-01-01T00:00:00.000Z").size());
    if (line.contains("path")) EXPECT_EQ(line["path"], out("a.nc"));
    if (line["event"] == "begun") {
      EXPECT_EQ(line["created"].get<std::string>().size(), std::string("2026-01-01T00:00:00.000000000Z").size());
      EXPECT_LT(line["created"], line["time"]);
    }
  }
  EXPECT_EQ(lines.front()["directory"], output_.path());
  EXPECT_EQ(lines.back()["complete"], true);
  for (const auto& line : lines)
    if (line["event"] == "complete") EXPECT_EQ(line["closed"], true);
  // All of it is on the disk after it is complete.
  const auto all = said(true);
  const auto last = std::find_if(lines.begin(), lines.end(), [](const json& line) {
    return line["event"] == "durable" && line["complete"] == true;
  });
  ASSERT_NE(last, lines.end());
  EXPECT_EQ((*last)["frames"], 3);
  EXPECT_LT(std::find(all.begin(), all.end(), "complete 3") - all.begin(), last - lines.begin());
}

/// Whether the events of `watched_events` had said `complete` before the hard link was removed.
std::string watched_events;
std::atomic<bool> link_seen{false}, said_before{false};
void look_at_events(const char* path) {
  if (!journal::is_hard_link(path)) return;
  link_seen = true;
  std::ifstream in(watched_events);
  for (std::string line; std::getline(in, line);)
    if (line.find("\"complete\",") != std::string::npos) said_before = true;
}

TEST_F(EventsTest, SpeakOfACompleteFileWhenItsHardLinkIsGone) {
  watched_events = told();
  sees_unlink = look_at_events;
  write(1);
  (void)drain();
  sees_unlink = nullptr;
  EXPECT_TRUE(link_seen);
  EXPECT_FALSE(said_before);
  EXPECT_EQ(count("complete 1"), 1U);
}

TEST_F(EventsTest, SayOnceThatADiskIsFullAndWhatComesWhenItIsNot) {
  ASSERT_NO_FATAL_FAILURE(leave_in_flight());
  ASSERT_TRUE(eventually([this] { return count("failed") == 1; }));
  wait_turns();
  EXPECT_EQ(said(), (std::vector<std::string>{"run_begun", "begun", "failed"}));
  EXPECT_NE(lines_of(told()).back()["error"].get<std::string>().find("No space left"), std::string::npos);
  store_.allow();
  (void)drain();
  EXPECT_EQ(said(), (std::vector<std::string>{"run_begun", "begun", "failed", "frame 0", "frame 1", "frame 2",
                                              "complete 3", "run_ended"}));
}

TEST_F(EventsTest, TellWhetherTheProgramHasClosedTheFile) {
  write(2, false, false);
  (void)drain();
  EXPECT_EQ(count("complete 2"), 1U);
  for (const auto& line : lines_of(told()))
    if (line["event"] == "complete") EXPECT_EQ(line["closed"], false);
}

TEST_F(EventsTest, GoOnWhereAServerBeforeHasDied) {
  leave_uncommitted();
  EXPECT_EQ(said(), (std::vector<std::string>{"run_begun", "begun", "failed"}));
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(said(), (std::vector<std::string>{"run_begun", "begun", "failed", "frame 0", "frame 1", "frame 2",
                                              "complete 3", "run_ended"}));
}

/// As if the server had died when it had made the frames visible, and had not said so.
TEST_F(EventsTest, AreNotMissingWhereAServerDiedBeforeItCouldSayThem) {
  leave_uncommitted();
  store_.fail_close_of = "a.nc";
  start();  // all frames are visible, and the file cannot be completed
  ASSERT_TRUE(eventually([this] { return count("frame 2") == 1; }));
  stop();
  store_.allow();
  const auto whole = read_file(system_files(), kept()).value();
  const std::string text(reinterpret_cast<const char*>(whole.data()), whole.size());
  const auto frame = text.find(R"("event":"frame")");
  std::filesystem::resize_file(kept(), text.find('\n', frame) + 1);
  std::filesystem::remove(told());
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(said(), (std::vector<std::string>{"frame 1", "frame 2", "complete 3", "run_ended"}));
}

TEST_F(EventsTest, ThatAServerHasBegunToWriteAreWrittenAnew) {
  leave_uncommitted();
  store_.fail_close_of = "a.nc";
  start();
  ASSERT_TRUE(eventually([this] { return count("frame 2") == 1; }));
  stop();
  store_.allow();
  for (const auto& path : {kept(), told()}) {
    const auto whole = read_file(system_files(), path).value();
    const std::string text(reinterpret_cast<const char*>(whole.data()), whole.size());
    std::filesystem::resize_file(path, text.find(R"("frame":2)"));
  }
  recover(2);
  EXPECT_EQ(count("torn"), 1U);
  EXPECT_EQ(count("frame 0"), 1U);
  EXPECT_EQ(count("frame 2"), 1U);
  EXPECT_EQ(count("complete 3"), 1U);
}

TEST_F(EventsTest, SayThatAFileIsCompleteWhereAServerDiedJustBefore) {
  leave_uncommitted();
  end_all_but_the_page();
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(count("complete 0"), 1U);
  EXPECT_EQ(said().back(), "run_ended");
}

TEST_F(EventsTest, SayThatAFileWasRemovedOrThatNothingOfItWasSynced) {
  Program b(run_dir(), [&](Session& s) { return write_frames(s, out("b.nc"), 0, false, false); });
  ASSERT_NO_FATAL_FAILURE(leave_in_flight());
  std::filesystem::remove(present("a.nc"));
  b.go();
  EXPECT_EQ(b.wait(), 0);
  (void)drain();
  EXPECT_EQ(count("removed 0"), 1U);
  EXPECT_EQ(count("dropped 0"), 1U);
  EXPECT_EQ(count("complete 0"), 0U);
}

TEST_F(EventsTest, SayThatTheDiskHasRefusedToMakeAFileDurable) {
  store_.disk_fails = true;
  Program a(run_dir(), [&](Session& s) { return write_frames(s, out("a.nc"), 1); });
  start();
  a.go();
  (void)a.wait();  // its code says whether its close has heard of it already
  (void)drain();
  EXPECT_EQ(outcome_, Outcome::incomplete);
  EXPECT_GE(count("failed"), 1U);
  EXPECT_EQ(count("durable 1"), 0U);
}

TEST_F(EventsTest, ThatCannotBeWrittenAreNoErrorOfTheRun) {
  for (const auto& path : {scratch_ / "no/such/directory/events", scratch_ / "pipe"}) {
    SCOPED_TRACE(path);
    if (path == scratch_ / "pipe") ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    config_.outside.events = path;
    write(1);
    EXPECT_EQ(drain()["errors"], json::array());
    EXPECT_EQ(outcome_, Outcome::clean);
  }
}

TEST_F(EventsTest, AreNotSaidOfFramesThatOnlyADamagedPageCounts) {
  leave_uncommitted(3);
  for_each_page([](journal::SharedState& shared_state) { shared_state.frames_visible.store(1000); });
  recover(2);
  EXPECT_EQ(outcome_, Outcome::clean);
  EXPECT_EQ(count("frame 2"), 1U);
  EXPECT_EQ(count("frame 3"), 0U);
}

TEST_F(EventsTest, OfARelativePathAreWhereTheRunWasStarted) {
  config_.outside.events = "here.jsonl";
  leave_uncommitted();
  ASSERT_EQ(::chdir("/"), 0);
  recover(2);
  EXPECT_EQ(lines_of(out("here.jsonl")).back()["event"], "run_ended");
}

}  // namespace
}  // namespace advectio
