#include "sinks/transaction/write_behind.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <future>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "platform/faulty_files.h"
#include "sinks/cdf5/cdf5_sink.h"
#include "sinks/fed_sink.h"
#include "sinks/netcdf4/netcdf4_sink.h"

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
  const auto part = bytes_of(WriteBehind::waiting_max / 4 - 1024, 1);  // and what a part costs
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

TEST_F(WriteBehindTest, IsBehindWithManySmallWritesThatAreApart) {
  disk_->hang(true);
  const auto little = bytes_of(4, 1);
  constexpr std::uint64_t most = WriteBehind::waiting_max / 2 / 100;
  std::uint64_t writes = 0;
  for (; !behind_.is_behind() && writes < most; ++writes) ASSERT_TRUE(behind_.write(writes * 8, little).ok());
  EXPECT_LT(writes, most) << "each costs more than its bytes";
  EXPECT_EQ(memory_->reserved(), 4 * writes);
  disk_->hang(false);
  ASSERT_TRUE(behind_.drain().ok());
  EXPECT_EQ(memory_->reserved(), 0U);
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

/// A sink whose data one thread writes, which a test keeps busy.
class SinkWrittenBehindTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(directory_.data()), nullptr);
    path_ = directory_ + "/a.nc";
    ::close(::creat(path_.c_str(), 0600));
  }
  void TearDown() override {
    sink_.reset();
    std::filesystem::remove_all(directory_);
  }
  void open(FileFormat format, std::uint64_t width) {
    const auto wake = [this] { ++woken_; };
    if (format == FileFormat::netcdf4) {
      Netcdf4Options options;
      options.disk = &disk_;
      options.wake = wake;
      sink_ = std::move(testing::fed(open_netcdf4(files_, path_, options, none_, false))).value();
    } else {
      Cdf5Options options;
      options.disk = &disk_;
      options.wake = wake;
      sink_ = std::move(testing::fed(open_cdf5(files_, path_, options, false))).value();
    }
    row_.resize(width);
    Schema schema;
    schema.format = format;
    schema.dimensions = {{"time", 0, true}, {"x", width, false}};
    Variable t;
    t.name = "t";
    t.type = DataType::float32;
    t.dimensions = {0, 1};
    if (format == FileFormat::netcdf4) {
      t.contiguous = false;
      t.chunks = {1, width};
    }
    schema.variables = {t};
    ASSERT_TRUE(sink_->declare(schema).ok());
  }
  void write(std::uint64_t record, float value) {
    auto& row = rows_.emplace_back(row_.size(), value);
    Block block;
    block.box = {{record, 0}, {1, row.size()}};
    block.data = reinterpret_cast<const std::byte*>(row.data());
    block.bytes = row.size() * sizeof(float);
    ASSERT_TRUE(sink_->write(block).ok());
  }
  /// On return its thread is done with what came before.
  void keep_disk_busy() {
    disk_.run([this] {
      busy_.set_value();
      free_.get_future().wait();
    });
    busy_.get_future().wait();
  }
  void free_disk() { free_.set_value(); }

  std::string directory_ = (std::filesystem::temp_directory_path() / "advectio-behind-XXXXXX").string();
  std::string path_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  FaultyFiles files_{system_files(), faults_};
  std::atomic<int> woken_{0};
  std::promise<void> busy_, free_;
  Executor none_{0}, disk_{1};
  std::deque<std::vector<float>> rows_;  // borrowed until the commit
  std::vector<float> row_;
  std::unique_ptr<testing::FedSink> sink_;
};

/// A disk that hangs is to do so where no lock is held. In a commit HDF5 reads metadata, under its lock.
TEST_F(SinkWrittenBehindTest, WritesAllInACommitBeforeHdf5ReadsTheFile) {
  open(FileFormat::netcdf4, 1U << 17U);
  write(0, 1.5F);
  ASSERT_TRUE(sink_->commit().ok());
  keep_disk_busy();
  write(1, 2.5F);
  std::vector<std::string> calls;
  faults_->note = [&calls](const char* call) { calls.emplace_back(call); };
  ASSERT_TRUE(sink_->commit().ok());
  faults_->note = nullptr;
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls.front(), "write");
  EXPECT_NE(std::find(calls.begin(), calls.end(), "read"), calls.end()) << "nothing was to be compared";
  free_disk();
}

TEST_F(SinkWrittenBehindTest, LetsPartsOfAClassicFileWaitForTheDisk) {
  constexpr std::uint64_t width = WriteBehind::waiting_max / 4 / sizeof(float);
  open(FileFormat::offset64, width);
  write(0, 1.5F);
  ASSERT_TRUE(sink_->commit().ok());
  keep_disk_busy();
  std::atomic<int> writes{0};
  faults_->note = [&writes](const char* call) { writes += call == std::string("write") ? 1 : 0; };
  for (std::uint64_t record = 1; record < 8; ++record) write(record, static_cast<float>(record));
  write(7, 70.0F);  // the order counts
  EXPECT_EQ(writes, 0) << "the sink has written itself";
  ASSERT_TRUE(sink_->sink().seal().ok());
  auto advanced = sink_->sink().advance();
  ASSERT_TRUE(advanced.ok());
  EXPECT_FALSE(*advanced);
  free_disk();
  for (int seen = 0; !*advanced;) {
    while (woken_ == seen) std::this_thread::yield();
    seen = woken_;
    advanced = sink_->sink().advance();
    ASSERT_TRUE(advanced.ok());
  }
  EXPECT_TRUE(sink_->sink().end().ok());
  faults_->note = nullptr;
  EXPECT_TRUE(sink_->close().ok());
  const auto file = read_file(system_files(), path_);
  ASSERT_TRUE(file.ok());
  const auto begin = file->size() - 8 * width * sizeof(float);
  for (std::uint64_t record = 0; record < 8; ++record) {
    std::array<std::byte, 4> big{};
    std::copy_n(file->begin() + static_cast<std::ptrdiff_t>(begin + record * width * sizeof(float)), 4, big.begin());
    std::reverse(big.begin(), big.end());
    float value = 0;
    std::memcpy(&value, big.data(), sizeof value);
    EXPECT_EQ(value, record == 0 ? 1.5F : record == 7 ? 70.0F : static_cast<float>(record)) << record;
  }
}

}  // namespace
}  // namespace advectio
