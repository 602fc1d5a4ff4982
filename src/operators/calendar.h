// Model time: the calendars of the CF conventions (CF-1.11, section 4.4.1), units like "hours since
// 2000-01-01", and WRF's text dates. All arithmetic is on whole milliseconds, so that a sample lies
// on a border of a window or beside it, and never nearly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace advectio {

/// `standard`: Julian before 1582-10-15, Gregorian from then on.
enum class Calendar : std::uint8_t { standard, proleptic_gregorian, julian, noleap, all_leap, days_360 };
/// CF's name of it.
std::string_view name_of(Calendar) noexcept;
/// By any of CF's names ("gregorian" and "365_day" too), whatever their case.
std::optional<Calendar> calendar_named(std::string_view name);

struct Date {
  std::int64_t year = 1;
  unsigned month = 1, day = 1;  ///< from 1
  bool operator==(const Date&) const = default;
};

/// Days of a date since a fixed day of the calendar. A day that the calendar has not (February 30) counts on
/// into the next month.
std::int64_t days_of(const Date& date, Calendar calendar) noexcept;
/// The other way.
Date date_of(std::int64_t days, Calendar calendar) noexcept;

/// Milliseconds since the calendar's fixed day.
using Time = std::int64_t;
inline constexpr Time day_ms = 86'400'000;

/// "hours since 2000-01-01 06:00:00" of a calendar.
struct TimeUnits {
  std::string text;  ///< as it is in the file
  Calendar calendar = Calendar::standard;
  double unit_ms = 1;  ///< milliseconds of one unit
  Time since = 0;

  /// Rounded to the millisecond.
  [[nodiscard]] Time time_of(double value) const noexcept;
  [[nodiscard]] double value_of(Time time) const noexcept;
};

/// Days, hours, minutes, seconds, milliseconds since a date; a time zone (Z, +01:00) may follow. Months of 30 days in
/// `360_day`. Errors: Code::unsupported for months of other calendars and years, whose length no calendar fixes;
/// Code::invalid.
Result<TimeUnits> parse_time_units(const std::string& text, Calendar calendar);

/// "2005-08-28_12:00:00" or "2005-08-28T12:00:00", with a blank too. Errors: Code::invalid.
Result<Time> parse_time(std::string_view text, Calendar calendar);
/// "2005-08-28 12:00:00", with thousandths where there are any.
std::string time_text(Time time, Calendar calendar);

}  // namespace advectio
