// The limit of bytes written per second, by a clock of the test's own.
#include "server/drain_rate.h"

#include <gtest/gtest.h>

namespace advectio {
namespace {

constexpr std::uint64_t mib = 1U << 20U, second = 1'000'000'000;

/// What a server writes that looks every `step_ns` and has blocks of so many bytes, always.
std::uint64_t written(DrainRate& rate, std::uint64_t from_ns, std::uint64_t until_ns, std::uint64_t step_ns,
                      std::uint64_t block) {
  std::uint64_t bytes = 0;
  for (auto now = from_ns; now < until_ns; now += step_ns) {
    while (!rate.in_debt(now)) {
      rate.spend(block);
      bytes += block;
    }
  }
  return bytes;
}

TEST(DrainRate, IsKeptOnAverageWhateverTheBlocks) {
  for (const std::uint64_t block : {mib / 16, mib, 37 * mib, 500 * mib}) {
    DrainRate rate(200 * mib);
    const auto bytes = written(rate, second, 101 * second, 5'000'000, block);
    EXPECT_LE(bytes, 100 * 200 * mib + 20 * mib + block) << block;
    EXPECT_GE(bytes, 100 * 200 * mib * 99 / 100) << block;
    EXPECT_GT(rate.held_ns(), 90 * second) << block;
  }
}

TEST(DrainRate, LetsLittleBeMadeUpForAfterAPause) {
  DrainRate rate(100 * mib);
  (void)written(rate, second, 2 * second, 5'000'000, mib);
  const auto after = written(rate, 3600 * second, 3601 * second, 5'000'000, mib);
  EXPECT_LE(after, 100 * mib + 10 * mib + mib);
}

TEST(DrainRate, WithoutALimitIsNeverInDebt) {
  DrainRate rate(std::nullopt);
  rate.spend(1ULL << 50U);
  EXPECT_FALSE(rate.in_debt(second));
  EXPECT_EQ(rate.held_ns(), 0U);
}

}  // namespace
}  // namespace advectio
