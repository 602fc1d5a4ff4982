#include "sources/series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace advectio {
namespace {

constexpr Time hour = 3'600'000;
const Time begin = days_of({2000, 1, 1}, Calendar::standard) * day_ms;

SeriesPart part(const std::string& name, const std::vector<int>& hours, Calendar calendar = Calendar::standard) {
  SeriesPart out{name, calendar, {}};
  for (const auto h : hours) {
    const auto at = begin + h * hour;
    out.moments.push_back({at, at, at});
  }
  return out;
}

/// "a3 b0": the record of each file, in the order of the series.
std::string order(const std::vector<SeriesPart>& parts, Overlap overlap) {
  const auto series = series_of(parts, overlap, "overlap");
  if (!series) return series.error().message;
  std::string out;
  std::uint64_t next = 0;
  for (const auto& run : series->runs) {
    EXPECT_EQ(run.first, next) << "no gaps";
    for (std::uint64_t i = 0; i < run.count; ++i) {
      out += (out.empty() ? "" : " ") + parts[run.part].name + std::to_string(run.record + i);
      EXPECT_EQ(series->moments[next++], parts[run.part].moments[run.record + i]);
    }
  }
  EXPECT_EQ(next, series->moments.size());
  return out;
}

TEST(Series, IsInTheOrderOfTimes) {
  EXPECT_EQ(order_of(std::vector{part("a", {5, 6}), part("b", {}), part("c", {9, 1})}),
            (std::vector<std::size_t>{2, 0, 1}));
  EXPECT_EQ(order({part("a", {1, 2}), part("b", {3}), part("c", {})}, Overlap::refused), "a0 a1 b0");
  EXPECT_EQ(order({part("a", {4, 1, 3}), part("b", {2, 5})}, Overlap::refused), "a1 b0 a2 a0 b1");
}

TEST(Series, HasEachTimeOnce) {
  const std::vector restart = {part("a", {0, 1, 2, 3, 4}), part("b", {3, 5})};
  EXPECT_EQ(
      order(restart, Overlap::refused),
      "b begins at 2000-01-01 03:00:00, and a has records until 2000-01-01 04:00:00; a series has each time once: "
      "leave one of them out, or overlap says whose count");
  EXPECT_EQ(order(restart, Overlap::last), "a0 a1 a2 b0 b1") << "a4 is of the other trajectory";
  EXPECT_EQ(order(restart, Overlap::first), "a0 a1 a2 a3 a4 b1");
  const std::vector within = {part("a", {0, 1, 2, 3, 4, 5}), part("b", {2, 3})};
  EXPECT_EQ(order(within, Overlap::last), "a0 a1 b0 b1 a4 a5");
  EXPECT_EQ(order({part("a", {0, 1, 1, 2})}, Overlap::refused),
            "a: records 1 and 2 have the same time, 2000-01-01 01:00:00; overlap takes one");
  EXPECT_EQ(order({part("a", {0, 1, 2, 1, 2, 3})}, Overlap::first), "a0 a1 a2 a5");
  EXPECT_EQ(order({part("a", {0, 1, 2, 1, 2, 3})}, Overlap::last), "a0 a3 a4 a5");
  EXPECT_EQ(order({part("a", {0, 9}), part("b", {9, 10}), part("c", {10, 11})}, Overlap::last), "a0 b0 c0 c1");
}

TEST(Series, SaysInOneLineWhatManyRestartsLeaveOut) {
  const std::vector one = {part("a", {0, 1}), part("b", {1, 2})};
  EXPECT_EQ(series_of(one, Overlap::last, "")->notes,
            std::vector<std::string>{"overlap: last: 1 record of a is left out for those of b"});
  const std::vector many = {part("a", {0, 1, 2}), part("b", {1, 2, 3}), part("c", {3, 4})};
  EXPECT_EQ(series_of(many, Overlap::last, "")->notes,
            std::vector<std::string>{"overlap: last: 2 records of a are left out for those of b; 3 records of 2 such "
                                     "pairs of files in all"});
}

TEST(Series, HasOneCalendar) {
  const std::vector modern = {part("a", {0}), part("b", {1}, Calendar::proleptic_gregorian)};
  EXPECT_EQ(order(modern, Overlap::refused), "a0 b0");
  EXPECT_EQ(series_of(modern, Overlap::refused, "")->notes.size(), 1U);
  EXPECT_NE(order({part("a", {0}), part("b", {1}, Calendar::noleap)}, Overlap::refused).find("another calendar"),
            std::string::npos);
  constexpr int centuries = -500 * 365 * 24;
  EXPECT_NE(order({part("a", {centuries}), part("b", {1}, Calendar::proleptic_gregorian)}, Overlap::last)
                .find("another calendar"),
            std::string::npos);
}

/// Whatever files there are, no time comes twice, none that a file has is lost, and times grow.
TEST(Series, LosesNoTimeWhereRestartsHaveTheSameSteps) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<SeriesPart> parts;
    std::set<Time> all;
    for (std::size_t p = 0, n = 1 + random() % 5; p < n; ++p) {
      std::vector<int> hours(1 + random() % 12);
      const int first = static_cast<int>(random() % 20);
      for (std::size_t i = 0; i < hours.size(); ++i) hours[i] = first + static_cast<int>(i);
      std::shuffle(hours.begin(), hours.end(), random);
      parts.push_back(part(std::string(1, static_cast<char>('a' + p)), hours));
      for (const auto& m : parts.back().moments) all.insert(m.at);
    }
    const auto order = order_of(parts);
    std::vector<SeriesPart> in_order;
    for (const auto i : order) in_order.push_back(parts[i]);
    for (const auto overlap : {Overlap::first, Overlap::last}) {
      const auto series = series_of(in_order, overlap, "");
      ASSERT_TRUE(series.ok());
      ASSERT_EQ(series->moments.size(), all.size());
      std::size_t i = 0;
      for (const auto at : all) ASSERT_EQ(series->moments[i++].at, at);
    }
  }
}

}  // namespace
}  // namespace advectio
