// Memory that sinks share: for chunks under way, and for bytes that wait for a disk.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "core/buffer.h"

namespace advectio {

/// Over all sinks that share it; any thread. Buffers are kept for the next chunk
/// rather than given back and faulted in anew, as long as they and what is reserved stay below the
/// bound.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t bytes_max) : max_(bytes_max) {}

  /// False: that would be too much. With `anyway` it is granted all the same.
  bool reserve(std::uint64_t bytes, bool anyway);
  void release(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t reserved() const;
  [[nodiscard]] std::uint64_t reserved_peak() const;

  Buffer take();
  void give(Buffer buffer);

 private:
  mutable std::mutex mutex_;
  const std::uint64_t max_;
  std::uint64_t reserved_ = 0, reserved_peak_ = 0, kept_bytes_ = 0;
  std::vector<Buffer> kept_;
};

}  // namespace advectio
