// Writes of a file that other threads make, one after the other, in the order in which they were given.
//
// The bytes are copied. So a sink that has metadata to keep in order, and a lock to hold, waits for no disk. Whoever
// needs the bytes in the file, as a commit does, calls `drain`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/executor.h"
#include "core/result.h"
#include "platform/files.h"
#include "sinks/memory_budget.h"

namespace advectio {

/// Calls are serial, but for the counters.
class WriteBehind {
 public:
  /// Bytes that may wait, or one write that is larger. The caller writes what comes beyond them.
  static constexpr std::uint64_t waiting_max = 32U << 20U;

  /// `threads` outlives this. `memory` counts the bytes that wait. `wake` is called on any thread when the file is no
  /// longer behind.
  WriteBehind(std::shared_ptr<File> file, Executor& threads, std::shared_ptr<MemoryBudget> memory,
              std::function<void()> wake);
  /// Waits.
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  /// An error is that of an earlier write. Nothing is written behind one.
  Result<void> write(std::uint64_t offset, std::span<const std::byte> data);
  /// So much waits that whoever has more to write had better wait for `wake`.
  [[nodiscard]] bool is_behind() const;
  /// Everything is in the file on return. The error is that of the first write that failed.
  Result<void> drain();
  /// `drain`, where one that waits may touch these bytes, or make the file reach them.
  Result<void> drain(std::uint64_t offset, std::uint64_t bytes);

  /// Of the file, when everything is there.
  Result<std::uint64_t> size() const;

  [[nodiscard]] std::uint64_t bytes_written() const;
  [[nodiscard]] std::uint64_t write_ns() const;

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
  Executor& threads_;
};

/// A file that is written behind. A read, resize or sync waits for the writes that it depends on.
class FileWrittenBehind final : public File {
 public:
  /// As of WriteBehind.
  FileWrittenBehind(std::shared_ptr<File> file, Executor& threads, std::shared_ptr<MemoryBudget> memory,
                    std::function<void()> wake)
      : file_(std::move(file)), behind_(file_, threads, std::move(memory), std::move(wake)) {}

  Result<void> write(std::uint64_t offset, std::span<const std::byte> data) override {
    return stopped_ ? file_->write(offset, data) : behind_.write(offset, data);
  }
  Result<void> read(std::uint64_t offset, std::span<std::byte> data) override {
    if (!stopped_) ADVECTIO_TRY(behind_.drain(offset, data.size()));
    return file_->read(offset, data);
  }
  Result<std::uint64_t> size() override { return stopped_ ? file_->size() : behind_.size(); }
  Result<void> resize(std::uint64_t bytes) override {
    ADVECTIO_TRY(drain());
    return file_->resize(bytes);
  }
  Result<void> reserve(std::uint64_t bytes) override {
    ADVECTIO_TRY(drain());
    return file_->reserve(bytes);
  }
  Result<void> sync() override {
    ADVECTIO_TRY(drain());
    return file_->sync();
  }
  /// Of the file itself: `drain` comes before.
  [[nodiscard]] int descriptor() const noexcept override { return file_->descriptor(); }
  [[nodiscard]] const std::string& path() const noexcept override { return file_->path(); }

  Result<void> drain() { return stopped_ ? Result<void>{} : behind_.drain(); }
  /// Waits. From here on writes are made at once, also where one behind has failed.
  void stop() noexcept {
    (void)drain();
    stopped_ = true;
  }
  [[nodiscard]] const WriteBehind& behind() const { return behind_; }

 private:
  std::shared_ptr<File> file_;
  WriteBehind behind_;
  bool stopped_ = false;
};

}  // namespace advectio
