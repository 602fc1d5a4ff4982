#include "server/segment_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "journal/scratch.h"

namespace advectio {
namespace {

using namespace std::chrono_literals;

// Clearing memory for later frames took up to a third of a frame's stall from a model that had no core to spare.
class SegmentPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pool_.begin();
    ASSERT_TRUE(becomes_free(32));
    ASSERT_TRUE(stage_.files().make_directory(journal_, 0700));
  }
  std::vector<std::string> free() const {
    auto names = stage_.files().list(stage_.pool()).value();
    std::erase_if(names, [](const std::string& name) { return name[0] == '.'; });  // in the making
    return names;
  }
  bool becomes_free(std::size_t segments) const {
    for (int i = 0; i < 1000 && free().size() != segments; ++i) std::this_thread::sleep_for(5ms);
    return free().size() == segments;
  }
  void take(std::size_t segments) const {
    const auto names = free();
    for (std::size_t i = 0; i < segments; ++i)
      ASSERT_TRUE(stage_.files().rename(stage_.pool() + "/" + names[i],
                                        journal_ + "/" + std::to_string(10'000'000 + i) + "-" + names[i]));
  }

  Scratch scratch_{"/dev/shm"};
  journal::Stage stage_ = journal::Stage::make(system_files(), scratch_ / "stage", 1U << 20U, 64, 0).value();
  std::string journal_ = stage_.journals() + "/writer";
  Log log_{LogLevel::error};
  SegmentPool pool_{stage_, 32, log_};
};

// Clearing memory for later frames took up to a third of a frame's stall from a model that had no core to spare.
TEST_F(SegmentPoolTest, MakesFewWhileAModelPuts) {
  pool_.rest(true);
  take(30);
  ASSERT_TRUE(becomes_free(4)) << "some must be free all the same";
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(pool_.total(), 34U);
  pool_.rest(false);
  EXPECT_TRUE(becomes_free(8));
}

// What a frame has used comes back: twice the memory, and the CPU to clear it, would be for nothing.
TEST_F(SegmentPoolTest, DoesNotMakeAllAgainThatAFrameUses) {
  take(20);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(pool_.total(), 32U);
  take(10);
  EXPECT_TRUE(becomes_free(8));
}

// It waited until the server's loop had come round, hundreds of milliseconds, when that had to ask for it.
TEST_F(SegmentPoolTest, AWriterThatWaitsIsAnsweredWithoutTheServersLoop) {
  stage_.control().starved_ns.store(journal::monotonic_ns());
  EXPECT_TRUE(becomes_free(36));
}

// Warming went on while the server drained, and all of it had to be removed again at the end.
TEST_F(SegmentPoolTest, GivesBackWhatIsFreeWhenNobodyWritesAnyMore) {
  take(3);
  pool_.give_back();
  ASSERT_TRUE(becomes_free(0));
  // One that is in the making counts until it is given up.
  for (int i = 0; i < 1000 && pool_.total() > 3; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(pool_.total(), 3U);
  EXPECT_EQ(stage_.control().segments_total.load(), 3U);
}

// A program in the background may write after all.
TEST_F(SegmentPoolTest, AWriterThatComesAfterwardsIsAnswered) {
  pool_.give_back();
  ASSERT_TRUE(becomes_free(0));
  stage_.control().starved_ns.store(journal::monotonic_ns());
  EXPECT_TRUE(becomes_free(4));
}

// The restart of a model that had put small frames until then stalled it for seconds.
TEST_F(SegmentPoolTest, GrowsTowardsTheSizeOfAnInputOnceFramesAreOfThatOrder) {
  stage_.control().input_bytes.store(50ULL << 20U);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(pool_.total(), 32U) << "a program that puts nothing reads what it likes";
  take(7);
  EXPECT_TRUE(becomes_free(43));
  EXPECT_EQ(pool_.total(), 50U);
}

TEST_F(SegmentPoolTest, MakesNothingAheadAndRemovesWhatIsFreeWhereMemoryIsShort) {
  take(3);
  pool_.pretend_available(1);
  for (int i = 0; i < 1000 && pool_.total() > 17; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(pool_.total(), 17U) << "half of what has stayed free, at each look";
  take(2);
  std::this_thread::sleep_for(100ms);
  EXPECT_LE(pool_.total(), 17U);
  EXPECT_EQ(stage_.control().segments_peak.load(), 32U);
}

// A server that took up such a stage asked for one more than the cap, of which there were more, and got none.
TEST(GrownStageTest, GrowsByOneMoreThanThereAre) {
  const Scratch scratch("/dev/shm");
  const auto stage = journal::Stage::make(system_files(), scratch / "stage", 1U << 20U, 2, 0).value();
  Log log(LogLevel::error);
  for (std::uint64_t segments = 3; segments < 7; ++segments) {
    SegmentPool pool(stage, 2, log);
    pool.begin();
    // One that is in the making counts, and is given up with its pool.
    for (int i = 0; i < 1000 && stage.free_segments() + 1 < segments; ++i) std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(pool.exhausted());
    pool.grow_beyond_cap();
    for (int i = 0; i < 1000 && stage.free_segments() < segments; ++i) {
      stage.control().starved_ns.store(journal::monotonic_ns());
      std::this_thread::sleep_for(5ms);
    }
    ASSERT_EQ(stage.free_segments(), segments);
    ASSERT_EQ(pool.total(), segments);
  }
}

}  // namespace
}  // namespace advectio
