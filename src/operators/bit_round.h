// Rounding of mantissas, which compress better then. The file says so of each variable, as netCDF's quantize does.
#pragma once

#include <functional>
#include <string>

#include "operators/operator.h"

namespace advectio {

/// Keeps `bits` explicit bits of each mantissa as netCDF-C's BitRound does: half of the last place kept is added to
/// the magnitude, and the rest is cleared. Elements equal to `fill` and those that are not finite stay as they are.
/// float32 and float64 only.
void round_bits(DataType type, std::uint32_t bits, std::span<const std::byte> fill, std::byte* data,
                std::size_t elements) noexcept;

class BitRound final : public Operator {
 public:
  /// Bits to keep of a variable, by its name; 0: as the program has asked (Variable::round_bits).
  using Bits = std::function<unsigned(const std::string&)>;
  explicit BitRound(Bits bits = nullptr) : bits_(std::move(bits)) {}

  Result<Schema> declare(Schema schema) override;
  [[nodiscard]] bool changes(std::uint32_t variable) const override;
  void apply(std::uint32_t variable, const Box& box, std::span<std::byte> values) const override;

 private:
  struct Rounded {
    DataType type = DataType::none;
    std::uint32_t bits = 0;  ///< 0: this variable is not rounded
    Bytes fill;
  };
  Bits bits_;
  std::vector<Rounded> variables_;
};

}  // namespace advectio
