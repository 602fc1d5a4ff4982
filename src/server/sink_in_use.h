// The sink of an output, while it has one open.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "sinks/sink.h"

namespace advectio {

class SinkInUse {
 public:
  bool declared = false;   ///< it knows the schema as it is written
  std::uint64_t used = 0;  ///< the latest is the greatest, of all outputs

  explicit operator bool() const { return sink_ != nullptr; }
  Sink* operator->() const { return sink_.get(); }
  Sink& operator*() const { return *sink_; }

  void open(std::unique_ptr<Sink> sink) {
    sink_ = std::move(sink);
    refused_ = declared = false;
    counted_ = 0;
  }
  void close() { sink_.reset(); }

  /// Bytes that it has written since the last call.
  std::uint64_t newly_written() {
    const auto written = sink_->counters().bytes_out;
    const auto before = std::exchange(counted_, written);
    return written > before ? written - before : 0;
  }

  /// The disk has refused what was written through it. Any thread.
  [[nodiscard]] bool is_refused() const { return refused_; }
  void set_refused() { refused_ = true; }

 private:
  std::unique_ptr<Sink> sink_;
  std::uint64_t counted_ = 0;
  std::atomic<bool> refused_{false};
};

}  // namespace advectio
