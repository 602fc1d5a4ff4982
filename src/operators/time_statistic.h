// Statistics over windows of model time: mean, minimum, maximum, sum, difference, point; alone, or
// one after the other (the weekly minimum of daily means). docs/operators/time.md has the formulas.
//
//  * A cell's values are taken in the order of time, one after the other, in double. So the result
//    does not depend on how a field is cut into boxes, nor on the threads that work on it.
//  * NaN stands for a missing value, on the way in and on the way out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/processing.h"
#include "core/result.h"
#include "operators/calendar.h"

namespace advectio {

/// The time of a record. An instant has begin = end = at.
struct Moment {
  Time at = 0, begin = 0, end = 0;
  [[nodiscard]] bool instant() const noexcept { return begin == end; }
  bool operator==(const Moment&) const = default;
};

/// One window of a step, with the records that fall into it.
struct WindowRecords {
  Time begin = 0, end = 0;  ///< nominal: those of the rule's window, not of its samples
  std::uint64_t first = 0, count = 0;
  bool follows = false;  ///< the window right before it has records, too
  bool gives = true;     ///< it gives a record of the result
};

/// The windows of a step over records in order of time; those without a record are not there.
///
///  * A window is (a, b]: a sample on a border belongs to the window that ends there; with
///    `closed_left` it is [a, b). Records that stand for a span of time belong where that ends (with
///    closed_left: begins).
///  * Windows of months and years begin with the calendar's. Others are counted from the midnight
///    before the first sample, or the beginning of the span that it stands for.
///  * Of differences the first window gives no record: nobody knows the value at its beginning. The
///    whole series does.
///
/// `origin`: the sample whose midnight counts, where it is not the first of `records`. Errors: Code::invalid where no
/// window gives a record.
Result<std::vector<WindowRecords>> windows_of(std::span<const Moment> records, const TimeStep& step, Calendar calendar,
                                              const Moment* origin = nullptr);

/// What the records of a step's result stand for: (a+b)/2 with the nominal window as bounds; of `point` the
/// sample's own.
std::vector<Moment> moments_of(std::span<const WindowRecords> windows, std::span<const Moment> records,
                               Statistic statistic);

/// The steps of an output along time. Immutable; shared by all boxes of all variables.
class TimePlan {
 public:
  /// `whole`: the plan of the series of which the records are a part; windows are the same as there. Errors as
  /// `windows_of`, with the step's origin in front.
  static Result<TimePlan> make(std::vector<Moment> records, std::vector<TimeStep> steps, Calendar calendar,
                               const TimePlan* whole = nullptr);

  /// Of the result.
  [[nodiscard]] const std::vector<Moment>& moments() const noexcept { return moments_.back(); }
  [[nodiscard]] const std::vector<TimeStep>& steps() const noexcept { return steps_; }
  [[nodiscard]] const std::vector<WindowRecords>& windows(std::size_t step) const { return windows_[step]; }
  /// The records that a step takes.
  [[nodiscard]] const std::vector<Moment>& taken(std::size_t step) const { return moments_[step]; }
  /// The same windows, with the last record of each instead of a statistic of them.
  [[nodiscard]] TimePlan points() const;

 private:
  TimePlan() = default;
  std::vector<TimeStep> steps_;
  std::vector<std::vector<WindowRecords>> windows_;  // of each step
  std::vector<std::vector<Moment>> moments_;         // of the input, then of each step's result
};

/// A part of a series that has a file of its own (`split`).
struct Period {
  Time begin = 0, end = 0;
  std::uint64_t first = 0, last = 0;  ///< records of the series that its results are made of: first … last - 1
  std::uint64_t own = 0;              ///< the first of these that is not of a window before, as differences need it
  bool complete = false;              ///< later records will not change it
};

/// The periods that hold results of a plan. A result belongs where its time lies, or the middle of its window; on a
/// border to the period that begins there. Like windows, periods are the calendar's months and years, or are counted
/// from the midnight before the first sample.
std::vector<Period> periods_of(const TimePlan& plan, Window length, Calendar calendar);

/// How a file of a period is called: "2005", "2005-08", "2005-08-28" or "2005-08-28_06:00:00", by the length.
std::string period_text(Time begin, Window length, Calendar calendar);

/// The chain of one box: as many cells as it has. Without a step each record is a record of the result. One thread.
class TimeChain {
 public:
  TimeChain(std::shared_ptr<const TimePlan> plan, std::size_t cells);

  using Emit = std::function<void(std::uint64_t record, std::span<const double> values)>;
  /// The next record, in order. `emit` is called with each record of the result that it completes; the values stay
  /// until it returns.
  void add(std::span<const double> values, const Emit& emit);

  /// Bytes that a chain of so many cells takes.
  static std::uint64_t bytes(const TimePlan& plan, std::size_t cells) noexcept;

 private:
  struct Step {
    std::vector<double> value;         ///< sum, least, greatest or last
    std::vector<double> other;         ///< of differences: the last of the window before
    std::vector<std::uint32_t> count;  ///< values that are not missing
    std::uint64_t next = 0;            ///< record that comes
    std::size_t window = 0;
    std::uint64_t given = 0;  ///< records of the result
  };
  void add(std::size_t step, std::span<const double> values, const Emit& emit);
  void finish(std::size_t step, const WindowRecords& window, std::span<double> result);

  std::shared_ptr<const TimePlan> plan_;
  std::size_t cells_;
  std::vector<Step> steps_;
  std::uint64_t passed_ = 0;                  // records, where there is no step
  std::vector<std::vector<double>> results_;  // of each step, one record
};

}  // namespace advectio
