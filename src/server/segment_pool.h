// Makes the stage's segments, up to its cap, ahead of need: touching fresh pages costs several times the copy itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "journal/stage.h"
#include "server/log.h"

namespace advectio {

class SegmentPool {
 public:
  /// Counts the segments that are there; `begin` makes others.
  SegmentPool(const journal::Stage& stage, std::uint64_t warm, Log& log);
  ~SegmentPool();
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  /// In threads of its own: makes `warm` segments at once, and later keeps a part of so many free, as long as there are
  /// fewer than `segments_max` of the stage in all. The threads end with the pool.
  void begin();
  [[nodiscard]] std::uint64_t total() const noexcept { return total_.load(); }
  /// While a model puts a frame and no core is free: leave the making ahead for later, as long as some are free.
  void rest(bool resting) noexcept { resting_.store(resting); }
  /// Nobody is expected to write any more: make no segments ahead, and give those back that are free. Whoever writes
  /// all the same gets the segments that it waits for.
  void give_back() noexcept { giving_back_.store(true); }
  /// One segment more than there are, where the run could not go on otherwise. (There may be more than the cap already,
  /// from a server before.)
  void grow_beyond_cap() noexcept { set_limit(std::max(limit_.load(), total_.load()) + 1); }
  /// True when no more segments can be made: the cap is reached, or the file system is full.
  [[nodiscard]] bool exhausted() const noexcept { return total_.load() >= limit_.load(); }

 private:
  void warm_ahead();
  void make_what_is_missed();
  void make_spill();
  [[nodiscard]] std::uint64_t wanted_later() const noexcept;
  bool make_one(bool ahead);
  bool remove_free();
  void set_limit(std::uint64_t segments) noexcept;

  const journal::Stage& stage_;
  std::uint64_t warm_;
  Log& log_;
  std::atomic<std::uint64_t> total_{0};  ///< made
  std::atomic<std::uint64_t> begun_{0};  ///< and those in the making
  std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint64_t> next_number_{0}, next_spilled_{0};
  std::atomic<bool> resting_{false};
  std::atomic<bool> giving_back_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> ending_{false};
  std::thread warming_, answering_;
};

}  // namespace advectio
