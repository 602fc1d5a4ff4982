// What `advectio inspect` tells of a stage: what is there, whatever was done to its bytes, and without a change to it.
#include "journal/survey.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "journal/scratch.h"
#include "journal/writer.h"

namespace advectio::journal {
namespace {

constexpr std::uint64_t segment_bytes = 64 * 1024;

/// One writer with one dataset: two frames of `block` bytes each, then a block that is never synced.
class SurveyTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t block = 9000;

  void SetUp() override {
    auto stage = Stage::make(system_files(), run_dir(), segment_bytes, 8, 1'000'000'000, {"one boot", true});
    ASSERT_TRUE(stage.ok());
    stage_ = std::move(stage).value();
    for (const char* name : {"s0", "s1"}) {
      auto file = system_files().open(stage_.pool() + "/" + name, OpenMode::create_new, 0600);
      ASSERT_TRUE(file.ok());
      ASSERT_TRUE((*file)->reserve(segment_bytes).ok());
    }
    auto w = Writer::open(stage_, {3, 4711, "node1", "model"});
    ASSERT_TRUE(w.ok());
    writer_ = std::move(w).value();
    writer_->keep_ahead(0);
    auto shared_state = stage_.make_dataset("1-2", [&](SharedState& p) {
      p.journal = writer_->journal();
      p.number = 1;
      p.format = FileFormat::cdf5;
      std::strcpy(p.path, "/out/wrfout");
      p.frames_synced = 2;
      p.frames_visible = 1;
      p.durable = 3;
      set_visible(p, 3);
    });
    ASSERT_TRUE(shared_state.ok());
    say(RecordType::create, encode(Create{FileFormat::cdf5, "/out/wrfout", "/out/.wrfout", "1-2", 0}), 0);
    for (std::uint64_t frame = 1; frame <= 2; ++frame) {
      say(RecordType::put, encode(Put{0, {{0}, {block}}, {}}), block);
      say(RecordType::sync, encode(Sync{frame, 0, block, {}}), 0);
    }
    say(RecordType::put, encode(Put{0, {{0}, {block}}, {}}), block / 2);
  }

  void say(RecordType type, const Bytes& meta, std::uint64_t bytes) {
    const std::vector<std::byte> payload(bytes, std::byte{7});
    auto done = writer_->append(
        type, 0, 1, meta, bytes, [&payload](std::byte* to) { return copy_crc32c(to, payload.data(), payload.size()); },
        nullptr);
    ASSERT_TRUE(done.ok());
  }

  std::string run_dir() const { return scratch_ / "run"; }
  std::string directory() const { return stage_.journals() + "/" + writer_->name() + "/"; }
  /// The file of that number in the chain. Which segment it is, is not known: the writer may be taking one ahead.
  std::string segment(const std::string& number = "00000000") const {
    const auto names = system_files().list(directory()).value();
    const auto it = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.rfind(number, 0) == 0; });
    return it == names.end() ? "" : *it;
  }

  Survey look(SurveyOptions options = {}) const {
    auto stage = Stage::open(system_files(), run_dir(), Access::look);
    EXPECT_TRUE(stage.ok());
    auto found = survey(*stage, options);
    EXPECT_TRUE(found.ok());
    return std::move(found).value();
  }
  void change_byte(std::uint64_t at) const {
    std::fstream file(directory() + segment(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(before ^ 0x10));
    ASSERT_TRUE(file.good());
  }

  Scratch scratch_{"/dev/shm"};
  Stage stage_;
  std::unique_ptr<Writer> writer_;
};

TEST_F(SurveyTest, ALossOfPowerLeavesWhatWasForcedToTheDisk) {
  SurveyOptions options;
  options.boot = "one boot";
  EXPECT_FALSE(look(options).power_lost);
  EXPECT_EQ(look(options).datasets[0].frames_staged, 1U);
  options.boot = "another";
  const auto found = look(options);
  EXPECT_TRUE(found.power_lost);
  // The shared state says that the first is in the file, and not that the file was forced.
  EXPECT_EQ(found.datasets[0].frames_staged, 2U);
  // All of it was when the run ended.
  stage_.control().left = 1;
  EXPECT_FALSE(look(options).power_lost);
}

TEST_F(SurveyTest, TellsWhoWroteAndHowFarEachDatasetHasGot) {
  auto found = look();
  EXPECT_FALSE(found.served);
  EXPECT_FALSE(found.damaged());
  ASSERT_EQ(found.journals.size(), 1U);
  const auto& j = found.journals[0];
  EXPECT_TRUE(j.alive);
  EXPECT_EQ(j.host, "node1");
  EXPECT_EQ(j.rank, 3);
  EXPECT_EQ(j.pid, 4711U);
  EXPECT_EQ(j.segments, 1U);
  EXPECT_EQ(j.first, 1U);
  EXPECT_EQ(j.last, 6U);
  EXPECT_EQ(j.records, (std::map<std::string, std::uint64_t>{{"create", 1}, {"put", 3}, {"sync", 2}}));
  ASSERT_EQ(found.datasets.size(), 1U);
  const auto& d = found.datasets[0];
  EXPECT_EQ(d.path, "/out/wrfout");
  EXPECT_EQ(d.format, FileFormat::cdf5);
  EXPECT_EQ(d.frames_synced, 2U);
  EXPECT_EQ(d.frames_visible, 1U);
  EXPECT_EQ(d.frames_durable, 1U);
  EXPECT_EQ(d.frames_staged, 1U);
  EXPECT_EQ(d.bytes_staged, block);
  EXPECT_EQ(d.bytes_unsynced, block / 2);
  writer_.reset();
  EXPECT_FALSE(look().journals[0].alive);
}

TEST_F(SurveyTest, ListsEveryRecordInItsOrder) {
  std::vector<std::uint64_t> sequences;
  std::uint64_t bytes = 0;
  SurveyOptions options;
  options.verify = true;
  options.on_record = [&](const SurveyedJournal& j, const Record& r, bool whole) {
    EXPECT_EQ(j.name, writer_->name());
    EXPECT_TRUE(whole);
    sequences.push_back(r.sequence);
    bytes += r.payload.size();
  };
  const auto found = look(options);
  std::vector<std::uint64_t> all(6);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(sequences, all);
  EXPECT_EQ(bytes, 2 * block + block / 2);
  EXPECT_EQ(found.journals[0].payloads_checked, 6U);
}

TEST_F(SurveyTest, ChangesNothing) {
  const auto snapshot = [this] {
    std::map<std::string, std::pair<std::string, std::int64_t>> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir())) {
      struct stat st {};
      EXPECT_EQ(::stat(entry.path().c_str(), &st), 0);
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string bytes = entry.is_regular_file() ? std::string(std::istreambuf_iterator<char>(in), {}) : "";
      all[entry.path()] = {bytes, st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec};
    }
    return all;
  };
  const auto before = snapshot();
  SurveyOptions options;
  options.verify = true;
  (void)look(options);
  EXPECT_TRUE(snapshot() == before);
}

/// The segment of a writer that has ended with any one of its bytes changed: told where it counts, and never believed.
TEST_F(SurveyTest, FindsDamageWhereverItIs) {
  const auto records = look().journals[0].records_bytes;
  writer_->seal();
  const auto name = writer_->name();
  SurveyOptions options;
  options.verify = true;
  std::uint64_t found_in_records = 0;
  for (std::uint64_t at = 0; at < segment_header_bytes + records; at += at < 128 ? 1 : 61) {
    change_byte(at);
    const auto found = look(options);
    ASSERT_EQ(found.journals.size(), 1U);
    const auto& j = found.journals[0];
    if (found.damaged() && at >= segment_header_bytes) {
      ++found_in_records;
      if (j.damage) {
        EXPECT_EQ(j.damage->segment, segment());
        EXPECT_LE(j.damage->byte, at);
        EXPECT_GE(j.damage->byte, segment_header_bytes);
      } else {
        EXPECT_EQ(j.payloads_wrong, 1U);
      }
    }
    EXPECT_LE(j.last, 6U);
    change_byte(at);
  }
  EXPECT_FALSE(look(options).damaged());
  EXPECT_GT(found_in_records, records / 61 * 9 / 10) << "all but padding is covered by a CRC";
}

TEST_F(SurveyTest, AHeaderThatDeniesItsRecordsLosesNothingOnceItsWriterHasGone) {
  writer_->seal();
  const auto path = directory() + segment();
  writer_.reset();
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.write(std::string(4096, '\0').data(), 4096);
  }
  const auto found = look();
  EXPECT_FALSE(found.damaged());
  EXPECT_EQ(found.journals[0].last, 6U);
}

TEST_F(SurveyTest, SegmentsBehindAGapAreDamage) {
  for (int i = 0; i < 6; ++i) say(RecordType::put, encode(Put{0, {{0}, {block}}, {}}), block);
  const auto second = segment("00000001");
  ASSERT_NE(second, "");
  const auto in = directory(), moved = "00000002" + second.substr(8);
  writer_.reset();
  ASSERT_TRUE(system_files().rename(in + second, in + moved).ok());
  const auto found = look();
  ASSERT_TRUE(found.journals[0].damage.has_value());
  EXPECT_EQ(found.journals[0].damage->segment, moved);
}

// `inspect` called a journal damaged whose last frames had only not been forced to the disk.
TEST_F(SurveyTest, AfterALossOfPowerSegmentsBehindAGapAreNoDamage) {
  for (int i = 0; i < 6; ++i) say(RecordType::put, encode(Put{0, {{0}, {block}}, {}}), block);
  const auto second = segment("00000001");
  ASSERT_NE(second, "");
  const auto in = directory();
  writer_.reset();
  ASSERT_TRUE(system_files().rename(in + second, in + "00000002" + second.substr(8)).ok());
  SurveyOptions options;
  options.boot = "another";
  EXPECT_FALSE(look(options).journals[0].damage.has_value());
}

// A frame that a reader's sync had ended was counted as unsynced.
TEST_F(SurveyTest, AReadersSyncEndsAFrameOfOneWriter) {
  auto done = writer_->append(RecordType::sync, flag_implicit, 1, encode(Sync{3, 0, block, {}}), 0, nullptr, nullptr);
  ASSERT_TRUE(done.ok());
  const auto found = look();
  EXPECT_EQ(found.datasets[0].frames_staged, 2U);
  EXPECT_EQ(found.datasets[0].bytes_unsynced, 0U);
}

// `advectio recover` failed, where a server had died while it removed the stage.
TEST_F(SurveyTest, AStageWhoseJournalsAreRemovedAlreadyHasNone) {
  std::filesystem::remove_all(stage_.journals());
  EXPECT_TRUE(look().journals.empty());
}

TEST_F(SurveyTest, PagesThatAreNoPagesAreToldOf) {
  std::ofstream(stage_.datasets() + "/9-9") << "short";
  std::filesystem::create_directory(stage_.journals() + "/x-1-0");
  const auto found = look();
  EXPECT_TRUE(found.damaged());
  ASSERT_EQ(found.problems.size(), 1U);
  EXPECT_NE(found.problems[0].find("9-9"), std::string::npos);
  EXPECT_EQ(found.journals.size(), 2U);
}

}  // namespace
}  // namespace advectio::journal
