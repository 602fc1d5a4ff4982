#include "operators/time_statistic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace advectio {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr Time hour = 3'600'000;
constexpr auto calendar = Calendar::standard;
const Time start = days_of({2001, 1, 30}, calendar) * day_ms;

std::vector<Moment> instants(std::vector<Time> hours) {
  std::vector<Moment> out;
  for (const auto h : hours) out.push_back({start + h * hour, start + h * hour, start + h * hour});
  return out;
}
std::vector<Moment> hourly(std::size_t n) {
  std::vector<Time> hours(n);
  for (std::size_t i = 0; i < n; ++i) hours[i] = static_cast<Time>(i);
  return instants(hours);
}

TimeStep step(Statistic statistic, const std::string& window, bool closed_left = false, std::uint64_t min_count = 1) {
  return {statistic, *parse_window(window), min_count, closed_left, "rules.yaml:2"};
}

/// The chain's result of one cell.
std::vector<double> result(const std::vector<Moment>& moments, const std::vector<TimeStep>& steps,
                           const std::vector<double>& values) {
  auto plan = TimePlan::make(moments, steps, calendar);
  EXPECT_TRUE(plan.ok());
  if (!plan) return {};
  TimeChain chain(std::make_shared<TimePlan>(std::move(plan).value()), 1);
  std::vector<double> out;
  for (const auto& v : values)
    chain.add({&v, 1}, [&](std::uint64_t record, std::span<const double> made) {
      EXPECT_EQ(record, out.size());
      out.push_back(made[0]);
    });
  return out;
}

TEST(Windows, ASampleOnABorderBelongsToTheWindowThatEndsThere) {
  const auto windows = windows_of(hourly(13), step(Statistic::mean, "6h"), calendar);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 3U);
  EXPECT_EQ((*windows)[0].count, 1U) << "0 h ends the window before";
  EXPECT_EQ((*windows)[1].first, 1U);
  EXPECT_EQ((*windows)[1].count, 6U);
  EXPECT_EQ((*windows)[1].begin, start);
  EXPECT_EQ((*windows)[1].end, start + 6 * hour);
}

TEST(Windows, ClosedLeftItBelongsToTheWindowThatBeginsThere) {
  const auto windows = windows_of(hourly(13), step(Statistic::mean, "6h", true), calendar);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 3U);
  EXPECT_EQ((*windows)[0].count, 6U);
  EXPECT_EQ((*windows)[2].first, 12U);
  EXPECT_EQ((*windows)[2].end, start + 18 * hour) << "the nominal window, not that of the samples";
}

TEST(Windows, OfRecordsThatStandForASpanAreCountedFromTheFirstOnesBeginning) {
  // Daily means, each at noon: weeks of seven, not one day and then seven.
  std::vector<Moment> days;
  for (int d = 0; d < 14; ++d) {
    const auto begin = start + d * day_ms;
    days.push_back({begin + 12 * hour, begin, begin + day_ms});
  }
  for (const bool closed_left : {false, true}) {
    const auto windows = windows_of(days, step(Statistic::mean, "1w", closed_left), calendar);
    ASSERT_TRUE(windows.ok());
    ASSERT_EQ(windows->size(), 2U);
    EXPECT_EQ((*windows)[0].begin, start);
    EXPECT_EQ((*windows)[0].count, 7U);
    EXPECT_EQ((*windows)[1].count, 7U);
  }
}

TEST(Windows, OfMonthsAndYearsBeginWithTheCalendars) {
  const auto moments = instants({12, 36, 60, 24 * 29 + 12, 24 * 340});  // January 30, 31, February 1, 28, January 5
  const auto months = windows_of(moments, step(Statistic::mean, "1mo", true), calendar);
  ASSERT_TRUE(months.ok());
  ASSERT_EQ(months->size(), 3U);
  EXPECT_EQ((*months)[0].begin, days_of({2001, 1, 1}, calendar) * day_ms);
  EXPECT_EQ((*months)[1].begin, days_of({2001, 2, 1}, calendar) * day_ms);
  EXPECT_EQ((*months)[1].end, days_of({2001, 3, 1}, calendar) * day_ms);
  EXPECT_TRUE((*months)[1].follows);
  EXPECT_FALSE((*months)[2].follows) << "months without a record lie between";
  const auto years = windows_of(moments, step(Statistic::mean, "1y", true), calendar);
  ASSERT_TRUE(years.ok());
  EXPECT_EQ(years->size(), 2U);
  EXPECT_EQ((*years)[0].begin, days_of({2001, 1, 1}, calendar) * day_ms);
  EXPECT_EQ((*years)[0].count, 4U);
  // On the first of the month at midnight: the end of the month before.
  const auto first = instants({48, 72});
  const auto right = windows_of(first, step(Statistic::mean, "1mo"), calendar);
  ASSERT_TRUE(right.ok());
  EXPECT_EQ(right->size(), 2U);
}

TEST(TimeStatistics, AreWhatTheirNamesSay) {
  const auto moments = hourly(5);
  const std::vector<double> v = {9, 1, 5, 4, 2};
  EXPECT_EQ(result(moments, {step(Statistic::mean, "2h", true)}, v), (std::vector{5.0, 4.5, 2.0}));
  EXPECT_EQ(result(moments, {step(Statistic::mean, "2h")}, v), (std::vector{9.0, 3.0, 3.0}));
  EXPECT_EQ(result(moments, {step(Statistic::minimum, "2h", true)}, v), (std::vector{1.0, 4.0, 2.0}));
  EXPECT_EQ(result(moments, {step(Statistic::maximum, "2h", true)}, v), (std::vector{9.0, 5.0, 2.0}));
  EXPECT_EQ(result(moments, {step(Statistic::sum, "all")}, v), (std::vector{21.0}));
  EXPECT_EQ(result(moments, {step(Statistic::point, "2h")}, v), (std::vector{9.0, 5.0, 2.0}));
  EXPECT_EQ(result(moments, {}, v), v) << "without a step each record is one of the result";
}

TEST(TimeStatistics, ADifferenceIsThatOfTheWindowsEnds) {
  // Rain that has fallen so far: between 0 h and 2 h, and 2 h and 4 h.
  EXPECT_EQ(result(hourly(5), {step(Statistic::difference, "2h")}, {1, 2, 4, 7, 7}), (std::vector{3.0, 3.0}));
  EXPECT_EQ(result(hourly(5), {step(Statistic::difference, "all")}, {1, 2, 4, 7, 7}), (std::vector{6.0}));
  // Nobody knows the value at 6 h.
  const auto gap = result(instants({0, 1, 2, 7, 8}), {step(Statistic::difference, "2h")}, {1, 2, 4, 7, 7});
  ASSERT_EQ(gap.size(), 2U);
  EXPECT_EQ(gap[0], 3.0);
  EXPECT_TRUE(std::isnan(gap[1]));
  const auto one = windows_of(instants({1, 2}), step(Statistic::difference, "6h"), calendar);
  ASSERT_FALSE(one.ok());
  EXPECT_NE(one.error().message.find("one window"), std::string::npos);
}

TEST(TimeStatistics, LeaveMissingValuesOutAndCountTheRest) {
  const std::vector<double> v = {nan, 2, 4, nan};
  EXPECT_EQ(result(hourly(4), {step(Statistic::mean, "all")}, v), (std::vector{3.0}));
  EXPECT_EQ(result(hourly(4), {step(Statistic::minimum, "all")}, v), (std::vector{2.0}));
  EXPECT_EQ(result(hourly(4), {step(Statistic::maximum, "all", false, 2)}, v), (std::vector{4.0}));
  EXPECT_TRUE(std::isnan(result(hourly(4), {step(Statistic::sum, "all", false, 3)}, v)[0]));
  EXPECT_TRUE(std::isnan(result(hourly(2), {step(Statistic::mean, "all")}, {nan, nan})[0]));
  EXPECT_TRUE(std::isnan(result(hourly(2), {step(Statistic::difference, "all")}, {nan, 1})[0]));
  EXPECT_TRUE(std::isnan(result(hourly(2), {step(Statistic::point, "all")}, {1, nan})[0]));
  EXPECT_TRUE(std::isinf(result(hourly(2), {step(Statistic::minimum, "all")}, {INFINITY, nan})[0]));
}

TEST(TimeStatistics, InAChainTakeWhatTheOneBeforeGives) {
  std::vector<double> v(24 * 14);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i / 24 * 10 % 70 + i % 24);
  const std::vector<TimeStep> steps = {step(Statistic::mean, "1d", true), step(Statistic::minimum, "1w", true)};
  EXPECT_EQ(result(hourly(v.size()), steps, v), (std::vector{11.5, 11.5}));
  const auto plan = TimePlan::make(hourly(v.size()), steps, calendar);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->taken(1).front(), (Moment{start + 12 * hour, start, start + 24 * hour}));
  EXPECT_EQ(plan->moments().back(), (Moment{start + 7 * day_ms + 84 * hour, start + 7 * day_ms, start + 14 * day_ms}));
}

TEST(TimeStatistics, GiveTheSameBitsHoweverTheFieldIsCut) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto any = [&](unsigned n) { return random() % n; };
    const std::size_t cells = 1 + any(200), records = 2 + any(60);
    std::vector<Time> hours;
    for (Time h = 0; hours.size() < records; h += 1 + any(4)) hours.push_back(h);
    const auto moments = instants(hours);
    static constexpr Statistic kinds[] = {Statistic::mean, Statistic::minimum, Statistic::maximum, Statistic::sum,
                                          Statistic::point};
    static const char* const windows[] = {"3h", "6h", "1d", "1mo", "all"};
    std::vector<TimeStep> steps;
    for (unsigned i = 0; i < 1 + any(3); ++i)
      steps.push_back(step(kinds[any(5)], windows[any(5)], any(2) == 0, 1 + any(2)));
    const auto made = TimePlan::make(moments, steps, calendar);
    ASSERT_TRUE(made.ok());
    const auto plan = std::make_shared<TimePlan>(*made);
    std::normal_distribution<double> normal(280, 15);
    std::vector<std::vector<double>> values(records, std::vector<double>(cells));
    for (auto& record : values)
      for (auto& v : record) v = any(10) == 0 ? nan : static_cast<double>(static_cast<float>(normal(random)));

    const auto n = plan->moments().size();
    std::vector<double> whole(n * cells), parts(n * cells);
    TimeChain chain(plan, cells);
    for (const auto& record : values)
      chain.add(record, [&](std::uint64_t r, std::span<const double> made_values) {
        std::copy(made_values.begin(), made_values.end(), whole.begin() + static_cast<std::ptrdiff_t>(r * cells));
      });
    // Boxes of any size; each goes on by as many records as chance wants.
    struct Part {
      std::size_t first, count, next = 0;
      TimeChain chain;
    };
    std::vector<Part> cut;
    for (std::size_t at = 0; at < cells;) {
      const auto count = std::min<std::size_t>(cells - at, 1 + any(50));
      cut.push_back({at, count, 0, TimeChain(plan, count)});
      at += count;
    }
    for (std::size_t left = cut.size() * records; left > 0;) {
      auto& part = cut[any(static_cast<unsigned>(cut.size()))];
      for (auto go = 1 + any(5); go > 0 && part.next < records; --go, --left) {
        const auto& record = values[part.next++];
        part.chain.add(std::span(record).subspan(part.first, part.count),
                       [&](std::uint64_t r, std::span<const double> made_values) {
                         std::copy(made_values.begin(), made_values.end(),
                                   parts.begin() + static_cast<std::ptrdiff_t>(r * cells + part.first));
                       });
      }
    }
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint64_t>(whole[i]), std::bit_cast<std::uint64_t>(parts[i])) << "seed " << seed;
  }
}

TEST(Periods, AreCalledAfterTheirBeginning) {
  const auto at = days_of({2005, 8, 28}, calendar) * day_ms + 6 * hour;
  const auto text = [&](const char* length) { return period_text(at, *parse_window(length), calendar); };
  EXPECT_EQ(text("1y"), "2005");
  EXPECT_EQ(text("6mo"), "2005-08");
  EXPECT_EQ(text("1w"), "2005-08-28");
  EXPECT_EQ(text("6h"), "2005-08-28_06:00:00");
}

TEST(Periods, AreCompleteOnceNothingThatComesCanChangeThem) {
  const auto of = [](std::size_t records, std::vector<TimeStep> steps, const char* length) {
    const auto plan = TimePlan::make(hourly(records), std::move(steps), calendar);
    std::vector<bool> out;
    for (const auto& p : periods_of(*plan, *parse_window(length), calendar)) out.push_back(p.complete);
    return out;
  };
  using Complete = std::vector<bool>;
  EXPECT_EQ(of(24, {}, "1d"), Complete{false});
  EXPECT_EQ(of(25, {}, "1d"), (Complete{true, false}));
  // What ends with midnight is of the day before.
  EXPECT_EQ(of(24, {step(Statistic::mean, "6h")}, "1d"), (Complete{true, false}));
  EXPECT_EQ(of(25, {step(Statistic::mean, "6h")}, "1d"), (Complete{true, true}));
  EXPECT_EQ(of(25, {step(Statistic::mean, "3d", true)}, "1d"), Complete{false}) << "the window lasts longer";
}

TEST(Periods, HaveTheBitsOfTheWholeSeries) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto any = [&](unsigned n) { return random() % n; };
    std::vector<Time> hours;
    for (Time h = any(30); hours.size() < 2 + any(200); h += 1 + (any(30) == 0 ? any(60) : any(3))) hours.push_back(h);
    const auto moments = instants(hours);
    static constexpr Statistic kinds[] = {Statistic::mean, Statistic::minimum, Statistic::sum, Statistic::point,
                                          Statistic::difference};
    static const char* const windows[] = {"3h", "5h", "6h", "1d", "1w", "1mo"};
    std::vector<TimeStep> steps;
    for (unsigned i = 0; i < any(3); ++i) {
      const auto kind = kinds[any(5)];
      const bool left = any(2) == 0 && kind != Statistic::difference;
      steps.push_back(step(kind, windows[any(6)], left, 1 + any(2)));
    }
    const auto whole = TimePlan::make(moments, steps, calendar);
    if (!whole) continue;  // a difference of one window
    std::vector<double> values(moments.size());
    for (auto& v : values) v = any(10) == 0 ? nan : static_cast<double>(any(1000)) / 7;
    const auto all = result(moments, steps, values);
    std::vector<double> parts;
    static const char* const lengths[] = {"6h", "1d", "2d", "1w", "1mo"};
    for (const auto& p : periods_of(*whole, *parse_window(lengths[any(5)]), calendar)) {
      ASSERT_LE(p.first, p.own);
      ASSERT_LT(p.own, p.last);
      const auto from = static_cast<std::ptrdiff_t>(p.first), to = static_cast<std::ptrdiff_t>(p.last);
      auto plan = TimePlan::make({moments.begin() + from, moments.begin() + to}, steps, calendar, &*whole);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      for (const auto& m : plan->moments())
        ASSERT_EQ(m, whole->moments()[parts.size() + (&m - plan->moments().data())]);
      TimeChain chain(std::make_shared<TimePlan>(std::move(plan).value()), 1);
      for (auto r = from; r < to; ++r)
        chain.add({&values[static_cast<std::size_t>(r)], 1},
                  [&](std::uint64_t, std::span<const double> made) { parts.push_back(made[0]); });
    }
    ASSERT_EQ(parts.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint64_t>(parts[i]), std::bit_cast<std::uint64_t>(all[i])) << i;
  }
}

}  // namespace
}  // namespace advectio
