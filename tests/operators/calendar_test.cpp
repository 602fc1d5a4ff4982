#include "operators/calendar.h"

#include <gtest/gtest.h>

namespace advectio {
namespace {

constexpr Calendar all[] = {Calendar::standard, Calendar::proleptic_gregorian,
                            Calendar::julian,   Calendar::noleap,
                            Calendar::all_leap, Calendar::days_360};

TEST(Calendar, FindsTheDateOfEachDayAgainInEveryCalendar) {
  for (const auto calendar : all) {
    const auto begin = days_of({-5, 1, 1}, calendar), end = days_of({2105, 1, 1}, calendar);
    Date before = date_of(begin - 1, calendar);
    for (auto day = begin; day < end; ++day) {
      const auto date = date_of(day, calendar);
      ASSERT_EQ(days_of(date, calendar), day) << name_of(calendar);
      const bool next_day = date.year == before.year && date.month == before.month && date.day == before.day + 1;
      const bool reform = calendar == Calendar::standard && date == Date{1582, 10, 15};
      const bool next_month = date.day == 1 && (date.month == before.month % 12 + 1) &&
                              date.year == before.year + (before.month == 12 ? 1 : 0);
      ASSERT_TRUE(next_day || next_month || reform) << name_of(calendar) << " " << date.year << "-" << date.month;
      before = date;
    }
  }
}

TEST(Calendar, CountsTheDaysThatOthersCount) {
  // Days since 1970-01-01 as Python's datetime has them; the reform, and a Julian date, as cftime has them.
  const auto epoch = days_of({1970, 1, 1}, Calendar::standard);
  EXPECT_EQ(days_of({2026, 11, 26}, Calendar::standard) - epoch, 20783);
  EXPECT_EQ(days_of({1582, 10, 15}, Calendar::standard) - days_of({1582, 10, 4}, Calendar::standard), 1);
  EXPECT_EQ(days_of({1, 1, 1}, Calendar::standard) - epoch, -719164);
  EXPECT_EQ(days_of({1, 1, 1}, Calendar::proleptic_gregorian) - epoch, -719162);
  EXPECT_EQ(days_of({2001, 1, 1}, Calendar::noleap) - days_of({2000, 1, 1}, Calendar::noleap), 365);
  EXPECT_EQ(days_of({2001, 1, 1}, Calendar::all_leap) - days_of({2000, 1, 1}, Calendar::all_leap), 366);
  EXPECT_EQ(days_of({2000, 3, 1}, Calendar::days_360) - days_of({2000, 2, 30}, Calendar::days_360), 1);
}

TEST(Calendar, ReadsUnitsAsFilesHaveThem) {
  const auto day = [](const Date& d) { return days_of(d, Calendar::standard) * day_ms; };
  const auto at = [](const std::string& units, double value) {
    const auto u = parse_time_units(units, Calendar::standard);
    EXPECT_TRUE(u.ok()) << units;
    return u ? u->time_of(value) : 0;
  };
  EXPECT_EQ(at("hours since 2000-01-01", 24), day({2000, 1, 2}));
  EXPECT_EQ(at("days since 2000-1-1 12:00:0.0", 0.5), day({2000, 1, 2}));
  EXPECT_EQ(at("seconds since 1970-01-01T00:00:00Z", 86400), day({1970, 1, 2}));
  EXPECT_EQ(at("minutes since 2000-01-01 01:00:00 +01:00", 0), day({2000, 1, 1}));
  EXPECT_EQ(at("minutes since 2000-01-01 00:00 -0030", -30), day({2000, 1, 1}));
  EXPECT_EQ(at("Hours Since 2000-01-01 00:00:00 UTC", 0.0001), day({2000, 1, 1}) + 360) << "whole milliseconds";
  EXPECT_EQ(parse_time_units("months since 2000-01-01", Calendar::standard).error().code, Code::unsupported);
  EXPECT_EQ(parse_time_units("months since 2000-01-01", Calendar::noleap).error().code, Code::unsupported);
  EXPECT_EQ(parse_time_units("years since 2000-01-01", Calendar::days_360).error().code, Code::unsupported);
  EXPECT_EQ(parse_time_units("fortnights since 2000-01-01", Calendar::standard).error().code, Code::invalid);
  EXPECT_EQ(parse_time_units("hours since yesterday", Calendar::standard).error().code, Code::invalid);
  EXPECT_EQ(parse_time_units("m s-1", Calendar::standard).error().code, Code::invalid);
}

TEST(Calendar, HasMonthsOf30DaysInTheCalendarWhereAllAreAlike) {
  const auto day = [](const Date& d) { return days_of(d, Calendar::days_360) * day_ms; };
  for (const char* units : {"months since 1850-01-16", "Month since 1850-01-16 00:00"}) {
    const auto u = parse_time_units(units, Calendar::days_360);
    ASSERT_TRUE(u.ok()) << units;
    EXPECT_EQ(u->time_of(1), day({1850, 2, 16}));
    EXPECT_EQ(u->time_of(14.5), day({1851, 4, 1}));
    EXPECT_EQ(u->value_of(day({1851, 4, 1})), 14.5);
  }
}

TEST(Calendar, ReadsAndWritesDates) {
  const auto c = Calendar::proleptic_gregorian;
  for (const char* text : {"2005-08-28_12:00:00", "2005-08-28T12:00:00", "2005-08-28 12:00"}) {
    const auto time = parse_time(text, c);
    ASSERT_TRUE(time.ok()) << text;
    EXPECT_EQ(time_text(*time, c), "2005-08-28 12:00:00");
  }
  EXPECT_EQ(time_text(*parse_time("0001-01-01_00:00:00", c) - 500, c), "0000-12-31 23:59:59.500");
  for (const char* text : {"", "now", "2005-13-01", "2005-08-28 25:00", "2005-08-28 12:00:00 o'clock"})
    EXPECT_FALSE(parse_time(text, c).ok()) << text;
}

}  // namespace
}  // namespace advectio
