#include "operators/bit_round.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/bytes.h"

namespace advectio {

namespace {

constexpr const char* mark = "_QuantizeBitRoundNumberOfSignificantBits";

/// Explicit bits of a mantissa; 0: not a floating-point type.
std::uint32_t mantissa_bits(DataType type) noexcept {
  return type == DataType::float32 ? 23 : type == DataType::float64 ? 52 : 0;
}

template <typename Float, typename Bits>
void round_all(int mantissa, std::uint32_t keep, std::span<const std::byte> fill, std::byte* data,
               std::size_t n) noexcept {
  if (keep >= static_cast<std::uint32_t>(mantissa)) return;
  const int drop = mantissa - static_cast<int>(keep);
  const Bits mask = static_cast<Bits>(~Bits{0}) << drop;
  const Bits half = Bits{1} << (drop - 1);
  Float filler{};
  const bool has_fill = fill.size() == sizeof filler;
  if (has_fill) std::memcpy(&filler, fill.data(), sizeof filler);
  for (std::size_t i = 0; i < n; ++i) {
    Float value{};
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    if (!std::isfinite(value) || (has_fill && value == filler)) continue;
    const auto rounded = (std::bit_cast<Bits>(value) + half) & mask;
    std::memcpy(data + i * sizeof value, &rounded, sizeof rounded);
  }
}

}  // namespace

void round_bits(DataType type, std::uint32_t bits, std::span<const std::byte> fill, std::byte* data,
                std::size_t elements) noexcept {
  if (bits == 0) return;
  if (type == DataType::float32) round_all<float, std::uint32_t>(23, bits, fill, data, elements);
  if (type == DataType::float64) round_all<double, std::uint64_t>(52, bits, fill, data, elements);
}

Result<Schema> BitRound::declare(Schema schema) {
  variables_.clear();
  for (auto& v : schema.variables) {
    const auto all = mantissa_bits(v.type);
    if (const unsigned bits = bits_ ? bits_(v.name) : 0; bits > 0 && bits < all) v.round_bits = bits;
    auto& rounded = variables_.emplace_back();
    if (v.round_bits == 0 || all == 0) continue;
    rounded = {v.type, v.round_bits, v.no_fill ? Bytes() : v.fill.empty() ? default_fill(v.type) : v.fill};
    if (std::any_of(v.attributes.begin(), v.attributes.end(), [](const Attribute& a) { return a.name == mark; }))
      continue;
    Attribute a{mark, DataType::int32, 1, {}, {}};
    Encoder(a.values).number(static_cast<std::int32_t>(v.round_bits));
    v.attributes.push_back(std::move(a));
  }
  return schema;
}

bool BitRound::changes(std::uint32_t variable) const {
  return variable < variables_.size() && variables_[variable].bits > 0;
}

void BitRound::apply(std::uint32_t variable, const Box&, std::span<std::byte> values) const {
  const auto& v = variables_[variable];
  round_bits(v.type, v.bits, v.fill, values.data(), values.size() / size_of(v.type));
}

}  // namespace advectio
