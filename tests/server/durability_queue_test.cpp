#include "server/durability_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "server/output.h"
#include "server/programs.h"

namespace advectio {
namespace {

class DurabilityQueueTest : public ::testing::Test {
 protected:
  std::atomic<int> syncs_{0}, news_{0};
  std::atomic<bool> stands_{false}, fails_{false};
  std::shared_ptr<Output> a_ = std::make_shared<Output>(), b_ = std::make_shared<Output>();
  DurabilityQueue queue_{[](const auto&) { return Result<void>{}; }, [this] { ++news_; }};

  void push(const std::shared_ptr<Output>& output, std::uint64_t sequence, dev_t system = 0) {
    queue_.push({[this]() -> Result<void> {
                   ++syncs_;
                   while (stands_) ::usleep(1000);
                   if (fails_) return system_error("fdatasync", EIO);
                   return {};
                 },
                 output,
                 sequence,
                 sequence,
                 {sequence},
                 false,
                 7,
                 1,
                 system});
  }
  std::vector<DurabilityQueue::Done> collect(std::size_t count) {
    std::vector<DurabilityQueue::Done> all;
    EXPECT_TRUE(eventually([&] {
      for (auto& done : queue_.collect()) all.push_back(std::move(done));
      return all.size() >= count;
    }));
    return all;
  }
};

TEST_F(DurabilityQueueTest, WhoNeedsDescriptorsWaitsForHalfOfIt) {
  stands_ = true;
  for (const std::uint64_t n : {1, 2}) push(n == 1 ? a_ : b_, n);
  std::atomic<bool> waited{false};
  std::thread who([&] {
    queue_.await_half();
    waited = true;
  });
  ASSERT_TRUE(eventually([&] { return syncs_ == 1; }));
  EXPECT_FALSE(waited);
  stands_ = false;
  who.join();
  EXPECT_EQ(collect(2).size(), 2U);
  queue_.await_half();
}

TEST_F(DurabilityQueueTest, TheLatestCommitOfAnOutputSpeaksForAll) {
  stands_ = true;
  push(a_, 1);
  ASSERT_TRUE(eventually([&] { return syncs_ == 1; }));
  for (const std::uint64_t n : {2, 3, 4}) push(b_, n);
  EXPECT_FALSE(queue_.is_idle());
  stands_ = false;
  const auto done = collect(2);
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(syncs_, 2);
  EXPECT_EQ(done[1].output, b_);
  EXPECT_EQ(done[1].sequence, 4U);
  EXPECT_EQ(done[1].synced, (std::vector<std::uint64_t>{2, 3, 4}));
  EXPECT_EQ(news_, 2);
  EXPECT_TRUE(queue_.is_idle());
}

TEST_F(DurabilityQueueTest, AFileWaitsForFilesOfItsOwnFileSystemOnly) {
  std::atomic<bool> hangs{true};
  const auto other = std::make_shared<Output>();
  queue_.push({[&hangs]() -> Result<void> {
                 while (hangs) ::usleep(1000);
                 return {};
               },
               other,
               1,
               1,
               {1},
               false,
               7,
               1,
               1});
  push(a_, 2, 1);
  push(b_, 1, 2);
  const auto done = collect(1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].output, b_);
  EXPECT_FALSE(queue_.is_idle());
  hangs = false;
  const auto rest = collect(2);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].output, other);  // one after the other
  EXPECT_EQ(rest[1].output, a_);
}

TEST_F(DurabilityQueueTest, WhatTheDiskHasRefusedOnceIsNotDurableTheNextTime) {
  fails_ = true;
  push(a_, 1);
  EXPECT_FALSE(collect(1)[0].result.ok());
  fails_ = false;
  push(a_, 2);
  const auto again = collect(1);
  ASSERT_FALSE(again[0].result.ok());
  EXPECT_EQ(again[0].result.error().sys, EIO);
  a_->sink.open(nullptr);  // a fresh sink has written all of it again
  push(a_, 3);
  EXPECT_TRUE(collect(1)[0].result.ok());
  push(b_, 1);
  EXPECT_TRUE(collect(1)[0].result.ok()) << "another output's disk";
}

TEST_F(DurabilityQueueTest, NothingThatIsQueuedIsLeftBehindAtTheEnd) {
  std::atomic<int> made{0};
  {
    DurabilityQueue queue([](const auto&) { return Result<void>{}; }, [] {});
    for (int n = 0; n < 20; ++n)
      queue.push({[&made]() -> Result<void> {
                    ++made;
                    return {};
                  },
                  std::make_shared<Output>(),
                  1,
                  1,
                  {1},
                  false,
                  7,
                  1,
                  static_cast<dev_t>(n % 3)});
  }
  EXPECT_EQ(made, 20);
}

}  // namespace
}  // namespace advectio
