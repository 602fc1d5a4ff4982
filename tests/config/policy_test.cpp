// Which rule holds for which dataset, and what `auto` comes to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "config/glob.h"

namespace advectio {
namespace {

Config config_of(const std::string& text) {
  auto config = parse_config(text, "c");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : default_config();
}

TEST(Policy, IsTheDefaultWhereNoRuleMatches) {
  EXPECT_EQ(resolve(config_of("datasets: [{match: wrfrst_*, codec: zstd}]"), "/run/wrfout_d01"), DatasetPolicy{});
}

TEST(Policy, LaterRulesOverrideKeyByKey) {
  const Config config = config_of(R"(datasets:
  - {match: "*", codec: zstd, level: 3, durable: false}
  - {match: "wrfout_*", shuffle: bit}
  - {match: "wrfout_d02*", durable: true, capture: false}
)");
  const auto d01 = resolve(config, "/run/wrfout_d01");
  EXPECT_EQ(d01.codec, Codec::zstd);
  EXPECT_EQ(d01.level, 3);
  EXPECT_EQ(d01.shuffle, Shuffle::bit);
  EXPECT_FALSE(d01.durable);
  EXPECT_TRUE(d01.capture);
  const auto d02 = resolve(config, "/run/wrfout_d02_x");
  EXPECT_EQ(d02.codec, Codec::zstd);
  EXPECT_TRUE(d02.durable);
  EXPECT_FALSE(d02.capture);
}

TEST(Policy, ALevelDoesNotOutliveItsCodec) {
  const Config config = config_of(R"(datasets:
  - {match: "*", codec: zstd, level: 19}
  - {match: "b*", codec: deflate}
  - {match: "c*", codec: deflate, deflate: libdeflate, level: 12}
  - {match: "cc*", deflate: isal}
)");
  EXPECT_EQ(resolve(config, "/a").level, 19);
  EXPECT_EQ(resolve(config, "/b").level, std::nullopt);
  EXPECT_EQ(resolve(config, "/c").level, 12);
  EXPECT_EQ(resolve(config, "/cc").level, std::nullopt) << "12 is nothing to isal";
}

TEST(Policy, ARuleCanTakeBackWhatAnEarlierOneSaid) {
  const Config config = config_of(R"(datasets:
  - {match: "*", chunks: {lev: 1}, round: {T: 3}, format: netcdf4-classic}
  - {match: "x", chunks: asked, round: none, format: asked}
)");
  EXPECT_EQ(resolve(config, "/x"), DatasetPolicy{});
}

TEST(Policy, PatternsWithASlashAreHeldAgainstTheWholePath) {
  const Config config = config_of("datasets: [{match: /scratch/*/hist*, codec: lz4}]");
  EXPECT_EQ(resolve(config, "/scratch/a/b/hist.nc").codec, Codec::lz4);
  EXPECT_EQ(resolve(config, "/home/hist.nc").codec, Codec::asked);
  EXPECT_EQ(resolve(config_of("datasets: [{match: hist*, codec: lz4}]"), "/home/hist.nc").codec, Codec::lz4);
  EXPECT_EQ(resolve(config_of("datasets: [{match: home*, codec: lz4}]"), "/home/hist.nc").codec, Codec::asked);
}

TEST(Policy, RoundsByTheVeryNameBeforeAnyPattern) {
  const auto policy = resolve(config_of("datasets: [{match: a, round: {\"*\": 12, \"Q*\": 8, T: 10}}]"), "/a");
  EXPECT_EQ(round_bits(policy, "T"), 10U);
  EXPECT_EQ(round_bits(policy, "QVAPOR"), 12U) << "the first pattern that matches";
  EXPECT_EQ(round_bits(DatasetPolicy{}, "T"), 0U);
}

TEST(Glob, KnowsBracketsThatHoldABracket) {
  EXPECT_TRUE(check_glob("[]a]").ok());
  EXPECT_TRUE(check_glob("[!]a]x").ok());
  EXPECT_TRUE(check_glob("a\\[b").ok());
  EXPECT_FALSE(check_glob("[]").ok());
  EXPECT_FALSE(check_glob("[!]").ok());
  EXPECT_FALSE(check_glob("[").ok());
  EXPECT_TRUE(glob_matches("[]a]", "]"));
}

TEST(StageCap, AutoIsAQuarterOfMemoryOrMostOfWhatIsFree) {
  const Config config = default_config();
  constexpr std::uint64_t GiB = 1ULL << 30;
  EXPECT_EQ(*stage_bytes_max(config, 64 * GiB, 64 * GiB), 16 * GiB);
  const auto tight = *stage_bytes_max(config, 64 * GiB, 10 * GiB);
  EXPECT_LE(tight, 8 * GiB);
  EXPECT_GT(tight, 8 * GiB - config.stage.segment_bytes);
  EXPECT_EQ(tight % config.stage.segment_bytes, 0U);
}

TEST(StageCap, RefusesAMachineWithoutRoomForTwoSegments) {
  auto cap = stage_bytes_max(default_config(), 64ULL << 30, 4ULL << 20);
  ASSERT_FALSE(cap.ok());
  EXPECT_EQ(cap.error().message,
            "stage.bytes_max: auto comes to 2MiB here (memory 64GiB, free in /dev/shm 4MiB), less than two segments "
            "of 2MiB; make room there, or set stage.directory or a smaller stage.segment_bytes");
}

// A server that had to map more segments than a process may have mappings would fail in the midst of a run.
TEST(StageCap, SegmentsGrowWithAStageOfWhichThereWouldBeTooMany) {
  const Config config = default_config();
  EXPECT_EQ(stage_segment_bytes(config, 16ULL << 30), 2ULL << 20);
  EXPECT_EQ(stage_segment_bytes(config, 64ULL << 30), 2ULL << 20);
  EXPECT_EQ(stage_segment_bytes(config, 65ULL << 30), 4ULL << 20);
  EXPECT_EQ(stage_segment_bytes(config, 1ULL << 40), 32ULL << 20);
}

TEST(StageCap, IsWhatWasGivenWhereItWasGiven) {
  EXPECT_EQ(*stage_bytes_max(config_of("stage: {bytes_max: 3GiB}"), 1, 1), 3ULL << 30);
}

}  // namespace
}  // namespace advectio
