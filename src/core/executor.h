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
/// `run`). Where the process may have no more threads there are fewer. A job must not throw and must not wait for
/// another job. The destructor runs what was given and joins.
///
/// Jobs of a flow belong together. A flow that has little to do does not wait behind one that has much. Of the flows
/// with much, those that somebody waits for go first, one after the other, as then the first of them ends early. Of
/// four jobs one is of a flow with much, so that they go on.
class Executor {
  struct Job {
    std::uint64_t number;  ///< in the order given
    unsigned level;
    std::uint64_t cost;
    std::function<void()> work;
  };

 public:
  /// Outlives its jobs.
  class Flow {
    friend Executor;
    std::deque<Job> jobs_;       ///< that have not begun
    std::uint64_t waiting_ = 0;  ///< their cost
    std::uint64_t awaited_ = 0;  ///< the order in which somebody came to wait; 0: nobody waits
    unsigned level_ = 0;         ///< of the job given last
  };
  /// Cost of jobs that have not begun: no more is little.
  static constexpr std::uint64_t little = 4U << 20U;

  explicit Executor(unsigned threads);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(std::function<void()> job);
  /// The same, in its flow. `cost`: bytes.
  void run(std::function<void()> job, Flow& flow, std::uint64_t cost);
  /// Somebody waits for all jobs of the flow, from now on or no more.
  void set_awaited(Flow& flow, bool awaited);
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
  void add(std::function<void()> work, unsigned level, Flow* flow, std::uint64_t cost);
  [[nodiscard]] Flow* next_flow() const;
  Job take_next();
  void work(unsigned number);

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;      ///< without a flow; of high levels first
  std::vector<Flow*> flows_;  ///< that have jobs
  std::uint64_t given_ = 0, awaited_ = 0, taken_ = 0;
  std::size_t backlog_ = 0;
  unsigned running_ = 0;
  bool ending_ = false;
  unsigned resting_ = 0;  ///< threads that are too many
  std::atomic<unsigned> level_{0};
  std::atomic<unsigned> threads_;  ///< those of a higher number in `pool_` rest
  std::vector<std::thread> pool_;
};

}  // namespace advectio
