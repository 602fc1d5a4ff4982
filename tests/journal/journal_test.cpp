// Properties of the journal: what was appended reads back; damage anywhere never yields a wrong record and never
// loses a whole one before it; segments are recycled; nobody exceeds the cap.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "journal/mirror.h"
#include "journal/reader.h"
#include "journal/scratch.h"
#include "journal/segments.h"
#include "journal/writer.h"
#include "platform/faulty_files.h"

namespace advectio::journal {
namespace {

constexpr std::uint64_t segment_bytes = 64 * 1024;

/// A stage whose segments the test makes itself, as the server would, and which may have no more than those.
class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto stage = Stage::make(system_files(), scratch_ / "run", segment_bytes, 8, 1'000'000'000);
    ASSERT_TRUE(stage.ok());
    stage_ = std::move(stage).value();
    may_have(0);
  }
  /// Writers may make more, up to that number of segments in all.
  void may_have(std::uint64_t segments) const { stage_.control().segments_limit.store(segments); }
  void add_segments(int n) {
    stage_.control().segments_total.fetch_add(static_cast<std::uint64_t>(n));
    stage_.control().next_segment.fetch_add(static_cast<std::uint64_t>(n));
    may_have(stage_.control().segments_total.load());
    for (int i = 0; i < n; ++i) {
      const std::string name = "s" + std::to_string(made_++);
      auto file = system_files().open(stage_.pool() + "/." + name, OpenMode::create_new, 0600);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE((*file)->reserve(segment_bytes).ok());
      ASSERT_TRUE(system_files().rename(stage_.pool() + "/." + name, stage_.pool() + "/" + name).ok());
    }
  }
  /// Until it holds as many segments as it wants: by itself it takes no more.
  static void wait_until_ahead(Writer& w) {
    for (int i = 0; i < 10'000 && !w.is_far_enough_ahead(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(w.is_far_enough_ahead());
  }
  std::unique_ptr<Writer> writer() {
    auto w = Writer::open(stage_, {3, static_cast<std::uint32_t>(::getpid()), "node1", "model"});
    EXPECT_TRUE(w.ok());
    (*w)->keep_ahead(0);
    return std::move(w).value();
  }
  std::unique_ptr<Reader> reader(const std::string& name, Trust trust = Trust::published) {
    auto r = Reader::open(system_files(), stage_.journals() + "/" + name, trust);
    EXPECT_TRUE(r.ok());
    return std::move(r).value();
  }

  struct Said {
    RecordType type;
    std::uint32_t dataset;
    Bytes meta, payload;
  };
  Said random_record(std::mt19937& random) const {
    Said s;
    s.type = static_cast<RecordType>(1 + random() % 6);
    s.dataset = 1 + random() % 3;
    s.meta.resize(random() % 200);
    s.payload.resize(random() % 7 == 0 ? random() % 30000 : random() % 300);
    for (auto& b : s.meta) b = static_cast<std::byte>(random());
    for (auto& b : s.payload) b = static_cast<std::byte>(random());
    return s;
  }
  static Result<std::uint64_t> say(Writer& w, const Said& s, const Writer::WhileWaiting& waiting = nullptr) {
    return w.append(
        s.type, 0, s.dataset, s.meta, s.payload.size(),
        [&s](std::byte* to) { return copy_crc32c(to, s.payload.data(), s.payload.size()); }, waiting);
  }
  static void expect_same(const Record& r, const Said& s, std::uint64_t sequence) {
    ASSERT_EQ(r.sequence, sequence);
    ASSERT_EQ(r.type, s.type);
    ASSERT_EQ(r.dataset, s.dataset);
    ASSERT_TRUE(std::equal(r.meta.begin(), r.meta.end(), s.meta.begin(), s.meta.end()));
    ASSERT_TRUE(std::equal(r.payload.begin(), r.payload.end(), s.payload.begin(), s.payload.end()));
    ASSERT_TRUE(verify_payload(r).ok());
  }

  Scratch scratch_{"/dev/shm"};
  Stage stage_;
  int made_ = 0;
};

TEST_F(JournalTest, AnySequenceOfRecordsReadsBackTheSameWhileSegmentsAreRecycled) {
  add_segments(3);
  std::mt19937 random(20261120);
  auto w = writer();
  auto r = reader(w->name());
  std::deque<Said> said;
  std::uint64_t read = 0;
  for (int i = 0; i < 3000; ++i) {
    said.push_back(random_record(random));
    // A writer out of segments waits until the reader has given one back: here, on the same thread.
    const auto drain = [&]() -> Result<void> {
      for (;;) {
        auto next = r->next();
        if (!next) return std::move(next).error();
        if (!next->has_value()) break;
        expect_same(**next, said.front(), ++read);
        said.pop_front();
      }
      while (!r->held().empty() && r->held().front().done) ADVECTIO_TRY(r->release_oldest(stage_, true));
      return {};
    };
    auto sequence = say(*w, said.back(), drain);
    ASSERT_TRUE(sequence.ok()) << sequence.error().message;
    if (random() % 5 == 0) {
      ASSERT_TRUE(drain().ok());
    }
    if (random() % 50 == 0) w->seal();
  }
  for (auto next = r->next(); next.ok() && next->has_value(); next = r->next()) {
    expect_same(**next, said.front(), ++read);
    said.pop_front();
  }
  EXPECT_EQ(read, 3000U);
  EXPECT_GT(w->segments_used(), 10U);
}

TEST_F(JournalTest, GivesRecordsAgainFromTheSegmentsThatItHolds) {
  add_segments(8);
  std::mt19937 random(20261128);
  auto w = writer();
  auto r = reader(w->name());
  std::vector<Said> said;
  for (int i = 0; i < 60; ++i) {
    said.push_back(random_record(random));
    said.back().payload.resize(random() % 3000);
    ASSERT_TRUE(say(*w, said.back()).ok());
    if (i % 20 == 19) w->seal();
  }
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(r->next().value().has_value());
  const auto expect_again = [&](std::uint64_t behind, std::uint64_t first, std::uint64_t last) {
    auto next = first;
    Reader::Cursor cursor;
    r->again(behind, cursor, [&](const Record& record) {
      expect_same(record, said[next - 1], next);
      EXPECT_TRUE(std::any_of(r->held().begin(), r->held().end(),
                              [&record](const auto& held) { return held.mapping == record.lease; }));
      return next++ < last;
    });
    EXPECT_EQ(next, last + 1);
  };
  expect_again(0, 1, 50);  // and not what has not been read
  expect_again(33, 34, 50);
  expect_again(5, 6, 40);
  const auto released = r->held().front().last_sequence;
  ASSERT_TRUE(r->release_oldest(stage_, true).ok());
  expect_again(0, released + 1, 50);
  Reader::Cursor cursor;
  r->again(50, cursor, [](const Record&) {
    ADD_FAILURE() << "nothing is behind it";
    return true;
  });
  for (const auto& held : r->held()) EXPECT_FALSE(held.is_leased());
}

TEST_F(JournalTest, WhatAnEarlierUseOfASegmentHasLeftIsNotGivenAgain) {
  add_segments(2);
  auto w = writer();
  auto r = reader(w->name());
  const Said large{RecordType::put, 1, {}, Bytes(25'000)};
  const auto read = [&] {
    while (r->next().value().has_value()) {
    }
  };
  // Two records fill a segment. The first segment is used again by record 5.
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(say(*w, large).ok());
  read();
  ASSERT_TRUE(r->release_oldest(stage_, true).ok());
  Reader::Cursor cursor;
  std::vector<std::uint64_t> again;
  const auto take_again = [&](std::uint64_t behind) {
    r->again(behind, cursor, [&again](const Record& record) {
      again.push_back(record.sequence);
      return true;
    });
  };
  const auto fifth = w->append(
      large.type, 0, large.dataset, large.meta, large.payload.size(),
      [&](std::byte* to) {
        read();  // opens the segment, in which there is no record yet
        EXPECT_EQ(r->held().size(), 2U);
        take_again(3);
        return copy_crc32c(to, large.payload.data(), large.payload.size());
      },
      nullptr);
  ASSERT_TRUE(fifth.ok());
  EXPECT_EQ(again, (std::vector<std::uint64_t>{4}));
  read();
  again.clear();
  take_again(4);
  EXPECT_EQ(again, (std::vector<std::uint64_t>{5}));
}

TEST_F(JournalTest, AReaderOnAnotherThreadSeesWholeRecordsOnly) {
  add_segments(8);
  auto w = writer();
  auto r = reader(w->name());
  constexpr std::uint64_t n = 20000;
  std::thread other([&] {
    for (std::uint64_t i = 1; i <= n; ++i) {
      const std::uint64_t value = i * 0x9E3779B97F4A7C15ULL;
      auto s = w->append(
          RecordType::put, 0, 1, {}, 8 + i % 100,
          [&](std::byte* to) {
            std::memset(to, 0, 8 + i % 100);
            std::memcpy(to, &value, 8);
            return crc32c(to, 8 + i % 100);
          },
          nullptr);
      ASSERT_TRUE(s.ok());
    }
  });
  std::uint64_t seen = 0;
  while (seen < n) {
    auto next = r->next();
    ASSERT_TRUE(next.ok()) << next.error().message;
    if (!next->has_value()) {
      while (!r->held().empty() && r->held().front().done) {
        ASSERT_TRUE(r->release_oldest(stage_, true).ok());
        ring(stage_.control().progress);
      }
      continue;
    }
    ASSERT_EQ((*next)->sequence, ++seen);
    std::uint64_t value = 0;
    std::memcpy(&value, (*next)->payload.data(), 8);
    ASSERT_EQ(value, seen * 0x9E3779B97F4A7C15ULL);
  }
  other.join();
}

/// Everything before the damage is read, nothing wrong is, wherever it strikes.
TEST_F(JournalTest, WhatWasAppendedSinceIsForcedOnce) {
  stage_.control().survives_power = 1;
  add_segments(3);
  auto w = writer();
  const Said small{RecordType::put, 1, {}, Bytes(100)}, large{RecordType::put, 1, {}, Bytes(50'000)};
  ASSERT_TRUE(say(*w, small).ok());
  auto unsynced = w->take_unsynced();
  EXPECT_EQ(unsynced.segments.size(), 1U);
  EXPECT_TRUE(unsynced.first && unsynced.names);
  ASSERT_TRUE(w->make_durable(unsynced).ok());
  EXPECT_TRUE(w->take_unsynced().segments.empty());
  ASSERT_TRUE(say(*w, large).ok());
  ASSERT_TRUE(say(*w, large).ok());
  unsynced = w->take_unsynced();
  EXPECT_EQ(unsynced.segments.size(), 2U);
  EXPECT_TRUE(!unsynced.first && unsynced.names);
  ASSERT_TRUE(say(*w, small).ok());
  w->seal();
  unsynced = w->take_unsynced();
  EXPECT_EQ(unsynced.segments.size(), 1U);
  EXPECT_FALSE(unsynced.names);
  // Given back meanwhile: it is in its files.
  ASSERT_TRUE(system_files().remove(unsynced.segments[0]).ok());
  EXPECT_TRUE(w->make_durable(unsynced).ok());
}

TEST_F(JournalTest, AScanDoesNotTakeAnEarlierUseOfItsFirstSegmentForThePresentOne) {
  add_segments(1);
  auto w = writer();
  ASSERT_TRUE(say(*w, {RecordType::put, 1, {}, Bytes(100)}).ok());
  const auto directory = stage_.journals() + "/" + w->name() + "/";
  ASSERT_TRUE(system_files().rename(directory + "00000000-s0", directory + "00000007-s0").ok());
  auto next = reader(w->name(), Trust::scan)->next();
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->has_value());
}

class DamageTest : public JournalTest {
 protected:
  void write_some() {
    add_segments(12);
    std::mt19937 random(11);
    auto w = writer();
    name_ = w->name();
    for (int i = 0; i < 150; ++i) {
      said_.push_back(random_record(random));
      ASSERT_TRUE(say(*w, said_.back()).ok());
    }
    // Where each record lies: (segment index, first byte, bytes).
    auto r = reader(name_, Trust::scan);
    for (auto next = r->next(); next.ok() && next->has_value(); next = r->next()) {
      const auto& h = r->held().back();
      const auto begin = static_cast<std::uint64_t>((*next)->meta.data() - h.mapping->data()) - sizeof(RecordHeader);
      places_.push_back({h.index, begin, record_bytes((*next)->meta.size(), (*next)->payload.size())});
    }
    ASSERT_EQ(places_.size(), said_.size());
    ASSERT_GE(places_.back().segment, 2U);
  }
  std::string file_of(std::uint64_t index) const {
    auto names = system_files().list(stage_.journals() + "/" + name_);
    for (const auto& n : *names)
      if (const auto p = parse_chain_name(n); p && p->first == index) return stage_.journals() + "/" + name_ + "/" + n;
    return {};
  }
  /// Records up to the first that is not read.
  std::size_t read_all() {
    auto r = reader(name_, Trust::scan);
    std::size_t n = 0;
    for (auto next = r->next(); next.ok() && next->has_value(); next = r->next(), ++n) {
      EXPECT_LT(n, said_.size());
      if (n >= said_.size()) return n;
      expect_same(**next, said_[n], n + 1);
      if (HasFatalFailure()) return n;
    }
    return n;
  }
  struct Place {
    std::uint64_t segment, at, bytes;
  };
  std::string name_;
  std::vector<Said> said_;
  std::vector<Place> places_;
};

TEST_F(DamageTest, AFlippedByteAnywhereNeverYieldsAWrongRecordNorLosesOneBeforeIt) {
  write_some();
  std::mt19937 random(5);
  for (int round = 0; round < 1500; ++round) {
    const auto segment = random() % (places_.back().segment + 1);
    // Every third time in the segment header, which stands before all records and is not needed to read them.
    const std::uint64_t at = round % 3 == 0 ? random() % 128 : random() % segment_bytes;
    auto file = system_files().open(file_of(segment), OpenMode::read_write, 0600);
    ASSERT_TRUE(file.ok());
    std::byte b{};
    ASSERT_TRUE((*file)->read(at, std::span(&b, 1)).ok());
    const std::byte flipped = b ^ static_cast<std::byte>(1U << (random() % 8));
    ASSERT_TRUE((*file)->write(at, std::span(&flipped, 1)).ok());
    std::size_t before = 0;
    bool inside = false;
    for (const auto& p : places_) {
      if (p.segment == segment && at >= p.at && at < p.at + p.bytes) inside = true;
      if (p.segment > segment || (p.segment == segment && p.at + p.bytes > at)) break;
      ++before;
    }
    const auto n = read_all();
    ASSERT_FALSE(HasFatalFailure()) << "segment " << segment << " byte " << at;
    ASSERT_GE(n, before) << "segment " << segment << " byte " << at;
    if (!inside) {
      ASSERT_EQ(n, said_.size()) << "segment " << segment << " byte " << at;
    }
    ASSERT_TRUE((*file)->write(at, std::span(&b, 1)).ok());
  }
}

TEST_F(DamageTest, ACutAnywhereKeepsEveryRecordBeforeIt) {
  write_some();
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const auto segment = random() % (places_.back().segment + 1);
    const std::uint64_t at = random() % segment_bytes;
    const auto path = file_of(segment);
    auto whole = read_file(system_files(), path);
    ASSERT_TRUE(whole.ok());
    {
      auto file = system_files().open(path, OpenMode::read_write, 0600);
      ASSERT_TRUE((*file)->resize(at).ok());
    }
    std::size_t before = 0;
    for (const auto& p : places_) {
      if (p.segment > segment || (p.segment == segment && p.at + p.bytes > at)) break;
      ++before;
    }
    const auto n = read_all();
    ASSERT_FALSE(HasFatalFailure()) << "segment " << segment << " cut at " << at;
    // The first segment cut before its first record leaves nothing to begin from.
    ASSERT_GE(n, before) << "segment " << segment << " cut at " << at;
    auto file = system_files().open(path, OpenMode::read_write, 0600);
    ASSERT_TRUE((*file)->write(0, *whole).ok());
  }
}

TEST_F(DamageTest, ALivingReaderNamesSegmentAndByteOfADamagedHeader) {
  write_some();
  auto file = system_files().open(file_of(places_[3].segment), OpenMode::read_write, 0600);
  const std::byte b{0x55};
  ASSERT_TRUE((*file)->write(places_[3].at + 20, std::span(&b, 1)).ok());
  auto r = reader(name_);
  Result<std::optional<Record>> next = std::optional<Record>();
  for (int i = 0; i < 4; ++i) next = r->next();
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, Code::corrupt);
  EXPECT_NE(next.error().message.find("at byte " + std::to_string(places_[3].at)), std::string::npos)
      << next.error().message;
}

TEST_F(JournalTest, AWriterWhoseDescriptorsAreClosedLivesUntilItsProcessEnds) {
  int told[2], go[2];
  ASSERT_EQ(::pipe(told), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto w = Writer::open(stage_, {0, static_cast<std::uint32_t>(::getpid()), "n", "m"});
    for (int fd = 3; fd < 256; ++fd)
      if (fd != told[1] && fd != go[0]) ::close(fd);
    char c = 0;
    (void)!::write(told[1], "x", 1);
    (void)!::read(go[0], &c, 1);
    (*w)->keep_lock();
    (void)!::write(told[1], "x", 1);
    ::pause();
  }
  char c = 0;
  ASSERT_EQ(::read(told[0], &c, 1), 1);
  const auto name = system_files().list(stage_.journals()).value().at(0);
  const auto lock = stage_.journals() + "/" + name + "/writer";
  auto r = reader(name);
  EXPECT_FALSE(ProcessLock::held(lock));
  EXPECT_TRUE(r->writer_alive());
  (void)!::write(go[1], "x", 1);
  ASSERT_EQ(::read(told[0], &c, 1), 1);
  EXPECT_TRUE(ProcessLock::held(lock));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(r->writer_alive());
  for (const int fd : {told[0], told[1], go[0], go[1]}) ::close(fd);
}

TEST_F(JournalTest, IsBegunByNobodyOnceTheStageIsClosed) {
  const WriterIdentity identity{0, static_cast<std::uint32_t>(::getpid()), "n", "m"};
  // One that comes while the server closes: it waits for that, and sees it.
  std::optional<Result<std::unique_ptr<Writer>>> late;
  std::thread newcomer;
  EXPECT_TRUE(stage_.close([&] {
    newcomer = std::thread([&] { late = Writer::open(stage_, identity); });
    return true;
  }));
  newcomer.join();
  ASSERT_FALSE(late->ok());
  EXPECT_EQ(late->error().code, Code::gone);
  EXPECT_TRUE(system_files().list(stage_.journals()).value().empty()) << "it leaves nothing there";
  stage_.reopen();
  EXPECT_TRUE(Writer::open(stage_, identity).ok());
}

TEST_F(JournalTest, AProcessThatComesTooLateKeepsNoDirectoryOfTheRun) {
  const auto made = make_journal(stage_, "late", [this](WriterState&) {
    // Meanwhile the server removes the run directory, and cannot remove what this process is making.
    ASSERT_TRUE(stage_.close([] { return true; }));
    for (const auto& entry : std::filesystem::directory_iterator(stage_.directory()))
      if (entry.path() != stage_.journals()) std::filesystem::remove_all(entry.path());
  });
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::gone);
  EXPECT_FALSE(std::filesystem::exists(stage_.directory()));
}

TEST_F(JournalTest, IsSeenByTheServerBeforeItClosesTheStage) {
  const auto nobody = [this] { return system_files().list(stage_.journals()).value().empty(); };
  {
    // Its process has taken the lock, and may have been stopped there: the server does not wait.
    const auto entering = ProcessLock::take(stage_.directory() + "/journals.lock");
    ASSERT_TRUE(entering.ok());
    EXPECT_FALSE(stage_.close(nobody));
  }
  const auto w = writer();
  EXPECT_FALSE(stage_.close(nobody));
  EXPECT_FALSE(stage_.closed());
}

TEST_F(JournalTest, ALockDoesNotCloseTheFileThatHasItsNumberNow) {
  const auto path = stage_.directory() + "/lock";
  int other = -1;
  {
    const auto probe = ::dup(0);  // the number that the lock will have
    ::close(probe);
    auto lock = ProcessLock::take(path);
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(lock->is_kept());
    ::close(probe);
    other = ::dup(0);
    ASSERT_EQ(other, probe);
    EXPECT_FALSE(lock->is_kept());
  }
  EXPECT_EQ(::fcntl(other, F_GETFD) == -1, false);
  ::close(other);
}

TEST_F(JournalTest, AWriterThatDiesLeavesEveryPublishedRecord) {
  add_segments(4);
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto w = Writer::open(stage_, {0, static_cast<std::uint32_t>(::getpid()), "n", "m"});
    for (std::uint64_t i = 1;; ++i) {
      auto s = (*w)->append(
          RecordType::put, 0, 1, {}, 1000,
          [&](std::byte* to) {
            std::memset(to, static_cast<int>(i), 1000);
            return crc32c(to, 1000);
          },
          [] {
            return Result<void>(Error{Code::full, "", 0});
          });
      if (!s) ::pause();
      (void)!::write(pipe_ends[1], &i, sizeof i);
      if (i == 150) ::pause();
    }
  }
  std::uint64_t told = 0;
  while (told < 150) ASSERT_EQ(::read(pipe_ends[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
  auto names = system_files().list(stage_.journals());
  ASSERT_EQ(names->size(), 1U);
  auto r = reader((*names)[0]);
  EXPECT_TRUE(r->writer_alive());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(r->writer_alive());
  std::uint64_t n = 0;
  for (auto next = r->next(); next.ok() && next->has_value(); next = r->next()) {
    EXPECT_TRUE(verify_payload(**next).ok());
    ++n;
  }
  EXPECT_EQ(n, 150U);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

/// Files of a directory whose names begin so.
std::vector<std::string> named(const std::string& directory, const std::string& beginning) {
  auto names = system_files().list(directory).value();
  std::erase_if(names, [&](const auto& n) { return n.rfind(beginning, 0) != 0; });
  return names;
}

TEST_F(JournalTest, ARecordLongerThanTheStageIsRefusedAndSaysWhatToDo) {
  add_segments(2);
  auto w = writer();
  auto s = w->append(
      RecordType::put, 0, 1, {}, 2 * segment_bytes, [](std::byte*) { return 0U; }, nullptr);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, Code::invalid);
  EXPECT_NE(s.error().message.find("stage.bytes_max"), std::string::npos) << s.error().message;
}

// 64 ranks waited for a server that made one segment after the other: 50 s for the first frame.
TEST_F(JournalTest, AWriterMakesASegmentWhereNoneIsFreeAndTheCapAllowsIt) {
  may_have(3);
  auto w = writer();
  std::mt19937 random(1);
  std::vector<Said> said;
  const auto give_up = [] { return Result<void>(Error{Code::full, "full", 0}); };
  for (;;) {
    said.push_back(random_record(random));
    const auto& one = said.back();
    const auto sequence = w->append(
        one.type, 0, one.dataset, one.meta, one.payload.size(),
        [&](std::byte* to) { return copy_crc32c(to, one.payload.data(), one.payload.size()); }, give_up);
    if (sequence.ok()) continue;
    EXPECT_EQ(sequence.error().code, Code::full);
    said.pop_back();
    break;
  }
  EXPECT_EQ(w->segments_used(), 3U);
  EXPECT_EQ(stage_.control().segments_total.load(), 3U);
  EXPECT_EQ(stage_.control().segments_peak.load(), 3U);
  EXPECT_EQ(stage_.control().waits.load(), 1U) << "only at the cap";
  auto r = reader(w->name());
  for (std::size_t i = 0; i < said.size(); ++i) expect_same(**r->next(), said[i], i + 1);
  for (int n = 0; n < 2; ++n) ASSERT_TRUE(r->release_oldest(stage_, true).ok());
  EXPECT_EQ(named(stage_.pool(), "s").size(), 2U);
  ASSERT_TRUE(say(*w, said.front()).ok()) << "it goes on in one that has come back";
  EXPECT_EQ(stage_.control().segments_total.load(), 3U);
}

TEST_F(JournalTest, ALeaseKeepsWhatARecordRefersToWhenItsReaderHasGone) {
  may_have(3);
  auto w = writer();
  std::mt19937 random(1);
  const auto one = random_record(random);
  ASSERT_TRUE(say(*w, one).ok());
  auto r = reader(w->name());
  std::optional<Record> record = **r->next();
  EXPECT_TRUE(r->held().front().is_leased());
  auto lease = record->lease;
  const auto payload = record->payload;
  record.reset();
  EXPECT_TRUE(r->held().front().is_leased());
  r.reset();
  EXPECT_TRUE(std::ranges::equal(payload, one.payload));

  r = reader(w->name());
  (void)r->next();
  EXPECT_FALSE(r->held().front().is_leased()) << "the lease was on another reader's mapping";
}

TEST_F(JournalTest, TheOldNameOfAParkedSegmentIsOffTheDiskBeforeItsNextUse) {
  for (const bool survives : {false, true}) {
    SCOPED_TRACE(survives);
    stage_.control().survives_power = survives ? 1 : 0;
    add_segments(1);
    auto w = writer();
    ASSERT_TRUE(say(*w, {RecordType::put, 1, {}, Bytes(100)}).ok());
    w->seal();
    const auto faults = std::make_shared<Faults>();
    FaultyFiles files(system_files(), faults);
    auto r = Reader::open(files, stage_.journals() + "/" + w->name(), Trust::published).value();
    const auto record = r->next().value();
    EXPECT_FALSE(r->next().value().has_value());
    ASSERT_TRUE(r->held().front().is_leased());
    faults->syncs_until = 0;
    const auto parked = r->park_oldest(stage_);
    // The directory is forced where the stage survives a loss of power, and this disk refuses it.
    EXPECT_EQ(parked.ok(), !survives);
  }
}

TEST_F(JournalTest, ManyWritersTogetherMakeNoMoreSegmentsThanTheCap) {
  may_have(8);
  std::vector<std::unique_ptr<Writer>> writers;
  for (int n = 0; n < 6; ++n) writers.push_back(writer());
  std::atomic<std::uint64_t> got{0};
  std::vector<std::thread> threads;
  for (auto& w : writers) {
    threads.emplace_back([&got, &w] {
      const auto most = w->payload_max(0);
      const auto give_up = [] { return Result<void>(Error{Code::full, "full", 0}); };
      while (w->append(
                  RecordType::put, 0, 1, {}, most, [](std::byte*) { return 0U; }, give_up)
                 .ok())
        ++got;
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(got.load(), 8U);
  EXPECT_EQ(stage_.control().segments_total.load(), 8U);
}

TEST_F(JournalTest, ARecordLongerThanASegmentGetsALongOneThatIsRemovedWhenItComesBack) {
  add_segments(1);
  may_have(5);
  auto w = writer();
  std::mt19937 random(7);
  std::vector<Said> said{random_record(random), random_record(random), random_record(random)};
  said[1].payload.resize(2 * segment_bytes + 8192);
  for (auto& byte : said[1].payload) byte = static_cast<std::byte>(random());
  said[2].payload.resize(segment_bytes - 8192);  // more than is left of the long one
  for (const auto& s : said) ASSERT_TRUE(say(*w, s).ok());
  EXPECT_EQ(stage_.control().segments_total.load(), 5U) << "one, three for the long one, one";
  auto r = reader(w->name());
  for (std::size_t i = 0; i < said.size(); ++i) expect_same(**r->next(), said[i], i + 1);
  for (int n = 0; n < 2; ++n) ASSERT_TRUE(r->release_oldest(stage_, true).ok());
  EXPECT_EQ(stage_.control().segments_total.load(), 2U);
  EXPECT_EQ(named(stage_.pool(), "").size(), 1U) << "the usual one";
}

// Else a schema of 3 MiB would wait for ever in a stage that is full of free segments.
TEST_F(JournalTest, FreeSegmentsGoToMakeRoomForALongOne) {
  add_segments(4);
  auto w = writer();
  Said long_one{RecordType::schema, 1, {}, Bytes(2 * segment_bytes)};
  ASSERT_TRUE(say(*w, long_one).ok());
  // The writer may have mapped it ahead of need when it was opened.
  EXPECT_EQ(named(stage_.pool(), "s").size() + named(stage_.journals() + "/" + w->name(), "ahead-").size(), 1U);
  EXPECT_EQ(stage_.control().segments_total.load(), 4U);
}

// It was counted, and nobody would ever have given it back.
TEST_F(JournalTest, ASegmentInTheMakingWhenItsWriterDiesIsNotCountedAnyMore) {
  may_have(4);
  std::string name;
  {
    auto w = writer();
    name = w->name();
    ASSERT_TRUE(say(*w, Said{RecordType::close, 1, {}, {}}).ok());
  }
  ASSERT_TRUE(make_segment(stage_, stage_.journals() + "/" + name, Pages::reserved)->has_value());
  EXPECT_EQ(stage_.control().segments_total.load(), 2U);
  free_journal(stage_, name);
  EXPECT_EQ(stage_.control().segments_total.load(), 1U);
  EXPECT_EQ(named(stage_.pool(), "").size(), 1U);
}

// A process that knows of version 3 only counts on the server to make them.
TEST_F(JournalTest, InAStageOfAnOlderVersionOnlyTheServerMakesSegments) {
  stage_.control().version = shared_making_version - 1;
  may_have(4);
  auto w = writer();
  const auto s = w->append(RecordType::close, 0, 1, {}, 0, nullptr, [] {
    return Result<void>(Error{Code::full, "full", 0});
  });
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(stage_.control().segments_total.load(), 0U);
}

// What it took beyond its frame other writers missed, and the server made anew.
TEST_F(JournalTest, AWriterHoldsAheadWhatItsFrameStillNeedsAndNoMore) {
  add_segments(8);
  auto w = writer();
  w->keep_ahead(4);
  const auto ahead = [&] {
    const auto names = system_files().list(stage_.journals() + "/" + w->name()).value();
    return std::count_if(names.begin(), names.end(), [](const auto& n) { return n.rfind("ahead-", 0) == 0; });
  };
  wait_until_ahead(*w);
  ASSERT_EQ(ahead(), 4);
  const auto most = w->payload_max(0);
  for (int n = 0; n < 4; ++n)
    ASSERT_TRUE(w->append(
                     RecordType::put, 0, 1, {}, most, [](std::byte*) { return 0U; }, nullptr)
                    .ok());
  EXPECT_EQ(w->segments_used(), 4U);
  wait_until_ahead(*w);
  EXPECT_EQ(ahead(), 1);
}

// Nothing wanted ahead, but one that is there already is used: no more may be wanted after that.
TEST_F(JournalTest, AWriterThatWantsNothingAheadTakesNothing) {
  auto w = Writer::open(stage_, {3, static_cast<std::uint32_t>(::getpid()), "node1", "model"}).value();
  add_segments(8);
  const auto free = [&] { return system_files().list(stage_.pool()).value().size(); };
  wait_until_ahead(*w);
  ASSERT_EQ(free(), 7U) << "one is taken from the start";
  w->keep_ahead(0);
  ASSERT_TRUE(w->append(
                   RecordType::put, 0, 1, {}, 64, [](std::byte*) { return 0U; }, nullptr)
                  .ok());
  wait_until_ahead(*w);
  EXPECT_EQ(free(), 7U);
}

TEST_F(JournalTest, PayloadNowAndMaxAreWhatFits) {
  add_segments(3);
  auto w = writer();
  EXPECT_EQ(w->payload_now(100), 0U);
  const auto most = w->payload_max(100);
  const auto meta = Bytes(100);
  const auto zeros = [](std::uint64_t n) {
    return [n](std::byte* to) {
      std::memset(to, 0, n);
      return crc32c(to, n);
    };
  };
  ASSERT_TRUE(w->append(RecordType::put, 0, 1, meta, most, zeros(most), nullptr).ok());
  EXPECT_EQ(w->segments_used(), 1U);
  EXPECT_EQ(w->payload_now(0), 0U);
  ASSERT_TRUE(w->append(RecordType::put, 0, 1, meta, 10, zeros(10), nullptr).ok());
  EXPECT_EQ(w->segments_used(), 2U);
  const auto now = w->payload_now(100);
  ASSERT_TRUE(w->append(RecordType::put, 0, 1, meta, now, zeros(now), nullptr).ok());
  EXPECT_EQ(w->segments_used(), 2U);
}

TEST_F(JournalTest, AWaitThatIsGivenUpReturnsItsReasonAndLosesNothing) {
  add_segments(1);
  auto w = writer();
  int asked = 0;
  Result<std::uint64_t> s = std::uint64_t{0};
  std::uint64_t n = 0;
  const Bytes data(5000);
  while (s.ok()) {
    s = w->append(
        RecordType::put, 0, 1, {}, data.size(),
        [&](std::byte* to) { return copy_crc32c(to, data.data(), data.size()); },
        [&]() -> Result<void> {
          if (++asked < 3) return {};
          return Error{Code::full, "the stage is full", 0};
        });
    if (s.ok()) ++n;
  }
  EXPECT_EQ(s.error().code, Code::full);
  EXPECT_EQ(asked, 3);
  // Perhaps for the first, too, which its own thread may just have been mapping.
  EXPECT_GE(stage_.control().waits.load(), 1U);
  EXPECT_LE(stage_.control().waits.load(), 2U);
  add_segments(1);
  ASSERT_TRUE(w->append(RecordType::sync, 0, 1, {}, 0, nullptr, nullptr).ok());
  auto r = reader(w->name());
  std::uint64_t read = 0;
  for (auto next = r->next(); next.ok() && next->has_value(); next = r->next()) ++read;
  EXPECT_EQ(read, n + 1);
}

TEST_F(JournalTest, AStageOfAnotherVersionIsRefusedByName) {
  stage_.control().version = 99;
  auto s = Stage::open(system_files(), stage_.directory());
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, Code::unsupported);
  EXPECT_NE(s.error().message.find("99"), std::string::npos);
}

TEST_F(JournalTest, TheServerLockIsHeldByOneAtATime) {
  auto first = ProcessLock::take(scratch_ / "lock");
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(ProcessLock::held(scratch_ / "lock"));
  EXPECT_EQ(ProcessLock::take(scratch_ / "lock").error().code, Code::exists);
  { const ProcessLock gone = std::move(first).value(); }
  EXPECT_FALSE(ProcessLock::held(scratch_ / "lock"));
}

TEST_F(JournalTest, DamagedSegmentHeadersLoseNothingOnceTheWriterHasGone) {
  add_segments(4);
  std::mt19937 random(20261121);
  std::vector<Said> said;
  std::string name;
  {
    auto w = writer();
    name = w->name();
    for (std::uint64_t bytes = 0; bytes < 3 * segment_bytes;) {
      said.push_back(random_record(random));
      ASSERT_TRUE(say(*w, said.back()).ok());
      bytes += record_bytes(said.back().meta.size(), said.back().payload.size());
    }
  }
  const auto directory = stage_.journals() + "/" + name;
  const auto segments = system_files().list(directory).value();
  for (const auto& segment : segments) {
    if (!parse_chain_name(segment)) continue;
    auto file = system_files().open(directory + "/" + segment, OpenMode::read_write);
    for (std::uint64_t at = 0; at < 80; ++at) {
      if (at == 72) continue;  // of `sealed` below
      std::byte there{};
      ASSERT_TRUE((*file)->read(at, {&there, 1}).ok());
      const auto other = there ^ std::byte{5};
      ASSERT_TRUE((*file)->write(at, {&other, 1}).ok());
      // Published further than there can be anything is damage that is told.
      auto r = reader(name);
      r->set_writer_gone();
      std::uint64_t read = 0;
      bool told = false;
      for (;;) {
        auto next = r->next();
        told = !next;
        if (told || !next->has_value()) break;
        expect_same(**next, said.at(read), read + 1);
        ++read;
      }
      EXPECT_TRUE(told || read == said.size()) << segment << " byte " << at << ": " << read << " of " << said.size();
      if (at < 64) {
        EXPECT_EQ(read, said.size()) << segment << " byte " << at;
      }
      ASSERT_TRUE((*file)->write(at, {&there, 1}).ok());
    }
  }
}

TEST_F(JournalTest, APageThatIsNotWhatWasMadeIsNotOpened) {
  auto made = stage_.make_dataset("1-2", [](SharedState& p) {
    p.journal = 7;
    std::strcpy(p.path, "/a/b.nc");
  });
  ASSERT_TRUE(made.ok());
  made->shared_state->visible.store(9);  // changes all the time
  EXPECT_TRUE(stage_.open_state("1-2").ok());
  for (auto* at : {&made->shared_state->path[1], reinterpret_cast<char*>(&made->shared_state->number),
                   &made->shared_state->link[4000], reinterpret_cast<char*>(&made->shared_state->tiles)}) {
    *at ^= 1;
    EXPECT_EQ(stage_.open_state("1-2").error().code, Code::corrupt);
    *at ^= 1;
  }
  EXPECT_TRUE(stage_.open_state("1-2").ok());
}

TEST_F(JournalTest, AWriterThatCannotMapItsStageFailsAndHarmsNobody) {
  ASSERT_TRUE(system_files().remove(stage_.directory() + "/control").ok());
  EXPECT_FALSE(Writer::open(stage_, {3, static_cast<std::uint32_t>(::getpid()), "node1", "model"}).ok());
}

TEST_F(JournalTest, APageIsRemovedOnlyAsLongAsItIsThatDatasets) {
  const auto shared_state = [](std::uint64_t journal) {
    return [journal](SharedState& p) {
      p.journal = journal;
      p.number = 1;
      p.writers = 2;
    };
  };
  auto first = stage_.make_dataset("1-2", shared_state(7));
  ASSERT_TRUE(first.ok());
  // Another process comes to the same one.
  auto again = stage_.make_dataset("1-2", shared_state(7));
  ASSERT_TRUE(again.ok());
  first->slots[1].collective_index.store(5);
  EXPECT_EQ(again->slots[1].collective_index.load(), 5U);
  // The file has gone, and left its inode to the next.
  auto next = stage_.make_dataset("1-2", shared_state(8));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->slots[1].collective_index.load(), 0U);
  EXPECT_EQ(first->shared_state->state.load(), static_cast<std::uint32_t>(DatasetState::dropped))
      << "nobody waits for it";
  stage_.remove_dataset("1-2", 7, 1);
  ASSERT_TRUE(stage_.open_state("1-2").ok());
  EXPECT_EQ((*stage_.open_state("1-2"))->journal, 8U);
  stage_.remove_dataset("1-2", 8, 1);
  EXPECT_TRUE(system_files().list(stage_.datasets())->empty());
}

TEST_F(JournalTest, ADatasetThatGoesOnWithAFileDoesNotPushAnotherOneOut) {
  const auto shared_state = [](std::uint64_t journal) {
    return [journal](SharedState& p) {
      p.journal = journal;
      p.number = 1;
      p.continues = static_cast<std::uint32_t>(Continues::file_of_others);
    };
  };
  auto first = stage_.make_dataset("1-2", shared_state(7));
  ASSERT_TRUE(first.ok());
  const auto second = stage_.make_dataset("1-2", shared_state(8));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::exists);
  EXPECT_FALSE(has_ended(*first->shared_state));
  EXPECT_EQ((*stage_.open_state("1-2"))->journal, 7U);
  EXPECT_EQ(system_files().list(stage_.datasets())->size(), 1U);
  first->shared_state->state.store(static_cast<std::uint32_t>(DatasetState::finished));
  EXPECT_TRUE(stage_.make_dataset("1-2", shared_state(8)).ok());
}

TEST_F(JournalTest, OneProcessHasTheTurnToOpenAFile) {
  auto turn = stage_.take_turn_to_open("1-2", false);
  ASSERT_TRUE(turn.ok());
  for (const bool shared : {false, true}) EXPECT_EQ(stage_.take_turn_to_open("1-2", shared).error().code, Code::exists);
  EXPECT_TRUE(stage_.take_turn_to_open("1-3", false).ok()) << "another file";
  // A child keeps the descriptor.
  int wait[2];
  ASSERT_EQ(::pipe(wait), 0);
  const auto child = ::fork();
  if (child == 0) {
    char end = 0;
    ::close(wait[1]);
    (void)!::read(wait[0], &end, 1);
    ::_exit(0);
  }
  turn->unlock();
  turn = ProcessLock();
  {
    const auto library = stage_.take_turn_to_open("1-2", true), another = stage_.take_turn_to_open("1-2", true);
    EXPECT_TRUE(library.ok() && another.ok());
    EXPECT_EQ(stage_.take_turn_to_open("1-2", false).error().code, Code::exists);
  }
  EXPECT_TRUE(stage_.take_turn_to_open("1-2", false).ok());
  ::close(wait[1]);
  ::close(wait[0]);
  ::waitpid(child, nullptr, 0);
}

TEST(Power, WhateverPagesAreNewerWhatIsForcedIsOfOneMoment) {
  constexpr std::size_t page = 4096, pages = shared_state_bytes / page;
  constexpr auto word = std::uint64_t{1} << 32U;
  for (const auto& [before, after] : {std::pair<Forced, Forced>{{5, 2}, {9, 3}}, {{word - 1, 7}, {word + 3, 8}}}) {
    struct alignas(64) Page {
      SharedState state{};
      std::byte rest[shared_state_bytes - sizeof(SharedState)]{};
    };
    Page older, newer;
    set_forced(older.state, before);
    set_forced(newer.state, before);
    set_forced(newer.state, after);
    for (std::size_t which = 0; which < 1U << pages; ++which) {
      Page found;
      for (std::size_t p = 0; p < pages; ++p)
        std::memcpy(reinterpret_cast<std::byte*>(&found) + p * page,
                    reinterpret_cast<const std::byte*>((which >> p & 1U) != 0 ? &newer : &older) + p * page, page);
      const auto forced = forced_of(found.state);
      const auto& right = forced.sequence == before.sequence ? before : after;
      EXPECT_EQ(forced.sequence, right.sequence) << which;
      EXPECT_EQ(forced.frames, right.frames) << which;
    }
  }
}

TEST(Power, WhatAnOlderServerHasForcedIsRead) {
  alignas(64) SharedState state{};
  state.durable_forced = 9;
  state.frames_forced = 3;
  EXPECT_EQ(forced_of(state).sequence, 9U);
  EXPECT_EQ(forced_of(state).frames, 3U);
}

TEST(Reopened, ADatasetIsOpenedAgainOrEndsNeverBoth) {
  alignas(64) SharedState state{};
  EXPECT_TRUE(reopen(state, 10));
  EXPECT_FALSE(end_at(state, 10));  // the program goes on behind that close record
  EXPECT_EQ(reopened_behind(state), 10U);
  EXPECT_TRUE(reopen(state, 20));
  EXPECT_FALSE(end_at(state, 10));
  EXPECT_FALSE(end_at(state, 20));
  EXPECT_TRUE(end_at(state, 30));
  EXPECT_FALSE(reopen(state, 30));  // too late
  EXPECT_TRUE(end_at(state, 30));   // a later server comes to it again
  EXPECT_FALSE(end_at(state, 20));  // and to the ones before
  EXPECT_EQ(reopened_behind(state), 20U);
}

TEST(Reopened, OfManyWhoComeAtOneTimeOneIsFirst) {
  for (int i = 0; i < 2000; ++i) {
    alignas(64) SharedState state{};
    std::atomic<bool> go{false};
    bool opened = false;
    std::thread program([&] {
      while (!go) {
      }
      opened = reopen(state, 10);
    });
    go = true;
    const bool ended = end_at(state, 10);
    program.join();
    ASSERT_NE(opened, ended);
  }
}

}  // namespace
}  // namespace advectio::journal
