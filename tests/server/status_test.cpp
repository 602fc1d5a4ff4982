#include "server/status.h"

#include <atomic>
#include <thread>

#include "server/parts.h"

namespace advectio {
namespace {

TEST(SnapshotTest, WhoAsksGetsAFreshOneOrTheLast) {
  Snapshot box(std::chrono::milliseconds(0));
  EXPECT_TRUE(box.is_wanted()) << "there is none yet";
  std::atomic<bool> asked{false};
  std::thread slow([&] {
    while (!asked) std::this_thread::yield();
    box.put("first");
  });
  std::atomic<std::uint64_t> backlog{7};
  EXPECT_EQ(box.get([&] { asked = true; }, backlog), "first") << "nobody is answered with nothing";
  slow.join();
  EXPECT_FALSE(box.is_wanted());
  EXPECT_EQ(box.get([] {}, backlog), "first") << "the loop is deep in a commit";
  EXPECT_TRUE(box.is_wanted());
  box.conclude("last");
  EXPECT_EQ(box.get([] { FAIL() << "the loop has ended"; }, backlog), "last");
}

TEST(SnapshotTest, WhoAsksIsAnsweredAtTheLoopsNextPass) {
  Snapshot box(std::chrono::minutes(1));
  box.put("first");
  std::atomic<bool> woken{false};
  std::thread loop([&] {
    while (!woken) std::this_thread::yield();
    box.put("second");
  });
  const std::atomic<std::uint64_t> backlog{0};
  EXPECT_EQ(box.get([&] { woken = true; }, backlog), "second");
  loop.join();
}

TEST(SnapshotTest, AnOldOneTellsHowMuchThereIsToDoNow) {
  Snapshot box(std::chrono::milliseconds(0));
  box.put(R"({"stage":{"backlog_bytes":0,"waits":3}})");
  const std::atomic<std::uint64_t> backlog{12345};
  const auto told = json::parse(box.get([] {}, backlog));
  EXPECT_EQ(told["stage"]["backlog_bytes"], 12345);
  EXPECT_EQ(told["stage"]["waits"], 3);
}

using StatusTest = PartsTest;

TEST_F(StatusTest, TellsOfEachOutputAndOfTheStage) {
  Ledger ledger(run());
  Status status(run(), ledger);
  auto o = output("a.nc");
  o->progress.frames_visible = 3;
  o->figures.bytes_put = 100;
  o->figures.bytes_written = 50;
  ledger.outputs.push_back(o);
  auto tile = output("b.nc");
  tile->hidden = true;
  ledger.outputs.push_back(tile);
  run().report("something");
  const auto told = status.to_json(false);
  ASSERT_EQ(told["datasets"].size(), 1U) << "a tile is told of with its whole";
  EXPECT_EQ(told["datasets"][0]["path"], o->path);
  EXPECT_EQ(told["datasets"][0]["frames_visible"], 3);
  EXPECT_EQ(told["datasets"][0]["ratio"], 2.0);
  EXPECT_EQ(told["stage"]["bytes_max"], 4 * 64 * 1024);
  EXPECT_EQ(told["errors"][0], "something");
  EXPECT_EQ(told["final"], false);
}

}  // namespace
}  // namespace advectio
