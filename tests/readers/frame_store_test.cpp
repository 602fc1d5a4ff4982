#include "readers/frame_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "readers/live_frames.h"

namespace advectio::readers {
namespace {

using ::testing::ElementsAre;

constexpr Waker nobody = -1;
const DatasetKey key{7, 1};
const std::string path = "/run/wrfout_d01";

TEST(MatchesAnyTest, APathMayLeadThroughSymbolicLinksAndUpwards) {
  const auto place = std::filesystem::canonical(std::filesystem::temp_directory_path()) /
                     ("advectio_paths_" + std::to_string(::getpid()));
  std::filesystem::remove_all(place);
  std::filesystem::create_directories(place / "disk" / "run");
  std::filesystem::create_directory_symlink(place / "disk", place / "scratch");
  const auto real = (place / "disk" / "run" / "wrfout*").string();
  EXPECT_TRUE(matches_any({real}, place / "scratch" / "run" / "wrfout_d01"));
  EXPECT_TRUE(matches_any({real}, place / "disk" / "run" / ".." / "run" / "wrfout_d01"));
  EXPECT_FALSE(matches_any({real}, place / "scratch" / "wrfout_d01"));
  EXPECT_FALSE(matches_any({real}, place / "gone" / "run" / "wrfout_d01"));
  EXPECT_TRUE(matches_any({(place / "scratch" / "run" / "*").string()}, place / "scratch" / "run" / "wrfout_d01"));
  EXPECT_TRUE(matches_any({"wrfout*"}, place / "gone" / "wrfout_d01"));
  std::filesystem::remove_all(place);
}

class FrameStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log_ = std::filesystem::temp_directory_path() / ("advectio_frames_" + std::to_string(::getpid()));
    std::filesystem::remove(log_);
    open();
  }
  void TearDown() override { std::filesystem::remove(log_); }
  void open(std::uint64_t memory = 1 << 20) {
    store_.reset();
    auto s = FrameStore::open(log_, memory);
    ASSERT_TRUE(s);
    store_ = std::move(*s);
  }
  /// The frame is synced; `visible`: and committed.
  void put(std::uint64_t number, bool visible = true, DatasetKey k = key, const std::string& p = path) {
    store_->publish(k, p, FileFormat::netcdf4, number, {{number, number + 1}},
                    store_->is_wanted(p) ? live_frame(number, number == 0) : nullptr);
    if (visible) store_->set_visible(k, number + 1);
  }
  std::vector<std::uint64_t> numbers(FrameStore::Subscription& s) {
    std::vector<std::uint64_t> out;
    while (auto f = store_->take(s, true)) out.push_back(f->number);
    return out;
  }
  std::string log_;
  std::unique_ptr<FrameStore> store_;
};

TEST_F(FrameStoreTest, GivesEveryFrameToAReaderThatWaitsForAll) {
  const auto s = store_->subscribe(wants("wrfout*"), nobody);
  for (std::uint64_t k = 0; k < 5; ++k) put(k);
  EXPECT_THAT(numbers(*s), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(FrameStoreTest, LeavesOutTheOldestWhereThatIsWantedAndSaysHowMany) {
  auto r = wants("wrfout*", Policy::drop_oldest);
  r.depth = 2;
  const auto s = store_->subscribe(r, nobody);
  for (std::uint64_t k = 0; k < 5; ++k) put(k);
  const auto f = store_->take(*s, true);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->number, 3U);
  EXPECT_EQ(f->left_out, 3U);
  EXPECT_THAT(numbers(*s), ElementsAre(4));
}

TEST_F(FrameStoreTest, GivesTheNewestWhereThatIsWanted) {
  const auto s = store_->subscribe(wants("*", Policy::latest), nobody);
  for (std::uint64_t k = 0; k < 5; ++k) put(k);
  EXPECT_THAT(numbers(*s), ElementsAre(4));
}

TEST_F(FrameStoreTest, GivesFramesOfMatchingFilesOnly) {
  const auto s = store_->subscribe(wants("/run/wrfout_d02*"), nobody);
  put(0);
  put(0, true, {7, 2}, "/run/wrfout_d02");
  const auto f = store_->take(*s, true);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->path, "/run/wrfout_d02");
  EXPECT_FALSE(store_->take(*s, true));
}

TEST_F(FrameStoreTest, GivesFramesOfARenamedFileUnderItsNewNameToThoseWhoWaitForIt) {
  const auto by_first = store_->subscribe(wants("*.tmp"), nobody);
  const auto by_last = store_->subscribe(wants("*.nc"), nobody);
  const auto by_both = store_->subscribe(wants("out*"), nobody);
  const std::string first = "/run/out.nc.tmp", last = "/run/out.nc";
  put(0, true, key, first);
  put(1, false, key, first);
  EXPECT_FALSE(store_->take(*by_last, true));
  store_->rename(key, last);
  store_->rename(key, last);  // a server that looks again
  const auto f = store_->take(*by_last, true);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->path, last);
  EXPECT_EQ(f->number, 0U);
  EXPECT_TRUE(store_->is_wanted(key));
  put(2, true, key, first);
  EXPECT_THAT(numbers(*by_last), ElementsAre(1, 2));
  EXPECT_THAT(numbers(*by_first), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(*by_both), ElementsAre(0, 1, 2)) << "each once";
}

TEST_F(FrameStoreTest, KnowsNamesOfARenamedFileAfterARestart) {
  const std::string first = "/run/out.nc.tmp", last = "/run/out.nc";
  put(0, true, key, first);
  store_->rename(key, "/run/out.nc.half");
  store_->rename(key, last);
  open();
  store_->take_up(key, 1);
  put(1, true, key, first);
  auto r = wants("out.nc");
  r.history = 5;
  const auto s = store_->subscribe(r, nobody);
  put(2, true, key, first);
  EXPECT_THAT(numbers(*s), ElementsAre(0, 1, 2));
  r.match = {"out*"};
  EXPECT_THAT(numbers(*store_->subscribe(r, nobody)), ElementsAre(0, 1, 2));
  EXPECT_EQ(store_->list({}).size(), 1U);
  EXPECT_EQ(store_->list({last})[0]["visible"], 3);
}

TEST_F(FrameStoreTest, HoldsNothingWhereNobodyHasSubscribed) {
  put(0);
  EXPECT_EQ(store_->held_bytes(), 0U);
  EXPECT_FALSE(store_->is_wanted(path));
}

TEST_F(FrameStoreTest, BeginsWithAsManyFramesOfBeforeAsAReaderWants) {
  for (std::uint64_t k = 0; k < 5; ++k) put(k);
  auto r = wants("*");
  r.history = 2;
  const auto s = store_->subscribe(r, nobody);
  put(5);
  EXPECT_THAT(numbers(*s), ElementsAre(3, 4, 5));
}

TEST_F(FrameStoreTest, GivesAFrameOutOfTheFileOnlyWhenItIsThere) {
  put(0, false);
  auto r = wants("*");
  r.history = 1;
  const auto s = store_->subscribe(r, nobody);
  EXPECT_FALSE(store_->take(*s, true));
  store_->set_visible(key, 1);
  const auto f = store_->take(*s, true);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->live, nullptr);
  EXPECT_EQ(f->records, std::pair(std::uint64_t{0}, std::uint64_t{1}));
}

TEST_F(FrameStoreTest, GivesAFrameThatIsInMemoryAtOnce) {
  const auto s = store_->subscribe(wants("*"), nobody);
  put(0, false);
  const auto f = store_->take(*s, true);
  ASSERT_TRUE(f);
  EXPECT_NE(f->live, nullptr);
}

TEST_F(FrameStoreTest, LetsTheOldestFramesLeaveTheMemoryThatIsForReaders) {
  open(3 * 24);
  const auto s = store_->subscribe(wants("*"), nobody);
  for (std::uint64_t k = 0; k < 6; ++k) put(k);
  EXPECT_LE(store_->held_bytes(), 3U * 24);
  std::vector<bool> in_memory;
  while (auto f = store_->take(*s, true)) in_memory.push_back(f->live != nullptr);
  EXPECT_THAT(in_memory, ElementsAre(false, false, false, true, true, true));
}

TEST_F(FrameStoreTest, NeverLetsGoOfWhatIsNotInTheFile) {
  open(24);
  const auto s = store_->subscribe(wants("*"), nobody);
  for (std::uint64_t k = 0; k < 4; ++k) put(k, false);
  for (std::uint64_t k = 0; k < 4; ++k) {
    const auto f = store_->take(*s, true);
    ASSERT_TRUE(f);
    EXPECT_NE(f->live, nullptr);
  }
}

TEST_F(FrameStoreTest, SharesFramesAmongAGroupAndGivesThemToAnotherWhereOneIsGone) {
  auto r = wants("*");
  r.group = "farm";
  const auto a = store_->subscribe(r, nobody);
  const auto b = store_->subscribe(r, nobody);
  EXPECT_EQ(a, b);
  for (std::uint64_t k = 0; k < 3; ++k) put(k);
  const auto first = store_->take(*a, true);
  EXPECT_EQ(store_->take(*b, true)->number, 1U);
  store_->put_back(*a, *first);
  store_->unsubscribe(a, nobody);
  EXPECT_THAT(numbers(*b), ElementsAre(0, 2));
}

TEST_F(FrameStoreTest, KeepsWhatIsPutOnceForLaterFrames) {
  const auto s = store_->subscribe(wants("*"), nobody);
  put(0);
  put(1);
  (void)store_->take(*s, true);
  const auto f = store_->take(*s, true);
  ASSERT_TRUE(f && f->live->fields.contains(1));
  std::int32_t values[6] = {};
  f->live->fields.at(1)->read({Box{{0}, {6}}}, reinterpret_cast<std::byte*>(values));
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(FrameStoreTest, HasTheSameOrdersWhenItIsOpenedAgain) {
  for (std::uint64_t k = 0; k < 3; ++k) put(k);
  store_->set_over(key, 3);
  put(0, true, {7, 2}, "/run/other");
  put(1, false, {7, 2}, "/run/other");
  open();
  store_->take_up({7, 2}, 1);
  auto r = wants("*");
  r.after = 2;
  const auto s = store_->subscribe(r, nobody);
  EXPECT_EQ(store_->take(*s, true)->order, 3U);
  EXPECT_EQ(store_->take(*s, true)->order, 4U);
  EXPECT_FALSE(store_->take(*s, true)) << "frame 1 of the other is not in its file yet";
  // It is published once more by the server that has taken over.
  put(1, false, {7, 2}, "/run/other");
  const auto f = store_->take(*s, true);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->order, 5U);
  EXPECT_NE(f->live, nullptr);
}

TEST_F(FrameStoreTest, TakesUpALogThatEndsInTheMidstOfALine) {
  put(0);
  put(1);
  store_.reset();
  std::filesystem::resize_file(log_, std::filesystem::file_size(log_) - 20);
  open();
  auto r = wants("*");
  r.after = 0;
  const auto s = store_->subscribe(r, nobody);
  EXPECT_THAT(numbers(*s), ElementsAre(0));
  put(1);
  EXPECT_EQ(store_->take(*s, true)->order, 2U);
}

TEST_F(FrameStoreTest, KnowsWhichReadersOfTheServerBeforeWillComeAgain) {
  EXPECT_TRUE(store_->readers_are_back());
  for (const char* name : {"a", "b", "c"}) store_->note_reader(name, true);
  store_->note_reader("b", false);
  open();
  EXPECT_TRUE(store_->had_readers());
  store_->note_reader("a", true);
  EXPECT_FALSE(store_->readers_are_back());
  open();  // it is killed as well, and one has not come to it
  store_->note_reader("a", true);
  EXPECT_FALSE(store_->readers_are_back());
  store_->note_reader("c", true);
  EXPECT_TRUE(store_->readers_are_back());
  for (const char* name : {"a", "c"}) store_->note_reader(name, false);
  open();
  EXPECT_TRUE(store_->readers_are_back());
  EXPECT_FALSE(store_->had_readers());
}

TEST_F(FrameStoreTest, ANewReaderIsNotTakenForOneThatComesAgain) {
  store_->note_reader("a", true);
  open();
  store_->note_reader("new", true);
  store_->note_reader("", true);
  EXPECT_FALSE(store_->readers_are_back());
  store_->note_reader("a", true);
  EXPECT_TRUE(store_->readers_are_back());
}

TEST_F(FrameStoreTest, OfReadersWithoutANameAsManyComeAgain) {
  for (int i = 0; i < 2; ++i) store_->note_reader("", true);
  open();
  store_->note_reader("", true);
  EXPECT_FALSE(store_->readers_are_back());
  store_->note_reader("", true);
  EXPECT_TRUE(store_->readers_are_back());
}

TEST_F(FrameStoreTest, SaysBehindWhichFrameASubscriptionBegins) {
  for (std::uint64_t k = 0; k < 5; ++k) put(k);
  EXPECT_EQ(store_->before(*store_->subscribe(wants("*"), nobody)), 5U);
  auto r = wants("*");
  r.history = 2;
  const auto s = store_->subscribe(r, nobody);
  EXPECT_EQ(store_->before(*s), 3U);
  put(5);
  EXPECT_EQ(store_->before(*s), 3U);
}

TEST_F(FrameStoreTest, HasNothingBehindAFrameThatThereIsNot) {
  for (std::uint64_t k = 0; k < 3; ++k) put(k);
  for (const auto after : {std::uint64_t{3}, std::uint64_t{4}, UINT64_MAX - 1, UINT64_MAX}) {
    auto r = wants("*");
    r.after = after;
    EXPECT_FALSE(store_->take(*store_->subscribe(r, nobody), true)) << after;
  }
}

TEST_F(FrameStoreTest, PassesOverFramesThatTheirFileWillNeverHave) {
  put(0);
  put(1, false);
  auto r = wants("*");
  r.history = 2;
  const auto s = store_->subscribe(r, nobody);
  store_->set_over(key, 1);
  EXPECT_THAT(numbers(*s), ElementsAre(0));
  put(0, true, {7, 2});
  EXPECT_EQ(store_->take(*s, true)->left_out, 1U);
}

}  // namespace
}  // namespace advectio::readers
