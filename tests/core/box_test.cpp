#include "core/box.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace advectio {
namespace {

Box box(std::vector<std::uint64_t> start, std::vector<std::uint64_t> count) {
  return {std::move(start), std::move(count)};
}

TEST(Box, VolumeSaturatesInsteadOfWrapping) {
  EXPECT_EQ(box({}, {}).volume(), 1U);
  EXPECT_EQ(box({0, 0}, {3, 0}).volume(), 0U);
  EXPECT_EQ(box({0, 0, 0}, {1ULL << 40, 1ULL << 40, 2}).volume(), UINT64_MAX);
  EXPECT_EQ(box({0, 0, 0}, {1ULL << 40, 1ULL << 40, 0}).volume(), 0U);
}

TEST(Box, IntersectionOfBoxesApartIsEmpty) {
  EXPECT_TRUE(intersect(box({0, 0}, {2, 2}), box({2, 0}, {2, 2})).empty());
  EXPECT_EQ(intersect(box({0, 0}, {4, 4}), box({2, 1}, {4, 2})), box({2, 1}, {2, 2}));
}

TEST(Box, ContiguityIsThatOfRowMajorOrder) {
  const auto whole = box({0, 0, 0}, {4, 5, 6});
  EXPECT_TRUE(is_contiguous(box({1, 0, 0}, {2, 5, 6}), whole));
  EXPECT_TRUE(is_contiguous(box({1, 2, 0}, {1, 2, 6}), whole));
  EXPECT_TRUE(is_contiguous(box({1, 2, 3}, {1, 1, 2}), whole));
  EXPECT_FALSE(is_contiguous(box({1, 2, 3}, {1, 2, 2}), whole));
  EXPECT_FALSE(is_contiguous(box({1, 2, 0}, {2, 2, 6}), whole));
}

/// Against the plainest thing that can be written: element by element.
TEST(Box, CopyPartEqualsElementByElementForAnyBoxes) {
  std::mt19937 random(20261120);
  const auto up_to = [&](std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n)(random); };
  for (int round = 0; round < 2000; ++round) {
    const auto rank = up_to(4);
    Box part, from, to;
    for (std::size_t i = 0; i < rank; ++i) {
      const auto count = 1 + up_to(4), start = 3 + up_to(5);
      part.start.push_back(start);
      part.count.push_back(count);
      for (Box* b : {&from, &to}) {
        const bool tight = up_to(1) == 0;  // whole rows, so that runs get merged
        const auto before = tight ? 0 : up_to(2), after = tight ? 0 : up_to(2);
        b->start.push_back(start - before);
        b->count.push_back(count + before + after);
      }
    }
    std::vector<std::uint32_t> source(from.volume()), got(to.volume(), 7), want(to.volume(), 7);
    std::iota(source.begin(), source.end(), 1000U);
    copy_part(part, source.data(), from, got.data(), to, sizeof(std::uint32_t));
    std::vector<std::uint64_t> at = part.start;
    for (std::uint64_t n = 0; n < part.volume(); ++n) {
      const Box one{at, std::vector<std::uint64_t>(rank, 1)};
      want[offset_in(one, to)] = source[offset_in(one, from)];
      for (std::size_t k = rank; k-- > 0;) {
        if (++at[k] < part.start[k] + part.count[k]) break;
        at[k] = part.start[k];
      }
    }
    ASSERT_EQ(got, want) << "round " << round;
  }
}

}  // namespace
}  // namespace advectio
