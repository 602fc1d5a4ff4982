#include "operators/vertical.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace advectio {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

double between(double a, double b, double at_a, double at_b, double level, bool log) {
  if (level == a) return at_a;
  if (level == b) return at_b;
  if (log) {
    a = std::log(a);
    b = std::log(b);
    level = std::log(level);
  }
  return (at_b * (level - a) + at_a * (b - level)) / (b - a);
}

}  // namespace

void interpolate_column(std::span<const double> coordinate, std::span<const double> values,
                        std::span<const double> levels, const LevelsRule& rule, std::span<double> result) {
  const auto n = coordinate.size();
  const bool log = rule.method == LevelsRule::Method::log;
  const bool pressure = rule.kind == LevelsRule::Kind::pressure;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    const auto level = levels[l];
    auto& out = result[l];
    out = missing;
    bool found = false;
    for (std::size_t k = 0; k + 1 < n && !found; ++k) {
      const auto a = coordinate[k], b = coordinate[k + 1];
      // False of what is missing.
      found = (a <= level && level <= b) || (b <= level && level <= a);
      if (found) out = between(a, b, values[k], values[k + 1], level, log);
    }
    if (found || n == 0 || rule.below == LevelsRule::Below::missing) continue;
    const bool first_is_lower = pressure ? coordinate[0] >= coordinate[n - 1] : coordinate[0] <= coordinate[n - 1];
    const auto ground = first_is_lower ? 0 : n - 1;
    const bool below = pressure ? level > coordinate[ground] : level < coordinate[ground];
    if (below) out = values[ground];
  }
}

OnLevels::OnLevels(std::shared_ptr<const Quantity> of, std::shared_ptr<const Quantity> coordinate, std::size_t vertical,
                   std::uint64_t model_levels, std::vector<double> levels, LevelsRule rule)
    : of_(std::move(of)),
      coordinate_(std::move(coordinate)),
      vertical_(vertical),
      model_levels_(model_levels),
      levels_(std::move(levels)),
      rule_(std::move(rule)) {}

Box OnLevels::columns(Box box) const {
  box.start[vertical_] = 0;
  box.count[vertical_] = model_levels_;
  return box;
}

void OnLevels::needs(const Box& box, std::vector<Need>& all) const {
  const auto from = columns(box);
  of_->needs(from, all);
  coordinate_->needs(from, all);
}

void OnLevels::make(const Box& box, Needed& values, std::span<double> result) const {
  const auto from = columns(box);
  std::vector<double> points(from.volume()), coordinate(from.volume());
  of_->make(from, values, points);
  coordinate_->make(from, values, coordinate);
  std::uint64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < box.rank(); ++i)
    if (i != vertical_) (i < vertical_ ? outer : inner) *= box.count[i];
  const auto n = box.count[vertical_];
  const auto wanted = std::span(levels_).subspan(box.start[vertical_], n);
  std::vector<double> x(model_levels_), c(model_levels_), made(n);
  for (std::uint64_t o = 0; o < outer; ++o)
    for (std::uint64_t i = 0; i < inner; ++i) {
      for (std::uint64_t k = 0; k < model_levels_; ++k) {
        const auto at = (o * model_levels_ + k) * inner + i;
        x[k] = points[at];
        c[k] = coordinate[at];
      }
      interpolate_column(c, x, wanted, rule_, made);
      for (std::uint64_t k = 0; k < n; ++k) result[(o * n + k) * inner + i] = made[k];
    }
}

double unit_factor(LevelsRule::Kind kind, const std::string& of_levels, const std::string& of_coordinate) {
  static constexpr std::array<std::pair<std::string_view, double>, 9> pressures = {{{"Pa", 1},
                                                                                    {"pascal", 1},
                                                                                    {"pascals", 1},
                                                                                    {"hPa", 100},
                                                                                    {"mb", 100},
                                                                                    {"mbar", 100},
                                                                                    {"millibar", 100},
                                                                                    {"millibars", 100},
                                                                                    {"kPa", 1000}}};
  static constexpr std::array<std::pair<std::string_view, double>, 6> heights = {
      {{"m", 1}, {"meter", 1}, {"meters", 1}, {"metre", 1}, {"metres", 1}, {"km", 1000}}};
  const auto in = [&](const std::string& unit) {
    double out = 0;
    const auto look = [&](const auto& table) {
      for (const auto& [name, factor] : table)
        if (name == unit) out = factor;
    };
    if (kind == LevelsRule::Kind::pressure)
      look(pressures);
    else
      look(heights);
    return out;
  };
  const auto mine = in(of_levels), its = in(of_coordinate);
  return its == 0 ? 0 : mine / its;
}

}  // namespace advectio
