// Interpolation to levels of pressure or height. docs/operators/levels.md has the formulas and
// their sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/processing.h"
#include "operators/quantity.h"

namespace advectio {

/// One column. `coordinate` (pressure or height) and `values` have one number a model level, NaN where it is missing;
/// `levels` are in the coordinate's units, as is `result`, one number each.
///
/// Between two neighbouring model levels with the coordinates a and b, a level l (both ends included) gets
/// X = [X_b (l − a) + X_a (b − l)] / (b − a); with `Levels::Method::log` of the logarithms of a, b and l. On a model
/// level that is its very value. Of several pairs the first counts, from the first model level on.
/// Sources: WRF 4.7 phys/module_diag_pld.F (linear in p); MetPy 1.6 interpolate.log_interpolate_1d.
///
/// Beyond the end of the column that is nearer to the ground (greater pressure, lesser height): missing, or with
/// `Levels::Below::nearest` the value at that end. Beyond the other end: missing.
void interpolate_column(std::span<const double> coordinate, std::span<const double> values,
                        std::span<const double> levels, const LevelsRule& rule, std::span<double> result);

/// A quantity whose dimension `vertical` has levels instead of model levels.
class OnLevels final : public Quantity {
 public:
  /// `of` and `coordinate` have the same dimensions; `model_levels` is the length of theirs at `vertical`. Levels are
  /// in the coordinate's units.
  OnLevels(std::shared_ptr<const Quantity> of, std::shared_ptr<const Quantity> coordinate, std::size_t vertical,
           std::uint64_t model_levels, std::vector<double> levels, LevelsRule rule);

  /// Whole columns.
  void needs(const Box& box, std::vector<Need>& all) const override;
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  [[nodiscard]] Box columns(Box box) const;

  std::shared_ptr<const Quantity> of_, coordinate_;
  std::size_t vertical_;
  std::uint64_t model_levels_;
  std::vector<double> levels_;
  LevelsRule rule_;
};

/// How many of the coordinate's units one of the rule's is: hPa of Pa is 100. 0: they do not fit, or are not known.
double unit_factor(LevelsRule::Kind kind, const std::string& of_levels, const std::string& of_coordinate);

}  // namespace advectio
