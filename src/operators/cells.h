// Quantities of a part of the cells (selection.h): where they lie in the file, and what blocks of them become.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "operators/quantity.h"
#include "operators/selection.h"

namespace advectio {

/// Of each variable of a file the parts along its dimensions in space.
using FileParts = std::vector<std::vector<Selection::Along>>;
FileParts parts_of(const Schema& input, std::uint32_t time_dimension, const Selection& selection);

/// A quantity that counts cells from the part's first one; what it needs are boxes of the file. A box across the seam
/// of a part is two of the file.
class FromFile final : public Quantity {
 public:
  FromFile(std::shared_ptr<const Quantity> of, std::shared_ptr<const FileParts> parts)
      : of_(std::move(of)), parts_(std::move(parts)) {}
  void needs(const Box& box, std::vector<Need>& all) const override;
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  std::shared_ptr<const Quantity> of_;
  std::shared_ptr<const FileParts> parts_;
};

/// Every n-th cell, or blocks of cells, along some dimensions.
///
/// Missing values are passed over; where all of a block are missing, so is the result. `first` takes the block's first
/// cell, missing or not. Sums are in double, row by row from the block's first cell: the same bits in any box.
class Blocks final : public Quantity {
 public:
  /// `along` has one entry for each dimension of `of`. `period`: of longitudes, 360 or 2π, the mean of which is the one
  /// between them; else 0.
  Blocks(std::shared_ptr<const Quantity> of, std::vector<Selection::Along> along, CoarsenRule::Method method,
         double period = 0)
      : of_(std::move(of)), along_(std::move(along)), method_(method), period_(period) {}
  void needs(const Box& box, std::vector<Need>& all) const override { of_->needs(source(box), all); }
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  [[nodiscard]] Box source(const Box& box) const;

  std::shared_ptr<const Quantity> of_;
  std::vector<Selection::Along> along_;
  CoarsenRule::Method method_;
  double period_;
};

/// Longitudes from `west` on: from there to less than a `period` more.
class Eastward final : public Quantity {
 public:
  Eastward(std::shared_ptr<const Quantity> of, double west, double period)
      : of_(std::move(of)), west_(west), period_(period) {}
  void needs(const Box& box, std::vector<Need>& all) const override { of_->needs(box, all); }
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  std::shared_ptr<const Quantity> of_;
  double west_, period_;
};

}  // namespace advectio
