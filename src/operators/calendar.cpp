#include "operators/calendar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace advectio {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept {
  return a / b - (a % b < 0 ? 1 : 0);
}

constexpr std::array<std::int64_t, 13> before_month = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
constexpr std::array<std::int64_t, 13> before_month_leap = {0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 366};

bool gregorian_leap(std::int64_t y) noexcept {
  return y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
}

/// Days of January 1 since January 1 of year 0.
std::int64_t gregorian_year(std::int64_t y) noexcept {
  return 365 * y + floor_div(y + 3, 4) - floor_div(y + 99, 100) + floor_div(y + 399, 400);
}
// January 1 of year 0 of the Julian calendar is two days before that of the Gregorian one.
constexpr std::int64_t julian_behind = -2;
std::int64_t julian_year(std::int64_t y) noexcept {
  return 365 * y + floor_div(y + 3, 4) + julian_behind;
}

std::int64_t gregorian_days(const Date& d) noexcept {
  const auto& before = gregorian_leap(d.year) ? before_month_leap : before_month;
  return gregorian_year(d.year) + before[d.month - 1] + d.day - 1;
}
std::int64_t julian_days(const Date& d) noexcept {
  const auto& before = d.year % 4 == 0 ? before_month_leap : before_month;
  return julian_year(d.year) + before[d.month - 1] + d.day - 1;
}

/// 1582-10-15 of the Gregorian calendar, the day after 1582-10-04 of the Julian one.
const std::int64_t reform = gregorian_days({1582, 10, 15});

template <typename YearStart, typename Leap>
Date date_in(std::int64_t days, YearStart year_start, Leap leap, double year_length) noexcept {
  auto y = static_cast<std::int64_t>(std::floor(static_cast<double>(days) / year_length));
  while (year_start(y + 1) <= days) ++y;
  while (year_start(y) > days) --y;
  const auto rest = days - year_start(y);
  const auto& before = leap(y) ? before_month_leap : before_month;
  const auto month = static_cast<unsigned>(std::upper_bound(before.begin(), before.end(), rest) - before.begin());
  return {y, month, static_cast<unsigned>(rest - before[month - 1]) + 1};
}

bool blank(char c) noexcept {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

/// Reads from the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  [[nodiscard]] bool done() const { return text_.empty(); }
  void skip_blanks() {
    while (!text_.empty() && blank(text_.front())) text_.remove_prefix(1);
  }
  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  template <typename T>
  bool number(T& value) {
    const auto [rest, ec] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (ec != std::errc()) return false;
    text_.remove_prefix(static_cast<std::size_t>(rest - text_.data()));
    return true;
  }
  [[nodiscard]] std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

/// h[:m[:s[.f]]] in milliseconds.
bool clock(Scanner& in, std::int64_t& ms) {
  unsigned hours = 0, minutes = 0;
  double seconds = 0;
  if (!in.number(hours) || hours > 24) return false;
  if (in.take(':')) {
    if (!in.number(minutes) || minutes > 59) return false;
    if (in.take(':') && (!in.number(seconds) || seconds < 0 || seconds > 60)) return false;
  }
  ms = (hours * 60LL + minutes) * 60'000 + std::llround(seconds * 1000);
  return true;
}

bool zone(Scanner& in, std::int64_t& ms) {
  in.skip_blanks();
  if (in.done()) return true;
  for (const std::string_view utc : {"z", "utc", "gmt"})
    if (lower(in.rest()) == utc) {
      in = Scanner("");
      return true;
    }
  const bool east = in.take('+');
  if (!east && !in.take('-')) return false;
  std::int64_t offset = 0;
  const auto digits = in.rest();
  if (digits.size() == 4 && digits.find(':') == std::string_view::npos) {
    unsigned hhmm = 0;
    if (!in.number(hhmm)) return false;
    offset = (hhmm / 100 * 60LL + hhmm % 100) * 60'000;
  } else if (!clock(in, offset)) {
    return false;
  }
  ms = east ? -offset : offset;
  return in.done();
}

}  // namespace

std::string_view name_of(Calendar c) noexcept {
  switch (c) {
    case Calendar::standard: return "standard";
    case Calendar::proleptic_gregorian: return "proleptic_gregorian";
    case Calendar::julian: return "julian";
    case Calendar::noleap: return "noleap";
    case Calendar::all_leap: return "all_leap";
    case Calendar::days_360: return "360_day";
  }
  return "?";
}

std::optional<Calendar> calendar_named(std::string_view name) {
  const auto n = lower(name);
  if (n == "standard" || n == "gregorian") return Calendar::standard;
  if (n == "proleptic_gregorian") return Calendar::proleptic_gregorian;
  if (n == "julian") return Calendar::julian;
  if (n == "noleap" || n == "365_day") return Calendar::noleap;
  if (n == "all_leap" || n == "366_day") return Calendar::all_leap;
  if (n == "360_day") return Calendar::days_360;
  return std::nullopt;
}

std::int64_t days_of(const Date& d, Calendar calendar) noexcept {
  switch (calendar) {
    case Calendar::standard: {
      const bool old = d.year < 1582 || (d.year == 1582 && (d.month < 10 || (d.month == 10 && d.day < 15)));
      return old ? julian_days(d) : gregorian_days(d);
    }
    case Calendar::proleptic_gregorian: return gregorian_days(d);
    case Calendar::julian: return julian_days(d);
    case Calendar::noleap: return 365 * d.year + before_month[d.month - 1] + d.day - 1;
    case Calendar::all_leap: return 366 * d.year + before_month_leap[d.month - 1] + d.day - 1;
    case Calendar::days_360: return 360 * d.year + 30 * (d.month - 1) + d.day - 1;
  }
  return 0;
}

Date date_of(std::int64_t days, Calendar calendar) noexcept {
  const auto julian = [&] {
    return date_in(
        days, julian_year, [](std::int64_t y) { return y % 4 == 0; }, 365.25);
  };
  switch (calendar) {
    case Calendar::standard:
      if (days < reform) return julian();
      [[fallthrough]];
    case Calendar::proleptic_gregorian: return date_in(days, gregorian_year, gregorian_leap, 365.2425);
    case Calendar::julian: return julian();
    case Calendar::noleap:
      return date_in(
          days, [](std::int64_t y) { return 365 * y; }, [](std::int64_t) { return false; }, 365);
    case Calendar::all_leap:
      return date_in(
          days, [](std::int64_t y) { return 366 * y; }, [](std::int64_t) { return true; }, 366);
    case Calendar::days_360: {
      const auto y = floor_div(days, 360), rest = days - 360 * y;
      return {y, static_cast<unsigned>(rest / 30) + 1, static_cast<unsigned>(rest % 30) + 1};
    }
  }
  return {};
}

Time TimeUnits::time_of(double value) const noexcept {
  return since + std::llround(value * unit_ms);
}

double TimeUnits::value_of(Time time) const noexcept {
  return static_cast<double>(time - since) / unit_ms;
}

Result<Time> parse_time(std::string_view text, Calendar calendar) {
  const auto refuse = [&] { return Error{Code::invalid, "'" + std::string(text) + "' is no date", 0}; };
  Scanner in(text);
  in.skip_blanks();
  Date date;
  if (!in.number(date.year) || !in.take('-') || !in.number(date.month) || !in.take('-') || !in.number(date.day))
    return refuse();
  if (date.month < 1 || date.month > 12 || date.day < 1 || date.day > 31) return refuse();
  if (std::abs(date.year) > 1'000'000) return refuse();
  std::int64_t of_day = 0, shift = 0;
  if (in.take('T') || in.take('_')) {
    if (!clock(in, of_day)) return refuse();
  } else {
    in.skip_blanks();
    if (!in.done() && std::isdigit(static_cast<unsigned char>(in.rest().front())) != 0 && !clock(in, of_day))
      return refuse();
  }
  if (!zone(in, shift)) return refuse();
  return days_of(date, calendar) * day_ms + of_day + shift;
}

Result<TimeUnits> parse_time_units(const std::string& text, Calendar calendar) {
  const auto words = lower(text);
  const auto since = words.find(" since ");
  if (since == std::string::npos) return Error{Code::invalid, "'" + text + "' is no unit of time since a date", 0};
  auto unit = words.substr(0, since);
  std::erase_if(unit, [](char c) { return blank(c); });
  TimeUnits out;
  out.text = text;
  out.calendar = calendar;
  if (unit == "d" || unit == "day" || unit == "days")
    out.unit_ms = day_ms;
  else if (unit == "h" || unit == "hr" || unit == "hrs" || unit == "hour" || unit == "hours")
    out.unit_ms = 3'600'000;
  else if (unit == "min" || unit == "mins" || unit == "minute" || unit == "minutes")
    out.unit_ms = 60'000;
  else if (unit == "s" || unit == "sec" || unit == "secs" || unit == "second" || unit == "seconds")
    out.unit_ms = 1000;
  else if (unit == "ms" || unit == "msec" || unit == "msecs" || unit == "millisecond" || unit == "milliseconds")
    out.unit_ms = 1;
  else if ((unit == "month" || unit == "months") && calendar == Calendar::days_360)
    out.unit_ms = 30.0 * day_ms;  // of no other calendar are all months alike
  else if (unit.starts_with("month") || unit.starts_with("year"))
    return Error{Code::unsupported,
                 "'" + text + "': a " + (unit.starts_with("month") ? "month" : "year") +
                     " has no fixed length in the calendar " + std::string(name_of(calendar)),
                 0};
  else
    return Error{Code::invalid, "'" + text + "' has the unknown unit '" + unit + "'", 0};
  auto start = parse_time(std::string_view(text).substr(since + 7), calendar);
  if (!start) return std::move(start).error().with("'" + text + "'");
  out.since = *start;
  return out;
}

std::string time_text(Time time, Calendar calendar) {
  const auto days = floor_div(time, day_ms);
  const auto of_day = time - days * day_ms;
  const auto d = date_of(days, calendar);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04lld-%02u-%02u %02d:%02d:%02d", static_cast<long long>(d.year), d.month,
                d.day, static_cast<int>(of_day / 3'600'000), static_cast<int>(of_day / 60'000 % 60),
                static_cast<int>(of_day / 1000 % 60));
  std::string out(text.data());
  if (of_day % 1000 != 0) {
    std::snprintf(text.data(), text.size(), ".%03d", static_cast<int>(of_day % 1000));
    out += text.data();
  }
  return out;
}

}  // namespace advectio
