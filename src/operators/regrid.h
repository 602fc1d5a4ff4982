// Another horizontal grid, by weights that another program has made. docs/operators/regridding.md has
// the formats of weights and their sources.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/processing.h"
#include "core/result.h"
#include "core/schema.h"
#include "operators/quantity.h"

namespace advectio {

/// Points of a horizontal grid. Dimensions are the slowest first: (lat, lon), (y, x), or (cell).
struct GridPoints {
  std::vector<std::uint64_t> lengths;
  std::vector<double> lat, lon;  ///< degrees; one each of a cell, or of `rectilinear` one each of a row and a column
  bool rectilinear = false;
  std::vector<std::string> names;  ///< of places; else empty
  bool operator==(const GridPoints&) const = default;
};

/// Of each cell of the destination, cells of the source and their weights.
struct RegridWeights {
  std::string method;                         ///< as the file has it; may be empty
  std::vector<std::uint64_t> source_lengths;  ///< empty: the file does not say
  GridPoints destination;
  std::vector<std::uint64_t> first;  ///< links of cell i: first[i] … first[i + 1]
  std::vector<std::uint32_t> source;
  std::vector<double> weight;
};

/// A netCDF file that is small enough to be read whole.
struct SmallFile {
  std::string path;
  Schema schema;
  std::vector<std::uint64_t> lengths;  ///< of dimensions as they are now
  std::function<Result<std::vector<double>>(std::uint32_t variable)> read;
};

/// The variables that say where a horizontal grid lies, and its dimensions.
struct GridVariables {
  std::uint32_t lat = 0, lon = 0;
  std::vector<std::uint32_t> dimensions;  ///< the slowest first, without time
};
/// Empty where there is none.
std::optional<GridVariables> grid_variables(const Schema& schema);

/// The grid of a file: its latitudes and longitudes. Errors: Code::unsupported where it has none.
Result<GridPoints> grid_points(const SmallFile& file);

/// Weights of ESMF (also xESMF) and SCRIP (also cdo). `grid`: the destination's points where the weights' file does
/// not have them, else null. Errors: Code::unsupported and Code::invalid with the file's path: what is missing, or
/// does not fit.
Result<RegridWeights> regrid_weights(const SmallFile& file, const GridPoints* grid);

/// Places of a grid: each has one link of weight 1 to the nearest cell, by the great circle. Errors: Code::invalid for
/// a place that lies farther outside of the grid than its cells lie from each other.
Result<RegridWeights> nearest_cells(const GridPoints& grid, const std::vector<PointRule>& places);

/// A quantity on the weights' destination: its last dimensions, which are those of the source, become the
/// destination's.
///
/// A cell gets Σ w x. Missing cells of the source count with the mean of the others as long as their share of the
/// weights is at most `missing_max`; else the result is missing. So it is where a cell has no weights. Sums are in
/// double, in the order in which the file has its links.
class Regridded final : public Quantity {
 public:
  /// `source_lengths` has the lengths of the dimensions of `of` that go: one or two.
  Regridded(std::shared_ptr<const Quantity> of, std::shared_ptr<const RegridWeights> weights,
            std::vector<std::uint64_t> source_lengths, double missing_max)
      : of_(std::move(of)),
        weights_(std::move(weights)),
        source_lengths_(std::move(source_lengths)),
        missing_max_(missing_max) {}

  /// The smallest box of the source that has all cells with weights.
  void needs(const Box& box, std::vector<Need>& all) const override { of_->needs(source(box), all); }
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  [[nodiscard]] Box source(const Box& box) const;

  std::shared_ptr<const Quantity> of_;
  std::shared_ptr<const RegridWeights> weights_;
  std::vector<std::uint64_t> source_lengths_;
  double missing_max_;
};

}  // namespace advectio
