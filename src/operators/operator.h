// An operator changes the values of a field on their way to one output. Bit rounding is the first.
// Operators are pointwise: each value of the result is made of the value at the same place. Means,
// levels and other grids are not: see quantity.h and time_statistic.h, which `advectio process`
// applies to files.
//
// The server makes an output's operators (server/stored_schema.h) and applies them to the schema; a
// sink runs them over the values that it reads, on the thread that reads (operated_field.h).
// docs/writing-an-operator.md shows how one is written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/box.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

class Operator {
 public:
  virtual ~Operator() = default;

  /// What becomes of the schema: storage and attributes. Dimensions, and the variables with their
  /// order, types and shapes, stay. Called once, before any other function: a changed schema gets
  /// new operators. Errors: Code::unsupported where the operator cannot work on it.
  virtual Result<Schema> declare(Schema schema) = 0;

  /// True where values of that variable change. Constant after `declare`.
  [[nodiscard]] virtual bool changes(std::uint32_t variable) const = 0;

  /// Makes the result of `values`, in place: dense, row-major, native byte order, of the variable's
  /// type, as many as `box` counts. Of a strided part only the start and the counts of `box` are
  /// true. A box may reach beyond the variable; values there mean nothing. Applied to its own
  /// result, or to the fill value, it changes nothing. Any thread may call it.
  virtual void apply(std::uint32_t variable, const Box& box, std::span<std::byte> values) const = 0;
};

/// The operators of one output, in the order in which they are applied.
class Operators {
 public:
  Operators() = default;
  explicit Operators(std::vector<std::unique_ptr<Operator>> all) : all_(std::move(all)) {}

  Result<Schema> declare(Schema schema);
  [[nodiscard]] bool changes(std::uint32_t variable) const;
  void apply(std::uint32_t variable, const Box& box, std::span<std::byte> values) const;

 private:
  std::vector<std::unique_ptr<Operator>> all_;
};

}  // namespace advectio
