// A quantity of a record: a variable of the file, or what is made of some. Lazy by boxes: whoever
// wants a box of it asks which boxes of which variables that needs, reads them, and has it made.
// Boxes here are in space alone: those of variables with a time dimension leave it out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/box.h"

namespace advectio {

/// A box of a variable of the file, by its number in the schema.
struct Need {
  std::uint32_t variable = 0;
  Box box;
  bool operator==(const Need&) const = default;
};

/// The values of needs, in their order; one reader of them.
class Needed {
 public:
  explicit Needed(std::span<const std::span<const double>> values) : values_(values) {}
  std::span<const double> next() { return values_[at_++]; }

 private:
  std::span<const std::span<const double>> values_;
  std::size_t at_ = 0;
};

/// Immutable; any thread may call it.
class Quantity {
 public:
  virtual ~Quantity() = default;

  /// Appends what `make` reads for that box of the quantity.
  virtual void needs(const Box& box, std::vector<Need>& all) const = 0;
  /// `values` gives what `needs` has appended, in that order, NaN where it is missing. `result` has as many
  /// values as the box, row-major. The result depends on these values alone, cell by cell: not on how a field is
  /// cut into boxes.
  virtual void make(const Box& box, Needed& values, std::span<double> result) const = 0;
};

/// Of each box of a variable that a quantity names several times one is needed.
class ReadOnce final : public Quantity {
 public:
  explicit ReadOnce(std::shared_ptr<const Quantity> of) : of_(std::move(of)) {}
  void needs(const Box& box, std::vector<Need>& all) const override;
  void make(const Box& box, Needed& values, std::span<double> result) const override;

 private:
  std::shared_ptr<const Quantity> of_;
};

/// A variable as it is in the file.
class StoredVariable final : public Quantity {
 public:
  explicit StoredVariable(std::uint32_t variable) : variable_(variable) {}
  void needs(const Box& box, std::vector<Need>& all) const override { all.push_back({variable_, box}); }
  void make(const Box&, Needed& values, std::span<double> result) const override {
    const auto from = values.next();
    std::copy(from.begin(), from.end(), result.begin());
  }

 private:
  std::uint32_t variable_;
};

}  // namespace advectio
