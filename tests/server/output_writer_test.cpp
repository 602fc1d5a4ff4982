#include "server/output_writer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "platform/files.h"
#include "server/parts.h"

namespace advectio {
namespace {

/// While it lives, this process may have 96 descriptors and holds three quarters of them.
class FewDescriptors {
 public:
  FewDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &was_);
    const rlimit few{max, was_.rlim_max};
    while (descriptors_held() < max / 4 * 3) opened_.push_back(::open("/", O_PATH | O_CLOEXEC));
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() {
    ::setrlimit(RLIMIT_NOFILE, &was_);
    for (const int fd : opened_) ::close(fd);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  static constexpr rlim_t max = 96;
  rlimit was_{};
  std::vector<int> opened_;
};

class OutputWriterTest : public PartsTest {
 protected:
  Ledger ledger_{run()};
  Durability durability_{run()};
  OutputWriter writer_{run(), ledger_, durability_};

  std::shared_ptr<Output> begun(const std::string& name) {
    auto o = output(name);
    EXPECT_TRUE(writer_.store_schema(*o, series(width)).ok());
    ledger_.outputs.push_back(o);
    return o;
  }
};

TEST_F(OutputWriterTest, APutIsVisibleWhenItsSyncIsCommitted) {
  const auto o = begun("a.nc");
  ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  EXPECT_TRUE(o->progress.uncommitted);
  EXPECT_EQ(o->shared_state->visible.load(), 0U);
  ASSERT_TRUE(writer_.act(o, sync(3, 1), false).ok());
  EXPECT_FALSE(o->progress.uncommitted);
  EXPECT_EQ(o->shared_state->visible.load(), 3U);
  EXPECT_EQ(o->progress.frames_visible, 1U);
  EXPECT_EQ(store_.files["a.nc"].committed.size(), 1U);
}

TEST_F(OutputWriterTest, ACloseEndsItAndTheStageForgetsIt) {
  const auto o = begun("a.nc");
  ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  ASSERT_TRUE(writer_.act(o, sync(3, 1, RecordType::close), false).ok());
  EXPECT_EQ(o->state, State::finished);
  EXPECT_FALSE(std::filesystem::exists(o->file.link));
  EXPECT_FALSE(run().stage.open_state(o->state_name).ok());
}

TEST_F(OutputWriterTest, AFailureIsKeptForTheProgramAndTheSinkGoes) {
  const auto o = begun("a.nc");
  store_.fail_commit_of = "a.nc";
  ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  auto done = writer_.act(o, sync(3, 1), false);
  ASSERT_FALSE(done.ok());
  writer_.fail(*o, done.error());
  EXPECT_EQ(o->state, State::failed);
  EXPECT_FALSE(o->sink);
  EXPECT_EQ(o->shared_state->errors.load(), 1U);
  EXPECT_EQ(o->shared_state->error_sys.load(), ENOSPC);
  EXPECT_EQ(o->shared_state->visible.load(), 0U);
  ASSERT_EQ(run().errors.size(), 1U);
  writer_.fail(*o, done.error());
  EXPECT_EQ(run().errors.size(), 1U) << "the same failure is reported once";
}

TEST_F(OutputWriterTest, OneThatNobodySyncedIsRemovedWhenItsWriterIsGone) {
  const auto o = begun("a.nc");
  writer_.drop_rest(*o, "w");
  EXPECT_EQ(o->state, State::dropped);
  EXPECT_FALSE(std::filesystem::exists(o->path));
}

TEST_F(OutputWriterTest, WhereASinkCannotCommitInTheMidstOfAFrameNothingIsSaidToBeCommitted) {
  store_.checkpoints = false;
  const auto o = begun("a.nc");
  EXPECT_FALSE(writer_.commit_part(o).value()) << "also where there is no sink yet";
  ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  EXPECT_FALSE(writer_.commit_part(o).value());
  EXPECT_TRUE(o->progress.uncommitted);
  EXPECT_EQ(o->shared_state->visible.load(), 0U);
  ASSERT_TRUE(writer_.act(o, sync(3, 1), false).ok());
  EXPECT_EQ(store_.files["a.nc"].committed.size(), 1U);
}

TEST_F(OutputWriterTest, TheSinkHearsTheNumberThatTheFrameHasWhereItIsGivenAgain) {
  const auto o = begun("a.nc");
  const auto frame = [&](std::uint64_t number) {
    EXPECT_TRUE(writer_.act(o, put(2 * number, number - 1, 5), false).ok());
    return writer_.act(o, sync(2 * number + 1, number), false);
  };
  for (const std::uint64_t number : {1U, 2U}) ASSERT_TRUE(frame(number).ok());
  EXPECT_TRUE(writer_.act(o, sync(6, 0), false).ok()) << "nothing was put: no frame";
  store_.fail_commit_of = "a.nc";
  const auto failed = frame(3);
  ASSERT_FALSE(failed.ok());
  writer_.fail(*o, failed.error());
  store_.allow();
  o->become(State::open);
  for (const std::uint64_t number : {3U, 4U}) ASSERT_TRUE(frame(number).ok());
  EXPECT_EQ(store_.files["a.nc"].begun, (std::vector<std::uint64_t>{1, 2, 3, 3, 4}));
  EXPECT_EQ(o->progress.frames_visible, 4U);
}

TEST_F(OutputWriterTest, SmallFramesAreCommittedTogetherWhenTheProgramIsAhead) {
  const auto o = begun("a.nc");
  o->shared_state->synced.store(9);
  const auto frame = [&](std::uint64_t number) {
    ASSERT_TRUE(writer_.act(o, put(2 * number, number - 1, 5), false).ok());
    ASSERT_TRUE(writer_.act(o, sync(2 * number + 1, number), false).ok());
  };
  for (const std::uint64_t number : {1U, 2U, 3U}) frame(number);
  EXPECT_EQ(o->waiting.size(), 3U);
  EXPECT_EQ(o->shared_state->visible.load(), 0U);
  EXPECT_EQ(store_.files["a.nc"].commits, 0);
  frame(4);
  EXPECT_TRUE(o->waiting.empty());
  EXPECT_EQ(o->shared_state->visible.load(), 9U);
  EXPECT_EQ(o->progress.frames_visible, 4U);
  EXPECT_EQ(store_.files["a.nc"].commits, 1);
  EXPECT_EQ(store_.files["a.nc"].committed.size(), 4U);
  EXPECT_EQ(store_.files["a.nc"].begun, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(store_.files["a.nc"].of_parts, (std::vector<std::uint64_t>{1, 2, 3, 4})) << "small blocks, too";
}

TEST_F(OutputWriterTest, FramesThatWaitAreCommittedByTheClose) {
  const auto o = begun("a.nc");
  o->shared_state->synced.store(5);
  ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  ASSERT_TRUE(writer_.act(o, sync(3, 1), false).ok());
  ASSERT_TRUE(writer_.act(o, put(4, 1, 5), false).ok());
  ASSERT_TRUE(writer_.act(o, sync(5, 2, RecordType::close), false).ok());
  EXPECT_EQ(o->state, State::finished);
  EXPECT_EQ(o->progress.frames_visible, 2U);
  EXPECT_EQ(store_.files["a.nc"].committed.size(), 2U);
}

TEST_F(OutputWriterTest, AfterAFailureEachFrameIsCommittedByItself) {
  const auto o = begun("a.nc");
  o->shared_state->synced.store(9);
  o->trouble.error = Error{Code::full, "the disk is full", ENOSPC};
  ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  ASSERT_TRUE(writer_.act(o, sync(3, 1), false).ok());
  EXPECT_EQ(o->shared_state->visible.load(), 3U);
}

TEST_F(OutputWriterTest, WhereDescriptorsAreFewSinksWithNothingToCommitAreLetGo) {
  const auto a = begun("a.nc"), b = begun("b.nc"), c = begun("c.nc"), waits = begun("waits.nc");
  waits->shared_state->synced.store(9);
  for (const auto& o : {waits, a, b}) ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  for (const auto& o : {waits, a}) ASSERT_TRUE(writer_.act(o, sync(3, 1), false).ok());
  EXPECT_EQ(waits->waiting.size(), 1U);
  const auto [done, letting_more_go] = [&] {
    const FewDescriptors few;
    auto first = writer_.act(c, put(2, 0, 5), false);
    return std::pair(std::move(first), writer_.act(begun("d.nc"), put(2, 0, 5), false));
  }();
  ASSERT_TRUE(done.ok() && letting_more_go.ok());
  EXPECT_FALSE(a->sink);
  EXPECT_FALSE(waits->sink);
  EXPECT_EQ(waits->progress.frames_visible, 1U);
  EXPECT_EQ(store_.files["waits.nc"].committed.size(), 1U);
  EXPECT_TRUE(b->sink) << "its frame is not committed";
  ASSERT_TRUE(writer_.act(a, put(4, 1, 5), false).ok());
  ASSERT_TRUE(writer_.act(a, sync(5, 2), false).ok());
  EXPECT_EQ(store_.files["a.nc"].committed.size(), 2U);
  EXPECT_EQ(a->progress.frames_visible, 2U);
}

TEST_F(OutputWriterTest, WhereDescriptorsAreFewACommitLetsOtherSinksGo) {
  const auto idle = begun("idle.nc"), busy = begun("busy.nc");
  for (const auto& o : {idle, busy}) ASSERT_TRUE(writer_.act(o, put(2, 0, 5), false).ok());
  ASSERT_TRUE(writer_.act(idle, sync(3, 1), false).ok());
  const auto done = [&] {
    const FewDescriptors few;
    return writer_.act(busy, sync(3, 1), false);
  }();
  ASSERT_TRUE(done.ok());
  EXPECT_FALSE(idle->sink);
  EXPECT_TRUE(busy->sink) << "its own";
  EXPECT_EQ(busy->progress.frames_visible, 1U);
}

TEST_F(OutputWriterTest, APutThatDoesNotFitTheSchemaIsDamage) {
  const auto o = begun("a.nc");
  auto r = put(2, 0, 5);
  r.payload = r.payload.first(8);
  const auto done = writer_.act(o, r, false);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, Code::corrupt);
}

TEST_F(OutputWriterTest, RecordsOfAnEndingOutputAreKeptUntilItIsDurable) {
  Output o;
  o.progress.visible = 5;
  EXPECT_TRUE(durability_.is_done_with(o, 7, 5));
  EXPECT_FALSE(durability_.is_done_with(o, 7, 6));
  o.become(State::closed);
  o.become(State::ending);
  EXPECT_FALSE(durability_.is_done_with(o, 7, 5));
  o.become(State::failed);
  EXPECT_FALSE(durability_.is_done_with(o, 7, 5));
}

TEST(OutputStateTest, FinishedAndDroppedAreTheEnd) {
  for (const auto to : {State::open, State::closed, State::ending, State::failed}) {
    EXPECT_FALSE(may_become(State::finished, to));
    EXPECT_FALSE(may_become(State::dropped, to));
  }
  EXPECT_FALSE(may_become(State::closed, State::open));
  EXPECT_FALSE(may_become(State::open, State::ending));
  EXPECT_TRUE(may_become(State::failed, State::open));
}

}  // namespace
}  // namespace advectio
