#include "journal/markers.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "journal/scratch.h"

namespace advectio::journal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class MarkersTest : public ::testing::Test {
 protected:
  static Stage stage_at(const std::string& directory) {
    auto stage = Stage::make(system_files(), directory, 1U << 20, 4, 1'000'000'000);
    EXPECT_TRUE(stage) << stage.error().message;
    return std::move(stage).value();
  }

  MappedState<SharedState> dataset(const std::string& name, std::uint64_t synced, std::uint64_t visible,
                                   bool closed = false, std::uint32_t output = 0) {
    auto made = stage_.make_dataset(name, [&](SharedState& p) {
      p.journal = 7;
      p.number = ++number_;
      p.output = output;
    });
    EXPECT_TRUE(made);
    auto& p = *made->shared_state;
    p.synced = synced;
    p.closed = closed ? 1 : 0;
    p.visible = visible;
    return std::move(made->shared_state);
  }

  Scratch scratch_;
  Stage stage_ = stage_at(scratch_ / "run");
  std::uint32_t number_ = 0;
};

TEST_F(MarkersTest, AwaitWhatWasSyncedOrClosedAndIsNotVisible) {
  const auto synced = dataset("1-1", 20, 10);
  const auto closed = dataset("1-2", 30, 30, true);
  const auto open = dataset("1-3", 10, 10);
  const auto further = dataset("1-4", 10, 0, true, 1);
  const auto finished = dataset("1-5", 10, 10, true);
  finished->state = static_cast<std::uint32_t>(DatasetState::finished);
  const auto failed = dataset("1-6", 10, 0, true);
  failed->state = static_cast<std::uint32_t>(DatasetState::failed);
  const auto found = not_visible(stage_);
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, ElementsAre(Awaited{"1-1", 7, 1, 20, false}, Awaited{"1-2", 7, 2, 30, true},
                                  Awaited{"1-6", 7, 6, 10, true}));
}

TEST_F(MarkersTest, HaveWhatTheyAwaitWhenItIsVisibleOrHasEnded) {
  const auto p = dataset("1-1", 20, 10);
  const Awaited sync{"1-1", 7, 1, 20, false}, close{"1-1", 7, 1, 20, true};
  EXPECT_FALSE(has_come(stage_, sync));
  p->visible = 20;
  EXPECT_TRUE(has_come(stage_, sync));
  EXPECT_FALSE(has_come(stage_, close));
  p->state = static_cast<std::uint32_t>(DatasetState::failed);
  EXPECT_FALSE(has_come(stage_, close));
  p->state = static_cast<std::uint32_t>(DatasetState::finished);
  EXPECT_TRUE(has_come(stage_, close));
}

TEST_F(MarkersTest, DoNotAwaitTheNextCloseOfADatasetThatWasOpenedAgain) {
  const auto p = dataset("1-1", 20, 10, true);
  const Awaited close{"1-1", 7, 1, 20, true}, next{"1-1", 7, 1, 40, true},
      complete{"1-1", 7, 1, Awaited::first_frame, true};
  ASSERT_TRUE(reopen(*p, 20));
  EXPECT_FALSE(has_come(stage_, close));
  p->visible = 30;
  EXPECT_TRUE(has_come(stage_, close));
  EXPECT_FALSE(has_come(stage_, next));
  EXPECT_FALSE(has_come(stage_, complete));
}

TEST_F(MarkersTest, HaveWhatTheyAwaitWhenItsNameIsGoneOrAnothersNow) {
  const Awaited close{"1-1", 7, 1, 20, true};
  EXPECT_TRUE(has_come(stage_, close));
  (void)dataset("1-1", 20, 10);
  EXPECT_FALSE(has_come(stage_, close));
  (void)dataset("1-1", 20, 10);  // number 2
  EXPECT_TRUE(has_come(stage_, close));
}

TEST_F(MarkersTest, AreNotGivenUpForASharedStateThatCannotBeRead) {
  (void)dataset("1-1", 20, 10);
  ASSERT_EQ(::truncate((stage_.datasets() + "/1-1").c_str(), 100), 0);
  EXPECT_FALSE(has_come(stage_, {"1-1", 7, 1, 20, true}));
  EXPECT_FALSE(not_visible(stage_));
}

TEST_F(MarkersTest, KeepTheirNotes) {
  auto notes = Markers::take(stage_);
  ASSERT_TRUE(notes);
  const auto path = scratch_ / "with a blank.done";
  EXPECT_EQ(*notes->of(path), std::nullopt);
  auto marker = notes->make(path);
  EXPECT_EQ(directory_of(marker.held), directory_of(path));
  marker.files = {{"1-1", 7, 1, 20, true}, {"1-2", 1'000'000'000'000, 2, 0, false}};
  ASSERT_TRUE(notes->keep(marker));
  EXPECT_EQ(stage_.control().markers_held, 1U);
  auto found = notes->of(path);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->path, path);
  EXPECT_EQ((*found)->held, marker.held);
  EXPECT_EQ((*found)->files, marker.files);
  EXPECT_EQ(markers_in(stage_)->size(), 1U);
  ASSERT_TRUE(notes->forget(marker));
  EXPECT_EQ(stage_.control().markers_held, 0U);
  EXPECT_THAT(*notes->all(), IsEmpty());
  EXPECT_FALSE(notes->keep(notes->make(scratch_ / "a\nb.done")));
}

TEST_F(MarkersTest, CountAgainWhatADeadProcessHasNotCounted) {
  auto notes = Markers::take(stage_);
  ASSERT_TRUE(notes->keep(notes->make(scratch_ / "a.done")));
  stage_.control().markers_held = 0;
  EXPECT_EQ(notes->all()->size(), 1U);
  EXPECT_EQ(stage_.control().markers_held, 1U);
}

TEST_F(MarkersTest, CountNoneWhereALossOfPowerHasLeftTheCountAlone) {
  stage_.control().files_held = 2;
  const auto notes = Markers::take(stage_);
  ASSERT_TRUE(notes);
  ASSERT_TRUE(notes->all());
  EXPECT_EQ(stage_.control().files_held, 0);
}

TEST_F(MarkersTest, AreForgottenWhereALossOfPowerHasDamagedTheirNote) {
  const auto notes = Markers::take(stage_);
  ASSERT_TRUE(notes);
  ASSERT_TRUE(notes->keep(notes->make_new(scratch_ / "a.nc", {"1-1", 7, 1, Awaited::first_frame, false})));
  const auto lost = notes->make_new(scratch_ / "b.nc", {"1-2", 7, 2, Awaited::first_frame, false});
  ASSERT_TRUE(notes->keep(lost));
  const auto names = system_files().list(stage_.directory() + "/markers");
  ASSERT_TRUE(names);
  for (const auto& name : *names) {
    const auto path = stage_.directory() + "/markers/" + name;
    const auto text = read_file(system_files(), path);
    ASSERT_TRUE(text);
    if (std::string_view(reinterpret_cast<const char*>(text->data()), text->size()).find("b.nc") != std::string::npos) {
      ASSERT_EQ(::truncate(path.c_str(), 0), 0);
    }
  }
  EXPECT_FALSE(notes->all());
  const auto damaged = notes->forget_damaged();
  ASSERT_TRUE(damaged);
  EXPECT_EQ(damaged->size(), 1U);
  const auto left = notes->all();
  ASSERT_TRUE(left);
  ASSERT_EQ(left->size(), 1U);
  EXPECT_EQ(left->front().path, scratch_ / "a.nc");
  EXPECT_EQ(stage_.control().files_held, 1);
}

TEST_F(MarkersTest, AreRefusedWhereTheirNoteIsDamaged) {
  auto notes = Markers::take(stage_);
  const auto path = scratch_ / "a.done";
  ASSERT_TRUE(notes->keep(notes->make(path)));
  const auto note = stage_.directory() + "/markers/" + stage_.files().list(stage_.directory() + "/markers")->front();
  for (const std::string text :
       {"", "path /a\n", "path /a\nheld /b\nawait 1 2 3\n", "path a\nheld /b\n", "path /a\nheld /b\nask ../c\n",
        "path /a\nheld /b\nawait 1 2 3 0 ../../etc\n", "path /a\nheld /b"}) {
    ASSERT_TRUE(replace_file(stage_.files(), note, std::as_bytes(std::span(text))));
    EXPECT_FALSE(notes->all()) << text;
    EXPECT_FALSE(notes->of(path)) << text;
  }
}

TEST_F(MarkersTest, OfRenamedFilesAreFoundWithoutTheLock) {
  const auto path = scratch_ / "a.nc";
  EXPECT_EQ(held_name_of(stage_, path), path);
  {
    const auto notes = Markers::take(stage_);
    auto marker = notes->make(path, true);
    marker.files = {{"1-1", 7, 1, 20, true}};
    ASSERT_TRUE(notes->keep(marker));
    EXPECT_EQ(stage_.control().files_held, 1U);
    EXPECT_EQ(stage_.control().markers_held, 0U);
    EXPECT_EQ(held_name_of(stage_, path), marker.held);
    EXPECT_EQ(held_name_of(stage_, path + "2"), path + "2");
    const auto found = notes->of(path);
    ASSERT_TRUE(found && *found && (*found)->is_file);
    EXPECT_TRUE(notes->all()->front().is_file);
    ASSERT_TRUE(notes->forget(**found));
  }
  EXPECT_EQ(held_name_of(stage_, path), path);
  EXPECT_EQ(stage_.control().files_held, 0U);
}

TEST_F(MarkersTest, HoldARenamedFileOnlyWhereItIsClosedAndInFlight) {
  const auto path = scratch_ / "a.nc";
  ASSERT_EQ(::close(::creat(path.c_str(), 0600)), 0);
  EXPECT_FALSE(in_flight_and_closed(stage_, path));
  const auto p = dataset(*Stage::state_name_of(path), 20, 10);
  EXPECT_FALSE(in_flight_and_closed(stage_, path));
  p->closed = 1;
  EXPECT_EQ(in_flight_and_closed(stage_, path), (Awaited{*Stage::state_name_of(path), 7, 1, 20, true}));
  p->state = static_cast<std::uint32_t>(DatasetState::finished);
  EXPECT_FALSE(in_flight_and_closed(stage_, path));
}

TEST_F(MarkersTest, OfTwoRunsHaveTwoHeldNames) {
  const auto other = stage_at(scratch_ / "other");
  EXPECT_NE(Markers::take(stage_)->make("/a.done").held, Markers::take(other)->make("/a.done").held);
}

TEST_F(MarkersTest, AreLookedAtByOneAtATime) {
  auto notes = Markers::take(stage_);
  ASSERT_TRUE(notes);
  EXPECT_EQ(Markers::take(stage_).error().code, Code::exists);
}

}  // namespace
}  // namespace advectio::journal
