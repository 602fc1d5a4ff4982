// A fixed set of threads that run short jobs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace advectio {

/// Jobs begin in the order given, those of a higher level first, on `threads` threads (0: on the caller's, inside
/// `run`). A job must not throw and must not wait for another job. The destructor runs what was given and joins.
class Executor {
 public:
  explicit Executor(unsigned threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(std::function<void()> job);
  /// Before all that have not begun.
  void run_first(std::function<void()> job);
  /// Of the jobs that `run` gets from here on. 0 at first.
  void set_level(unsigned level) noexcept { level_ = level; }
  /// So many threads from here on. Fewer: those that are too many end their jobs first. Not from 0, nor to 0.
  /// Only one thread may call it at a time.
  void resize(unsigned threads);
  /// Jobs that have not begun.
  [[nodiscard]] std::size_t backlog() const;
  [[nodiscard]] unsigned threads() const noexcept { return threads_; }

 private:
  struct Job {
    unsigned level;
    std::function<void()> work;
  };
  void add(std::function<void()> work, unsigned level, bool first);
  void work(unsigned number);

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;  ///< of high levels first
  bool ending_ = false;
  unsigned resting_ = 0;  ///< threads that are too many
  std::atomic<unsigned> level_{0};
  std::atomic<unsigned> threads_;  ///< those of a higher number in `pool_` rest
  std::vector<std::thread> pool_;
};

}  // namespace advectio
