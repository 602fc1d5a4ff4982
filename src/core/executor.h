// A fixed set of threads that run short jobs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace advectio {

/// Jobs begin in the order given, those of a higher level first, on `threads` threads (0: on the caller's, inside
/// `run`). A job must not throw and must not wait for another job. The destructor runs what was given and joins.
///
/// Flows of one level share the threads by the cost of their jobs: a flow that has few is not behind all jobs of one
/// that has many (start-time fair queueing; Goyal, Vin and Cheng, SIGCOMM 1996).
class Executor {
 public:
  /// Jobs that belong together. It outlives them.
  class Flow {
    friend Executor;
    std::uint64_t next_ = 0;  ///< where its next job begins, in the sum of costs
  };

  explicit Executor(unsigned threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(std::function<void()> job);
  /// The same, in its flow. `cost`: in what the caller counts, for all flows alike.
  void run(std::function<void()> job, Flow& flow, std::uint64_t cost);
  /// Before all that have not begun.
  void run_first(std::function<void()> job);
  /// Of the jobs that `run` gets from here on. 0 at first.
  void set_level(unsigned level) noexcept { level_ = level; }
  /// So many threads from here on. Fewer: those that are too many end their jobs first. Not from 0, nor to 0.
  /// Only one thread may call it at a time.
  void resize(unsigned threads);
  /// Jobs that have not begun.
  [[nodiscard]] std::size_t backlog() const;
  /// A job that is given now has to wait for a thread.
  [[nodiscard]] bool is_busy() const;
  [[nodiscard]] unsigned threads() const noexcept { return threads_; }

 private:
  struct Job {
    unsigned level;
    std::uint64_t at;  ///< where it begins, in the sum of costs
    std::function<void()> work;
  };
  void add(std::function<void()> work, unsigned level, Flow* flow, std::uint64_t cost);
  void work(unsigned number);

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;                   ///< of high levels first, then by where they begin
  std::map<unsigned, std::uint64_t> now_;  ///< of each level: where its latest job began
  unsigned running_ = 0;
  bool ending_ = false;
  unsigned resting_ = 0;  ///< threads that are too many
  std::atomic<unsigned> level_{0};
  std::atomic<unsigned> threads_;  ///< those of a higher number in `pool_` rest
  std::vector<std::thread> pool_;
};

}  // namespace advectio
