#include "assembly/collective_sequencer.h"

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
  Record operator()(RecordType type, std::uint32_t collective_index, std::uint64_t sync_index = 0,
                    std::uint16_t flags = 0) {
    Bytes meta;
    if (type == RecordType::sync || type == RecordType::close)
      meta = journal::encode(journal::Sync{1, 0, 0, journal::SyncIndex{sync_index}});
    return record(type, collective_index, flags, std::move(meta));
  }
  Record settle(std::uint32_t collective_index, std::vector<std::uint64_t> written,
                std::vector<std::uint64_t> dropped) {
    return record(RecordType::settle, collective_index, 0,
                  encode(journal::Settle{std::move(written), std::move(dropped)}));
  }

 private:
  Record record(RecordType type, std::uint32_t collective_index, std::uint16_t flags, Bytes meta) {
    kept_.push_back(std::move(meta));
    Record r;
    r.type = type;
    r.collective_index = collective_index;
    r.flags = flags;
    r.sequence = ++sequence_;
    r.meta = kept_.back();
    return r;
  }
  std::deque<Bytes> kept_;
  std::uint64_t sequence_ = 0;
};

/// Every step there is now: "<writer>:<sequence>", and "|<sync>" for the end of a sync.
std::vector<std::string> all(CollectiveSequencer& sequencer) {
  std::vector<std::string> steps;
  while (auto step = sequencer.next()) {
    if (number(step->sync_index) != 0)
      steps.push_back("|" + std::to_string(number(step->sync_index)));
    else
      steps.push_back(std::to_string(step->parts[0].writer) + ":" + std::to_string(step->parts[0].record.sequence));
  }
  return steps;
}

using testing::ElementsAre;
using testing::IsEmpty;

TEST(CollectiveSequencer, ALaterTurnWaitsForAnEarlierOneOfAnotherWriter) {
  CollectiveSequencer sequencer(2);
  Says a, b;
  ASSERT_TRUE(sequencer.take(0, a(RecordType::put, 2)).ok());
  EXPECT_THAT(all(sequencer), IsEmpty());
  ASSERT_TRUE(sequencer.take(1, b(RecordType::put, 1)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("1:1"));
  ASSERT_TRUE(sequencer.take(1, b(RecordType::put, 2)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("0:1", "1:2"));
}

TEST(CollectiveSequencer, AWriterThatPutsNothingHoldsNobodyUp) {
  CollectiveSequencer sequencer(2);
  Says a;
  ASSERT_TRUE(sequencer.take(0, a(RecordType::put, 3)).ok());
  EXPECT_THAT(all(sequencer), IsEmpty());
  sequencer.passed(1, 3);
  EXPECT_THAT(all(sequencer), ElementsAre("0:1"));
}

TEST(CollectiveSequencer, ARoundEndsWhenEveryWriterHasSaidSoAndNothingOfTheNextComesBefore) {
  CollectiveSequencer sequencer(2);
  Says a, b;
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 1), a(RecordType::put, 3)})
    ASSERT_TRUE(sequencer.take(0, r).ok());
  sequencer.passed(1, 9);
  EXPECT_THAT(all(sequencer), ElementsAre("0:1"));
  EXPECT_EQ(sequencer.given(0), 1U);
  ASSERT_TRUE(sequencer.take(1, b(RecordType::put, 1)).ok());
  ASSERT_TRUE(sequencer.take(1, b(RecordType::sync, 2, 1)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("1:1", "|1", "0:3"));
  EXPECT_EQ(sequencer.given(0), 3U);
}

TEST(CollectiveSequencer, APendingBlockCountsFromTheWaitOnOrNotAtAll) {
  CollectiveSequencer sequencer(1);
  Says a;
  ASSERT_TRUE(sequencer.take(0, a(RecordType::put, 1, 0, journal::flag_pending)).ok());
  ASSERT_TRUE(sequencer.take(0, a(RecordType::put, 1, 0, journal::flag_pending)).ok());
  ASSERT_TRUE(sequencer.take(0, a(RecordType::put, 2)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("0:3"));
  EXPECT_EQ(sequencer.given(0), 0U);  // the segments of what is pending stay
  ASSERT_TRUE(sequencer.take(0, a.settle(3, {2}, {1})).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("0:2"));
  EXPECT_EQ(sequencer.given(0), 4U);
}

TEST(CollectiveSequencer, AfterARestartWhatWasCommittedIsNotSaidAgain) {
  CollectiveSequencer sequencer(2);
  Says a, b;
  // Writer 0's records up to its first sync were committed, and those of writer 1 too, but a block was pending.
  sequencer.resume(0, 2, journal::SyncIndex{1});
  sequencer.resume(1, 0, journal::SyncIndex{1});
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 1), a(RecordType::sync, 3, 2)})
    ASSERT_TRUE(sequencer.take(0, r).ok());
  for (const auto& r : {b(RecordType::put, 1, 0, journal::flag_pending), b(RecordType::sync, 2, 1),
                        b.settle(3, {1}, {}), b(RecordType::sync, 4, 2)})
    ASSERT_TRUE(sequencer.take(1, r).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("1:1", "|2"));
}

TEST(CollectiveSequencer, AtAnyPriceGivesWhatWaitsForOthers) {
  CollectiveSequencer sequencer(2);
  Says a, b;
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 1), a(RecordType::put, 3),
                        a(RecordType::put, 3, 0, journal::flag_pending)})
    ASSERT_TRUE(sequencer.take(0, r).ok());
  EXPECT_THAT(all(sequencer), IsEmpty());
  std::vector<std::uint64_t> given;
  while (auto step = sequencer.next_at_any_price()) given.push_back(step->parts[0].record.sequence);
  EXPECT_THAT(given, ElementsAre(1, 2, 3));
  EXPECT_EQ(sequencer.next_pending()->parts[0].record.sequence, 4U);
  EXPECT_FALSE(sequencer.next_pending());
  EXPECT_EQ(sequencer.given(0), 4U);
  // The sync ends all the same when the other has said it.
  ASSERT_TRUE(sequencer.take(1, b(RecordType::sync, 2, 1)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("|1"));
}

TEST(CollectiveSequencer, ARecordEndsWhereAllHaveComeToTheCollectiveIndexOfItsEnd) {
  CollectiveSequencer sequencer(2);
  Says a, b;
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 0, journal::flag_record), a(RecordType::put, 2)})
    ASSERT_TRUE(sequencer.take(0, r).ok());
  EXPECT_THAT(all(sequencer), IsEmpty());
  ASSERT_TRUE(sequencer.take(1, b(RecordType::put, 1)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("0:1", "1:1"));
  ASSERT_TRUE(sequencer.take(1, b(RecordType::put, 2)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("0:2", "0:3", "1:2"));
}

TEST(CollectiveSequencer, WhatIsPutInACollectiveCallWaitsForTheEndOfARecordInThatCall) {
  CollectiveSequencer sequencer(2);
  Says a, b;
  ASSERT_TRUE(sequencer.passed(0, 2));
  for (const auto& r : {b(RecordType::put, 2), b(RecordType::put, 2, 0, journal::flag_collective)})
    ASSERT_TRUE(sequencer.take(1, r).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("1:1"));
  ASSERT_TRUE(sequencer.take(0, a(RecordType::sync, 2, 0, journal::flag_record)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("0:1"));
  EXPECT_TRUE(sequencer.passed(0, 3));
  EXPECT_THAT(all(sequencer), ElementsAre("1:2"));
}

TEST(CollectiveSequencer, AtAnyPriceLeavesTheEndOfARecordForLater) {
  CollectiveSequencer sequencer(2);
  Says a, b;
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 0, journal::flag_record), a(RecordType::put, 2)})
    ASSERT_TRUE(sequencer.take(0, r).ok());
  std::vector<std::uint64_t> given;
  while (auto step = sequencer.next_at_any_price()) given.push_back(step->parts[0].record.sequence);
  EXPECT_THAT(given, ElementsAre(1, 3));
  EXPECT_EQ(sequencer.given(0), 3U);
  ASSERT_TRUE(sequencer.take(1, b(RecordType::put, 1)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("1:1"));
  EXPECT_TRUE(sequencer.passed(1, 2));
  EXPECT_THAT(all(sequencer), ElementsAre("0:2"));
}

// Records behind the end of another are committed; then the commit of that end fails, and all since comes again.
TEST(CollectiveSequencer, RemembersEndsOfRecordsThatAreNotCommitted) {
  for (const bool committed : {false, true}) {
    SCOPED_TRACE(committed);
    CollectiveSequencer sequencer(2), again(2);
    Says a, b;
    for (const auto& r :
         {a(RecordType::put, 1), a(RecordType::sync, 2, 0, journal::flag_record), a(RecordType::put, 2)})
      ASSERT_TRUE(sequencer.take(0, r).ok());
    while (sequencer.next_at_any_price()) continue;
    sequencer.note_commit();
    EXPECT_TRUE(sequencer.passed(1, 2));
    EXPECT_THAT(all(sequencer), ElementsAre("0:2"));
    if (committed) sequencer.note_commit();
    again.resume(0, 3, {});
    again.remember(sequencer);
    EXPECT_THAT(all(again), IsEmpty());
    EXPECT_TRUE(again.passed(0, 2));
    EXPECT_TRUE(again.passed(1, 2));
    if (committed) {
      EXPECT_THAT(all(again), IsEmpty());
    } else {
      EXPECT_THAT(all(again), ElementsAre("0:2"));
    }
  }
}

TEST(CollectiveSequencer, TellsTheNextServerWhichEndsOfRecordsWereOvertaken) {
  CollectiveSequencer sequencer(2), again(2);
  Says a, b;
  for (const auto& r : {a(RecordType::put, 1), a(RecordType::sync, 2, 0, journal::flag_record), a(RecordType::put, 2)})
    ASSERT_TRUE(sequencer.take(0, r).ok());
  EXPECT_THAT(sequencer.overtaken(false), IsEmpty());
  const auto ahead = sequencer.overtaken(true);
  while (sequencer.next_at_any_price()) continue;
  const auto ends = sequencer.overtaken(false);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ahead, ends);
  EXPECT_EQ(ends[0].sequence, 2U);
  EXPECT_EQ(ends[0].collective_index, 2U);

  again.resume(0, 3, {});
  again.remember(ends);
  EXPECT_TRUE(again.passed(0, 3));
  ASSERT_TRUE(again.take(1, b(RecordType::put, 1)).ok());
  EXPECT_THAT(all(again), ElementsAre("1:1"));
  EXPECT_TRUE(again.passed(1, 2));
  EXPECT_THAT(all(again), ElementsAre("0:2"));
  EXPECT_THAT(again.overtaken(false), IsEmpty());

  // It died before it had committed what is behind that end, which comes again.
  CollectiveSequencer from_the_start(2);
  from_the_start.remember(ends);
  EXPECT_THAT(from_the_start.overtaken(false), IsEmpty());
}

TEST(CollectiveSequencer, AtAnyPriceGivesAlsoAClose) {
  CollectiveSequencer sequencer(3);
  Says a, b, c;
  ASSERT_TRUE(sequencer.take(0, a(RecordType::put, 1)).ok());
  ASSERT_TRUE(sequencer.take(0, a(RecordType::close, 2, 1)).ok());
  ASSERT_TRUE(sequencer.take(1, b(RecordType::close, 2, 1)).ok());
  std::vector<std::string> given;
  while (auto step = sequencer.next_at_any_price())
    given.push_back(std::to_string(step->parts[0].writer) + ":" + std::to_string(step->parts[0].record.sequence));
  EXPECT_THAT(given, ElementsAre("0:1", "0:2", "1:1"));
  EXPECT_EQ(sequencer.given(0), 2U);
  // The last one ends the sync.
  ASSERT_TRUE(sequencer.take(2, c(RecordType::put, 1)).ok());
  ASSERT_TRUE(sequencer.take(2, c(RecordType::close, 2, 1)).ok());
  EXPECT_THAT(all(sequencer), ElementsAre("2:1", "|1"));
}

TEST(CollectiveSequencer, AnyInterleavingOfTheJournalsGivesTurnsInOrderWithinEveryRound) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::size_t writers = 1 + random() % 5;
    std::vector<std::vector<Record>> journals(writers);
    std::vector<Says> says(writers);
    std::size_t expected = 0;
    std::uint32_t collective_index = 0;
    for (std::uint64_t sync_index = 1; sync_index <= 4; ++sync_index) {
      for (int call = 0; call < 6; ++call) {
        ++collective_index;
        for (std::size_t w = 0; w < writers; ++w)
          for (unsigned n = random() % 3; n-- > 0; ++expected)
            journals[w].push_back(says[w](RecordType::put, collective_index));
      }
      ++collective_index;
      for (std::size_t w = 0; w < writers; ++w)
        journals[w].push_back(says[w](RecordType::sync, collective_index, sync_index));
    }
    CollectiveSequencer sequencer(writers);
    std::vector<std::size_t> at(writers, 0);
    std::uint32_t last = 0;
    std::uint64_t sync_indices = 0;
    std::size_t records = 0;
    for (;;) {
      std::vector<std::size_t> left;
      for (std::size_t w = 0; w < writers; ++w)
        if (at[w] < journals[w].size()) left.push_back(w);
      if (left.empty()) break;
      const auto w = left[random() % left.size()];
      ASSERT_TRUE(sequencer.take(w, journals[w][at[w]++]).ok());
      while (auto step = sequencer.next()) {
        if (number(step->sync_index) != 0) {
          ASSERT_EQ(number(step->sync_index), ++sync_indices) << "seed " << seed;
          ASSERT_EQ(step->parts.size(), writers);
          continue;
        }
        ++records;
        ASSERT_GE(step->parts[0].record.collective_index, last) << "seed " << seed;
        ASSERT_EQ((step->parts[0].record.collective_index - 1) / 7, sync_indices) << "seed " << seed;
        last = step->parts[0].record.collective_index;
      }
    }
    EXPECT_EQ(sync_indices, 4U);
    EXPECT_EQ(records, expected);
  }
}

}  // namespace
}  // namespace advectio
