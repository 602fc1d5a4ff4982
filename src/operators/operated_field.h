// A field whose values have passed through operators. Sinks read it like any other field.
#pragma once

#include <memory>

#include "core/field.h"
#include "operators/operator.h"

namespace advectio {

/// Reads another field and applies the operators to what it has read, on the thread that asks.
class OperatedField final : public Field {
 public:
  OperatedField(std::shared_ptr<const Field> from, std::shared_ptr<const Operators> operators);

  /// What the destination held passes through the operators too. This is harmless, because an
  /// operator that is applied to its own result or to a fill value changes nothing.
  void read(const Part& part, std::byte* destination) const override;
  void read(const Part& part, std::span<String> destination) const override;
  /// Empty: the values lie nowhere.
  [[nodiscard]] std::span<const std::byte> view(const Part& part) const override;
  [[nodiscard]] bool covers(const Box& box) const override;
  std::uint64_t mark_put(const Box& box, std::vector<bool>& marks) const override;

 private:
  std::shared_ptr<const Field> from_;
  std::shared_ptr<const Operators> operators_;
};

/// `field` as its output has it: itself where the operators (null: none) leave the variable as it
/// is.
std::shared_ptr<const Field> operated(std::shared_ptr<const Field> field,
                                      const std::shared_ptr<const Operators>& operators);

}  // namespace advectio
