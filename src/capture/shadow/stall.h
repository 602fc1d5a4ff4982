// The time that a program spends in our code. Each frame reports it.
#pragma once

#include <cstdint>
#include <ctime>
#include <utility>

#include "capture/dataset.h"

namespace advectio::shadow {

inline std::uint64_t now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000U + static_cast<std::uint64_t>(t.tv_nsec);
}

/// Of one dataset, which it borrows.
class StallClock {
 public:
  explicit StallClock(CapturedDataset& dataset) noexcept : dataset_(dataset) {}

  /// A call into the dataset that counts its own time. Only the rest of the face's time is added.
  template <typename Call>
  auto timed(Call&& call) {
    const auto begin = now_ns();
    auto result = call();
    counted_ns_ += now_ns() - begin;
    return result;
  }

 private:
  friend class Stall;
  CapturedDataset& dataset_;
  std::uint64_t counted_ns_ = 0;
  bool runs_ = false;
};

/// Measures until it goes, and adds the time to the dataset's stall. Within another one it does
/// nothing.
class Stall {
 public:
  explicit Stall(StallClock& clock) noexcept
      : clock_(std::exchange(clock.runs_, true) ? nullptr : &clock), begin_ns_(now_ns()) {
    if (clock_ != nullptr) clock_->counted_ns_ = 0;
  }
  ~Stall() { report(); }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;
  /// Already here: the dataset is about to go.
  void report() noexcept {
    auto* clock = std::exchange(clock_, nullptr);
    if (clock == nullptr) return;
    clock->runs_ = false;
    const auto whole_ns = now_ns() - begin_ns_;
    if (whole_ns > clock->counted_ns_) clock->dataset_.add_stall(whole_ns - clock->counted_ns_);
  }

 private:
  StallClock* clock_;
  std::uint64_t begin_ns_;
};

}  // namespace advectio::shadow
