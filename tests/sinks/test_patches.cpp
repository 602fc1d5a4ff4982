#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "sinks/cdf5/patches.h"

namespace advectio {
namespace {

Schema of_one_variable(const std::vector<std::uint64_t>& lengths, bool has_records) {
  Schema out;
  Variable v;
  v.name = "v";
  v.type = DataType::int32;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const bool unlimited = has_records && i == 0;
    out.dimensions.push_back({"d" + std::to_string(i), unlimited ? 0 : lengths[i], unlimited});
    v.dimensions.push_back(static_cast<std::uint32_t>(i));
  }
  out.variables = {v};
  return out;
}

/// A variable as it would be in the file, and how it got there.
struct Placed {
  explicit Placed(const std::vector<std::uint64_t>& lengths)
      : whole{std::vector<std::uint64_t>(lengths.size(), 0), lengths}, values(whole.volume(), -1) {}
  void put(const Box& box, const std::byte* data) {
    copy_part(box, data, box, values.data(), whole, sizeof(std::int32_t));
    if (!is_contiguous(box, whole)) ++apart;
    const auto at = offset_in(box, whole);
    if (at < end) ++backwards;
    end = at + box.volume();
    ++puts;
  }
  void put_marked(const Box& box, const std::byte* data, const std::vector<bool>& marks) {
    ASSERT_TRUE(is_contiguous(box, whole));
    for (std::size_t i = 0; i < marks.size(); ++i)
      if (marks[i])
        std::memcpy(&values[offset_in(box, whole) + i], data + i * sizeof(std::int32_t), sizeof(std::int32_t));
    ++marked;
  }
  Box whole;
  std::uint64_t marked = 0;
  std::vector<std::int32_t> values;
  std::uint64_t end = 0, puts = 0, apart = 0, backwards = 0;
};

struct Case {
  std::vector<std::uint64_t> lengths;
  bool has_records;
};

class PatchesOf : public testing::TestWithParam<Case> {
 protected:
  void add(const Box& box, std::int32_t first) {
    data_.emplace_back(box.volume());
    for (auto& x : data_.back()) x = first++;
    const auto* bytes = reinterpret_cast<const std::byte*>(data_.back().data());
    expected_.put(box, bytes);
    ASSERT_TRUE(field_->add({0, box, {}, bytes, box.volume() * sizeof(std::int32_t), nullptr}).ok());
    patches_.add(field_, box, GetParam().has_records);
  }
  void add_scattered(const BoxList& boxes, std::int32_t first) {
    const auto bounds = boxes.bounds(0, boxes.size());
    BoxList within(boxes.rank());
    auto& data = data_.emplace_back();
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      auto box = boxes[i];
      data.push_back(first++);
      expected_.put(box, reinterpret_cast<const std::byte*>(&data.back()));
      for (std::size_t d = 0; d < box.rank(); ++d) box.start[d] -= bounds.start[d];
      within.add(box.start, box.count);
    }
    const auto layout = BoxLayout::make(bounds.count, within);
    ASSERT_TRUE(layout.ok());
    const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
    ASSERT_TRUE(field_->add({0, bounds, {}, bytes, data.size() * sizeof(std::int32_t), nullptr, *layout}).ok());
    patches_.add(field_, bounds, GetParam().has_records, true);
  }
  void flush() {
    ASSERT_TRUE(patches_
                    .flush(
                        of_one_variable(GetParam().lengths, GetParam().has_records),
                        [&](std::uint32_t, const Box& box, const std::byte* data) -> Result<void> {
                          found_.put(box, data);
                          return {};
                        },
                        [&](std::uint32_t, const Box& box, const std::byte* data,
                            const std::vector<bool>& marks) -> Result<void> {
                          found_.put_marked(box, data, marks);
                          return {};
                        })
                    .ok());
    EXPECT_FALSE(patches_.holds(0));
    EXPECT_TRUE(found_.values == expected_.values);
  }

  std::deque<std::vector<std::int32_t>> data_;
  std::shared_ptr<AssembledField> field_ =
      std::make_shared<AssembledField>(0, DataType::int32, GetParam().lengths.size());
  Patches patches_;
  Placed expected_{GetParam().lengths}, found_{GetParam().lengths};
};

TEST_P(PatchesOf, ManyBoxesThatLeaveHolesPutNothingThere) {
  const auto& lengths = GetParam().lengths;
  if (lengths.empty()) return;
  const Box whole{std::vector<std::uint64_t>(lengths.size(), 0), lengths};
  // Of each record every third element, and of the others every fifth; and again the first ones.
  const auto records = GetParam().has_records ? lengths[0] : 1;
  std::int32_t value = 0;
  for (std::uint64_t record = 0; record < records; ++record)
    for (const std::uint64_t every : {3, 5}) {
      BoxList boxes(lengths.size());
      for (std::uint64_t at = 0; at < whole.volume(); at += every) {
        auto rest = at;
        std::vector<std::uint64_t> start(lengths.size());
        for (auto d = lengths.size(); d-- > 0;) {
          start[d] = rest % lengths[d];
          rest /= lengths[d];
        }
        if (GetParam().has_records && start[0] != record) continue;
        boxes.add(start, std::vector<std::uint64_t>(lengths.size(), 1));
      }
      if (boxes.size() == 0) continue;
      add_scattered(boxes, value);
      value += 1000;
    }
  flush();
}

TEST_P(PatchesOf, ThatCoverAllArePutInTheOrderOfTheFileAndNeverApart) {
  const auto& lengths = GetParam().lengths;
  // As ranks do: all that each has, one after the other; the last two dimensions are divided.
  const auto rank = lengths.size();
  const auto divide = [&](std::size_t back) { return rank > back && !(GetParam().has_records && rank - 1 == back); };
  const std::uint64_t columns = divide(0) ? std::min<std::uint64_t>(lengths[rank - 1], 3) : 1,
                      rows = divide(1) ? std::min<std::uint64_t>(lengths[rank - 2], 2) : 1;
  std::int32_t n = 0;
  for (std::uint64_t y = 0; y < rows; ++y) {
    for (std::uint64_t x = 0; x < columns; ++x) {
      Box box = found_.whole;
      const auto part = [&](std::size_t back, std::uint64_t i, std::uint64_t of) {
        const auto length = lengths[rank - 1 - back];
        box.start[rank - 1 - back] = length * i / of;
        box.count[rank - 1 - back] = length * (i + 1) / of - length * i / of;
      };
      if (divide(0)) part(0, x, columns);
      if (divide(1)) part(1, y, rows);
      if (!GetParam().has_records) {
        add(box, n += 100000000);
        continue;
      }
      box.count[0] = 1;
      for (box.start[0] = 0; box.start[0] < lengths[0]; ++box.start[0]) add(box, n += 1000000);
    }
  }
  flush();
  EXPECT_EQ(found_.apart, 0U);
  EXPECT_EQ(found_.backwards, 0U);
  // Not more of them than pieces of four megabytes, or what a record takes, or an index of the dimensions before.
  EXPECT_LE(found_.puts, 1 + 2 * found_.whole.volume() * 4 / (4U << 20U) +
                             (rank > 0 ? lengths[0] : 0) * (rank > 2 ? lengths[1] : 1));
}

TEST_P(PatchesOf, ThatOverlapAndLeaveHolesAreAsIfPutOneByOne) {
  const auto& lengths = GetParam().lengths;
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    Box box = found_.whole;
    for (std::size_t d = 0; d < lengths.size(); ++d) {
      box.start[d] = random() % lengths[d];
      box.count[d] = d == 0 && GetParam().has_records ? 1 : 1 + random() % (lengths[d] - box.start[d]);
    }
    add(box, i * 100000000);
  }
  flush();
}

TEST_P(PatchesOf, ThatAreManyAndSmallAndInNoOrderArePutAsIfOneByOne) {
  const auto& lengths = GetParam().lengths;
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    Box box = found_.whole;
    for (std::size_t d = 0; d < lengths.size(); ++d) {
      box.start[d] = random() % lengths[d];
      box.count[d] = d == 0 && GetParam().has_records
                         ? 1
                         : 1 + random() % std::min<std::uint64_t>(lengths[d] - box.start[d], 1 + lengths[d] / 8);
    }
    add(box, i * 5000000);
  }
  flush();
}

INSTANTIATE_TEST_SUITE_P(Shapes, PatchesOf,
                         testing::Values(Case{{}, false}, Case{{1}, false}, Case{{17}, false}, Case{{5}, true},
                                         Case{{6, 9}, false}, Case{{3, 7, 11}, true}, Case{{4, 3, 7, 11}, true},
                                         Case{{2, 1300, 1100}, false}, Case{{2, 3, 1300, 700}, true},
                                         Case{{3, 1500000}, false}, Case{{2, 5, 900, 400}, true}));

/// Pieces of a row of several megabytes, in no order: blocks and nodes that are looked at to put them.
std::uint64_t looked_at(std::uint64_t pieces, bool with_holes) {
  constexpr std::uint64_t length = 4000000;
  const auto step = length / pieces, size = with_holes ? step / 2 : step;
  const auto field = std::make_shared<AssembledField>(0, DataType::int32, 1);
  const std::vector<std::int32_t> data(size, 5);
  std::vector<std::uint64_t> order(pieces);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(4));
  Patches patches;
  for (const auto i : order) {
    const Box box{{i * step}, {size}};
    EXPECT_TRUE(field->add({0, box, {}, reinterpret_cast<const std::byte*>(data.data()), size * 4, nullptr}).ok());
    patches.add(field, box, false);
  }
  std::uint64_t puts = 0, values = 0;
  EXPECT_TRUE(patches
                  .flush(of_one_variable({length}, false),
                         [&](std::uint32_t, const Box& box, const std::byte*) -> Result<void> {
                           ++puts;
                           values += box.volume();
                           return {};
                         })
                  .ok());
  EXPECT_EQ(values, pieces * size);
  // Without holes it is written in a few large pieces, whatever the order.
  EXPECT_LE(puts, with_holes ? pieces + 8 : 8);
  return field->looked_at();
}

TEST(Patches, LookAtFewBlocksForEachHoweverManyThereAre) {
  for (const bool with_holes : {false, true}) EXPECT_LT(looked_at(16000, with_holes), 28 * looked_at(1000, with_holes));
}

TEST(Patches, ForgetWhatTheyHoldWhenAPutFails) {
  const std::vector<std::int32_t> data(4);
  Patches patches;
  const auto field = std::make_shared<AssembledField>(0, DataType::int32, 1);
  const Box box{{0}, {4}};
  ASSERT_TRUE(field->add({0, box, {}, reinterpret_cast<const std::byte*>(data.data()), 16, nullptr}).ok());
  patches.add(field, box, false);
  EXPECT_TRUE(patches.holds(0));
  const auto done = patches.flush(of_one_variable({4}, false), [](std::uint32_t, const Box&, const std::byte*) {
    return Result<void>(Error{Code::io, "refused", 0});
  });
  EXPECT_FALSE(done.ok());
  EXPECT_FALSE(patches.holds(0));
}

}  // namespace
}  // namespace advectio
