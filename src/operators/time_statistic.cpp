#include "operators/time_statistic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace advectio {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();

std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept {
  return a / b - (a % b < 0 ? 1 : 0);
}

/// Numbers windows, and tells where they lie.
class Borders {
 public:
  Borders(Window window, Time first, Calendar calendar) : window_(window), calendar_(calendar) {
    const auto day = floor_div(first, day_ms);
    if (window.months == 0) {
      base_ = day * day_ms;
    } else {
      const auto date = date_of(day, calendar);
      // Quarters and half-years begin with the year; what divides no year, with the first sample's month.
      base_ = date.year * 12;
      if (12 % window.months != 0 && window.months % 12 != 0) base_ += date.month - 1;
    }
  }
  /// Of the window [a, b) that holds the time.
  [[nodiscard]] std::int64_t number(Time time) const {
    if (window_.months == 0) return floor_div(time - base_, window_.milliseconds);
    const auto date = date_of(floor_div(time, day_ms), calendar_);
    return floor_div(date.year * 12 + date.month - 1 - base_, window_.months);
  }
  [[nodiscard]] Time begin(std::int64_t number) const {
    if (window_.months == 0) return base_ + number * window_.milliseconds;
    const auto month = base_ + number * window_.months;
    const auto year = floor_div(month, 12);
    return days_of({year, static_cast<unsigned>(month - 12 * year) + 1, 1}, calendar_) * day_ms;
  }

 private:
  Window window_;
  Calendar calendar_;
  std::int64_t base_ = 0;  // milliseconds, or months
};

}  // namespace

Result<std::vector<WindowRecords>> windows_of(std::span<const Moment> records, const TimeStep& step, Calendar calendar,
                                              const Moment* origin) {
  std::vector<WindowRecords> windows;
  if (records.empty()) return Error{Code::invalid, "there is no record", 0};
  if (step.window.whole()) {
    windows.push_back({records.front().begin, records.back().end, 0, records.size(), false, true});
    if (step.statistic == Statistic::difference && records.size() < 2)
      return Error{Code::invalid, "a difference takes two records, and there is one", 0};
    return windows;
  }
  if (origin == nullptr) origin = records.data();
  // Of a record that stands for a span the first one's beginning: of daily means the first week has seven.
  const Borders borders(step.window, origin->begin, calendar);
  std::int64_t before = 0;
  for (std::uint64_t r = 0; r < records.size(); ++r) {
    // (a, b] in whole milliseconds is [a+1, b+1).
    const auto number = borders.number(step.closed_left ? records[r].begin : records[r].end - 1);
    if (windows.empty() || number != before) {
      const bool follows = !windows.empty() && number == before + 1;
      windows.push_back({borders.begin(number), borders.begin(number + 1), r, 0, follows, true});
      before = number;
    }
    ++windows.back().count;
  }
  if (step.statistic == Statistic::difference) {
    windows.front().gives = false;
    if (windows.size() < 2)
      return Error{Code::invalid,
                   "all records fall into one window of " + window_text(step.window) +
                       ", and a difference takes the end of the one before; `difference: all` is that of the series",
                   0};
  }
  return windows;
}

std::vector<Moment> moments_of(std::span<const WindowRecords> windows, std::span<const Moment> records,
                               Statistic statistic) {
  std::vector<Moment> out;
  for (const auto& w : windows) {
    if (!w.gives) continue;
    if (statistic == Statistic::point)
      out.push_back(records[w.first + w.count - 1]);
    else
      out.push_back({w.begin + (w.end - w.begin) / 2, w.begin, w.end});
  }
  return out;
}

Result<TimePlan> TimePlan::make(std::vector<Moment> records, std::vector<TimeStep> steps, Calendar calendar,
                                const TimePlan* whole) {
  TimePlan plan;
  plan.steps_ = std::move(steps);
  plan.moments_.push_back(std::move(records));
  for (const auto& step : plan.steps_) {
    const auto* const origin = whole != nullptr ? whole->taken(plan.windows_.size()).data() : nullptr;
    auto windows = windows_of(plan.moments_.back(), step, calendar, origin);
    if (!windows) return std::move(windows).error().with(step.origin + ": " + std::string(name_of(step.statistic)));
    plan.moments_.push_back(moments_of(*windows, plan.moments_.back(), step.statistic));
    plan.windows_.push_back(std::move(windows).value());
  }
  return plan;
}

TimePlan TimePlan::points() const {
  auto plan = *this;
  for (auto& step : plan.steps_) {
    step.statistic = Statistic::point;
    step.min_count = 1;
  }
  return plan;
}

namespace {

/// Results a … b - 1 of a plan are made of these records.
void find_records(const TimePlan& plan, std::uint64_t a, std::uint64_t b, Period& period) {
  period.own = a;
  for (auto s = plan.steps().size(); s-- > 0;) {
    const auto& windows = plan.windows(s);
    std::vector<std::size_t> giving;
    for (std::size_t w = 0; w < windows.size(); ++w)
      if (windows[w].gives) giving.push_back(w);
    auto first = giving[a];
    period.own = windows[giving[period.own]].first;
    if (plan.steps()[s].statistic == Statistic::difference && first > 0) --first;
    a = windows[first].first;
    b = windows[giving[b - 1]].first + windows[giving[b - 1]].count;
  }
  period.first = a;
  period.last = b;
}

}  // namespace

std::vector<Period> periods_of(const TimePlan& plan, Window length, Calendar calendar) {
  std::vector<Period> out;
  const auto& results = plan.moments();
  const auto& series = plan.taken(0);
  const Borders borders(length, series.front().begin, calendar);
  const auto number_of = [&](const Moment& m) { return borders.number(m.begin + (m.end - m.begin) / 2); };
  for (std::uint64_t a = 0, b = 0; a < results.size(); a = b) {
    const auto number = number_of(results[a]);
    for (b = a; b < results.size() && number_of(results[b]) == number; ++b) {
    }
    Period period{borders.begin(number), borders.begin(number + 1), 0, 0, 0, true};
    find_records(plan, a, b, period);
    period.complete = b < results.size() || series.back().end >= std::max(period.end, results[b - 1].end);
    out.push_back(period);
  }
  return out;
}

std::string period_text(Time begin, Window length, Calendar calendar) {
  auto text = time_text(begin, calendar);
  const auto blank = text.find(' ');
  if (length.months == 0 && length.milliseconds % day_ms != 0) {
    text[blank] = '_';
    return text;
  }
  text.resize(blank);
  for (auto parts = length.months == 0 ? 0 : length.months % 12 == 0 ? 2 : 1; parts > 0; --parts)
    text.resize(text.rfind('-'));
  return text;
}

TimeChain::TimeChain(std::shared_ptr<const TimePlan> plan, std::size_t cells) : plan_(std::move(plan)), cells_(cells) {
  for (const auto& step : plan_->steps()) {
    auto& s = steps_.emplace_back();
    s.value.resize(cells);
    if (step.statistic == Statistic::difference) s.other.assign(cells, missing);
    if (step.statistic != Statistic::difference && step.statistic != Statistic::point) s.count.resize(cells);
    results_.emplace_back(cells);
  }
}

std::uint64_t TimeChain::bytes(const TimePlan& plan, std::size_t cells) noexcept {
  std::uint64_t each = 0;
  for (const auto& step : plan.steps())
    each += 2 * sizeof(double) + (step.statistic == Statistic::difference ? sizeof(double) : sizeof(std::uint32_t));
  return each * cells;
}

void TimeChain::add(std::span<const double> values, const Emit& emit) {
  if (steps_.empty())
    emit(passed_++, values);
  else
    add(0, values, emit);
}

void TimeChain::add(std::size_t number, std::span<const double> values, const Emit& emit) {
  auto& s = steps_[number];
  const auto& step = plan_->steps()[number];
  const auto& window = plan_->windows(number)[s.window];
  const auto n = cells_;
  const double* const in = values.data();
  double* const v = s.value.data();
  std::uint32_t* const count = s.count.data();
  if (s.next == window.first) {
    const double start = step.statistic == Statistic::minimum   ? infinite
                         : step.statistic == Statistic::maximum ? -infinite
                                                                : 0.0;
    std::fill(s.count.begin(), s.count.end(), 0U);
    if (!s.count.empty()) std::fill(s.value.begin(), s.value.end(), start);
  }
  switch (step.statistic) {
    case Statistic::mean:
    case Statistic::sum:
      for (std::size_t i = 0; i < n; ++i) {
        const bool there = in[i] == in[i];
        v[i] = there ? v[i] + in[i] : v[i];
        count[i] += there ? 1U : 0U;
      }
      break;
    case Statistic::minimum:
      for (std::size_t i = 0; i < n; ++i) {
        v[i] = in[i] < v[i] ? in[i] : v[i];
        count[i] += in[i] == in[i] ? 1U : 0U;
      }
      break;
    case Statistic::maximum:
      for (std::size_t i = 0; i < n; ++i) {
        v[i] = in[i] > v[i] ? in[i] : v[i];
        count[i] += in[i] == in[i] ? 1U : 0U;
      }
      break;
    case Statistic::difference:
      // The whole series: its first value stands for the end of the window before.
      if (s.next == 0 && step.window.whole()) std::copy(in, in + n, s.other.begin());
      std::copy(in, in + n, v);
      break;
    case Statistic::point: std::copy(in, in + n, v); break;
  }
  if (++s.next < window.first + window.count) return;

  auto& result = results_[number];
  finish(number, window, result);
  ++s.window;
  if (!window.gives) return;
  const auto record = s.given++;
  if (number + 1 == steps_.size())
    emit(record, result);
  else
    add(number + 1, result, emit);
}

void TimeChain::finish(std::size_t number, const WindowRecords& window, std::span<double> result) {
  auto& s = steps_[number];
  const auto& step = plan_->steps()[number];
  const auto least = static_cast<std::uint32_t>(step.min_count);
  const std::size_t n = cells_;
  switch (step.statistic) {
    case Statistic::mean:
      for (std::size_t i = 0; i < n; ++i) result[i] = s.count[i] < least ? missing : s.value[i] / s.count[i];
      break;
    case Statistic::sum:
    case Statistic::minimum:
    case Statistic::maximum:
      for (std::size_t i = 0; i < n; ++i) result[i] = s.count[i] < least ? missing : s.value[i];
      break;
    case Statistic::difference: {
      const bool known = window.follows || step.window.whole();
      for (std::size_t i = 0; i < n; ++i) result[i] = known ? s.value[i] - s.other[i] : missing;
      std::swap(s.other, s.value);
      break;
    }
    case Statistic::point: std::copy(s.value.begin(), s.value.end(), result.begin()); break;
  }
}

}  // namespace advectio
