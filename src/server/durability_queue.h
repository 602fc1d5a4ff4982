// The queue of files that are to survive a loss of power. Threads of its own force them to the disk (fsync), so that a
// slow disk holds up neither the loop nor other outputs' commits. Each file system has one job at a time, and waits for
// no other: a disk that hangs holds up its own files only.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/result.h"

namespace advectio {

struct Output;

class DurabilityQueue {
 public:
  /// What is committed of an output up to `sequence` is to be made durable.
  struct Job {
    std::function<Result<void>()> make;  ///< forces the file to the disk
    std::shared_ptr<Output> output;
    std::uint64_t sequence = 0;
    std::uint64_t frames = 0;
    std::vector<std::uint64_t> synced;  ///< real times of the program's syncs of the frames that ended here
    bool last = false;                  ///< the file is closed, and the output ends with this
    std::uint64_t journal = 0;          ///< and `number`: whose shared state it is
    std::uint32_t number = 0;
    dev_t system = 0;  ///< of the file
  };
  struct Done {
    std::shared_ptr<Output> output;
    std::uint64_t sequence = 0;
    std::uint64_t frames = 0;
    bool last = false;
    std::vector<std::uint64_t> synced;  ///< of all jobs that this one speaks for
    std::uint64_t at_ns = 0;            ///< real time
    Result<void> result;
  };

  /// `note` is called on the thread after each `make` that succeeded, and its error becomes the job's. `news` is called
  /// on the thread when something is done. With several file systems these are several threads.
  DurabilityQueue(std::function<Result<void>(const Job&)> note, std::function<void()> news);
  /// Does all that is queued first.
  ~DurabilityQueue();
  DurabilityQueue(const DurabilityQueue&) = delete;
  DurabilityQueue& operator=(const DurabilityQueue&) = delete;

  void push(Job job);
  /// Blocks until half of what is queued now is done: each job holds descriptors.
  void await_half();
  /// What has been done since the last call.
  std::vector<Done> collect();
  /// Nothing is queued, under way or waits to be collected.
  [[nodiscard]] bool is_idle() const;

 private:
  void work();
  [[nodiscard]] std::deque<Job>::iterator next();

  const std::function<Result<void>(const Job&)> note_;
  const std::function<void()> news_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_, fewer_;
  std::deque<Job> jobs_;
  std::vector<Done> done_;
  std::set<dev_t> busy_;  ///< file systems on which something is being forced
  bool ending_ = false;
  std::vector<std::thread> threads_;  ///< as many as file systems had jobs at one time, where the system gives so many
};

}  // namespace advectio
