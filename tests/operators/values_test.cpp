#include "operators/values.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace advectio {
namespace {

template <typename T>
Attribute number(const std::string& name, DataType type, std::vector<T> values) {
  Attribute a;
  a.name = name;
  a.type = type;
  a.count = values.size();
  a.values.resize(values.size() * sizeof(T));
  std::memcpy(a.values.data(), values.data(), a.values.size());
  return a;
}

template <typename T>
std::vector<double> unpacked(const Variable& v, std::vector<T> raw) {
  std::vector<double> out(raw.size());
  unpack(packing_of(v), reinterpret_cast<const std::byte*>(raw.data()), out);
  return out;
}

TEST(Values, ArePackedValuesTimesScalePlusOffset) {
  Variable v;
  v.type = DataType::int16;
  v.attributes = {number<float>("scale_factor", DataType::float32, {0.5F}),
                  number<float>("add_offset", DataType::float32, {100}),
                  number<std::int16_t>("_FillValue", DataType::int16, {-1}),
                  number<std::int16_t>("missing_value", DataType::int16, {-2, -3})};
  const auto values = unpacked<std::int16_t>(v, {4, -1, -2, -3, -4});
  EXPECT_EQ(values[0], 102);
  for (const int i : {1, 2, 3}) EXPECT_TRUE(std::isnan(values[static_cast<std::size_t>(i)])) << i;
  EXPECT_EQ(values[4], 98);
  EXPECT_EQ(packing_of(v).unpacked, DataType::float32);
  v.attributes.clear();
  EXPECT_EQ(packing_of(v).unpacked, DataType::float64) << "whole numbers have means that are none";
}

TEST(Values, OfASignedTypeMayBeUnsigned) {
  Variable v;
  v.type = DataType::int8;
  v.attributes = {number<std::int8_t>("_FillValue", DataType::int8, {-1}),
                  number<std::int16_t>("missing_value", DataType::int16, {254})};
  set_text(v.attributes, "_Unsigned", "true");
  const auto values = unpacked<std::int8_t>(v, {100, -56, -1, -2});
  EXPECT_EQ(values[0], 100);
  EXPECT_EQ(values[1], 200);
  EXPECT_TRUE(std::isnan(values[2])) << "the fill value is of the variable's type";
  EXPECT_TRUE(std::isnan(values[3])) << "a value of another type is what it says";
  set_text(v.attributes, "_Unsigned", "false");
  EXPECT_EQ(unpacked<std::int8_t>(v, {-56})[0], -56);
}

TEST(Values, NobodyHasPutAreMissing) {
  Variable v;
  v.type = DataType::float32;
  EXPECT_TRUE(std::isnan(unpacked<float>(v, {9.96921e+36F})[0])) << "netCDF's default fill value";
  v.no_fill = true;
  EXPECT_FALSE(std::isnan(unpacked<float>(v, {9.96921e+36F})[0]));
  v.type = DataType::int8;
  EXPECT_EQ(unpacked<std::int8_t>(v, {-127})[0], -127) << "a byte has no value to spare";
}

TEST(Values, AttributesMayBeEmptyTexts) {
  std::vector<Attribute> attributes;
  set_text(attributes, "stagger", "X");
  set_text(attributes, "stagger", "");
  ASSERT_EQ(attributes.size(), 1U);
  EXPECT_EQ(attributes[0].count, 0U);
  EXPECT_EQ(text_of(attributes, "stagger"), "");
}

TEST(Values, GoThereAndBackWithTheSameBits) {
  const std::array<float, 5> values = {0.0F, -0.0F, 1.17e-38F, 273.15F, -INFINITY};
  Variable v;
  v.type = DataType::float32;
  std::array<double, 5> wide{};
  unpack(packing_of(v), reinterpret_cast<const std::byte*>(values.data()), wide);
  std::array<float, 5> back{};
  narrow(DataType::float32, 0, wide, reinterpret_cast<std::byte*>(back.data()));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(back[i])) << i;
  const std::array<double, 1> missing = {NAN};
  float filled = 0;
  narrow(DataType::float32, -999, missing, reinterpret_cast<std::byte*>(&filled));
  EXPECT_EQ(filled, -999);
}

}  // namespace
}  // namespace advectio
