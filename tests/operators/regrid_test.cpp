#include "operators/regrid.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "operators/values.h"

namespace advectio {
namespace {

/// A file made of vectors.
class Made {
 public:
  explicit Made(std::string path = "w.nc") { file_.path = std::move(path); }
  Made& dimension(const std::string& name, std::uint64_t length) {
    file_.schema.dimensions.push_back({name, length, false});
    file_.lengths.push_back(length);
    return *this;
  }
  Made& variable(const std::string& name, std::vector<std::uint32_t> dimensions, std::vector<double> values,
                 const std::string& units = "") {
    Variable v;
    v.name = name;
    v.type = DataType::float64;
    v.dimensions = std::move(dimensions);
    if (!units.empty()) set_text(v.attributes, "units", units);
    values_[static_cast<std::uint32_t>(file_.schema.variables.size())] = std::move(values);
    file_.schema.variables.push_back(std::move(v));
    return *this;
  }
  Made& attribute(const std::string& name, const std::string& text) {
    set_text(file_.schema.attributes, name, text);
    return *this;
  }
  SmallFile file() {
    file_.read = [values = values_](std::uint32_t v) -> Result<std::vector<double>> { return values.at(v); };
    return file_;
  }

 private:
  SmallFile file_;
  std::map<std::uint32_t, std::vector<double>> values_;
};

/// From 2 × 3 cells to 2 × 2: the mean of two neighbours in x; the last cell has no weights.
Made scrip(std::vector<double> source = {1, 2, 2, 3, 4, 5}, std::vector<double> to = {1, 1, 2, 2, 3, 3},
           std::vector<double> weights = {0.5, 0.5, 0.5, 0.5, 0.25, 0.75}) {
  Made made;
  made.dimension("num_links", 6).dimension("num_wgts", 1).dimension("rank", 2).dimension("src_grid_size", 6);
  made.dimension("dst_grid_size", 4);
  made.variable("src_grid_dims", {2}, {3, 2}).variable("dst_grid_dims", {2}, {2, 2});
  constexpr double half = 1.5707963267948966;
  made.variable("dst_grid_center_lat", {4}, {0, 0, half, half}, "radians");
  made.variable("dst_grid_center_lon", {4}, {0, half, 0, half}, "radians");
  made.variable("src_address", {0}, std::move(source)).variable("dst_address", {0}, std::move(to));
  made.variable("remap_matrix", {0, 1}, std::move(weights));
  made.attribute("map_method", "Bilinear remapping").attribute("normalization", "none");
  return made;
}

TEST(RegridWeights, AreReadAsScripHasThem) {
  const auto w = regrid_weights(scrip().file(), nullptr);
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->method, "Bilinear remapping");
  EXPECT_EQ(w->source_lengths, (std::vector<std::uint64_t>{2, 3})) << "the slowest first";
  EXPECT_EQ(w->destination.lengths, (std::vector<std::uint64_t>{2, 2}));
  EXPECT_TRUE(w->destination.rectilinear);
  EXPECT_EQ(w->destination.lat, (std::vector<double>{0, 90}));
  EXPECT_EQ(w->destination.lon, (std::vector<double>{0, 90}));
  EXPECT_EQ(w->first, (std::vector<std::uint64_t>{0, 2, 4, 6, 6}));
  EXPECT_EQ(w->source, (std::vector<std::uint32_t>{0, 1, 1, 2, 3, 4}));
}

TEST(RegridWeights, AreReadAsEsmfHasThem) {
  Made made;
  made.dimension("n_s", 2).dimension("n_a", 6).dimension("n_b", 2);
  made.variable("S", {0}, {1, 1}).variable("row", {0}, {2, 1}).variable("col", {0}, {6, 5});
  made.variable("yc_b", {2}, {10, 20}, "degrees").variable("xc_b", {2}, {5, 7}, "degrees");
  const auto w = regrid_weights(made.file(), nullptr);
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->source_lengths, (std::vector<std::uint64_t>{6}));
  EXPECT_EQ(w->destination.lengths, (std::vector<std::uint64_t>{2})) << "a grid without rows";
  EXPECT_FALSE(w->destination.rectilinear);
  EXPECT_EQ(w->source, (std::vector<std::uint32_t>{4, 5}));
}

TEST(RegridWeights, MayHaveTheirGridInAnotherFile) {
  Made made;
  made.dimension("n_s", 1).variable("S", {0}, {1}).variable("row", {0}, {1}).variable("col", {0}, {1});
  EXPECT_EQ(regrid_weights(made.file(), nullptr).error().message,
            "w.nc: does not say where its destination lies; name a file with its latitudes and longitudes: grid: FILE");
  Made grid("g.nc");
  grid.dimension("lat", 2).dimension("lon", 3);
  grid.variable("lat", {0}, {1, 2}).variable("lon", {1}, {3, 4, 5});
  const auto points = grid_points(grid.file());
  ASSERT_TRUE(points.ok()) << points.error().message;
  const auto w = regrid_weights(made.file(), &*points);
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->destination, *points);
  EXPECT_TRUE(w->source_lengths.empty());
  Made none("n.nc");
  EXPECT_EQ(grid_points(none.file()).error().message, "n.nc: has no latitudes and longitudes");
}

TEST(RegridWeights, ThatCannotBeAreRefused) {
  const auto refused = [](Made made) {
    const auto w = regrid_weights(made.file(), nullptr);
    EXPECT_FALSE(w.ok());
    return w ? "" : w.error().message;
  };
  EXPECT_EQ(refused(Made()),
            "w.nc: has no weights: neither ESMF's S, row and col nor SCRIP's remap_matrix, dst_address "
            "and src_address");
  EXPECT_EQ(refused(scrip({1, 2, 2, 3, 4, 7})), "w.nc: link 5 goes from cell 7 to 3, and there are 6 and 4");
  EXPECT_EQ(refused(scrip({1, 2, 2, 3, 4, 5}, {0, 1, 2, 2, 3, 3})),
            "w.nc: link 0 goes from cell 1 to 0, and there are 6 and 4");
  EXPECT_EQ(refused(scrip({1, 2, 2, 3, 4})), "w.nc: it has not as many weights as addresses");
  EXPECT_EQ(refused(scrip({1, 2, 2}, {1, 1, 2})), "w.nc: it has 2 weights a link; first-order weights have one");
  auto areas = scrip();
  areas.attribute("map_method", "Conservative remapping");
  EXPECT_NE(refused(std::move(areas)).find("its weights are areas"), std::string::npos);
}

/// z × 2 × 3 values in, their boxes cut out.
std::vector<double> regridded(const Regridded& quantity, const Box& box, const std::vector<double>& source) {
  std::vector<Need> needs;
  quantity.needs(box, needs);
  EXPECT_EQ(needs.size(), 1U);
  const auto& from = needs[0].box;
  std::vector<double> read;
  for (auto z = from.start[0]; z < from.start[0] + from.count[0]; ++z)
    for (auto y = from.start[1]; y < from.start[1] + from.count[1]; ++y)
      for (auto x = from.start[2]; x < from.start[2] + from.count[2]; ++x) read.push_back(source[(z * 2 + y) * 3 + x]);
  const std::vector<std::span<const double>> values = {read};
  Needed needed(values);
  std::vector<double> out(box.volume());
  quantity.make(box, needed, out);
  return out;
}

TEST(Regridded, IsTheWeightedSumInAnyBox) {
  const auto w = std::make_shared<const RegridWeights>(std::move(regrid_weights(scrip().file(), nullptr)).value());
  const Regridded quantity(std::make_shared<StoredVariable>(0), w, {2, 3}, 0);
  std::vector<double> source(5 * 6);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = 1.1 * static_cast<double>(i * i);
  const auto whole = regridded(quantity, {{0, 0, 0}, {5, 2, 2}}, source);
  for (std::size_t z = 0; z < 5; ++z) {
    const auto* const s = &source[z * 6];
    EXPECT_EQ(whole[z * 4], 0.5 * s[0] + 0.5 * s[1]);
    EXPECT_EQ(whole[z * 4 + 1], 0.5 * s[1] + 0.5 * s[2]);
    EXPECT_EQ(whole[z * 4 + 2], 0.25 * s[3] + 0.75 * s[4]);
    EXPECT_TRUE(std::isnan(whole[z * 4 + 3])) << "a cell without weights";
  }
  for (std::uint64_t z = 0; z < 5; ++z)
    for (std::uint64_t y = 0; y < 2; ++y)
      for (std::uint64_t x = 0; x < 2; ++x)
        EXPECT_EQ(std::bit_cast<std::uint64_t>(regridded(quantity, {{z, y, x}, {1, 1, 1}}, source)[0]),
                  std::bit_cast<std::uint64_t>(whole[(z * 2 + y) * 2 + x]));
  std::vector<Need> needs;
  quantity.needs({{0, 1, 0}, {1, 1, 1}}, needs);
  EXPECT_EQ(needs[0].box, (Box{{0, 1, 0}, {1, 1, 2}})) << "no more than the cells with weights";
}

TEST(Regridded, BearsTheShareOfMissingValuesThatTheRuleAllows) {
  const auto w = std::make_shared<const RegridWeights>(std::move(regrid_weights(scrip().file(), nullptr)).value());
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> source = {4, nan, 8, nan, 5, 7};
  const auto with = [&](double missing_max) {
    const Regridded quantity(std::make_shared<StoredVariable>(0), w, {2, 3}, missing_max);
    return regridded(quantity, {{0, 0, 0}, {1, 2, 2}}, source);
  };
  EXPECT_TRUE(std::isnan(with(0)[0]));
  EXPECT_TRUE(std::isnan(with(0)[2]));
  EXPECT_TRUE(std::isnan(with(0.4)[0]));
  EXPECT_EQ(with(0.4)[2], 5) << "a quarter of its weights is missing";
  EXPECT_EQ(with(0.5)[0], 4);
  EXPECT_EQ(with(0.5)[1], 8);
  EXPECT_TRUE(std::isnan(with(0.9)[3])) << "never 0";
}

TEST(NearestCells, AreThoseOnTheSphere) {
  GridPoints grid;
  grid.lengths = {3, 4};
  grid.lat = {-10, 0, 10};
  grid.lon = {150, 160, 170, 180};
  grid.rectilinear = true;
  const auto w = nearest_cells(grid, {{"a", 1, 161}, {"b", -9, -179}, {"c", 14, 150}});
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->source, (std::vector<std::uint32_t>{5, 3, 8})) << "-179 is near to 180";
  EXPECT_EQ(w->weight, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(w->destination.lengths, (std::vector<std::uint64_t>{3}));
  EXPECT_EQ(w->destination.names, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(w->destination.lat, (std::vector<double>{1, -9, 14}));
  EXPECT_EQ(nearest_cells(grid, {{"Oslo", 59.9, 10.7}}).error().message,
            "Oslo (lat 59.9, lon 10.7) lies outside of the grid: the nearest cell (lat 10, lon 150) is 11448 km away");
  GridPoints curved;
  curved.lengths = {2, 2};
  curved.lat = {0, 1, 10, 11};
  curved.lon = {0, 10, -1, 9};
  EXPECT_EQ(nearest_cells(curved, {{"d", 9, 0}})->source, (std::vector<std::uint32_t>{2}));
}

}  // namespace
}  // namespace advectio
