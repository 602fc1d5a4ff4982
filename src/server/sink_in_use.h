// The sink of an output, while it has one open. A commit may be made by another thread: all else waits for that.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "sinks/sink.h"

namespace advectio {

class SinkInUse {
 public:
  bool declared = false;   ///< it knows the schema as it is written
  std::uint64_t used = 0;  ///< the latest is the greatest, of all outputs

  SinkInUse() = default;
  SinkInUse(const SinkInUse&) = delete;
  SinkInUse& operator=(const SinkInUse&) = delete;
  ~SinkInUse() { close(); }

  explicit operator bool() const { return sink_ != nullptr; }
  Sink* operator->() const { return &**this; }
  Sink& operator*() const {
    if (is_committing()) commit_.wait();
    return *sink_;
  }

  using RunJob = std::function<void(std::function<void()>)>;
  [[nodiscard]] bool may_commit_elsewhere() const { return any_thread_; }
  /// `Sink::end` or, in the midst of a frame, `checkpoint`. `run` runs a job on another thread, which calls `wake` when
  /// the commit is over.
  void begin_commit(bool in_midst, const RunJob& run, std::function<void()> wake) {
    std::promise<Result<void>> over;
    commit_ = over.get_future();
    run([sink = sink_.get(), in_midst, over = std::make_shared<decltype(over)>(std::move(over)),
         wake = std::move(wake)] {
      over->set_value(in_midst ? sink->checkpoint() : sink->end());
      wake();
    });
  }
  /// Until `end_commit`.
  [[nodiscard]] bool has_commit() const { return commit_.valid(); }
  [[nodiscard]] bool is_committing() const {
    return commit_.valid() && commit_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  /// Waits for it.
  Result<void> end_commit() { return commit_.get(); }

  void open(std::unique_ptr<Sink> sink) {
    sink_ = std::move(sink);
    any_thread_ = sink_ && sink_->abilities().any_thread;
    refused_ = declared = false;
    counted_ = 0;
  }
  void close() {
    if (commit_.valid()) commit_.wait();
    commit_ = {};
    sink_.reset();
  }

  /// Bytes that it has written since the last call. During a commit it says 0.
  std::uint64_t newly_written() {
    if (is_committing()) return 0;
    const auto written = sink_->counters().bytes_out;
    const auto before = std::exchange(counted_, written);
    return written > before ? written - before : 0;
  }

  /// The disk has refused what was written through it. Any thread.
  [[nodiscard]] bool is_refused() const { return refused_; }
  void set_refused() { refused_ = true; }

 private:
  std::unique_ptr<Sink> sink_;
  bool any_thread_ = false;
  std::future<Result<void>> commit_;
  std::uint64_t counted_ = 0;
  std::atomic<bool> refused_{false};
};

}  // namespace advectio
