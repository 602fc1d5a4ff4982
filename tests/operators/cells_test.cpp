#include "operators/cells.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include "operators/processed.h"
#include "operators/values.h"

namespace advectio {
namespace {

using Kind = Selection::Kind;
using Along = Selection::Along;
using Method = CoarsenRule::Method;

constexpr double not_there = std::numeric_limits<double>::quiet_NaN();

/// A field of a file, row by row.
struct FieldFile {
  std::vector<std::uint64_t> lengths;
  std::vector<double> values;

  /// What the quantity makes of it, in that box.
  [[nodiscard]] std::vector<double> make(const Quantity& quantity, const Box& box) const {
    std::vector<Need> needs;
    quantity.needs(box, needs);
    std::vector<std::vector<double>> read;
    for (const auto& need : needs) {
      auto& to = read.emplace_back();
      const auto& b = need.box;
      for (std::size_t i = 0; i < b.rank(); ++i) EXPECT_LE(b.start[i] + b.count[i], lengths[i]);
      for (auto z = b.start[0]; z < b.start[0] + b.count[0]; ++z)
        for (auto y = b.start[1]; y < b.start[1] + b.count[1]; ++y)
          for (auto x = b.start[2]; x < b.start[2] + b.count[2]; ++x)
            to.push_back(values[(z * lengths[1] + y) * lengths[2] + x]);
    }
    const std::vector<std::span<const double>> spans(read.begin(), read.end());
    Needed needed(spans);
    std::vector<double> out(box.volume());
    quantity.make(box, needed, out);
    return out;
  }
};

FieldFile random_field(std::mt19937& random, std::vector<std::uint64_t> lengths) {
  FieldFile file{std::move(lengths), {}};
  file.values.resize(file.lengths[0] * file.lengths[1] * file.lengths[2]);
  for (auto& v : file.values) v = random() % 5 == 0 ? not_there : std::normal_distribution<double>(280, 30)(random);
  return file;
}

/// A number from `least` to `most`.
std::uint64_t among(std::mt19937& random, std::uint64_t least, std::uint64_t most) {
  return least + random() % (most - least + 1);
}

Along random_along(std::mt19937& random, std::uint64_t length) {
  Along a;
  a.length = length;
  a.start = among(random, 0, length - 1);
  a.count = among(random, 1, length);  // may go on at 0
  a.kind = std::array{Kind::all, Kind::every, Kind::blocks, Kind::faces}[among(random, 0, 3)];
  a.step = a.kind == Kind::all ? 1 : among(random, 2, 4);
  return a;
}

TEST(Blocks, GiveTheSameBitsInAnyBox) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto file = random_field(random, {among(random, 1, 5), among(random, 1, 9), among(random, 1, 11)});
    std::vector<Along> along;
    std::size_t wrapped = 0;
    for (const auto length : file.lengths) {
      auto a = random_along(random, length);
      if (a.wraps() && wrapped++ > 0) a.count = a.length - a.start;  // one seam a file
      along.push_back(a);
    }
    const auto parts = std::make_shared<const FileParts>(FileParts{along});
    const auto method = static_cast<Method>(among(random, 0, 4));
    const FromFile quantity(std::make_shared<Blocks>(std::make_shared<StoredVariable>(0), along, method), parts);
    Box whole;
    for (const auto& a : along) {
      whole.start.push_back(0);
      whole.count.push_back(a.cells());
    }
    const auto expected = file.make(quantity, whole);
    for (int i = 0; i < 5; ++i) {
      Box box;
      for (const auto& a : along) {
        box.start.push_back(among(random, 0, a.cells() - 1));
        box.count.push_back(among(random, 1, a.cells() - box.start.back()));
      }
      const auto made = file.make(quantity, box);
      std::size_t next = 0;
      for (auto z = box.start[0]; z < box.start[0] + box.count[0]; ++z)
        for (auto y = box.start[1]; y < box.start[1] + box.count[1]; ++y)
          for (auto x = box.start[2]; x < box.start[2] + box.count[2]; ++x)
            ASSERT_EQ(std::bit_cast<std::uint64_t>(made[next++]),
                      std::bit_cast<std::uint64_t>(expected[(z * whole.count[1] + y) * whole.count[2] + x]))
                << "seed " << seed;
    }
  }
}

std::vector<double> made_blocks(const FieldFile& file, std::vector<Along> along, Method method, double period = 0) {
  Box box;
  for (auto& a : along) {
    box.start.push_back(0);
    box.count.push_back(a.cells());
  }
  return file.make(Blocks(std::make_shared<StoredVariable>(0), std::move(along), method, period), box);
}

TEST(Blocks, AreWhatTheirMethodSays) {
  const FieldFile file{{1, 3, 5}, {1, 2, 3, 4, 9, 5, not_there, 7, 8, 10, not_there, not_there, 11, 12, not_there}};
  const Along one{1, 0, 1, Kind::all, 1}, y{3, 0, 3, Kind::blocks, 2}, x{5, 0, 5, Kind::blocks, 2};
  const auto expect = [&](Method method, const std::vector<double>& wanted) {
    const auto made = made_blocks(file, {one, y, x}, method);
    ASSERT_EQ(made.size(), wanted.size());
    for (std::size_t i = 0; i < made.size(); ++i)
      EXPECT_TRUE(made[i] == wanted[i] || (std::isnan(made[i]) && std::isnan(wanted[i]))) << i << ": " << made[i];
  };
  expect(Method::mean, {8.0 / 3, 22.0 / 4, 9.5, not_there, 11.5, not_there});
  expect(Method::maximum, {5, 8, 10, not_there, 12, not_there});
  expect(Method::minimum, {1, 3, 9, not_there, 11, not_there});
  expect(Method::sum, {8, 22, 19, not_there, 23, not_there});
  expect(Method::first, {1, 3, 9, not_there, 11, not_there});
  // Points between blocks: the first of each and the last of all; along them no mean.
  const FieldFile faces{{1, 1, 6}, {0, 1, 2, 3, 4, 5}};
  EXPECT_EQ(made_blocks(faces, {one, one, {6, 0, 6, Kind::faces, 2}}, Method::mean), (std::vector<double>{0, 2, 4, 5}));
  EXPECT_EQ(made_blocks(faces, {one, one, {6, 0, 6, Kind::every, 4}}, Method::mean), (std::vector<double>{0, 4}));
}

TEST(Blocks, KnowThatLongitudesGoRound) {
  const FieldFile file{{1, 1, 4}, {179, -179, -178, -176}};
  const Along one{1, 0, 1, Kind::all, 1};
  EXPECT_EQ(made_blocks(file, {one, one, {4, 0, 4, Kind::blocks, 2}}, Method::mean, 360),
            (std::vector<double>{180, -177}));
}

TEST(FromFile, GoesOnAcrossTheSeam) {
  const FieldFile file{{1, 2, 5}, {0, 1, 2, 3, 4, 10, 11, 12, 13, 14}};
  const auto parts = std::make_shared<const FileParts>(
      FileParts{{{1, 0, 1, Kind::all, 1}, {2, 0, 2, Kind::all, 1}, {5, 3, 4, Kind::all, 1}}});
  const FromFile quantity(std::make_shared<StoredVariable>(0), parts);
  EXPECT_EQ(file.make(quantity, {{0, 0, 0}, {1, 2, 4}}), (std::vector<double>{3, 4, 0, 1, 13, 14, 10, 11}));
  EXPECT_EQ(file.make(quantity, {{0, 1, 2}, {1, 1, 2}}), (std::vector<double>{10, 11}));
  const FromFile eastward(std::make_shared<Eastward>(std::make_shared<StoredVariable>(0), 3, 5), parts);
  EXPECT_EQ(file.make(eastward, {{0, 0, 0}, {1, 1, 4}}), (std::vector<double>{3, 4, 5, 6}));
}

/// WRF's dimensions, and a grid of 4 × 6 points on a sphere that is turned a little.
Schema c_grid() {
  Schema s;
  s.dimensions = {{"Time", 0, true},
                  {"south_north", 4, false},
                  {"west_east", 6, false},
                  {"bottom_top", 5, false},
                  {"west_east_stag", 7, false},
                  {"south_north_stag", 5, false},
                  {"bottom_top_stag", 6, false},
                  {"soil_layers_stag", 4, false}};
  const auto add = [&](const std::string& name, std::vector<std::uint32_t> dimensions) {
    Variable v;
    v.name = name;
    v.type = DataType::float32;
    v.dimensions = std::move(dimensions);
    v.contiguous = false;
    for (const auto d : v.dimensions) v.chunks.push_back(std::max<std::uint64_t>(1, s.dimensions[d].length));
    s.variables.push_back(std::move(v));
  };
  add("XLAT", {0, 1, 2});
  add("XLONG", {0, 1, 2});
  add("U", {0, 3, 1, 4});
  const auto number = [&](const std::string& name, DataType type, double value) {
    Attribute a{name, type, 1, Bytes(size_of(type)), {}};
    narrow(type, 0, {&value, 1}, a.values.data());
    s.attributes.push_back(a);
  };
  number("WEST-EAST_GRID_DIMENSION", DataType::int32, 7);
  number("WEST-EAST_PATCH_END_STAG", DataType::int32, 7);
  number("BOTTOM-TOP_GRID_DIMENSION", DataType::int32, 6);
  number("DX", DataType::float32, 3000);
  number("DY", DataType::float32, 3000);
  return s;
}

SmallFile grid_file(const Schema& schema) {
  SmallFile file;
  file.path = "f.nc";
  file.schema = schema;
  for (const auto& d : schema.dimensions) file.lengths.push_back(std::max<std::uint64_t>(1, d.length));
  file.read = [](std::uint32_t v) -> Result<std::vector<double>> {
    std::vector<double> out;
    for (int y = 0; y < 4; ++y)
      for (int x = 0; x < 6; ++x) out.push_back(v == 0 ? 10 + y + 0.1 * x : 175 + 2 * x - 0.1 * y - (x > 2 ? 360 : 0));
    return out;
  };
  return file;
}

Result<Selection> selected(const Schema& schema, const std::string& keys) {
  const auto rules = parse_process_rules("outputs:\n  - {path: a, " + keys + "}\n", "rules.yaml");
  if (!rules) return rules.error();
  const auto file = grid_file(schema);
  return select_cells(rules->outputs[0], schema, 0, &file);
}

TEST(Selection, HasSlicesAsPythonHasThem) {
  struct Case {
    std::string slice;
    std::uint64_t start, cells, stag;
  };
  for (const auto& [slice, start, cells, stag] : std::initializer_list<Case>{{"1:4", 1, 3, 4},
                                                                             {"1:", 1, 5, 6},
                                                                             {":-2", 0, 4, 5},
                                                                             {"-3:99", 3, 3, 4},
                                                                             {"2", 2, 1, 2},
                                                                             {"-1", 5, 1, 2},
                                                                             {"::2", 0, 3, 4},
                                                                             {"0:5:2", 0, 3, 4},
                                                                             {"1:6:2", 1, 3, 4},
                                                                             {"::9", 0, 1, 2},
                                                                             {"3::4", 3, 1, 2}}) {
    const auto s = selected(c_grid(), "subset: {west_east: \"" + slice + "\"}");
    ASSERT_TRUE(s.ok()) << slice << ": " << s.error().message;
    EXPECT_EQ(s->along[2].start, start) << slice;
    EXPECT_EQ(s->along[2].cells(), cells) << slice;
    EXPECT_EQ(s->along[4].cells(), stag) << slice << ": one point more";
    EXPECT_LE(s->along[4].start + s->along[4].count, 7U) << slice;
    EXPECT_EQ(s->along[1].cells(), 4U) << slice;
  }
}

TEST(Selection, IsTheSmallestBoxOfARegion) {
  // 175 177 179 | -179 -177 -175, a little less in each row.
  auto s = selected(c_grid(), "region: {lon: [178, -178], lat: [11.25, 12.9]}");
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->along[2], (Along{6, 2, 2, Kind::all, 1})) << "179 and -179 are neighbours";
  EXPECT_EQ(s->along[1], (Along{4, 1, 2, Kind::all, 1}));
  EXPECT_EQ(s->along[4].count, 3U);
  s = selected(c_grid(), "region: {lat: [13, 90]}");
  ASSERT_TRUE(s.ok());
  EXPECT_FALSE(s->along[2].cut()) << "all longitudes";
  const auto points = grid_points(grid_file(c_grid()));
  const auto cut = cut_points(*points, c_grid(), *s);
  EXPECT_EQ(cut.lengths, (std::vector<std::uint64_t>{1, 6}));
  EXPECT_EQ(cut.lat.front(), 13);
}

TEST(Selection, SaysInTheSchemaWhatIsThere) {
  auto s = selected(c_grid(), "subset: {west_east: \"1:\"}, coarsen: {south_north: 3, west_east: 2}");
  ASSERT_TRUE(s.ok()) << s.error().message;
  const auto cut = cut_schema(c_grid(), *s);
  EXPECT_EQ(cut.dimensions[2].length, 5U);
  EXPECT_EQ(cut.dimensions[4].length, 6U);
  EXPECT_EQ(cut.variables[2].chunks, (std::vector<std::uint64_t>{1, 5, 4, 6}));
  EXPECT_EQ(s->along[2].cells(), 3U) << "the last block has one cell";
  EXPECT_EQ(s->along[4].cells(), 4U);
  EXPECT_EQ(s->along[1].cells(), 2U);
  EXPECT_EQ(numbers_of(cut.attributes, "WEST-EAST_GRID_DIMENSION"), std::vector<double>{4});
  EXPECT_EQ(numbers_of(cut.attributes, "WEST-EAST_PATCH_END_STAG"), std::vector<double>{4});
  EXPECT_EQ(numbers_of(cut.attributes, "BOTTOM-TOP_GRID_DIMENSION"), std::vector<double>{6}) << "all are there";
  EXPECT_EQ(numbers_of(cut.attributes, "DX"), std::vector<double>{6000});
  EXPECT_EQ(numbers_of(cut.attributes, "DY"), std::vector<double>{9000});
  EXPECT_EQ(cut.attributes[0].type, DataType::int32);
}

TEST(Selection, MakesNoChunkOfMoreThanFitsIntoMemory) {
  Schema s;
  s.dimensions = {{"time", 0, true}, {"y", 4000, false}, {"x", 4000, false}};
  Variable time, v;
  time.name = "time";
  time.type = DataType::float64;
  time.dimensions = {0};
  set_text(time.attributes, "units", "hours since 2001-01-01");
  v.name = "v";
  v.type = DataType::float32;
  v.dimensions = {0, 1, 2};
  v.contiguous = false;
  v.chunks = {1, 1000, 1000};
  v.filters = {{filter_id::blosc, {2, 2, 4, 4'000'000, 4, 1, 0}}};
  s.variables = {time, v};
  const auto axis = find_time_axis(s);
  ASSERT_TRUE(axis.ok());
  const auto made = [&](const std::string& keys) {
    const auto rules = parse_process_rules("outputs:\n  - {path: a, " + keys + "}\n", "rules.yaml");
    auto selection = select_cells(rules->outputs[0], s, 0, nullptr);
    auto p = process_schema(s, *axis, {{0, 0, 0}}, rules->outputs[0], {true, true}, nullptr, *selection);
    EXPECT_TRUE(p.ok()) << keys;
    return p->schema.variables.back();
  };
  const auto coarse = made("coarsen: {y: 10, x: 10}");
  EXPECT_EQ(coarse.chunks, (std::vector<std::uint64_t>{1, 40, 400}));
  EXPECT_EQ(coarse.filters[0].parameters[3], 64'000U);
  EXPECT_EQ(text_of(coarse.attributes, "cell_methods"), "y: x: mean");
  EXPECT_EQ(made("coarsen: {y: 2, x: 2}").chunks, (std::vector<std::uint64_t>{1, 1000, 1000}));
  EXPECT_EQ(made("subset: {y: 0:30}").chunks, (std::vector<std::uint64_t>{1, 30, 1000}));
}

TEST(Selection, IsRefusedWhereItCannotBe) {
  const auto refused = [](const std::string& keys) {
    const auto s = selected(c_grid(), keys);
    EXPECT_FALSE(s.ok()) << keys;
    return s ? "" : s.error().message;
  };
  EXPECT_EQ(refused("subset: {west_eats: 1:2}"),
            "rules.yaml:2: subset: dimension west_eats is not in the files; did you mean west_east?");
  EXPECT_EQ(refused("coarsen: {west_east_stag: 2}"),
            "rules.yaml:2: coarsen: west_east_stag goes with west_east; name that one");
  EXPECT_EQ(refused("subset: {Time: 0:2}"), "rules.yaml:2: subset: Time is time, along which there are statistics");
  EXPECT_EQ(refused("subset: {west_east: 4:4}"), "rules.yaml:2: subset: of the 6 cells along west_east none is chosen");
  EXPECT_EQ(refused("coarsen: {west_east: 7}"),
            "rules.yaml:2: coarsen: 7 cells become one, and there are 6 along west_east");
  EXPECT_EQ(refused("subset: {west_east: \"::2\"}, coarsen: {west_east: 2}"),
            "rules.yaml:2: coarsen: west_east has a step in subset; one of them an output");
  EXPECT_EQ(refused("region: {lat: [10, 12]}, subset: {west_east: 0:2}"),
            "rules.yaml:2: region and subset are both of west_east; one of them an output");
  EXPECT_EQ(refused("region: {lat: [-12, -10]}"),
            "rules.yaml:2: region: it holds no point of the grid, which has lat 10 to 13.5, lon -179.3 to 179");
  EXPECT_EQ(refused("region: {lon: [10, 5.999]}, subset: {soil_layers_stag: 0:9:0}"),
            "rules.yaml:2: outputs[0].subset: soil_layers_stag: a step from 1 is wanted, this is '0:9:0'");
  EXPECT_TRUE(selected(c_grid(), "subset: {soil_layers_stag: 0:2}").ok()) << "staggered to nothing";
}

}  // namespace
}  // namespace advectio
