#include "core/field.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "core/bytes.h"

namespace advectio {
namespace {

using Random = std::mt19937_64;

std::uint64_t below(Random& r, std::uint64_t n) {
  return r() % n;
}

/// A part of an array of these lengths; every other time with strides.
Part random_part(Random& r, const std::vector<std::uint64_t>& lengths) {
  Part out;
  const bool strided = below(r, 2) == 0;
  for (const auto length : lengths) {
    out.box.start.push_back(below(r, length));
    const auto left = length - out.box.start.back();
    const auto stride = strided ? 1 + below(r, 4) : 1;
    out.box.count.push_back(1 + below(r, (left + stride - 1) / stride));
    if (strided) out.stride.push_back(stride);
  }
  return out;
}

/// visit(index in the whole array, index in the part) for every element.
template <typename Visit>
void for_each(const Part& part, const std::vector<std::uint64_t>& lengths, Visit visit) {
  for (std::uint64_t i = 0; i < part.box.volume(); ++i) {
    std::uint64_t rest = i, at = 0, size = 1;
    for (auto d = lengths.size(); d-- > 0;) {
      const auto k = rest % part.box.count[d];
      rest /= part.box.count[d];
      at += (part.box.start[d] + k * (part.stride.empty() ? 1 : part.stride[d])) * size;
      size *= lengths[d];
    }
    visit(at, i);
  }
}

/// A field of int32 beside a plain array that was put the same.
class Twin {
 public:
  explicit Twin(std::vector<std::uint64_t> lengths) : lengths_(std::move(lengths)), field_(0, DataType::int32, rank()) {
    values_.resize(whole().volume());
  }
  void put(const Part& part) {
    auto& data = data_.emplace_back();
    for (std::uint64_t i = 0; i < part.box.volume(); ++i) data.push_back(++next_);
    for_each(part, lengths_, [&](std::uint64_t at, std::uint64_t i) { values_[at] = data[i]; });
    ASSERT_TRUE(field_
                    .add({0, part.box, part.stride, reinterpret_cast<const std::byte*>(data.data()),
                          data.size() * sizeof(std::int32_t), nullptr})
                    .ok());
  }
  /// Many boxes at once, which may overlap.
  void put(const BoxList& boxes) {
    auto& data = data_.emplace_back();
    for (std::size_t b = 0; b < boxes.size(); ++b)
      for_each(boxes[b], lengths_, [&](std::uint64_t at, std::uint64_t) {
        data.push_back(++next_);
        values_[at] = next_;
      });
    const auto bounds = boxes.bounds(0, boxes.size());
    BoxList within(boxes.rank());
    for (std::size_t b = 0; b < boxes.size(); ++b) {
      auto box = boxes[b];
      for (std::size_t i = 0; i < box.rank(); ++i) box.start[i] -= bounds.start[i];
      within.add(box.start, box.count);
    }
    auto layout = BoxLayout::make(bounds.count, within);
    ASSERT_TRUE(layout.ok()) << layout.error().message;
    ASSERT_EQ((*layout)->elements(), data.size());
    ASSERT_TRUE(field_
                    .add({0,
                          bounds,
                          {},
                          reinterpret_cast<const std::byte*>(data.data()),
                          data.size() * sizeof(std::int32_t),
                          nullptr,
                          *layout})
                    .ok());
  }
  /// What has been put is marked, and the blocks of the field are all of it.
  void expect_marked(const Box& box) const {
    std::vector<bool> marks;
    const auto found = field_.mark_put(box, marks);
    std::uint64_t there = 0;
    for_each(Part(box), lengths_, [&](std::uint64_t at, std::uint64_t i) {
      EXPECT_EQ(marks[i], values_[at].has_value());
      there += values_[at] ? 1 : 0;
    });
    EXPECT_EQ(found, there);
    std::vector<std::optional<std::int32_t>> again(values_.size());
    for (const auto& b : field_.blocks())
      for_each({b.box, b.stride}, lengths_, [&](std::uint64_t at, std::uint64_t i) {
        std::int32_t value = 0;
        std::memcpy(&value, b.data + i * sizeof value, sizeof value);
        again[at] = value;
      });
    EXPECT_TRUE(again == values_);
  }
  void expect_same(const Part& part) const {
    std::vector<std::int32_t> got(part.box.volume(), -1);
    field_.read(part, reinterpret_cast<std::byte*>(got.data()));
    bool all = true;
    for_each(part, lengths_, [&](std::uint64_t at, std::uint64_t i) {
      EXPECT_EQ(got[i], values_[at].value_or(-1));
      all = all && values_[at].has_value();
    });
    if (const auto view = field_.view(part); !view.empty()) {
      ASSERT_TRUE(all);
      ASSERT_EQ(view.size(), got.size() * sizeof(std::int32_t));
      EXPECT_EQ(std::memcmp(view.data(), got.data(), view.size()), 0);
      ++views;
    }
    if (part.dense() && field_.covers(part.box)) {
      EXPECT_TRUE(all);
      ++covered;
    }
  }
  [[nodiscard]] std::size_t rank() const { return lengths_.size(); }
  [[nodiscard]] Box whole() const { return {std::vector<std::uint64_t>(rank(), 0), lengths_}; }
  AssembledField& field() { return field_; }
  mutable std::size_t views = 0, covered = 0;

 private:
  std::vector<std::uint64_t> lengths_;
  AssembledField field_;
  std::vector<std::optional<std::int32_t>> values_;
  std::deque<std::vector<std::int32_t>> data_;
  std::int32_t next_ = 0;
};

TEST(Field, ReadsAsAPlainArrayWhateverBlocksOverlapWithWhateverStrides) {
  std::size_t views = 0, covered = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<std::uint64_t> lengths(below(random, 5));
    for (auto& n : lengths) n = 1 + below(random, 9);
    Twin twin(lengths);
    const auto blocks = below(random, 40);
    for (std::uint64_t i = 0; i < blocks; ++i) {
      const auto part = random_part(random, lengths);
      twin.put(part);
      twin.expect_same(part);
    }
    for (int i = 0; i < 20; ++i) twin.expect_same(random_part(random, lengths));
    twin.expect_same(twin.whole());
    views += twin.views;
    covered += twin.covered;
  }
  EXPECT_GT(views, 1000U);
  EXPECT_GT(covered, 500U);
}

/// Up to so many boxes of an array.
BoxList random_boxes(Random& random, const std::vector<std::uint64_t>& lengths, std::uint64_t most) {
  BoxList boxes(lengths.size());
  const auto size = 1 + below(random, 4);
  for (auto n = 1 + below(random, most); n > 0; --n) {
    Box box{std::vector<std::uint64_t>(lengths.size()), std::vector<std::uint64_t>(lengths.size())};
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      box.start[i] = below(random, lengths[i]);
      box.count[i] = 1 + below(random, std::min(size, lengths[i] - box.start[i]));
    }
    boxes.add(box.start, box.count);
  }
  return boxes;
}

TEST(Field, OfPutsOfManyBoxesReadsAsAPlainArrayWhateverTheyOverlap) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<std::uint64_t> lengths(1 + below(random, 4));
    for (auto& n : lengths) n = 1 + below(random, 9);
    Twin twin(lengths);
    for (auto n = 1 + below(random, 6); n > 0; --n) {
      if (below(random, 3) == 0)
        twin.put(random_part(random, lengths));
      else
        twin.put(random_boxes(random, lengths, 30));
    }
    for (int i = 0; i < 20; ++i) twin.expect_same(random_part(random, lengths));
    twin.expect_same(twin.whole());
    for (int i = 0; i < 5; ++i) twin.expect_marked(random_part(random, lengths).box);
    twin.expect_marked(twin.whole());
  }
}

TEST(BoxLayout, IsSortedAndHasNeighboursInOneRun) {
  // The columns 0, 2, 4, … of each level, level by level; then those between.
  BoxList boxes(2);
  for (const std::uint64_t odd : {0, 1})
    for (std::uint64_t level = 0; level < 3; ++level)
      for (auto x = odd; x < 10; x += 2)
        boxes.add(std::vector<std::uint64_t>{level, x}, std::vector<std::uint64_t>{1, 1});
  const auto scattered = BoxLayout::make({3, 10}, boxes);
  ASSERT_TRUE(scattered.ok());
  EXPECT_EQ((*scattered)->runs().size(), 30U);
  EXPECT_TRUE(std::is_sorted((*scattered)->runs().begin(), (*scattered)->runs().end(),
                             [](const auto& a, const auto& b) { return a.to < b.to; }));
  BoxList rows(2);
  for (std::uint64_t level = 0; level < 3; ++level)
    for (std::uint64_t x = 0; x < 10; x += 2)
      rows.add(std::vector<std::uint64_t>{level, x}, std::vector<std::uint64_t>{1, 2});
  const auto dense = BoxLayout::make({3, 10}, rows);
  ASSERT_TRUE(dense.ok());
  EXPECT_EQ((*dense)->runs().size(), 1U);
  EXPECT_TRUE(rows.is_a_box(0, rows.size(), {{0, 0}, {3, 10}}));
  EXPECT_FALSE(boxes.is_a_box(0, boxes.size(), {{0, 0}, {3, 10}}));
}

TEST(BoxLayout, OfBoxesThatDoNotFitIsRefused) {
  const auto make = [](std::vector<std::uint64_t> lengths, std::uint64_t start, std::uint64_t count) {
    BoxList boxes(1);
    boxes.add(std::vector{start}, std::vector{count});
    return BoxLayout::make(std::move(lengths), boxes);
  };
  EXPECT_TRUE(make({10}, 9, 1).ok());
  EXPECT_EQ(make({10}, 9, 2).error().code, Code::corrupt);
  EXPECT_EQ(make({10}, 10, 1).error().code, Code::corrupt);
  EXPECT_EQ(make({10}, 3, 0).error().code, Code::corrupt);
  EXPECT_EQ(make({10}, 1, UINT64_MAX).error().code, Code::corrupt);
  EXPECT_EQ(make({UINT64_MAX / 8}, 0, 1ULL << 32U).error().code, Code::corrupt);
  EXPECT_EQ(make({10, 10}, 0, 1).error().code, Code::corrupt);
}

TEST(Field, OfThousandsOfSmallBlocksIsWhole) {
  Twin twin({90, 100});
  std::vector<Part> points;
  for (std::uint64_t y = 0; y < 90; ++y)
    for (std::uint64_t x = 0; x < 100; x += 2) points.push_back(Box{{y, x}, {1, 2}});
  for (const auto& p : points) twin.put(p);
  Random random(5);
  for (int i = 0; i < 50; ++i) twin.expect_same(random_part(random, {90, 100}));
  twin.expect_same(twin.whole());
  EXPECT_TRUE(twin.field().covers({{3, 0}, {2, 100}}));
  std::shuffle(points.begin(), points.end(), random);
  for (const auto& p : points) twin.put(p);
  for (int i = 0; i < 50; ++i) twin.expect_same(random_part(random, {90, 100}));
}

/// Pieces of a row in no order: as `work` says, which is given all of them. Blocks and nodes looked at.
std::uint64_t looked_at(std::uint64_t pieces, const std::function<void(AssembledField&, const Block&)>& work) {
  AssembledField field(0, DataType::int32, 2);
  const std::vector<std::int32_t> data(2);
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < pieces; ++i)
    blocks.push_back({0, {{0, i * 2}, {1, 2}}, {}, reinterpret_cast<const std::byte*>(data.data()), 8, nullptr});
  Random random(3);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (const auto& b : blocks) work(field, b);
  for (const auto& b : blocks) {
    EXPECT_TRUE(field.covers(b.box));
    EXPECT_EQ(field.view(b.box).size(), 8U);
  }
  return field.looked_at();
}

TEST(Field, LooksAtFewBlocksForEachPartHoweverManyThereAre) {
  const auto put = [](AssembledField& field, const Block& b) { ASSERT_TRUE(field.add(b).ok()); };
  // Sixteen times as many: with their square it would be 256 times as much.
  EXPECT_LT(looked_at(32000, put), 28 * looked_at(2000, put));
  // A part is asked for whenever there is a new block, as chunks are.
  const auto put_and_ask = [](AssembledField& field, const Block& b) {
    ASSERT_TRUE(field.add(b).ok());
    (void)field.covers({{0, b.box.start[1] / 64 * 64}, {1, 64}});
  };
  EXPECT_LT(looked_at(32000, put_and_ask), 28 * looked_at(2000, put_and_ask));
}

TEST(Field, LooksAtFewOfTheBlocksThatLieOverEachOther) {
  std::uint64_t before = 0;
  for (const std::uint64_t n : {2000, 32000}) {
    AssembledField field(0, DataType::int32, 1);
    const std::vector<std::int32_t> data(64);
    for (std::uint64_t i = 0; i < n; ++i) {
      const Box box{{i % 2 * 64}, {64}};
      ASSERT_TRUE(field.add({0, box, {}, reinterpret_cast<const std::byte*>(data.data()), 256, nullptr}).ok());
      if (i % 7 == 0) {
        EXPECT_TRUE(field.covers({{i % 2 * 64 + i % 50}, {5}}));
      }
    }
    if (before != 0) {
      EXPECT_LT(field.looked_at(), 28 * before);
    }
    before = field.looked_at();
  }
}

TEST(Field, OfManySmallBlocksInAnyOrderReadsAsAPlainArray) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<std::uint64_t> lengths(1 + below(random, 3));
    for (auto& n : lengths) n = lengths.size() == 1 ? 3000 : lengths.size() == 2 ? 60 : 14;
    Twin twin(lengths);
    for (int i = 0; i < 1500; ++i) {
      Box box;
      for (const auto n : lengths) {
        box.start.push_back(below(random, n));
        box.count.push_back(1 + below(random, std::min<std::uint64_t>(n - box.start.back(), i % 100 == 0 ? n : 5)));
      }
      twin.put(box);
      if (i % 40 == 0) twin.expect_same(box);
      if (i % 60 == 0) twin.expect_same(random_part(random, lengths));
    }
    for (int i = 0; i < 30; ++i) twin.expect_same(random_part(random, lengths));
    twin.expect_same(twin.whole());
  }
}

TEST(Field, CoversABoxOnceItsLastElementIsPut) {
  Twin twin({4, 6});
  twin.put(Box{{0, 0}, {4, 3}});
  EXPECT_FALSE(twin.field().covers(twin.whole()));
  twin.put(Box{{0, 3}, {3, 3}});
  EXPECT_FALSE(twin.field().covers(twin.whole()));
  EXPECT_TRUE(twin.field().covers({{1, 1}, {2, 5}}));
  twin.put(Box{{2, 2}, {2, 4}});
  EXPECT_TRUE(twin.field().covers(twin.whole()));
  EXPECT_TRUE(twin.field().covers({{0, 0}, {0, 6}}));
}

TEST(Field, ViewIsTheMemoryOfTheBlockUnlessALaterOneLiesOverIt) {
  const std::vector<std::int32_t> data(24);
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  AssembledField field(0, DataType::int32, 2);
  EXPECT_TRUE(field.view(Box{{0, 0}, {1, 1}}).empty());
  ASSERT_TRUE(field.add({0, {{0, 0}, {4, 6}}, {}, bytes, 96, nullptr}).ok());
  EXPECT_EQ(field.view(Box{{1, 0}, {2, 6}}).data(), bytes + 24);
  EXPECT_TRUE(field.view(Box{{1, 0}, {2, 5}}).empty());
  ASSERT_TRUE(field.add({0, {{1, 1}, {1, 1}}, {}, bytes, 4, nullptr}).ok());
  EXPECT_TRUE(field.view(Box{{1, 0}, {2, 6}}).empty());
  EXPECT_EQ(field.view(Box{{2, 0}, {2, 6}}).data(), bytes + 48);
  const Part strided({{0, 0}, {2, 3}}, {2, 2});
  EXPECT_TRUE(field.view(strided).empty());
  ASSERT_TRUE(field.add({0, strided.box, strided.stride, bytes, 24, nullptr}).ok());
  EXPECT_EQ(field.view(strided).data(), bytes);
}

TEST(Field, IsReadWhileBlocksAreAdded) {
  const std::uint64_t rows = 4000, columns = 64;
  std::deque<std::vector<std::uint64_t>> data;
  AssembledField field(0, DataType::uint64, 2);
  std::atomic<std::uint64_t> put{0};
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> wrong{0}, reads{0};
  std::vector<std::thread> readers;
  for (std::uint64_t t = 0; t < 3; ++t)
    readers.emplace_back([&, t] {
      Random random(t);
      std::vector<std::uint64_t> got(2 * columns);
      while (!over) {
        const auto there = put.load();
        if (there < 2) continue;
        const auto row = below(random, there - 1);
        field.read(Box{{row, 0}, {2, columns}}, reinterpret_cast<std::byte*>(got.data()));
        for (std::uint64_t i = 0; i < got.size(); ++i) wrong += got[i] != row + i / columns;
        wrong += field.covers({{row, 0}, {2, columns}}) ? 0 : 1;
        ++reads;
      }
    });
  for (std::uint64_t row = 0; row < rows; ++row) {
    data.emplace_back(columns, row);
    ASSERT_TRUE(field
                    .add({0,
                          {{row, 0}, {1, columns}},
                          {},
                          reinterpret_cast<const std::byte*>(data.back().data()),
                          columns * 8,
                          nullptr})
                    .ok());
    put = row + 1;
  }
  while (reads == 0) std::this_thread::yield();
  over = true;
  for (auto& t : readers) t.join();
  EXPECT_EQ(wrong, 0U);
}

TEST(Field, OfStringsReadsThemInAnyPart) {
  Bytes first, second;
  Encoder a(first), b(second);
  for (const auto* s : {"a", "", "long enough to need memory of its own", "d"}) a.string(std::string(s));
  b.string(std::nullopt);
  b.string(std::string("z"));
  AssembledField field(0, DataType::string, 1);
  ASSERT_TRUE(field.add({0, {{1}, {4}}, {}, first.data(), first.size(), nullptr}).ok());
  ASSERT_TRUE(field.add({0, {{2}, {2}}, {3}, second.data(), second.size(), nullptr}).ok());
  std::vector<String> got(7, std::string("kept"));
  field.read(Box{{0}, {7}}, got);
  const auto kept = String("kept");
  EXPECT_EQ(got,
            (std::vector<String>{kept, "a", std::nullopt, "long enough to need memory of its own", "d", "z", kept}));
  got.assign(2, kept);
  field.read(Part({{1}, {2}}, {3}), got);
  EXPECT_EQ(got, (std::vector<String>{"a", "d"}));
  EXPECT_TRUE(field.view(Box{{1}, {1}}).empty());
  EXPECT_EQ(field.add({0, {{0}, {3}}, {}, second.data(), second.size(), nullptr}).error().code, Code::corrupt);
  EXPECT_EQ(field.add({0, {{0}, {1}}, {}, second.data(), second.size(), nullptr}).error().code, Code::corrupt);
}

Schema of_two_variables() {
  Schema s;
  s.dimensions = {{"t", 0, true}, {"x", 4, false}};
  for (const auto* name : {"a", "b"}) {
    Variable v;
    v.name = name;
    v.type = DataType::int32;
    v.dimensions = {0, 1};
    s.variables.push_back(v);
  }
  return s;
}

TEST(Frame, LetsGoOfLeasesWhenItsFieldsAreLetGo) {
  const std::vector<std::int32_t> data(4);
  const auto owner = std::make_shared<int>(0);
  Frame frame;
  frame.declare(of_two_variables());
  const auto block = [&](std::uint32_t variable) {
    return Block{variable, {{7, 0}, {1, 4}}, {}, reinterpret_cast<const std::byte*>(data.data()), 16, owner};
  };
  ASSERT_TRUE(frame.add(block(0)).ok());
  ASSERT_TRUE(frame.add(block(0)).ok());
  auto held = frame.add(block(1));
  ASSERT_TRUE(held.ok());
  EXPECT_EQ((*held)->variable(), 1U);
  EXPECT_EQ(owner.use_count(), 4);
  frame.clear();
  EXPECT_TRUE(frame.empty());
  EXPECT_EQ(owner.use_count(), 2);
  held = Error{};
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(Frame, RefusesBlocksThatDoNotFitItsSchema) {
  Frame frame;
  frame.declare(of_two_variables());
  const Bytes data(64);
  const auto code = [&](std::uint32_t variable, const Box& box, std::uint64_t bytes) {
    const auto added = frame.add({variable, box, {}, data.data(), bytes, nullptr});
    return added.ok() ? Code{} : added.error().code;
  };
  EXPECT_EQ(code(0, {{0, 0}, {1, 4}}, 16), Code{});
  EXPECT_EQ(code(2, {{0, 0}, {1, 4}}, 16), Code::invalid);
  EXPECT_EQ(code(0, {{0, 1}, {1, 4}}, 16), Code::invalid);
  EXPECT_EQ(code(0, {{0, 0}, {1, 4}}, 12), Code::invalid);
  EXPECT_EQ(code(0, {{0}, {4}}, 16), Code::invalid);
  EXPECT_EQ(code(0, {{UINT64_MAX, 0}, {2, 1}}, 8), Code::invalid);
  EXPECT_EQ(code(0, {{0, 0}, {std::uint64_t{1} << 60, 4}}, 0), Code::invalid);
}

}  // namespace
}  // namespace advectio
