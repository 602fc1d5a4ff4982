// Makes the stage's segments ahead of need, up to its cap: touching fresh pages costs several times the copy itself.
// Writers that find none free make their own (journal/segments.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "journal/stage.h"
#include "platform/log.h"

namespace advectio {

class SegmentPool {
 public:
  /// Counts the segments that are there; `begin` makes others. `warm`: segments to make at once.
  SegmentPool(const journal::Stage& stage, std::uint64_t warm, Log& log);
  ~SegmentPool();
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  /// In threads of its own: makes `warm` segments at once. Later it keeps some free, and has as many in all as the
  /// largest file that a program reads would take (StageControl::input_bytes), as long as its frames are of that
  /// order. Where the machine is short of memory it makes none ahead, and removes those that stay free. The threads end
  /// with the pool.
  void begin();
  [[nodiscard]] std::uint64_t total() const noexcept { return stage_.control().segments_total.load(); }
  /// While a model puts a frame and no core is free: leave the making ahead for later, as long as some are free.
  void rest(bool resting) noexcept { resting_.store(resting); }
  /// Nobody is expected to write any more: make no segments ahead, and give those back that are free. Whoever writes
  /// all the same gets the segments that it waits for.
  void give_back() noexcept { giving_back_.store(true); }
  /// One segment more than there are, where the run could not go on otherwise. (There may be more than the cap already,
  /// from a server before.)
  void grow_beyond_cap() noexcept;
  /// True when no more segments can be made: the cap is reached, or the file system is full.
  [[nodiscard]] bool exhausted() const noexcept { return total() >= stage_.control().segments_limit.load(); }

  /// One look around of each of its threads, for callers that have not called `begin`. `now` as from
  /// `journal::monotonic_ns`. True when `warm` has made a segment, and may make another at once.
  bool warm(std::uint64_t now);
  void answer(std::uint64_t now);

  /// For tests: the machine has at most that much memory left, whatever it says.
  void pretend_available(std::uint64_t bytes) noexcept { available_at_most_.store(bytes); }

 private:
  void warm_ahead();
  void make_what_is_missed();
  void make_spill();
  void look_at_memory(std::uint64_t now);
  [[nodiscard]] std::uint64_t wanted_free() const noexcept;
  [[nodiscard]] std::uint64_t wanted_total() const noexcept;
  bool make_one(bool ahead);

  const journal::Stage& stage_;
  std::uint64_t warm_;
  Log& log_;
  std::atomic<std::uint64_t> next_spilled_{0};
  std::atomic<std::uint64_t> available_at_most_{~0ULL};
  std::atomic<bool> resting_{false};
  std::atomic<bool> giving_back_{false};
  std::atomic<bool> limit_logged_{false};  ///< the log says that the stage cannot grow

  // The warming thread's own.
  std::uint64_t ahead_ = 0, ahead_counted_ns_ = 0;  ///< held ready by writers, when last counted
  std::uint64_t used_most_ = 0;                     ///< the most that were in use at one time
  bool memory_is_short_ = false;
  std::uint64_t looked_at_memory_ns_ = 0;
  std::uint64_t free_least_ = 0;  ///< fewest that were free since then

  std::uint64_t answered_ns_;  ///< the answering thread's own: when a writer that waited was seen last

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> ending_{false};
  std::thread warming_, answering_;
};

}  // namespace advectio
