#include "operators/bit_round.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace advectio {
namespace {

constexpr const char* mark = "_QuantizeBitRoundNumberOfSignificantBits";

Schema three_variables() {
  Schema s;
  s.dimensions = {{"x", 4, false}};
  for (const auto& [name, type] :
       {std::pair{"T", DataType::float32}, std::pair{"Q", DataType::float64}, std::pair{"I", DataType::int32}}) {
    Variable v;
    v.name = name;
    v.type = type;
    v.dimensions = {0};
    s.variables.push_back(v);
  }
  return s;
}

TEST(BitRound, LeavesWhatIsNotFiniteAndTheFillValue) {
  std::array<float, 5> v = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::bit_cast<float>(0x7FFFFFFFU), -999.9F, 1.2345678F};
  const float fill = -999.9F;
  Bytes fill_bytes(4);
  std::memcpy(fill_bytes.data(), &fill, 4);
  auto rounded = v;
  round_bits(DataType::float32, 3, fill_bytes, reinterpret_cast<std::byte*>(rounded.data()), rounded.size());
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded[i]), std::bit_cast<std::uint32_t>(v[i])) << i;
  EXPECT_EQ(rounded[4], 1.25F);
}

TEST(BitRound, SaysOfEachVariableHowManyBitsItKeeps) {
  BitRound rounding([](const std::string& name) { return name == "T" ? 10U : 0U; });
  const auto s = rounding.declare(three_variables());
  ASSERT_TRUE(s.ok());
  ASSERT_EQ(s->variables[0].attributes.size(), 1U);
  EXPECT_EQ(s->variables[0].attributes[0].name, mark);
  EXPECT_TRUE(rounding.changes(0));
  for (const std::uint32_t other : {1U, 2U, 3U}) EXPECT_FALSE(rounding.changes(other));
  EXPECT_TRUE(s->variables[1].attributes.empty());
}

TEST(BitRound, LeavesIntegersAndMoreBitsThanThereAreAlone) {
  BitRound rounding([](const std::string& name) { return name == "Q" ? 52U : 23U; });
  const auto s = rounding.declare(three_variables());
  ASSERT_TRUE(s.ok());
  for (std::uint32_t v = 0; v < 3; ++v) {
    EXPECT_FALSE(rounding.changes(v)) << v;
    EXPECT_TRUE(s->variables[v].attributes.empty()) << v;
  }
}

TEST(BitRound, DoesWhatTheProgramHasAskedForWhereNoRuleNamesTheVariable) {
  auto asked = three_variables();
  asked.variables[1].round_bits = 5;
  BitRound rounding;
  ASSERT_TRUE(rounding.declare(asked).ok());
  std::array<double, 4> values = {1.0 / 3, -2.0 / 3, 0.0, 1e300};
  rounding.apply(1, Box{{0}, {4}}, std::as_writable_bytes(std::span(values)));
  for (const auto v : values) EXPECT_EQ(std::bit_cast<std::uint64_t>(v) & ((std::uint64_t{1} << 47U) - 1), 0U) << v;
  const auto once = values;
  rounding.apply(1, Box{{0}, {4}}, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, once) << "applied to its own result it changes nothing";
}

}  // namespace
}  // namespace advectio
