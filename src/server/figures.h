// What the status tells of an output: bytes and times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "journal/stage.h"
#include "sinks/sink.h"

namespace advectio {

/// Times of frames. The maximum is exact; the median is over the latest 1024.
class Samples {
 public:
  void add(double value) {
    max_ = count_ == 0 ? value : std::max(max_, value);
    if (latest_.size() < kept)
      latest_.push_back(value);
    else
      latest_[count_ % kept] = value;
    ++count_;
  }
  [[nodiscard]] nlohmann::json to_json() const {
    if (count_ == 0) return nullptr;
    auto sorted = latest_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return {{"median", *middle}, {"max", max_}};
  }

 private:
  static constexpr std::size_t kept = 1024;
  std::vector<double> latest_;
  std::uint64_t count_ = 0;
  double max_ = 0;
};

/// How long the program has waited at each frame. Closing the dataset still adds to the latest.
class Stalls {
 public:
  /// `frame`: one ends here; else it is more of the latest.
  void note(bool frame, double waited) {
    if (frame) {
      end_frame();
      latest_ = waited;
    } else if (latest_) {
      *latest_ += waited;
    }
  }
  void end_frame() {
    if (latest_) samples_.add(*latest_);
    latest_.reset();
  }
  [[nodiscard]] nlohmann::json to_json() const { return samples_.to_json(); }

 private:
  Samples samples_;
  std::optional<double> latest_;
};

struct Figures {
  std::uint64_t bytes_put = 0, bytes_written = 0, encode_ns = 0;
  std::uint64_t busy_ns = 0;         ///< time this server has spent on it
  std::uint64_t frames_dropped = 0;  ///< once its shared state is gone
  Stalls stall;
  Samples to_visible, to_durable;

  void count(const SinkCounters& counters) {
    bytes_written = counters.bytes_out;
    encode_ns = counters.encode_ns;
  }
};

/// Adds the time until it goes out of scope.
struct Busy {
  explicit Busy(std::uint64_t& sum) : sum_(sum), from_(journal::monotonic_ns()) {}
  ~Busy() { sum_ += journal::monotonic_ns() - from_; }
  std::uint64_t& sum_;
  std::uint64_t from_;
};

}  // namespace advectio
