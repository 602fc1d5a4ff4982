#include "core/placement_by_coordinates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace advectio {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<double>;

Variable coordinate(const std::string& name, std::uint32_t dimension) {
  Variable v;
  v.name = name;
  v.type = DataType::float64;
  v.dimensions = {dimension};
  return v;
}

UnplacedTile tile(const std::string& name, const Values& x, const Values& y, const std::string& title = {}) {
  UnplacedTile t{name, {}, {x, y, {}}};
  t.schema.dimensions = {{"xt", x.size(), false}, {"yt", y.size(), false}, {"n", 3, false}};
  t.schema.variables = {coordinate("xt", 0), coordinate("yt", 1)};
  if (!title.empty()) {
    Attribute a{"title", DataType::text, title.size(), {}, {}};
    Encoder(a.values).raw(title.data(), title.size());
    t.schema.attributes = {a};
  }
  return t;
}

std::string refusal(const std::vector<UnplacedTile>& tiles) {
  auto p = place_by_coordinates(tiles);
  return p.ok() ? "" : p.error().message;
}

TEST(PlacementByCoordinates, AnyDecompositionOfAnyAxesIsFoundAgain) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const auto axis = [&] {
      // Steps that grow by at most a quarter, up or down.
      Values v{static_cast<double>(random() % 100)};
      double step = 1 + random() % 9;
      const auto n = 1 + random() % 30;
      while (v.size() < n) v.push_back(v.back() + (step *= 0.8 + (random() % 45) / 100.0));
      if (random() % 2 == 0)
        for (auto& value : v) value = -value;
      return v;
    };
    const auto parts = [&](const Values& all) {
      std::vector<std::size_t> begin{0};  // parts of two values at least: the steps of one are not known
      for (std::size_t i = 2; i + 2 <= all.size(); ++i)
        if (i - begin.back() >= 2 && random() % 4 == 0) begin.push_back(i);
      begin.push_back(all.size());
      return begin;
    };
    const auto x = axis(), y = axis();
    const auto in_x = parts(x), in_y = parts(y);
    struct Expected {
      UnplacedTile tile;
      std::size_t x, y;
    };
    std::vector<Expected> all;
    for (std::size_t j = 0; j + 1 < in_y.size(); ++j)
      for (std::size_t i = 0; i + 1 < in_x.size(); ++i)
        all.push_back({tile(std::to_string(all.size()), {x.begin() + in_x[i], x.begin() + in_x[i + 1]},
                            {y.begin() + in_y[j], y.begin() + in_y[j + 1]}),
                       in_x[i], in_y[j]});
    if (all.size() < 2) continue;
    std::shuffle(all.begin(), all.end(), random);
    std::vector<UnplacedTile> tiles;
    for (const auto& one : all) tiles.push_back(one.tile);
    auto p = place_by_coordinates(tiles);
    ASSERT_TRUE(p.ok()) << p.error().message;
    for (std::size_t t = 0; t < all.size(); ++t) {
      const auto& spans = (*p)[t].spans;
      EXPECT_EQ(spans[0], in_x.size() > 2 ? std::optional(Span{0, all[t].x, tiles[t].coordinates[0].size(), x.size()})
                                          : std::nullopt);
      EXPECT_EQ(spans[1], in_y.size() > 2 ? std::optional(Span{0, all[t].y, tiles[t].coordinates[1].size(), y.size()})
                                          : std::nullopt);
      EXPECT_FALSE(spans[2]);
    }
  }
}

TEST(PlacementByCoordinates, OneOfTwoNeighboursHasTheEdgeBetweenThem) {
  auto p = place_by_coordinates({tile("a", {1, 2, 3}, {1}), tile("b", {3 + 1e-7, 4, 5}, {1})});
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ((*p)[0].spans[0], (Span{0, 0, 2, 5}));
  EXPECT_EQ((*p)[1].spans[0], (Span{0, 2, 3, 5}));
}

TEST(PlacementByCoordinates, TilesOfOnePointAreHeldAgainstTheNarrowestGap) {
  std::vector<UnplacedTile> tiles;
  for (const double x : {1, 2, 3, 4}) tiles.push_back(tile(std::to_string(tiles.size()), {x}, {1}));
  EXPECT_EQ(refusal(tiles), "");
  tiles.erase(tiles.begin() + 1);
  EXPECT_THAT(refusal(tiles), HasSubstr("a part of the coordinate xt is in no tile: 0 has 1 to 1, 2 has 3 to 3"));
}

TEST(PlacementByCoordinates, WhatIsNoPartOfOneAxisIsRefused) {
  const auto with = [](const Values& a, const Values& b) { return refusal({tile("a", a, {1}), tile("b", b, {1})}); };
  EXPECT_EQ(with({1, 2, 3}, {2, 3, 4}), "tiles overlap in the coordinate xt: a has 1 to 3, b has 2 to 4");
  EXPECT_EQ(with({3, 2, 1}, {2, 1, 0}), "tiles overlap in the coordinate xt: a has 3 to 1, b has 2 to 0");
  EXPECT_THAT(with({1, 2, 3}, {1, 2}), HasSubstr("tiles overlap"));
  EXPECT_THAT(with({1, 2, 3}, {5, 6}), HasSubstr("is in no tile: a has 1 to 3, b has 5 to 6"));
  EXPECT_THAT(with({1, 2}, {1, 2}), HasSubstr("a and b say by no attribute where they lie"));
  EXPECT_THAT(with({1, 2}, {4, 3}), HasSubstr("its coordinate xt does not fall"));
  EXPECT_THAT(with({1, 2}, {3, std::numeric_limits<double>::infinity()}),
              HasSubstr("b: its coordinate xt does not rise"));
  EXPECT_EQ(with({1, 2}, {3, 4}), "");
}

TEST(PlacementByCoordinates, TheProcessorsInTheTitlesOfDalesMustHaveTheSameOrder) {
  const auto with = [](const char* a, const char* b, const char* c, const char* d) {
    return refusal({tile("a", {1, 2}, {1, 2}, a), tile("b", {3, 4}, {1, 2}, b), tile("c", {1, 2}, {3, 4}, c),
                    tile("d", {3, 4}, {3, 4}, d)});
  };
  EXPECT_EQ(with("f.000.000.001.nc", "f.001.000.001.nc", "f.000.001.001.nc", "f.001.001.001.nc   "), "");
  EXPECT_EQ(with("f.x000y000.001.nc", "f.x001y000.001.nc", "f.x000y001.001.nc", "f.x001y001.001.nc"), "");
  EXPECT_EQ(with("one", "of", "other", "models"), "");
  EXPECT_THAT(with("f.001.000.001.nc", "f.000.000.001.nc", "f.001.001.001.nc", "f.000.001.001.nc"),
              HasSubstr("the coordinate xt is not in the order of the processors"));
  // All count from 0 in x, and by their rank in y.
  EXPECT_THAT(refusal({tile("a", {1, 2}, {1, 2}, "f.000.000.001.nc"), tile("b", {1, 2}, {3, 4}, "f.000.001.001.nc"),
                       tile("c", {1, 2}, {5, 6}, "f.001.000.001.nc"), tile("d", {1, 2}, {7, 8}, "f.001.001.001.nc")}),
              HasSubstr("is not in the order of the processors"));
}

}  // namespace
}  // namespace advectio
