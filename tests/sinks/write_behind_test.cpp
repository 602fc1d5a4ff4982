#include "sinks/transaction/write_behind.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace advectio {
namespace {

/// A file in memory whose disk hangs or is full when told to.
class Disk final : public File {
 public:
  void hang(bool so) {
    const std::lock_guard lock(mutex_);
    hangs_ = so;
    news_.notify_all();
  }
  /// Until a write hangs.
  void await_write() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [this] { return inside_ > 0; });
  }
  std::atomic<bool> full{false};
  std::vector<std::byte> bytes;
  std::atomic<int> writes{0};

  Result<void> write(std::uint64_t offset, std::span<const std::byte> data) override {
    std::unique_lock lock(mutex_);
    EXPECT_EQ(++inside_, 1) << "two writes at one time";
    news_.notify_all();
    news_.wait(lock, [this] { return !hangs_; });
    --inside_;
    ++writes;
    if (full) return Error{Code::full, "no space", ENOSPC};
    if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size());
    std::memcpy(bytes.data() + offset, data.data(), data.size());
    return {};
  }
  Result<void> read(std::uint64_t, std::span<std::byte>) override { return {}; }
  Result<std::uint64_t> size() override { return bytes.size(); }
  Result<void> resize(std::uint64_t) override { return {}; }
  Result<void> reserve(std::uint64_t) override { return {}; }
  Result<void> sync() override { return {}; }
  [[nodiscard]] int descriptor() const noexcept override { return -1; }
  [[nodiscard]] const std::string& path() const noexcept override { return path_; }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  bool hangs_ = false;
  int inside_ = 0;
  std::string path_ = "disk";
};

std::vector<std::byte> bytes_of(std::size_t n, int value) {
  return std::vector<std::byte>(n, static_cast<std::byte>(value));
}

class WriteBehindTest : public ::testing::Test {
 protected:
  std::shared_ptr<Disk> disk_ = std::make_shared<Disk>();
  std::shared_ptr<MemoryBudget> memory_ = std::make_shared<MemoryBudget>(1U << 30U);
  std::atomic<int> woken_{0};
  Executor threads_{2};
  WriteBehind behind_{disk_, threads_, memory_, [this] { ++woken_; }};
};

TEST_F(WriteBehindTest, LaterBytesWinAndAllAreThereAfterADrain) {
  disk_->hang(true);
  ASSERT_TRUE(behind_.write(0, bytes_of(100, 1)).ok());
  disk_->await_write();
  ASSERT_TRUE(behind_.write(50, bytes_of(100, 2)).ok());
  ASSERT_TRUE(behind_.write(150, bytes_of(10, 3)).ok());
  ASSERT_TRUE(behind_.write(0, bytes_of(10, 4)).ok());
  EXPECT_EQ(disk_->writes, 0);
  EXPECT_EQ(memory_->reserved(), 220U);
  disk_->hang(false);
  ASSERT_TRUE(behind_.drain().ok());
  EXPECT_EQ(disk_->writes, 3) << "neighbours go out in one write";
  EXPECT_EQ(memory_->reserved(), 0U);
  EXPECT_EQ(behind_.bytes_written(), 220U);
  const std::vector<std::pair<std::size_t, int>> expected{{0, 4},  {9, 4},   {10, 1}, {49, 1},
                                                          {50, 2}, {149, 2}, {159, 3}};
  ASSERT_EQ(disk_->bytes.size(), 160U);
  for (const auto& [at, value] : expected) EXPECT_EQ(disk_->bytes[at], static_cast<std::byte>(value)) << at;
}

TEST_F(WriteBehindTest, OneThatReadsWaitsForTheBytesThatItReadsAlone) {
  disk_->bytes.resize(2000);
  disk_->hang(true);
  ASSERT_TRUE(behind_.write(1000, bytes_of(100, 1)).ok());
  disk_->await_write();
  EXPECT_TRUE(behind_.drain(0, 1000).ok());
  EXPECT_TRUE(behind_.drain(1100, 8).ok());
  EXPECT_EQ(disk_->writes, 0);
  std::thread disk([this] { disk_->hang(false); });
  EXPECT_TRUE(behind_.drain(1099, 1).ok());
  EXPECT_EQ(disk_->writes, 1);
  disk.join();
}

TEST_F(WriteBehindTest, OneThatReadsBeyondTheEndWaitsForWhatMakesTheFileReachThere) {
  disk_->hang(true);
  ASSERT_TRUE(behind_.write(1000, bytes_of(100, 1)).ok());
  disk_->await_write();
  std::thread disk([this] { disk_->hang(false); });
  EXPECT_TRUE(behind_.drain(0, 8).ok());
  EXPECT_EQ(disk_->bytes.size(), 1100U);
  disk.join();
}

TEST_F(WriteBehindTest, WakesWhenItIsNoLongerBehind) {
  disk_->hang(true);
  const auto part = bytes_of(WriteBehind::waiting_max / 4, 1);
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(behind_.write(i * part.size(), part).ok());
  EXPECT_FALSE(behind_.is_behind());
  ASSERT_TRUE(behind_.write(2 * part.size(), part).ok());
  EXPECT_TRUE(behind_.is_behind());
  disk_->hang(false);
  ASSERT_TRUE(behind_.drain().ok());
  EXPECT_FALSE(behind_.is_behind());
  EXPECT_EQ(woken_, 1);
}

TEST_F(WriteBehindTest, TheCallerWritesWhatIsTooMuchAlsoWhereNoThreadIsFree) {
  disk_->hang(true);
  Disk other;
  other.hang(true);
  const auto block = [&other] { (void)other.write(0, bytes_of(1, 1)); };
  Executor one(1);
  one.run(block);
  other.await_write();
  WriteBehind behind(disk_, one, memory_, {});
  disk_->hang(false);
  const auto part = bytes_of(WriteBehind::waiting_max / 2, 1);
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(behind.write(i * part.size(), part).ok());
  EXPECT_GE(disk_->writes, 3);
  EXPECT_TRUE(behind.drain().ok());
  EXPECT_EQ(disk_->bytes.size(), 5 * part.size());
  other.hang(false);
}

TEST_F(WriteBehindTest, NothingIsWrittenBehindAWriteThatFailed) {
  disk_->hang(true);
  ASSERT_TRUE(behind_.write(0, bytes_of(10, 1)).ok());
  disk_->await_write();
  ASSERT_TRUE(behind_.write(100, bytes_of(10, 1)).ok());
  disk_->full = true;
  disk_->hang(false);
  const auto drained = behind_.drain();
  ASSERT_FALSE(drained.ok());
  EXPECT_EQ(drained.error().sys, ENOSPC);
  disk_->full = false;
  EXPECT_FALSE(behind_.write(200, bytes_of(10, 1)).ok());
  EXPECT_FALSE(behind_.drain().ok());
  EXPECT_FALSE(behind_.drain(500, 1).ok());
  EXPECT_EQ(disk_->writes, 1);
  EXPECT_TRUE(disk_->bytes.empty());
  EXPECT_EQ(memory_->reserved(), 0U);
}

}  // namespace
}  // namespace advectio
