#include "server/layouts.h"

#include <gtest/gtest.h>

namespace advectio {
namespace {

/// Every n-th element of a row.
struct Said {
  explicit Said(std::uint64_t n, std::uint64_t boxes = 10, std::uint64_t first = 0) {
    BoxList list(2);
    for (std::uint64_t i = 0; i < boxes; ++i) list.add(std::vector{first, i * n}, std::vector<std::uint64_t>{1, 1});
    const auto bounds = list.bounds(0, boxes);
    packed = journal::pack(list, 0, boxes, bounds.start);
    put = {4, bounds, {}, static_cast<std::uint32_t>(boxes), packed};
  }
  Bytes packed;
  journal::Put put;
};

TEST(Layouts, AreMadeOnceForAllVariablesAndRecords) {
  Layouts layouts;
  const Said said(3), other(4), later(3, 10, 7);
  const auto a = layouts.of(said.put, 10), b = layouts.of(other.put, 10), c = layouts.of(later.put, 10);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(*a, *c);
  EXPECT_NE(*a, *b);
  EXPECT_EQ(layouts.made(), 2U);
  EXPECT_EQ(layouts.asked(), 3U);
  EXPECT_GE(layouts.bytes(), (*a)->bytes() + (*b)->bytes());
}

TEST(Layouts, KeepThoseUsedLastWithinTheBound) {
  const Said first(2, 100), second(3, 100), third(4, 100);
  std::uint64_t one = 0;
  {
    Layouts all;
    ASSERT_TRUE(all.of(first.put, 100).ok());
    one = all.bytes();
  }
  Layouts layouts(2 * one + one / 2);
  ASSERT_TRUE(layouts.of(first.put, 100).ok());
  ASSERT_TRUE(layouts.of(second.put, 100).ok());
  ASSERT_TRUE(layouts.of(first.put, 100).ok());
  ASSERT_TRUE(layouts.of(third.put, 100).ok());  // the second goes
  EXPECT_LE(layouts.bytes(), 2 * one + one / 2);
  EXPECT_EQ(layouts.made(), 3U);
  ASSERT_TRUE(layouts.of(first.put, 100).ok());
  EXPECT_EQ(layouts.made(), 3U);
  ASSERT_TRUE(layouts.of(second.put, 100).ok());
  EXPECT_EQ(layouts.made(), 4U);
  // One that is too large is made, and not kept.
  Layouts none(0);
  EXPECT_TRUE(none.of(first.put, 100).ok());
  EXPECT_EQ(none.bytes(), 0U);
}

TEST(Layouts, OfAPayloadOfAnotherLengthAreRefused) {
  Layouts layouts;
  const Said said(3);
  EXPECT_EQ(layouts.of(said.put, 11).error().code, Code::corrupt);
  EXPECT_EQ(layouts.of(said.put, 9).error().code, Code::corrupt);
  ASSERT_TRUE(layouts.of(said.put, 10).ok());
  EXPECT_EQ(layouts.of(said.put, 11).error().code, Code::corrupt);
}

}  // namespace
}  // namespace advectio
