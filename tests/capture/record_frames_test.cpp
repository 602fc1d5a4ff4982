// A block may begin a new record, and may end the frame before it.
#include "capture/record_frames.h"

#include <gtest/gtest.h>

namespace advectio::capture {
namespace {

class RecordFramesTest : public ::testing::Test {
 protected:
  /// Variables 0 and 1 along the unlimited dimension, 2 without it.
  static Schema schema(std::uint64_t chunk = 1) {
    Schema s;
    s.dimensions = {{"time", 0, true}, {"x", 4, false}, {"other", 0, true}};
    for (int i = 0; i < 3; ++i) s.variables.emplace_back();
    s.variables[0].dimensions = {0, 1};
    s.variables[0].chunks = {chunk, 4};
    s.variables[1].dimensions = {0};
    s.variables[1].chunks = {512};
    s.variables[2].dimensions = {1};
    return s;
  }
  static Box box(std::uint32_t variable, std::uint64_t record, std::uint64_t records) {
    if (variable == 2) return {{0}, {4}};
    return variable == 0 ? Box{{record, 0}, {records, 4}} : Box{{record}, {records}};
  }
  /// Whether a frame ends before it.
  bool put(std::uint32_t variable, std::uint64_t record, std::uint64_t records = 1) {
    const auto at = box(variable, record, records);
    const bool ends = frames_.ends_before(variable, at);
    frames_.note(variable, at, {});
    return ends;
  }
  RecordFrames frames_{false};
};

TEST_F(RecordFramesTest, ARecordWithAllVariablesEndsWhereTheNextBegins) {
  frames_.learn(schema());
  EXPECT_FALSE(put(2, 0));
  EXPECT_FALSE(put(1, 0));
  EXPECT_FALSE(put(0, 0));
  EXPECT_TRUE(put(1, 1));
  EXPECT_FALSE(put(0, 1));
  EXPECT_TRUE(put(0, 2));
  EXPECT_FALSE(put(1, 2));
  EXPECT_FALSE(put(0, 0)) << "a rewrite of an earlier record";
}

TEST_F(RecordFramesTest, OneVariableForAllRecordsAndThenTheNextEndsFramesWithTheLast) {
  frames_.learn(schema());
  for (std::uint64_t r = 0; r < 4; ++r) EXPECT_FALSE(put(0, r)) << r;
  EXPECT_FALSE(put(1, 0));
  for (std::uint64_t r = 1; r < 4; ++r) EXPECT_TRUE(put(1, r)) << r;
}

TEST_F(RecordFramesTest, SmallFramesThatComeSoonGoOnOnceThereAreManyOfThem) {
  constexpr std::uint64_t second = 1'000'000'000, soon = second / 100, small = 8, large = 4096;
  RecordFrames each(true);
  auto now = second;
  for (int i = 0; i < 1000; ++i, now += soon) {
    ASSERT_FALSE(frames_.goes_on(small, now)) << i;
    for (auto* f : {&frames_, &each}) f->note_end(small, now);
  }
  EXPECT_TRUE(frames_.goes_on(small, now));
  EXPECT_FALSE(each.goes_on(small, now)) << "frames: record";
  EXPECT_FALSE(frames_.goes_on(large, now));
  EXPECT_FALSE(frames_.goes_on(small, now + second));
  frames_.note_end(small, now + second);
  EXPECT_TRUE(frames_.goes_on(small, now + second + soon)) << "soon after that one";
}

TEST_F(RecordFramesTest, LargeFramesAreNotCounted) {
  for (int i = 0; i < 2000; ++i) frames_.note_end(4096, 1);
  EXPECT_FALSE(frames_.goes_on(8, 2));
}

TEST_F(RecordFramesTest, TheTimesOfAllRecordsMayComeFirst) {
  frames_.learn(schema());
  EXPECT_FALSE(put(1, 0, 10));
  EXPECT_FALSE(put(0, 0));
  EXPECT_TRUE(put(0, 1));
}

TEST_F(RecordFramesTest, AChunkOfSeveralRecordsIsNotWrittenInParts) {
  frames_.learn(schema(2));
  for (std::uint64_t r = 0; r < 6; ++r) {
    EXPECT_EQ(put(0, r), r == 2 || r == 4) << r;
    EXPECT_FALSE(put(1, r));
  }
}

TEST_F(RecordFramesTest, AnyNextRecordEndsAFrameWhereThatIsAskedFor) {
  frames_ = RecordFrames(true);
  frames_.learn(schema(2));
  EXPECT_FALSE(put(0, 0));
  EXPECT_TRUE(put(0, 1));
  EXPECT_TRUE(put(0, 2));
}

TEST_F(RecordFramesTest, TwoUnlimitedDimensionsInUseEndNone) {
  auto two = schema();
  two.variables[1].dimensions = {2};
  frames_.learn(two);
  for (std::uint64_t r = 0; r < 3; ++r) {
    EXPECT_FALSE(put(0, r));
    EXPECT_FALSE(put(1, r));
  }
}

TEST_F(RecordFramesTest, AVariableThatIsDefinedLaterIsWaitedFor) {
  auto first = schema();
  first.variables.resize(1);
  frames_.learn(first);
  put(0, 0);
  EXPECT_TRUE(put(0, 1));
  frames_.learn(schema());
  EXPECT_FALSE(put(0, 2));
  EXPECT_FALSE(put(1, 2));
  EXPECT_TRUE(put(1, 3));
}

}  // namespace
}  // namespace advectio::capture
