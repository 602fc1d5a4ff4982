// How fast a node's server may write to files: the config's `server.drain_max`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace advectio {

/// A bucket that fills at the given rate. What is written is counted when it has been written, so the bucket may be
/// overdrawn: until the debt is paid nothing more is taken. Over any time T no more than rate * T is written, and
/// beyond that the bucket's content and what was under way when it became empty. Times are the caller's.
class DrainRate {
 public:
  explicit DrainRate(std::optional<std::uint64_t> bytes_per_second)
      : rate_(static_cast<double>(bytes_per_second.value_or(0))), credit_(rate_ * saved_s) {}

  [[nodiscard]] bool limited() const noexcept { return rate_ > 0; }

  void spend(std::uint64_t bytes) noexcept { credit_ -= static_cast<double>(bytes); }

  /// True while nothing more may be taken.
  bool in_debt(std::uint64_t now_ns) noexcept {
    if (!limited()) return false;
    const auto passed = last_ns_ == 0 || now_ns < last_ns_ ? 0 : now_ns - last_ns_;
    last_ns_ = now_ns;
    if (credit_ < 0) held_ns_ += passed;
    credit_ = std::min(credit_ + static_cast<double>(passed) * 1e-9 * rate_, rate_ * saved_s);
    return credit_ < 0;
  }

  /// For how long nothing was taken, in all.
  [[nodiscard]] std::uint64_t held_ns() const noexcept { return held_ns_; }

 private:
  static constexpr double saved_s = 0.1;  ///< of a time without writing so much may be made up for
  double rate_, credit_;
  std::uint64_t last_ns_ = 0, held_ns_ = 0;
};

}  // namespace advectio
