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
  /// Bytes that may wait; what comes beyond them is written by the caller.
  static constexpr std::uint64_t waiting_max = 32U << 20U;

  /// `threads` outlives this. What waits counts in `memory`. `wake` is called on any thread when the file is no longer
  /// behind.
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

  [[nodiscard]] std::uint64_t bytes_written() const;
  [[nodiscard]] std::uint64_t write_ns() const;

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
  Executor& threads_;
};

}  // namespace advectio
