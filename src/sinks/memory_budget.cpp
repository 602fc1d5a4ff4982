#include "sinks/memory_budget.h"

#include <algorithm>
#include <utility>

namespace advectio {

bool MemoryBudget::reserve(std::uint64_t bytes, bool anyway) {
  const std::lock_guard lock(mutex_);
  if (reserved_ + bytes > max_ && !anyway) return false;
  reserved_ += bytes;
  reserved_peak_ = std::max(reserved_peak_, reserved_);
  while (!kept_.empty() && reserved_ + kept_bytes_ > max_) {
    kept_bytes_ -= kept_.front().capacity();
    kept_.erase(kept_.begin());
  }
  return true;
}

void MemoryBudget::release(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  reserved_ -= bytes;
}

std::uint64_t MemoryBudget::reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

std::uint64_t MemoryBudget::reserved_peak() const {
  const std::lock_guard lock(mutex_);
  return reserved_peak_;
}

/// Of those that are kept the one used last, whose memory is warmest. It counts as reserved from now on.
Buffer MemoryBudget::take() {
  const std::lock_guard lock(mutex_);
  if (kept_.empty()) return {};
  auto b = std::move(kept_.back());
  kept_.pop_back();
  kept_bytes_ -= b.capacity();
  return b;
}

void MemoryBudget::give(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (buffer.capacity() == 0 || reserved_ + kept_bytes_ + buffer.capacity() > max_ || kept_.size() >= 64) return;
  kept_bytes_ += buffer.capacity();
  kept_.push_back(std::move(buffer));
}

}  // namespace advectio
