#include "server/weave.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>

namespace advectio {
namespace {

using journal::Record;
using journal::RecordType;

/// Says records as a writer's journal would, and keeps their bytes.
class Says {
 public:
  Record operator()(RecordType type, std::uint32_t turn, std::uint64_t round = 0, std::uint16_t flags = 0) {
    Bytes meta;
    if (type == RecordType::sync || type == RecordType::close) meta = encode(journal::Sync{1, 0, 0, round});
    return record(type, turn, flags, std::move(meta));
  }
  Record settle(std::uint32_t turn, std::vector<std::uint64_t> written, std::vector<std::uint64_t> dropped) {
    return record(RecordType::settle, turn, 0, encode(journal::Settle{std::move(written), std::move(dropped)}));
  }

 private:
  Record record(RecordType type, std::uint32_t turn, std::uint16_t flags, Bytes meta) {
    kept_.push_back(std::move(meta));
    Record r;
    r.type = type;
    r.turn = turn;
    r.flags = flags;
    r.sequence = ++sequence_;
    r.meta = kept_.back();
    return r;
  }
  std::deque<Bytes> kept_;
  std::uint64_t sequence_ = 0;
};

/// Every step there is now: "<writer>:<sequence>", and "|<round>" for the end of a round.
std::vector<std::string> all(Weave& weave) {
  std::vector<std::string> steps;
  while (auto step = weave.next()) {
    if (step->round != 0)
      steps.push_back("|" + std::to_string(step->round));
    else
      steps.push_back(std::to_string(step->parts[0].writer) + ":" + std::to_string(step->parts[0].record.sequence));
  }
  return steps;
}

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Weave, ALaterTurnWaitsForAnEarlierOneOfAnotherWriter) {
  Weave weave(2);
  Says a, b;
  ASSERT_TRUE(weave.take(0, a(RecordType::put, 2)).ok());
  EXPECT_THAT(all(weave), IsEmpty());
  ASSERT_TRUE(weave.take(1, b(RecordType::put, 1)).ok());
  EXPECT_THAT(all(weave), ElementsAre("1:1"));
  ASSERT_TRUE(weave.take(1, b(RecordType::put, 2)).ok());
  EXPECT_THAT(all(weave), ElementsAre("0:1", "1:2"));
}

TEST(Weave, AWriterThatPutsNothingHoldsNobodyUp) {
  Weave weave(2);
  Says a;
  ASSERT_TRUE(weave.take(0, a(RecordType::put, 3)).ok());
  EXPECT_THAT(all(weave), IsEmpty());
  weave.passed(1, 3);
  EXPECT_THAT(all(weave), ElementsAre("0:1"));
}

TEST(Weave, ARoundEndsWhenEveryWriterHasSaidSoAndNothingOfTheNextComesBefore) {
  Weave weave(2);
  Says a, b;
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 1), a(RecordType::put, 3)})
    ASSERT_TRUE(weave.take(0, r).ok());
  weave.passed(1, 9);
  EXPECT_THAT(all(weave), ElementsAre("0:1"));
  EXPECT_EQ(weave.given(0), 1U);
  ASSERT_TRUE(weave.take(1, b(RecordType::put, 1)).ok());
  ASSERT_TRUE(weave.take(1, b(RecordType::sync, 2, 1)).ok());
  EXPECT_THAT(all(weave), ElementsAre("1:1", "|1", "0:3"));
  EXPECT_EQ(weave.given(0), 3U);
}

TEST(Weave, APendingBlockCountsFromTheWaitOnOrNotAtAll) {
  Weave weave(1);
  Says a;
  ASSERT_TRUE(weave.take(0, a(RecordType::put, 1, 0, journal::flag_pending)).ok());
  ASSERT_TRUE(weave.take(0, a(RecordType::put, 1, 0, journal::flag_pending)).ok());
  ASSERT_TRUE(weave.take(0, a(RecordType::put, 2)).ok());
  EXPECT_THAT(all(weave), ElementsAre("0:3"));
  EXPECT_EQ(weave.given(0), 0U);  // the segments of what is pending stay
  ASSERT_TRUE(weave.take(0, a.settle(3, {2}, {1})).ok());
  EXPECT_THAT(all(weave), ElementsAre("0:2"));
  EXPECT_EQ(weave.given(0), 4U);
}

TEST(Weave, AfterARestartWhatWasCommittedIsNotSaidAgain) {
  Weave weave(2);
  Says a, b;
  // Writer 0's records up to its first sync were committed, and those of writer 1 too, but a block was pending.
  weave.resume(0, 2, 1);
  weave.resume(1, 0, 1);
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 1), a(RecordType::sync, 3, 2)})
    ASSERT_TRUE(weave.take(0, r).ok());
  for (const auto& r : {b(RecordType::put, 1, 0, journal::flag_pending), b(RecordType::sync, 2, 1),
                        b.settle(3, {1}, {}), b(RecordType::sync, 4, 2)})
    ASSERT_TRUE(weave.take(1, r).ok());
  EXPECT_THAT(all(weave), ElementsAre("1:1", "|2"));
}

TEST(Weave, AtAnyPriceGivesWhatWaitsForOthers) {
  Weave weave(2);
  Says a, b;
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 1), a(RecordType::put, 3),
                        a(RecordType::put, 3, 0, journal::flag_pending)})
    ASSERT_TRUE(weave.take(0, r).ok());
  EXPECT_THAT(all(weave), IsEmpty());
  std::vector<std::uint64_t> given;
  while (auto step = weave.next_at_any_price()) given.push_back(step->parts[0].record.sequence);
  EXPECT_THAT(given, ElementsAre(1, 2, 3));
  EXPECT_EQ(weave.next_pending()->parts[0].record.sequence, 4U);
  EXPECT_FALSE(weave.next_pending());
  EXPECT_EQ(weave.given(0), 4U);
  // The round ends all the same when the other has said it.
  ASSERT_TRUE(weave.take(1, b(RecordType::sync, 2, 1)).ok());
  EXPECT_THAT(all(weave), ElementsAre("|1"));
}

TEST(Weave, AtAnyPriceGivesAlsoAClose) {
  Weave weave(3);
  Says a, b, c;
  ASSERT_TRUE(weave.take(0, a(RecordType::put, 1)).ok());
  ASSERT_TRUE(weave.take(0, a(RecordType::close, 2, 1)).ok());
  ASSERT_TRUE(weave.take(1, b(RecordType::close, 2, 1)).ok());
  std::vector<std::string> given;
  while (auto step = weave.next_at_any_price())
    given.push_back(std::to_string(step->parts[0].writer) + ":" + std::to_string(step->parts[0].record.sequence));
  EXPECT_THAT(given, ElementsAre("0:1", "0:2", "1:1"));
  EXPECT_EQ(weave.given(0), 2U);
  // The last one ends the round.
  ASSERT_TRUE(weave.take(2, c(RecordType::put, 1)).ok());
  ASSERT_TRUE(weave.take(2, c(RecordType::close, 2, 1)).ok());
  EXPECT_THAT(all(weave), ElementsAre("2:1", "|1"));
}

TEST(Weave, AnyInterleavingOfTheJournalsGivesTurnsInOrderWithinEveryRound) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::size_t writers = 1 + random() % 5;
    std::vector<std::vector<Record>> journals(writers);
    std::vector<Says> says(writers);
    std::size_t expected = 0;
    std::uint32_t turn = 0;
    for (std::uint64_t round = 1; round <= 4; ++round) {
      for (int call = 0; call < 6; ++call) {
        ++turn;
        for (std::size_t w = 0; w < writers; ++w)
          for (unsigned n = random() % 3; n-- > 0; ++expected) journals[w].push_back(says[w](RecordType::put, turn));
      }
      ++turn;
      for (std::size_t w = 0; w < writers; ++w) journals[w].push_back(says[w](RecordType::sync, turn, round));
    }
    Weave weave(writers);
    std::vector<std::size_t> at(writers, 0);
    std::uint32_t last = 0;
    std::uint64_t rounds = 0;
    std::size_t records = 0;
    for (;;) {
      std::vector<std::size_t> left;
      for (std::size_t w = 0; w < writers; ++w)
        if (at[w] < journals[w].size()) left.push_back(w);
      if (left.empty()) break;
      const auto w = left[random() % left.size()];
      ASSERT_TRUE(weave.take(w, journals[w][at[w]++]).ok());
      while (auto step = weave.next()) {
        if (step->round != 0) {
          ASSERT_EQ(step->round, ++rounds) << "seed " << seed;
          ASSERT_EQ(step->parts.size(), writers);
          continue;
        }
        ++records;
        ASSERT_GE(step->parts[0].record.turn, last) << "seed " << seed;
        ASSERT_EQ((step->parts[0].record.turn - 1) / 7, rounds) << "seed " << seed;
        last = step->parts[0].record.turn;
      }
    }
    EXPECT_EQ(rounds, 4U);
    EXPECT_EQ(records, expected);
  }
}

}  // namespace
}  // namespace advectio
