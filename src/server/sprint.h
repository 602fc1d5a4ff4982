// When the programs of this node have ended, nobody else wants its cores: all of them drain what is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "core/executor.h"
#include "server/run.h"

namespace advectio {

class Sprint {
 public:
  /// `pool` outlives this. It has as many threads as it usually has. `cores`: all that the server may use.
  Sprint(Run& run, Executor& pool, unsigned cores) : run_(run), pool_(pool), usual_(pool.threads()), cores_(cores) {}
  ~Sprint();
  Sprint(const Sprint&) = delete;
  Sprint& operator=(const Sprint&) = delete;

  /// Looks from here on, in a thread of its own: the loop may be in a long commit when the programs end.
  void begin();
  /// One look, for callers that have not called `begin`.
  void look();

  /// Threads while programs compute.
  [[nodiscard]] unsigned usual() const noexcept { return usual_; }
  /// Of the latest sprint; 0: there was none.
  [[nodiscard]] unsigned threads() const noexcept { return threads_; }
  /// How long all sprints have taken.
  [[nodiscard]] std::uint64_t ns() const noexcept;

 private:
  [[nodiscard]] bool programs_have_ended();

  Run& run_;
  Executor& pool_;
  const unsigned usual_, cores_;
  std::map<std::string, std::unique_ptr<Reader>> writers_;  ///< processes of this node, by their journals
  std::uint32_t ends_seen_ = 0;
  std::atomic<unsigned> threads_{0};
  std::atomic<std::uint64_t> ns_{0}, since_ns_{0};  ///< `since_ns_`: 0 while there is none
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace advectio
