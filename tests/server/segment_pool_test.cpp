#include "server/segment_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "journal/scratch.h"

namespace advectio {
namespace {

/// Its threads' turns are taken here, 20 ms apart by a clock of our own. What has not happened after
/// twenty of them does not happen.
class SegmentPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    turns(1);
    ASSERT_EQ(free().size(), 32U);
    ASSERT_TRUE(stage_.files().make_directory(journal_, 0700));
  }
  std::vector<std::string> free() const {
    auto names = stage_.files().list(stage_.pool()).value();
    std::erase_if(names, [](const std::string& name) { return name[0] == '.'; });  // in the making
    return names;
  }
  void turns(int n = 20, std::uint64_t apart_ns = 20'000'000) {
    for (; n > 0; --n) {
      now_ += apart_ns;
      while (pool_.warm(now_)) {
      }
      pool_.answer(now_);
    }
  }
  void take(std::size_t segments) const {
    const auto names = free();
    for (std::size_t i = 0; i < segments; ++i)
      ASSERT_TRUE(stage_.files().rename(stage_.pool() + "/" + names[i],
                                        journal_ + "/" + std::to_string(10'000'000 + i) + "-" + names[i]));
  }
  void a_writer_waits() const { stage_.control().starved_ns.store(now_ + 1); }

  Scratch scratch_{"/dev/shm"};
  journal::Stage stage_ = journal::Stage::make(system_files(), scratch_ / "stage", 1U << 20U, 64, 0).value();
  std::string journal_ = stage_.journals() + "/writer";
  Log log_{LogLevel::error};
  SegmentPool pool_{stage_, 32, log_};
  std::uint64_t now_ = journal::monotonic_ns();
};

// Clearing memory for later frames took up to a third of a frame's stall from a model that had no core to spare.
TEST_F(SegmentPoolTest, MakesFewWhileAModelPuts) {
  pool_.rest(true);
  take(30);
  turns();
  EXPECT_EQ(free().size(), 4U) << "some must be free all the same";
  EXPECT_EQ(pool_.total(), 34U);
  pool_.rest(false);
  turns();
  EXPECT_EQ(free().size(), 8U);
}

// What a frame has used comes back: twice the memory, and the CPU to clear it, would be for nothing.
TEST_F(SegmentPoolTest, DoesNotMakeAllAgainThatAFrameUses) {
  take(20);
  turns();
  EXPECT_EQ(pool_.total(), 32U);
  take(10);
  turns();
  EXPECT_EQ(free().size(), 8U);
}

// It waited until the server's loop had come round, hundreds of milliseconds, when that had to ask for it.
TEST_F(SegmentPoolTest, AWriterThatWaitsIsAnsweredOnce) {
  a_writer_waits();
  turns();
  EXPECT_EQ(free().size(), 36U);
}

// Warming went on while the server drained, and all of it had to be removed again at the end.
TEST_F(SegmentPoolTest, GivesBackWhatIsFreeWhenNobodyWritesAnyMore) {
  take(3);
  pool_.give_back();
  turns();
  EXPECT_TRUE(free().empty());
  EXPECT_EQ(pool_.total(), 3U);
  EXPECT_EQ(stage_.control().segments_total.load(), 3U);
}

// A program in the background may write after all.
TEST_F(SegmentPoolTest, AWriterThatComesAfterwardsIsAnswered) {
  pool_.give_back();
  turns();
  ASSERT_TRUE(free().empty());
  a_writer_waits();
  now_ += 20'000'000;
  pool_.answer(now_);
  EXPECT_EQ(free().size(), 4U);
}

// The restart of a model that had put small frames until then stalled it for seconds.
TEST_F(SegmentPoolTest, GrowsTowardsTheSizeOfAnInputOnceFramesAreOfThatOrder) {
  stage_.control().input_bytes.store(50ULL << 20U);
  turns();
  EXPECT_EQ(pool_.total(), 32U) << "a program that puts nothing reads what it likes";
  take(7);
  turns();
  EXPECT_EQ(free().size(), 43U);
  EXPECT_EQ(pool_.total(), 50U);
}

TEST_F(SegmentPoolTest, MakesNothingAheadAndRemovesWhatIsFreeWhereMemoryIsShort) {
  constexpr std::uint64_t from_look_to_look_ns = 2'100'000'000;
  take(3);
  turns(1, from_look_to_look_ns);
  pool_.pretend_available(1);
  turns(1, from_look_to_look_ns);
  EXPECT_EQ(pool_.total(), 17U) << "half of what has stayed free, at each look";
  take(2);
  turns();
  EXPECT_EQ(pool_.total(), 17U) << "nothing is made ahead";
  turns(1, from_look_to_look_ns);
  EXPECT_EQ(pool_.total(), 11U);
  EXPECT_EQ(stage_.control().segments_peak.load(), 32U);
}

// Its threads take these turns by themselves.
TEST_F(SegmentPoolTest, AnswersAWriterInAThreadOfItsOwn) {
  pool_.begin();
  stage_.control().starved_ns.store(journal::monotonic_ns() + 1'000'000'000);
  for (int i = 0; i < 10'000 && free().size() < 36; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(free().size(), 36U);
}

// A server that took up such a stage asked for one more than the cap, of which there were more, and got none.
TEST(GrownStageTest, GrowsByOneMoreThanThereAre) {
  const Scratch scratch("/dev/shm");
  const auto stage = journal::Stage::make(system_files(), scratch / "stage", 1U << 20U, 2, 0).value();
  Log log(LogLevel::error);
  for (std::uint64_t segments = 3; segments < 7; ++segments) {
    SegmentPool pool(stage, 2, log);
    while (pool.warm(journal::monotonic_ns())) {
    }
    ASSERT_TRUE(pool.exhausted());
    pool.grow_beyond_cap();
    const auto now = journal::monotonic_ns();
    stage.control().starved_ns.store(now);
    pool.answer(now);
    ASSERT_EQ(stage.free_segments(), segments);
    ASSERT_EQ(pool.total(), segments);
  }
}

}  // namespace
}  // namespace advectio
