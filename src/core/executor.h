// A fixed set of threads that run short jobs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace advectio {

/// Jobs begin in the order given, those of a higher level first, on `threads` threads (0: on the caller's, inside
/// `run`). A job must not throw and must not wait for another job. The destructor runs what was given and joins.
///
/// A flow that has little to do does not wait behind one that has much: of each flow the first `ahead_max` of cost that
/// has not begun goes before what all of them have beyond that. Of four jobs one is of those beyond, so that they go
/// on.
class Executor {
 public:
  /// Jobs that belong together. It outlives them.
  class Flow {
    friend Executor;
    std::uint64_t waiting_ = 0;  ///< cost of its jobs that have not begun
  };
  static constexpr std::uint64_t ahead_max = 4U << 20U;

  explicit Executor(unsigned threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(std::function<void()> job);
  /// The same, in its flow. `cost`: bytes.
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
    bool beyond;  ///< of what its flow has much
    Flow* flow;
    std::uint64_t cost;
    std::function<void()> work;
  };
  void add(std::function<void()> work, unsigned level, Flow* flow, std::uint64_t cost);
  Job take_next();
  void work(unsigned number);

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;  ///< of high levels first, of each those that are `beyond` last
  unsigned running_ = 0, taken_ = 0;
  bool ending_ = false;
  unsigned resting_ = 0;  ///< threads that are too many
  std::atomic<unsigned> level_{0};
  std::atomic<unsigned> threads_;  ///< those of a higher number in `pool_` rest
  std::vector<std::thread> pool_;
};

}  // namespace advectio
