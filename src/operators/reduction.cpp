#include "operators/reduction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace advectio {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Box Reduced::whole(const Box& box) const {
  Box out;
  std::size_t next = 0;
  for (const auto length : lengths_) {
    out.start.push_back(length != 0 ? 0 : box.start[next]);
    out.count.push_back(length != 0 ? length : box.count[next]);
    if (length == 0) ++next;
  }
  return out;
}

void Reduced::make(const Box& box, Needed& values, std::span<double> result) const {
  const auto from = whole(box);
  std::vector<double> points(from.volume());
  of_->make(from, values, points);
  // How far the place in the result moves along each dimension.
  std::vector<std::uint64_t> step(from.rank(), 0), at(from.rank(), 0);
  std::uint64_t size = 1;
  for (auto i = from.rank(); i-- > 0;)
    if (lengths_[i] == 0) {
      step[i] = size;
      size *= from.count[i];
    }
  std::vector<std::uint64_t> counts(result.size(), 0);
  std::fill(result.begin(), result.end(), 0.0);
  std::uint64_t place = 0;
  for (const auto v : points) {
    if (!std::isnan(v)) {
      auto& r = result[place];
      const bool first = counts[place]++ == 0;
      switch (reduction_) {
        case Reduction::mean:
        case Reduction::sum: r += v; break;
        case Reduction::minimum: r = first || v < r ? v : r; break;
        case Reduction::maximum: r = first || v > r ? v : r; break;
      }
    }
    for (auto i = from.rank(); i-- > 0;) {
      place += step[i];
      if (++at[i] < from.count[i]) break;
      place -= step[i] * from.count[i];
      at[i] = 0;
    }
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (counts[i] == 0)
      result[i] = missing;
    else if (reduction_ == Reduction::mean)
      result[i] /= static_cast<double>(counts[i]);
  }
}

double sea_level_pressure(std::span<const double> pressure, std::span<const double> temperature,
                          std::span<const double> mixing_ratio, std::span<const double> height) noexcept {
  constexpr double gas = 287, gravity = 9.81, lapse = 0.0065;  // J/(kg K), m/s², K/m
  constexpr double above = 10'000;                             // Pa
  constexpr double hot = 273.16 + 17.5;                        // K
  const auto levels = pressure.size();
  if (levels < 3) return missing;
  const auto target = pressure[0] - above;
  std::size_t high = 0;
  while (high < levels && !(pressure[high] < target)) ++high;
  if (high == levels) return missing;
  const auto low = std::max<std::size_t>(high, 1) - 1;
  high = std::min(low + 1, levels - 2);
  if (low == high) return missing;
  const auto virtual_temperature = [&](std::size_t k) { return temperature[k] * (1 + 0.608 * mixing_ratio[k]); };
  // A product where a quotient of the logarithms would interpolate: as it is in the source.
  const auto weight = std::log(target / pressure[high]) * std::log(pressure[low] / pressure[high]);
  const auto t = virtual_temperature(high) - (virtual_temperature(high) - virtual_temperature(low)) * weight;
  const auto z = height[high] - (height[high] - height[low]) * weight;
  const auto surface = t * std::pow(pressure[0] / target, lapse * gas / gravity);
  auto sea = t + lapse * z;
  sea = surface <= hot && sea >= hot ? hot : hot - 0.005 * (surface - hot) * (surface - hot);
  return pressure[0] * std::exp(2 * gravity * height[0] / (gas * (sea + surface)));
}

Box SeaLevelPressure::columns(const Box& box) const {
  Box out = box;
  out.start.insert(out.start.begin(), 0);
  out.count.insert(out.count.begin(), levels_);
  return out;
}

void SeaLevelPressure::needs(const Box& box, std::vector<Need>& all) const {
  const auto from = columns(box);
  for (const auto& of : of_) of->needs(from, all);
}

void SeaLevelPressure::make(const Box& box, Needed& values, std::span<double> result) const {
  const auto from = columns(box);
  std::array<std::vector<double>, 4> points, column;
  for (std::size_t q = 0; q < points.size(); ++q) {
    points[q].resize(from.volume());
    column[q].resize(levels_);
    of_[q]->make(from, values, points[q]);
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t q = 0; q < points.size(); ++q)
      for (std::uint64_t k = 0; k < levels_; ++k) column[q][k] = points[q][k * result.size() + i];
    result[i] = sea_level_pressure(column[0], column[1], column[2], column[3]);
  }
}

}  // namespace advectio
