#include "core/schema.h"

#include <gtest/gtest.h>

#include <random>

namespace advectio {
namespace {

Schema sample() {
  Schema s;
  s.format = FileFormat::netcdf4_classic;
  s.dimensions = {{"Time", 0, true}, {"west_east", 141, false}};
  Attribute units{"units", DataType::text, 3, {}, {}};
  Encoder(units.values).raw("m/s", 3);
  Attribute names{"names", DataType::string, 2, {}, {"a", ""}};
  Variable v;
  v.name = "U";
  v.type = DataType::float32;
  v.dimensions = {0, 1};
  v.attributes = {units, names};
  v.contiguous = false;
  v.chunks = {1, 141};
  v.filters = {{filter_id::shuffle, {4}}, {filter_id::deflate, {2}}};
  v.fill = default_fill(DataType::float32);
  v.has_fill = true;
  s.variables = {v};
  s.attributes = {units};
  return s;
}

TEST(Schema, ReadsBackAsItWasWritten) {
  const auto s = sample();
  auto back = decode_schema(encode(s));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, s);
}

TEST(Schema, NoCutIsTakenForAWholeOne) {
  const auto bytes = encode(sample());
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(decode_schema(std::span(bytes).first(n)).ok()) << "cut at " << n;
}

TEST(Schema, DamagedBytesNeverCrashOrAskForMuchMemory) {
  std::mt19937 random(7);
  const auto whole = encode(sample());
  for (int round = 0; round < 20000; ++round) {
    auto bytes = whole;
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (auto s = decode_schema(bytes); s.ok()) {
      EXPECT_LE(s->variables.size(), bytes.size());
    }
  }
}

TEST(Schema, FrameBytesCountOneStepOfUnlimitedDimensions) {
  EXPECT_EQ(frame_bytes(sample()), 141U * 4U);
}

}  // namespace
}  // namespace advectio
