#include "server/stored_schema.h"

#include <gtest/gtest.h>

#include "server/output_file.h"

namespace advectio {
namespace {

Schema asked() {
  Schema s;
  s.dimensions = {{"Time", 0, true}, {"z", 40, false}, {"y", 500, false}, {"x", 600, false}};
  Variable t;
  t.name = "T";
  t.type = DataType::float32;
  t.dimensions = {0, 1, 2, 3};
  t.contiguous = false;
  t.chunks = {1, 40, 250, 300};
  t.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {2}}};
  Variable h;
  h.name = "HGT";
  h.type = DataType::float32;
  h.dimensions = {2, 3};
  s.variables = {t, h};
  return s;
}

TEST(Storage, WithoutRulesEverythingStaysAsAsked) {
  EXPECT_EQ(*as_stored(asked(), {}), asked());
}

TEST(Storage, ZarrKeepsChunksFiltersAndTypes) {
  auto of_strings = asked();
  of_strings.variables[1].type = DataType::string;
  DatasetPolicy p;
  p.format = FileFormat::zarr;
  const auto s = as_stored(of_strings, p);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->format, FileFormat::zarr);
  EXPECT_EQ(s->variables[0], of_strings.variables[0]);
  EXPECT_EQ(s->variables[1].type, DataType::string);
}

TEST(Storage, AStoreHasTheNameOfItsFile) {
  EXPECT_EQ(store_path("/run/wrfout_d01_2026-11-26_00:00:00", FileFormat::zarr),
            "/run/wrfout_d01_2026-11-26_00:00:00.zarr");
  EXPECT_EQ(store_path("/run/history.nc", FileFormat::zarr), "/run/history.zarr");
  EXPECT_EQ(store_path("/run/history.zarr", FileFormat::zarr), "/run/history.zarr");
  EXPECT_EQ(store_path("/run/.nc", FileFormat::zarr), "/run/.nc.zarr");
  EXPECT_EQ(store_path("/run.nc/a", FileFormat::zarr), "/run.nc/a.zarr");
  EXPECT_EQ(store_path("/run/history.nc", FileFormat::bp5), "/run/history.bp");
  EXPECT_EQ(store_path("/run/history.bp", FileFormat::bp5), "/run/history.bp");
  EXPECT_EQ(store_path("/run/history.nc", FileFormat::sst), "/run/history.sst");
}

TEST(Storage, AFurtherStoreHasAPlaceholderBesideIt) {
  OutputRule rule{"small/{name}", {}};
  EXPECT_EQ(file_of_output(rule, "/run/a.nc"), "/run/small/a.nc");
  rule.policy.format = FileFormat::zarr;
  const auto placeholder = file_of_output(rule, "/run/a.nc");
  EXPECT_EQ(placeholder, "/run/small/.a.zarr.output");
  EXPECT_EQ(store_path(placeholder, FileFormat::zarr), "/run/small/a.zarr");
  rule.path = "{name}.zarr";
  EXPECT_EQ(store_path(file_of_output(rule, "/run/a"), FileFormat::zarr), "/run/a.zarr");
  rule.path = "{name}";
  rule.policy.format = FileFormat::bp5;
  EXPECT_EQ(file_of_output(rule, "/run/a.nc"), "/run/.a.bp.output");
  EXPECT_EQ(store_path("/run/.a.bp.output", FileFormat::bp5), "/run/a.bp");
}

TEST(Storage, NamesTheFiltersThatReadersNeed) {
  using Ids = std::vector<std::uint32_t>;
  DatasetPolicy p;
  EXPECT_EQ(filters_named(p), Ids{filter_id::deflate});
  p.shuffle = Shuffle::bit;
  EXPECT_EQ(filters_named(p), (Ids{filter_id::bitshuffle, filter_id::deflate}));
  p.codec = Codec::blosc_zstd;
  EXPECT_EQ(filters_named(p), Ids{filter_id::blosc}) << "it shuffles by itself";
  p = {};
  p.codec = Codec::zstd;
  EXPECT_EQ(filters_named(p), (Ids{filter_id::shuffle, filter_id::zstd}));
  p.codec = Codec::none;
  EXPECT_EQ(filters_named(p), Ids{});
}

TEST(Storage, ACodecReplacesTheOneAskedForAndChunksWhatWasContiguous) {
  DatasetPolicy p;
  p.codec = Codec::zstd;
  p.level = 3;
  const auto s = as_stored(asked(), p);
  ASSERT_TRUE(s.ok());
  const std::vector<Filter> want{{filter_id::shuffle, {}}, {filter_id::zstd, {3}}};
  EXPECT_EQ(s->variables[0].filters, want);
  EXPECT_EQ(s->variables[1].filters, want);
  EXPECT_FALSE(s->variables[1].contiguous);
  EXPECT_EQ(s->variables[1].chunks, (std::vector<std::uint64_t>{500, 600}));
}

TEST(Storage, ALevelThatHdf5DoesNotKnowIsNotWrittenIntoTheFile) {
  DatasetPolicy p;
  p.codec = Codec::deflate;
  p.deflate = DeflateBy::libdeflate;
  p.level = 12;
  EXPECT_EQ(as_stored(asked(), p)->variables[0].filters.back(), (Filter{filter_id::deflate, {9}}));
  p.codec = Codec::asked;
  EXPECT_EQ(as_stored(asked(), p)->variables[0].filters.back(), (Filter{filter_id::deflate, {9}}));
}

TEST(Storage, CodecNoneRemovesCompressionAndShuffle) {
  DatasetPolicy p;
  p.codec = Codec::none;
  EXPECT_TRUE(as_stored(asked(), p)->variables[0].filters.empty());
}

TEST(Storage, ChunksAreSetByDimensionNameAndNeverLongerThanTheDimension) {
  DatasetPolicy p;
  p.chunks = {{"z", 1}, {"x", 10000}};
  EXPECT_EQ(as_stored(asked(), p)->variables[0].chunks, (std::vector<std::uint64_t>{1, 1, 250, 600}));
}

TEST(Storage, DefaultChunksStayUnderFourMebibytes) {
  const auto s = asked();
  const auto c = default_chunks(s, s.variables[0]);
  EXPECT_EQ(c[0], 1U);
  EXPECT_LE(c[1] * c[2] * c[3] * 4, 4U << 20U);
  EXPECT_GE(c[1] * c[2] * c[3] * 4, 1U << 20U);
}

TEST(Storage, DefaultChunksOfDimensionsBeyondCountingAreStillSome) {
  auto s = asked();
  for (const std::uint64_t length : {UINT64_MAX, std::uint64_t{1} << 63, std::uint64_t{1} << 33}) {
    for (std::size_t d = 1; d < s.dimensions.size(); ++d) s.dimensions[d].length = length;
    std::uint64_t bytes = 4;
    for (const auto c : default_chunks(s, s.variables[0])) {
      EXPECT_GT(c, 0U);
      bytes *= c;
    }
    EXPECT_LE(bytes, 4U << 20U);
  }
}

TEST(Storage, RoundingIsRecordedInTheAttributeThatNetcdfUses) {
  DatasetPolicy p;
  p.round = {{"T", 10}};
  auto operators = operators_of(p);
  const auto s = operators.declare(*as_stored(asked(), p));
  ASSERT_TRUE(s.ok());
  EXPECT_TRUE(operators.changes(0));
  EXPECT_FALSE(operators.changes(1));
  EXPECT_EQ(s->variables[0].round_bits, 10U);
  ASSERT_EQ(s->variables[0].attributes.size(), 1U);
  EXPECT_EQ(s->variables[0].attributes[0].name, "_QuantizeBitRoundNumberOfSignificantBits");
  EXPECT_EQ(s->variables[1].round_bits, 0U);
}

TEST(Storage, AClassicFileRefusesATypeItCannotHoldByName) {
  auto s = asked();
  s.variables[1].type = DataType::uint64;
  DatasetPolicy p;
  p.format = FileFormat::classic;
  const auto r = as_stored(s, p);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("HGT"), std::string::npos);
  p.format = FileFormat::cdf5;
  EXPECT_TRUE(as_stored(s, p).ok());
}

}  // namespace
}  // namespace advectio
