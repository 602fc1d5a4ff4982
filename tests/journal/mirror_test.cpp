// Mirrors of journals of other nodes, and the nodes that are only simulated.
#include "journal/mirror.h"

#include <gtest/gtest.h>

#include <cstring>

#include "journal/nodes.h"
#include "journal/reader.h"
#include "journal/scratch.h"
#include "journal/writer.h"

namespace advectio::journal {
namespace {

constexpr std::uint64_t segment_bytes = 16 * 1024;

/// Two stages: a process writes in one, the other has a mirror of its journal.
class MirrorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto* stage : {&there_, &here_}) {
      auto made = Stage::make(system_files(), scratch_ / (stage == &there_ ? "there" : "here"), segment_bytes, 8,
                              1'000'000'000);
      ASSERT_TRUE(made.ok());
      *stage = std::move(made).value();
    }
    add_segments(there_, 8);
    auto w = Writer::open(there_, {3, 1, "node1", "model"});
    ASSERT_TRUE(w.ok());
    writer_ = std::move(w).value();
  }
  /// The stage may have no more than those.
  static void add_segments(const Stage& stage, int n) {
    stage.control().segments_total.store(static_cast<std::uint64_t>(n));
    stage.control().next_segment.store(static_cast<std::uint64_t>(n));
    stage.control().segments_limit.store(static_cast<std::uint64_t>(n));
    for (int i = 0; i < n; ++i) {
      const std::string path = stage.pool() + "/s" + std::to_string(i);
      auto file = system_files().open(path, OpenMode::create_new, 0600);
      ASSERT_TRUE(file.ok() && (*file)->reserve(segment_bytes).ok());
    }
  }
  /// Records `first` … `last`, each of 4 KB that hold its number.
  void write(int last, int first = 1) {
    for (int i = first; i <= last; ++i) {
      const auto fill = [i](std::byte* to) {
        std::memset(to, i, 4000);
        return crc32c(to, 4000);
      };
      ASSERT_TRUE(writer_->append(RecordType::put, 0, 1, {}, 4000, fill, {}).ok());
    }
  }
  /// Send what `wanted` says. The number of records for which there was room.
  int send(Mirror& mirror, Reader& from, const std::function<bool(const Record&)>& wanted) {
    int sent = 0;
    for (;;) {
      auto next = from.next();
      EXPECT_TRUE(next.ok());
      if (!next->has_value()) return sent;
      const Record& r = **next;
      if (!wanted(r)) continue;
      auto* to = mirror.room(r.whole.size(), mappings_);
      if (to == nullptr) return sent;
      std::memcpy(to, r.whole.data(), r.whole.size());
      mirror.publish(r.whole.size(), r.sequence);
      ++sent;
    }
  }
  std::unique_ptr<Reader> reader(const Stage& stage, const std::string& name) {
    auto r = Reader::open(system_files(), stage.journals() + "/" + name, Trust::published);
    EXPECT_TRUE(r.ok());
    return std::move(r).value();
  }
  std::unique_ptr<Mirror> mirror(const Reader& of) {
    auto m = Mirror::open(here_, "node1", writer_->name(), of.writer());
    EXPECT_TRUE(m.ok());
    return std::move(m).value();
  }
  static std::vector<std::uint64_t> sequences(Reader& r) {
    std::vector<std::uint64_t> found;
    for (;;) {
      auto next = r.next();
      EXPECT_TRUE(next.ok()) << next.error().message;
      if (!next.ok() || !next->has_value()) return found;
      EXPECT_TRUE(verify_payload(**next).ok());
      EXPECT_EQ((*next)->payload[0], static_cast<std::byte>((*next)->sequence));
      found.push_back((*next)->sequence);
    }
  }

  Scratch scratch_{"/dev/shm"};
  Stage there_, here_;
  std::unique_ptr<Writer> writer_;
  SegmentMappings mappings_;
};

TEST_F(MirrorTest, HasTheRecordsThatWereSentAndNoOthers) {
  add_segments(here_, 8);
  write(12);
  const auto from = reader(there_, writer_->name());
  const auto m = mirror(*from);
  EXPECT_EQ(send(*m, *from, [](const Record& r) { return r.sequence % 3 != 0; }), 8);
  const auto r = reader(here_, "node1@" + writer_->name());
  EXPECT_EQ(sequences(*r), (std::vector<std::uint64_t>{1, 2, 4, 5, 7, 8, 10, 11}));
  EXPECT_EQ(r->journal(), from->journal());
  EXPECT_GT(r->held().size(), 1U);
}

TEST_F(MirrorTest, ItsWriterLivesAsLongAsItDoes) {
  add_segments(here_, 8);
  write(1);
  const auto from = reader(there_, writer_->name());
  auto m = mirror(*from);
  EXPECT_EQ(send(*m, *from, [](const Record&) { return true; }), 1);
  const auto r = reader(here_, "node1@" + writer_->name());
  EXPECT_TRUE(r->writer_alive());
  m.reset();
  EXPECT_FALSE(r->writer_alive());
  EXPECT_EQ(sequences(*r).size(), 1U);
  EXPECT_TRUE(r->held().back().done);
}

TEST_F(MirrorTest, ASealedSegmentGoesBackAndAnEmptyOneStays) {
  add_segments(here_, 2);
  write(3);
  const auto from = reader(there_, writer_->name());
  const auto m = mirror(*from);
  m->seal();  // nothing to seal yet
  EXPECT_EQ(send(*m, *from, [](const Record& r) { return r.sequence == 1; }), 1);
  m->seal();
  ASSERT_NE(m->room(1024, mappings_), nullptr);
  m->seal();  // with nothing in it, it stays for the next record
  const auto r = reader(here_, "node1@" + writer_->name());
  EXPECT_EQ(sequences(*r).size(), 1U);
  ASSERT_TRUE(r->held().front().done);
  EXPECT_TRUE(r->release_oldest(here_, true).ok());
  EXPECT_EQ(system_files().list(here_.pool())->size(), 1U);
}

TEST_F(MirrorTest, WithNoSegmentThereIsNoRoomAndNothingIsLost) {
  add_segments(here_, 1);
  write(6);
  const auto from = reader(there_, writer_->name());
  const auto m = mirror(*from);
  EXPECT_EQ(send(*m, *from, [](const Record&) { return true; }), 3);
  EXPECT_EQ(m->room(4096, mappings_), nullptr);
  const auto r = reader(here_, "node1@" + writer_->name());
  EXPECT_EQ(sequences(*r), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(MirrorTest, MakesSegmentsUpToTheCapAndALongOneForALongRecord) {
  add_segments(here_, 0);
  here_.control().segments_limit.store(5);
  write(2);
  const Bytes field(2 * segment_bytes + 8192, std::byte{3});
  ASSERT_TRUE(writer_
                  ->append(RecordType::put, 0, 1, {}, field.size(),
                           [&](std::byte* to) { return copy_crc32c(to, field.data(), field.size()); }, {})
                  .ok());
  write(5, 4);
  const auto from = reader(there_, writer_->name());
  const auto m = mirror(*from);
  EXPECT_EQ(send(*m, *from, [](const Record&) { return true; }), 5);
  EXPECT_EQ(here_.control().segments_total.load(), 5U) << "one, three for the long record, one";
  const auto r = reader(here_, "node1@" + writer_->name());
  EXPECT_EQ(sequences(*r), (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
}

TEST_F(MirrorTest, AServerThatBeginsThrowsThemAwayAndKeepsJournals) {
  add_segments(here_, 3);
  write(5);
  const auto from = reader(there_, writer_->name());
  const auto m = mirror(*from);
  EXPECT_EQ(send(*m, *from, [](const Record&) { return true; }), 5);
  auto own = Writer::open(here_, {0, 1, "here", "model"});
  ASSERT_TRUE(own.ok());
  ASSERT_TRUE(remove_mirrors(here_).ok());
  const auto journals = system_files().list(here_.journals());
  ASSERT_TRUE(journals.ok());
  EXPECT_EQ(*journals, std::vector<std::string>{(*own)->name()});
  (*own).reset();
  // All segments are free, but for one that the other journal may have taken ahead of need.
  const auto free = system_files().list(here_.pool());
  const auto taken = system_files().list(here_.journals() + "/" + journals->front());
  ASSERT_TRUE(free.ok() && taken.ok());
  EXPECT_EQ(free->size() + taken->size() - 1, 3U);  // beside its shared state
}

/// A server that begins again mirrors the same journals in the segments of the mirrors before.
TEST_F(MirrorTest, WhatAnEarlierOneHasLeftInASegmentIsNotRead) {
  add_segments(here_, 1);
  write(3);
  const auto all = [](const Record&) { return true; };
  auto from = reader(there_, writer_->name());
  auto m = mirror(*from);
  EXPECT_EQ(send(*m, *from, all), 3);
  m.reset();
  ASSERT_TRUE(remove_mirrors(here_).ok());

  from = reader(there_, writer_->name());
  m = mirror(*from);
  const auto r = reader(here_, "node1@" + writer_->name());
  const std::string taken = here_.journals() + "/node1@" + writer_->name() + "/00000000-s0";
  ASSERT_TRUE(system_files().rename(here_.pool() + "/s0", taken).ok());
  EXPECT_TRUE(sequences(*r).empty()) << "taken, and its header is still the earlier one's";
  ASSERT_TRUE(system_files().rename(taken, here_.pool() + "/s0").ok());

  EXPECT_EQ(send(*m, *from, [](const Record& record) { return record.sequence == 1; }), 1);
  m.reset();
  r->set_writer_gone();
  EXPECT_EQ(sequences(*r), std::vector<std::uint64_t>{1}) << "behind what was sent are the earlier one's records";
}

TEST(SimulatedNodes, AreReadAndRanksFindTheirs) {
  const auto nodes = simulated_nodes("n0:4,n1:1,io:0");
  ASSERT_TRUE(nodes.ok());
  ASSERT_EQ(nodes->size(), 3U);
  EXPECT_EQ((*nodes)[2].name, "io");
  EXPECT_EQ((*nodes)[2].ranks, 0U);
  for (std::int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(node_of_rank(*nodes, rank), 0U);
  EXPECT_EQ(node_of_rank(*nodes, 4), 1U);
  EXPECT_EQ(node_of_rank(*nodes, 99), 1U);  // the last that has ranks
  EXPECT_EQ(node_of_rank(*nodes, -1), 0U);
  EXPECT_EQ(stage_directory("/dev/shm/run", *nodes, 1), "/dev/shm/run/n1");
  EXPECT_EQ(stage_directory("/dev/shm/run", {}, 0), "/dev/shm/run");
  EXPECT_TRUE(simulated_nodes(nullptr)->empty());
  EXPECT_TRUE(simulated_nodes("")->empty());
}

TEST(SimulatedNodes, WhatIsWrongIsNamed) {
  for (const char* text :
       {"n0", "n0:", ":4", "n0:x", "n0:-1", "n0:4,,n1:4", "../x:4", "n0:4,n0:4", ".hidden:1", "n0:4x"}) {
    const auto nodes = simulated_nodes(text);
    ASSERT_FALSE(nodes.ok()) << text;
    EXPECT_NE(nodes.error().message.find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace advectio::journal
