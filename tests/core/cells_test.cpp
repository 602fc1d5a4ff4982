#include "core/cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace advectio {
namespace {

TEST(Cells, OwnersAndOpenPointsAreThoseOfPaintingPointByPoint) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::vector<std::uint64_t> whole{1 + random() % 9, 1 + random() % 9};
    const Box domain{{0, 0}, whole};
    std::vector<Box> boxes(random() % 5);
    for (auto& b : boxes) {
      b = {{random() % whole[0], random() % whole[1]}, {}};
      for (std::size_t i = 0; i < 2; ++i) b.count.push_back(1 + random() % (whole[i] - b.start[i]));
    }
    Cells cells(boxes, whole);
    ASSERT_TRUE(cells.made());
    std::vector<int> painted(domain.volume(), 0);
    for (std::size_t k = 0; k < boxes.size(); ++k) {
      bool met = false;
      for (std::uint64_t y = 0; y < whole[0]; ++y)
        for (std::uint64_t x = 0; x < whole[1]; ++x)
          if (boxes[k].contains({{y, x}, {1, 1}})) met = painted[y * whole[1] + x]++ > 0 || met;
      EXPECT_EQ(cells.take(boxes[k], k).has_value(), met);
    }
    const auto open = static_cast<std::uint64_t>(std::count(painted.begin(), painted.end(), 0));
    EXPECT_EQ(cells.open_points(), open);
    if (open == 0) continue;
    const auto hole = cells.open_box();
    EXPECT_FALSE(hole.empty());
    for (std::uint64_t y = 0; y < whole[0]; ++y)
      for (std::uint64_t x = 0; x < whole[1]; ++x)
        if (hole.contains({{y, x}, {1, 1}})) {
          EXPECT_EQ(painted[y * whole[1] + x], 0);
        }
  }
}

TEST(Cells, MoreThanCanBeHeldAreNotMade) {
  std::vector<Box> boxes;
  for (std::uint64_t i = 0; i < 10'000; ++i) boxes.push_back({{2 * i, 2 * i}, {1, 1}});
  EXPECT_FALSE(Cells(boxes, {20'000, 20'000}).made());
}

}  // namespace
}  // namespace advectio
