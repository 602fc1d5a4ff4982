// What is made of whole rows and columns of a field: their mean, sum, minimum or maximum, and the
// pressure at sea level.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "operators/quantity.h"

namespace advectio {

enum class Reduction : std::uint8_t { mean, sum, minimum, maximum };

/// A quantity without some of its dimensions. Missing values are passed over; where all are missing,
/// so is the result. Sums are in double, from the first value to the last: the same bits in any box.
class Reduced final : public Quantity {
 public:
  /// `lengths` has one number for each dimension of `of`: that of a dimension that goes, 0 for one
  /// that stays.
  Reduced(std::shared_ptr<const Quantity> of, std::vector<std::uint64_t> lengths, Reduction reduction)
      : of_(std::move(of)), lengths_(std::move(lengths)), reduction_(reduction) {}
  void needs(const Box& box, std::vector<Need>& all) const override { of_->needs(whole(box), all); }
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  [[nodiscard]] Box whole(const Box& box) const;

  std::shared_ptr<const Quantity> of_;
  std::vector<std::uint64_t> lengths_;
  Reduction reduction_;
};

/// One column, the lowest level first: pressure in Pa, temperature in K, mixing ratio of water
/// vapour in kg/kg, height above the sea in m. Returns Pa; missing where no level lies 100 hPa above
/// the lowest one, or a value that is needed is missing.
///
/// The virtual temperature 100 hPa above the lowest level gives, with 6.5 K/km, those of the surface
/// and of the sea level; the mean of these gives the pressure. It is what `slp` of wrf-python 1.3 and
/// NCL is (DCOMPUTESEAPRS), with two things that one would not expect, kept so that numbers agree:
/// docs/operators/wrf.md.
double sea_level_pressure(std::span<const double> pressure, std::span<const double> temperature,
                          std::span<const double> mixing_ratio, std::span<const double> height) noexcept;

/// The same of a field whose first dimension in space has the levels; the result lacks it.
class SeaLevelPressure final : public Quantity {
 public:
  /// All four have the same dimensions. `levels`: the length of the first.
  SeaLevelPressure(std::vector<std::shared_ptr<const Quantity>> of, std::uint64_t levels)
      : of_(std::move(of)), levels_(levels) {}
  void needs(const Box& box, std::vector<Need>& all) const override;
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  [[nodiscard]] Box columns(const Box& box) const;

  std::vector<std::shared_ptr<const Quantity>> of_;
  std::uint64_t levels_;
};

}  // namespace advectio
