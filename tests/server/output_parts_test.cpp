#include <gtest/gtest.h>

#include "cluster/peers.h"
#include "server/journal_followed.h"
#include "server/output.h"
#include "server/run.h"

namespace advectio {
namespace {

using Share = SharedWriters::Share;

TEST(SharedWritersTest, AWriterThatHasClosedIsNotLost) {
  Share share;
  share.lose();
  EXPECT_TRUE(share.over());
  EXPECT_FALSE(share.closed());
  share.note(RecordType::put);
  EXPECT_FALSE(share.closed());
  share.note(RecordType::close);
  share.lose();
  EXPECT_TRUE(share.closed());
}

TEST(SharedWritersTest, OneThatAbortsIsEnough) {
  SharedWriters writers;
  writers.shares.resize(2);
  writers.shares[0].note(RecordType::close);
  EXPECT_FALSE(writers.all_closed());
  writers.shares[1].note(RecordType::abort);
  EXPECT_TRUE(writers.any_aborted());
  EXPECT_FALSE(writers.all_closed());
}

TEST(ProgressTest, WhatIsNotDurableComesAgain) {
  Progress progress;
  progress.take_up(9);
  progress.take_up_frames(3);
  progress.note_durable(6, 2);
  progress.back_to_durable();
  EXPECT_EQ(progress.visible, 6U);
  EXPECT_EQ(progress.seen, 6U);
  EXPECT_EQ(progress.frames_ended, 3U) << "until the output begins anew";
  progress.back_to_visible();
  EXPECT_EQ(progress.frames_ended, 2U);
}

TEST(WaitingFramesTest, EachIsCommittedByItselfWhereOneHasFailed) {
  WaitingFrames waiting;
  waiting.add(1);
  EXPECT_TRUE(waiting.has_room(100));
  waiting.count(100);
  EXPECT_FALSE(waiting.has_room(100));
  EXPECT_EQ(waiting.take(), std::vector<std::uint64_t>{1});
  waiting.clear();
  EXPECT_TRUE(waiting.has_room(100));
  waiting.allow(false);
  EXPECT_FALSE(waiting.has_room(100));
}

TEST(StallsTest, ClosingAddsToTheLatestFrame) {
  Stalls stalls;
  stalls.note(false, 8);  // there is no frame yet
  stalls.note(true, 1);
  stalls.note(true, 2);
  stalls.note(false, 4);
  EXPECT_EQ(stalls.to_json()["max"], 1) << "the latest has not ended";
  stalls.end_frame();
  EXPECT_EQ(stalls.to_json()["max"], 6);
}

TEST(FileOnDiskTest, ALossOfPowerIsKnownUntilTheFileIsOpened) {
  FileOnDisk file;
  file.note_opened();
  EXPECT_FALSE(file.may_hold_commits());
  file.lose_power();
  file.note_commits();
  EXPECT_TRUE(file.power_lost());
  file.note_opened();
  EXPECT_FALSE(file.power_lost());
  EXPECT_TRUE(file.may_hold_commits());
}

TEST(OwnershipTest, OnlyWhatIsElsewhereIsAnnounced) {
  Ownership ownership;
  EXPECT_FALSE(ownership.is_spread());
  ownership.set_owned();
  EXPECT_TRUE(ownership.owns());
  EXPECT_TRUE(ownership.is_spread());
  ownership.leave_to(3);
  EXPECT_FALSE(ownership.is_announced());
  ownership.note_announced();
  EXPECT_TRUE(ownership.is_elsewhere());
  EXPECT_EQ(ownership.owner(), 3U);
  EXPECT_TRUE(ownership.introduce(7));
  EXPECT_FALSE(ownership.introduce(7));
}

TEST(JournalTest, ABrokenOneStaysBroken) {
  Journal journal;
  EXPECT_FALSE(journal.begun());
  journal.reach_end();
  EXPECT_TRUE(journal.begun());
  journal.look_again();
  EXPECT_FALSE(journal.is_read());
  journal.break_off();
  journal.look_again();
  journal.alive = false;
  EXPECT_TRUE(journal.is_read());
  EXPECT_FALSE(journal.over()) << "nobody knows what else it says";
}

TEST(ShutdownTest, ADrainDoesNotTakeBackThatTheServerLeaves) {
  Shutdown shutdown;
  shutdown.stop();
  EXPECT_FALSE(shutdown.draining());
  shutdown.leave();
  shutdown.drain();
  EXPECT_TRUE(shutdown.leaving());
  EXPECT_TRUE(shutdown.draining());
}

TEST(NoPeersTest, NobodyIsWaitedFor) {
  NoPeers peers;
  EXPECT_TRUE(peers.all_quiet());
  EXPECT_TRUE(peers.all_final());
  EXPECT_TRUE(peers.all_clean());
  EXPECT_FALSE(peers.drain_wanted());
  EXPECT_EQ(peers.unsent(1), UINT64_MAX);
  EXPECT_EQ(peers.snapshots().size(), 1U);
}

}  // namespace
}  // namespace advectio
