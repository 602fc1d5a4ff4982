// A fixed set of threads that run short jobs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace advectio {

/// Jobs begin in the order given, on `threads` threads (0: on the caller's, inside `run`). A job must not throw and
/// must not wait for another job. The destructor runs what was given and joins.
class Executor {
 public:
  explicit Executor(unsigned threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(std::function<void()> job);
  /// Before all that have not begun.
  void run_first(std::function<void()> job);
  /// Jobs that have not begun.
  [[nodiscard]] std::size_t backlog() const;
  [[nodiscard]] unsigned threads() const noexcept { return static_cast<unsigned>(pool_.size()); }

 private:
  void add(std::function<void()> job, bool first);
  void work();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::thread> pool_;
};

}  // namespace advectio
