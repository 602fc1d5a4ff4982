#include "capture/collective_calls.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace advectio::capture {

using journal::WriterSlot;

/// Wait until a writer has ended all collective calls before this index. False: it has died instead.
bool CollectiveCalls::await_index(std::uint32_t writer, std::uint64_t collective_index) const noexcept {
  const auto& slot = slots_[writer];
  for (unsigned tries = 0; slot.collective_index.load(std::memory_order_acquire) < collective_index; ++tries) {
    if (tries < 64) {
      ::sched_yield();
      continue;
    }
    const auto pid = slot.journal.load(std::memory_order_acquire) != 0 ? static_cast<pid_t>(slot.pid) : 0;
    if (pid != 0 && ::kill(pid, 0) != 0 && errno == ESRCH) return false;
    ::usleep(200);
  }
  return true;
}

void CollectiveCalls::grow(std::uint64_t records) noexcept {
  if (records <= records_) return;
  records_ = records;
  auto& slot = own();
  const auto n = slot.steps.load(std::memory_order_relaxed);
  // The new step overwrites the oldest. No other writer may still need that one.
  if (n >= WriterSlot::steps_kept) {
    const auto needed = slot.step[(n + 1) % WriterSlot::steps_kept].collective_index.load(std::memory_order_relaxed);
    for (std::uint32_t w = 0; w < writers_; ++w)
      if (w != writer_) await_index(w, needed);
  }
  auto& step = slot.step[n % WriterSlot::steps_kept];
  step.collective_index.store(index_ + 1, std::memory_order_relaxed);
  step.records.store(records, std::memory_order_relaxed);
  slot.steps.store(n + 1, std::memory_order_release);
}

std::uint64_t CollectiveCalls::records(std::uint64_t collective_index) noexcept {
  for (std::uint32_t w = 0; w < writers_; ++w) {
    if (w == writer_ || !await_index(w, collective_index)) continue;
    const auto& slot = slots_[w];
    for (auto n = slot.steps.load(std::memory_order_acquire), i = n; i > 0 && n - i < WriterSlot::steps_kept; --i) {
      const auto& step = slot.step[(i - 1) % WriterSlot::steps_kept];
      if (step.collective_index.load(std::memory_order_relaxed) > collective_index) continue;
      records_ = std::max(records_, step.records.load(std::memory_order_relaxed));
      break;
    }
  }
  return records_;
}

}  // namespace advectio::capture
