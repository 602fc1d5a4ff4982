// What is told of all that, as JSON.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "server/ledger.h"

namespace advectio {

/// The loop's status for threads that ask: what they ask for is taken at the loop's next pass.
class Snapshot {
 public:
  /// `patience`: how long to wait for a fresh one where there is one already.
  explicit Snapshot(std::chrono::milliseconds patience = std::chrono::milliseconds(500)) : patience_(patience) {}
  /// Waits a little for a fresh one; where the loop is deep in a commit, the last one with `backlog`
  /// in place of the backlog of then. Any thread.
  std::string get(const std::function<void()>& wake, const std::atomic<std::uint64_t>& backlog);
  /// Somebody waits, or there is none yet. The loop's thread, as `put` and `conclude`.
  [[nodiscard]] bool is_wanted();
  void put(std::string text);
  /// The last one.
  void conclude(std::string text);

 private:
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable made_;
  std::string text_;
  bool wanted_ = false, concluded_ = false;
};

class Status {
 public:
  Status(Run& run, Ledger& ledger) : run_(run), ledger_(ledger) {}

  json to_json(bool final);
  std::string text(bool final) { return to_json(final).dump(-1, ' ', false, json::error_handler_t::replace); }
  json with_others(json own) const;

 private:
  Run& run_;
  Ledger& ledger_;
  std::uint64_t memory_peak_ = 0;
};

}  // namespace advectio
