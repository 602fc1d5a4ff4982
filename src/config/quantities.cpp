// Sizes and durations: numbers with a unit, read strictly and written exactly.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "config/config.h"

namespace advectio {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// From the largest to the smallest: a quantity is written in the first that divides it.
constexpr std::array kSizeUnits = {
    Unit{"TiB", 1ULL << 40}, Unit{"TB", 1'000'000'000'000},
    Unit{"GiB", 1ULL << 30}, Unit{"GB", 1'000'000'000},
    Unit{"MiB", 1ULL << 20}, Unit{"MB", 1'000'000},
    Unit{"KiB", 1ULL << 10}, Unit{"KB", 1'000},
    Unit{"kB", 1'000},       Unit{"B", 1},
};

constexpr std::array kDurationUnits = {
    Unit{"h", 3'600'000},
    Unit{"min", 60'000},
    Unit{"s", 1'000},
    Unit{"ms", 1},
};

constexpr std::uint64_t kSizeMax = 1ULL << 60;
constexpr std::uint64_t kDurationMaxMs = 1000ULL * 3600 * 24 * 365;

/// In capitals or not.
bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

template <std::size_t N>
Result<std::uint64_t> parse_quantity(std::string_view text, const std::array<Unit, N>& units, std::uint64_t max,
                                     std::string_view what, std::string_view example, std::string_view unit_names) {
  const auto refuse = [&](std::string_view why) {
    return Error{Code::config, "'" + std::string(text) + "' " + std::string(why)};
  };
  const std::string wanted = "is not " + std::string(what) + "; write e.g. " + std::string(example);
  double number = 0;
  const auto* end = text.data() + text.size();
  const auto [rest, ec] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (ec != std::errc() || !std::isfinite(number)) return refuse(wanted);
  if (number < 0 || text.front() == '-') return refuse("is negative");
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) {
    if (number == 0) return std::uint64_t{0};
    return refuse("has no unit; write e.g. " + std::string(example));
  }
  for (const Unit& u : units) {
    if (u.name != unit) continue;
    const double value = number * static_cast<double>(u.factor);
    if (value > static_cast<double>(max)) return refuse("is too large");
    // Whole numbers stay exact beyond 2^53, where a double no longer is.
    std::uint64_t whole = 0;
    const auto [whole_end, whole_ec] = std::from_chars(text.data(), rest, whole);
    if (whole_ec == std::errc() && whole_end == rest) return whole * u.factor;
    return static_cast<std::uint64_t>(std::llround(value));
  }
  auto base = unit.substr(0, unit.find('/'));
  if (base.size() == unit.size() && base.ends_with("ps")) base.remove_suffix(2);
  const bool rate = base.size() < unit.size();
  for (const Unit& u : units) {
    if (rate ? u.name != base : !same_letters(u.name, base)) continue;  // Mb/s may mean bits
    const auto remedy = "write " + std::string(text.data(), rest) + std::string(u.name);
    return refuse(rate ? "is a rate; " + remedy : "has the unknown unit '" + std::string(unit) + "'; " + remedy);
  }
  return refuse("has the unknown unit '" + std::string(unit) + "'; write e.g. " + std::string(example) +
                " (units: " + std::string(unit_names) + ")");
}

template <std::size_t N>
std::string quantity_text(std::uint64_t value, const std::array<Unit, N>& units) {
  if (value == 0) return "0";
  for (const Unit& u : units)
    if (value % u.factor == 0) return std::to_string(value / u.factor) + std::string(u.name);
  return {};
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  return parse_quantity(text, kSizeUnits, kSizeMax, "a size", "4GiB", "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB");
}

std::string size_text(std::uint64_t bytes) {
  return quantity_text(bytes, kSizeUnits);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  auto ms = parse_quantity(text, kDurationUnits, kDurationMaxMs, "a duration", "30s", "ms, s, min, h");
  if (!ms) return std::move(ms).error();
  return std::chrono::milliseconds(*ms);
}

std::string duration_text(std::chrono::milliseconds duration) {
  return quantity_text(static_cast<std::uint64_t>(duration.count()), kDurationUnits);
}

}  // namespace advectio
