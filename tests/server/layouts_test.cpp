#include "server/layouts.h"

#include <gtest/gtest.h>

#include <deque>

#include "server/frame_under_way.h"

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

Schema of_rows(std::uint64_t x) {
  Schema s;
  s.dimensions = {{"t", 0, true}, {"x", x, false}};
  Variable v;
  v.name = "v";
  v.type = DataType::int32;
  v.dimensions = {0, 1};
  s.variables = {v, v};
  s.variables[1].name = "w";
  return s;
}

/// Puts a frame of two variables, and says what a reader of it would find.
struct SmallBlocks {
  bool put(std::uint32_t variable, std::uint64_t t, std::uint64_t x, std::vector<std::int32_t> values) {
    data.push_back(std::move(values));
    Block b{variable, {{t, x}, {1, data.back().size()}}, {}};
    b.data = reinterpret_cast<const std::byte*>(data.back().data());
    b.bytes = data.back().size() * sizeof(std::int32_t);
    const auto added = frame.add(b, schema, nullptr);
    EXPECT_TRUE(added.ok());
    return *added;
  }
  std::vector<std::int32_t> read(std::uint32_t variable, const Box& box) {
    std::vector<std::int32_t> out(box.volume(), -1);
    frame.fields().at(variable)->read(box, reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  std::size_t blocks(std::uint32_t variable) { return frame.fields().at(variable)->blocks().size(); }
  Schema schema = of_rows(1000);
  FrameUnderWay frame;
  std::deque<std::vector<std::int32_t>> data;
  SmallBlocks() { frame.declare(schema); }
};

TEST(SmallBlocks, OfAVariableAreOneBlockAndTheLaterValueCounts) {
  SmallBlocks f;
  EXPECT_TRUE(f.frame.empty());
  for (std::int32_t x = 9; x >= 0; --x) EXPECT_FALSE(f.put(0, 0, static_cast<std::uint64_t>(x), {x}));
  EXPECT_FALSE(f.put(1, 2, 5, {7}));
  EXPECT_FALSE(f.put(0, 0, 3, {33}));
  EXPECT_FALSE(f.frame.empty());
  ASSERT_TRUE(f.frame.join().ok());
  EXPECT_EQ(f.read(0, {{0, 0}, {1, 11}}), (std::vector<std::int32_t>{0, 1, 2, 33, 4, 5, 6, 7, 8, 9, -1}));
  EXPECT_EQ(f.read(1, {{2, 4}, {1, 3}}), (std::vector<std::int32_t>{-1, 7, -1}));
  EXPECT_EQ(*f.frame.records(), (std::pair<std::uint64_t, std::uint64_t>{0, 3}));
  // In the order of the box they are one.
  SmallBlocks g;
  for (std::int32_t x = 0; x < 100; ++x) g.put(0, 0, static_cast<std::uint64_t>(x), {x});
  ASSERT_TRUE(g.frame.join().ok());
  EXPECT_EQ(g.blocks(0), 1U);
}

TEST(SmallBlocks, ComeBeforeALargeBlockThatFollowsThem) {
  SmallBlocks f;
  EXPECT_FALSE(f.put(0, 0, 1, {1}));
  EXPECT_FALSE(f.put(0, 0, 2, {2}));
  EXPECT_TRUE(f.put(0, 0, 0, std::vector<std::int32_t>(500, 5)));
  EXPECT_FALSE(f.put(0, 0, 1, {6}));
  ASSERT_TRUE(f.frame.join().ok());
  EXPECT_EQ(f.read(0, {{0, 0}, {1, 4}}), (std::vector<std::int32_t>{5, 6, 5, 5}));
}

TEST(SmallBlocks, WaitUpToABound) {
  SmallBlocks f;
  bool given = false;
  std::uint64_t n = 0;
  for (; !given && n < 1'000'000; ++n) given = f.put(0, n / 1000, n % 1000, {static_cast<std::int32_t>(n)});
  EXPECT_TRUE(given);
  EXPECT_LE(n, 65'536U);
  EXPECT_EQ(f.read(0, {{60, 100}, {1, 1}}), std::vector<std::int32_t>{60'100});
  f.put(0, 0, 0, {1});
  f.frame.clear();
  EXPECT_TRUE(f.frame.empty());
}

}  // namespace
}  // namespace advectio
