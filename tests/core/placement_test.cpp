#include "core/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace advectio {
namespace {

using ::testing::HasSubstr;

Attribute ints(const std::string& name, const std::vector<std::int32_t>& values) {
  Attribute a{name, DataType::int32, values.size(), {}, {}};
  Encoder e(a.values);
  for (const auto v : values) e.number(v);
  return a;
}

Attribute text(const std::string& name, const std::string& value) {
  Attribute a{name, DataType::text, value.size(), {}, {}};
  Encoder(a.values).raw(value.data(), value.size());
  return a;
}

Variable variable(const std::string& name, std::vector<std::uint32_t> dimensions,
                  std::vector<Attribute> attributes = {}) {
  Variable v;
  v.name = name;
  v.type = DataType::float32;
  v.dimensions = std::move(dimensions);
  v.attributes = std::move(attributes);
  return v;
}

/// A patch [first, last] of `n` unstaggered points in each direction, counted from 1.
struct Patch {
  std::int32_t first = 1, last = 1, n = 1;
  [[nodiscard]] std::int32_t last_stag() const { return last == n ? n + 1 : last; }
};

void add_patch(Schema& s, const std::string& axis, const Patch& p) {
  s.attributes.push_back(ints(axis + "_GRID_DIMENSION", {p.n + 1}));
  s.attributes.push_back(ints(axis + "_PATCH_START_UNSTAG", {p.first}));
  s.attributes.push_back(ints(axis + "_PATCH_END_UNSTAG", {p.last}));
  s.attributes.push_back(ints(axis + "_PATCH_START_STAG", {p.first}));
  s.attributes.push_back(ints(axis + "_PATCH_END_STAG", {p.last_stag()}));
}

Schema wrf(const Patch& x, const Patch& y) {
  Schema s;
  const auto length = [](const Patch& p, bool stag) {
    return static_cast<std::uint64_t>((stag ? p.last_stag() : p.last) - p.first + 1);
  };
  s.dimensions = {{"Time", 0, true},
                  {"west_east", length(x, false), false},
                  {"west_east_stag", length(x, true), false},
                  {"south_north", length(y, false), false},
                  {"south_north_stag", length(y, true), false},
                  {"bottom_top", 3, false}};
  s.variables = {variable("Times", {0}), variable("T", {0, 5, 3, 1}), variable("U", {0, 5, 3, 2}),
                 variable("V", {0, 5, 4, 1}), variable("ZNU", {0, 5})};
  auto& t = s.variables[1];
  t.contiguous = false;
  t.chunks = {1, 3, (length(y, false) + 1) / 2, (length(x, false) + 1) / 2};
  s.attributes = {text("TITLE", "WRF")};
  add_patch(s, "WEST-EAST", x);
  add_patch(s, "SOUTH-NORTH", y);
  return s;
}

std::vector<Patch> cut(std::int32_t n, std::vector<std::int32_t> lasts) {
  std::vector<Patch> out;
  lasts.push_back(n);
  for (std::int32_t first = 1; const auto last : lasts) {
    out.push_back({first, last, n});
    first = last + 1;
  }
  return out;
}

std::vector<Tile> tiles_of(const std::vector<Schema>& schemas) {
  std::vector<Tile> out;
  for (const auto& s : schemas) {
    auto p = placement_of(s);
    EXPECT_TRUE(p.ok()) << p.error().message;
    EXPECT_TRUE(p->has_value());
    out.push_back({"tile " + std::to_string(out.size()), s, **p});
  }
  return out;
}

std::vector<Tile> wrf_tiles(std::int32_t nx, const std::vector<std::int32_t>& cut_x, std::int32_t ny,
                            const std::vector<std::int32_t>& cut_y) {
  std::vector<Schema> schemas;
  for (const auto& y : cut(ny, cut_y))
    for (const auto& x : cut(nx, cut_x)) schemas.push_back(wrf(x, y));
  return tiles_of(schemas);
}

/// How often each element of a variable of the whole is written.
std::vector<int> written(const Whole& w, std::size_t v) {
  Box all;
  for (const auto d : w.schema.variables[v].dimensions) {
    const auto& dimension = w.schema.dimensions[d];
    all.start.push_back(0);
    all.count.push_back(dimension.unlimited ? 1 : dimension.length);
  }
  std::vector<int> times(all.volume(), 0);
  for (const auto& p : w.pieces[v]) {
    EXPECT_EQ(p.from.count, p.to.count);
    EXPECT_TRUE(all.contains(p.to));
    if (p.repeated) continue;
    Box at{p.to.start, std::vector<std::uint64_t>(p.to.rank(), 1)};
    for (auto n = p.to.volume(); n > 0; --n) {
      ++times[offset_in(at, all)];
      for (std::size_t i = at.rank(); i-- > 0;) {
        if (++at.start[i] < p.to.start[i] + p.to.count[i]) break;
        at.start[i] = p.to.start[i];
      }
    }
  }
  return times;
}

void expect_each_once(const Whole& w) {
  for (std::size_t v = 0; v < w.schema.variables.size(); ++v)
    EXPECT_THAT(written(w, v), ::testing::Each(1)) << w.schema.variables[v].name;
}

std::string refusal(std::vector<Tile> tiles) {
  auto w = join_tiles(tiles);
  return w.ok() ? "" : w.error().message;
}

TEST(Placement, OrdinaryFilesAreNoTiles) {
  Schema s;
  s.dimensions = {{"x", 4, false}};
  s.variables = {variable("x", {0})};
  auto p = placement_of(s);
  ASSERT_TRUE(p.ok());
  EXPECT_FALSE(p->has_value());
}

TEST(Placement, PatchesOfWrfBecomeWhatOneProcessWrites) {
  auto tiles = wrf_tiles(42, {21}, 42, {14, 28});
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->schema, wrf({1, 42, 42}, {1, 42, 42}));
  expect_each_once(*w);
}

/// The beginnings of tiles, but for the first.
std::vector<std::int32_t> random_cuts(std::int32_t length, std::mt19937& random) {
  std::vector<std::int32_t> cuts;
  for (std::int32_t at = 1; at < length; ++at)
    if (random() % 5 == 0) cuts.push_back(at);
  return cuts;
}

TEST(Placement, AnyDecompositionOfWrfFillsEveryPointOnce) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    const auto n = [&] { return static_cast<std::int32_t>(1 + random() % 30); };
    const auto cuts = [&random](std::int32_t length) { return random_cuts(length, random); };
    const auto nx = n(), ny = n();
    auto tiles = wrf_tiles(nx, cuts(nx), ny, cuts(ny));
    std::shuffle(tiles.begin(), tiles.end(), random);
    auto w = join_tiles(tiles);
    ASSERT_TRUE(w.ok()) << w.error().message;
    expect_each_once(*w);
    if (tiles.size() > 1) {
      const auto gone = random() % tiles.size();
      tiles.erase(tiles.begin() + static_cast<std::ptrdiff_t>(gone));
      EXPECT_THAT(refusal(tiles), HasSubstr("a part of the domain is in no tile"));
    }
  }
}

TEST(Placement, TheMissingPartIsNamed) {
  auto tiles = wrf_tiles(42, {21}, 40, {20});
  tiles.erase(tiles.begin() + 1);
  EXPECT_EQ(refusal(tiles),
            "a part of the domain is in no tile: south_north 1 to 20, west_east 22 to 42 (counted from 1)");
}

TEST(Placement, WhatNoTileOwnsAloneIsWrittenOnceAndHeldAgainstTheOthers) {
  auto tiles = wrf_tiles(10, {5}, 10, {});
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok());
  const auto& znu = w->pieces[4];
  ASSERT_EQ(znu.size(), 2U);
  EXPECT_FALSE(znu[0].repeated);
  EXPECT_TRUE(znu[1].repeated);
}

TEST(Placement, LateralBoundariesOfWrfComeFromTheTileAtTheirEdge) {
  auto schemas = std::vector<Schema>{wrf({1, 5, 10}, {1, 10, 10}), wrf({6, 10, 10}, {1, 10, 10})};
  for (auto& s : schemas) {
    s.variables.push_back(variable("T_BXS", {0, 5, 3}, {text("MemoryOrder", "XSZ")}));
    s.variables.push_back(variable("T_BXE", {0, 5, 3}, {text("MemoryOrder", "XEZ")}));
  }
  auto tiles = tiles_of(schemas);
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok());
  ASSERT_EQ(w->pieces[5].size(), 1U);
  ASSERT_EQ(w->pieces[6].size(), 1U);
  EXPECT_EQ(w->pieces[5][0].tile, 0U);
  EXPECT_EQ(w->pieces[6][0].tile, 1U);
}

TEST(Placement, TheFinerGridOfWrfFireGoesWithTheStaggeredOne) {
  std::vector<Schema> schemas;
  for (const auto& x : cut(9, {4})) {
    schemas.push_back(wrf(x, {1, 6, 6}));
    const auto points = static_cast<std::uint64_t>(x.last_stag() - x.first + 1);
    schemas.back().dimensions.push_back({"west_east_subgrid", 4 * points, false});
    schemas.back().variables.push_back(variable("FUEL", {0, 6}));
  }
  auto tiles = tiles_of(schemas);
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->schema.dimensions[6].length, 40U);
  expect_each_once(*w);
  schemas[0].dimensions[6].length = 15;
  EXPECT_FALSE(placement_of(schemas[0]).ok());
}

TEST(Placement, OverlappingTilesAreRefused) {
  auto tiles = tiles_of({wrf({1, 6, 10}, {1, 10, 10}), wrf({5, 10, 10}, {1, 10, 10})});
  EXPECT_EQ(refusal(tiles),
            "tile 0 and tile 1 overlap but are not the same: south_north 1 to 10, west_east 5 to 6 "
            "(counted from 1) is in both");
}

TEST(Placement, TilesOfDifferentRunsAreRefused) {
  auto tiles = wrf_tiles(10, {5}, 10, {});
  tiles[1].schema.attributes[0] = text("TITLE", "other");
  EXPECT_EQ(refusal(tiles),
            "tile 1 and tile 0 are not tiles of one dataset: attribute TITLE is \"other\" in the former and \"WRF\" in "
            "the latter");
  tiles = wrf_tiles(10, {5}, 10, {});
  auto others = wrf_tiles(12, {5}, 10, {});
  tiles[1] = others[1];
  EXPECT_THAT(refusal(tiles), HasSubstr("dimension west_east is 12 in the former and 10 in the latter"));
}

TEST(Placement, AttributesThatDoNotFitTheDimensionsAreRefused) {
  auto s = wrf({1, 5, 10}, {1, 10, 10});
  s.dimensions[1].length = 4;
  auto p = placement_of(s);
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.error().message, "dimension west_east has 4 points, but WEST-EAST_PATCH_… say 1 to 5 (UNSTAG)");
}

TEST(Placement, ChunksOfTheWholeAreNoLargerThanWrfAllows) {
  std::vector<Schema> schemas;
  for (const auto& x : cut(20000, {10000})) schemas.push_back(wrf(x, {1, 20000, 20000}));
  auto tiles = tiles_of(schemas);
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok());
  const auto& chunks = w->schema.variables[1].chunks;
  EXPECT_LE(chunks[1] * chunks[2] * chunks[3], 32U << 20);
}

// ---- SCALE ----

struct ScaleTile {
  std::int32_t rank = 0, processes = 2, cells = 8, halo = 2;
  bool periodic = true;      ///< otherwise the outer halos are in the file
  bool inner_halos = false;  ///< and the inner ones too
};

Schema scale(const ScaleTile& t) {
  const auto own = t.cells / t.processes, outer = t.periodic ? 0 : t.halo;
  const bool first = t.rank == 0, last = t.rank + 1 == t.processes;
  const auto before = first ? 0 : outer, behind = last ? 0 : outer;  // inner halos
  auto length = own + (first ? outer : 0) + (last ? outer : 0);
  if (t.inner_halos) length += before + behind;
  Schema s;
  s.dimensions = {{"y", static_cast<std::uint64_t>(length), false},
                  {"CY", static_cast<std::uint64_t>(own + 2 * t.halo), false},
                  {"FY", static_cast<std::uint64_t>(own + 2 * t.halo + 1), false},
                  {"FDY", static_cast<std::uint64_t>(own + 2 * t.halo - 1), false}};
  s.variables = {variable("y", {0},
                          {ints("size_global", {t.cells + 2 * outer}), ints("start_global", {1 + t.rank * own}),
                           ints("halo_global", {outer, outer}), ints("halo_local", {before, behind})}),
                 variable("CY", {1}), variable("FY", {2}), variable("FDY", {3})};
  s.attributes = {ints("rankid", {t.rank}),
                  ints("scale_cartesC_prc_rank_x", {0}),
                  ints("scale_cartesC_prc_rank_y", {t.rank}),
                  ints("scale_cartesC_prc_num_x", {1}),
                  ints("scale_cartesC_prc_num_y", {t.processes}),
                  ints("scale_atmos_grid_cartesC_index_imaxg", {1}),
                  ints("scale_atmos_grid_cartesC_index_jmaxg", {t.cells}),
                  ints("scale_atmos_grid_cartesC_index_ihalo", {0}),
                  ints("scale_atmos_grid_cartesC_index_jhalo", {t.halo})};
  return s;
}

TEST(Placement, TilesOfScaleBecomeWhatOneProcessWrites) {
  for (const bool periodic : {true, false}) {
    for (const bool inner_halos : {false, true}) {
      std::vector<Schema> schemas;
      for (std::int32_t rank = 0; rank < 4; ++rank) schemas.push_back(scale({rank, 4, 12, 2, periodic, inner_halos}));
      auto tiles = tiles_of(schemas);
      auto w = join_tiles(tiles);
      ASSERT_TRUE(w.ok()) << w.error().message;
      EXPECT_EQ(w->schema, scale({0, 1, 12, 2, periodic, inner_halos}));
      expect_each_once(*w);
    }
  }
}

TEST(Placement, InnerHalosOfScaleAreDropped) {
  auto tiles = tiles_of({scale({0, 2, 8, 2, false, true}), scale({1, 2, 8, 2, false, true})});
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok());
  const auto& y = w->pieces[0];
  ASSERT_EQ(y.size(), 2U);
  EXPECT_EQ(y[0].from, (Box{{0}, {6}}));
  EXPECT_EQ(y[1].from, (Box{{2}, {6}}));
  EXPECT_EQ(y[1].to, (Box{{6}, {6}}));
}

TEST(Placement, TheMissingTileOfScaleIsNamed) {
  auto tiles = tiles_of({scale({0, 3, 12}), scale({2, 3, 12})});
  EXPECT_EQ(refusal(tiles),
            "a part of the domain is in no tile: y 5 to 8 (counted from 1); missing of 3 tiles: number 1");
}

// ---- NEMO ----

Schema nemo(std::int32_t number, std::int32_t total, std::vector<std::int32_t> first, std::vector<std::int32_t> last,
            std::vector<std::int32_t> before = {0, 0}, std::vector<std::int32_t> behind = {0, 0}) {
  Schema s;
  s.format = FileFormat::offset64;
  const std::vector<std::int32_t> local{last[0] - first[0] + 1, last[1] - first[1] + 1};
  s.dimensions = {{"x", static_cast<std::uint64_t>(local[0]), false},
                  {"y", static_cast<std::uint64_t>(local[1]), false},
                  {"time_counter", 0, true}};
  s.variables = {variable("sst", {2, 1, 0}), variable("jpiglo", {})};
  s.attributes = {ints("DOMAIN_number_total", {total}),
                  ints("DOMAIN_number", {number}),
                  ints("DOMAIN_dimensions_ids", {1, 2}),
                  ints("DOMAIN_size_global", {12, 10}),
                  ints("DOMAIN_size_local", local),
                  ints("DOMAIN_position_first", std::move(first)),
                  ints("DOMAIN_position_last", std::move(last)),
                  ints("DOMAIN_halo_size_start", std::move(before)),
                  ints("DOMAIN_halo_size_end", std::move(behind))};
  return s;
}

TEST(Placement, DomainsOfNemoWithHalosBecomeWhatOneProcessWrites) {
  auto tiles = tiles_of({nemo(0, 4, {1, 1}, {7, 6}, {0, 0}, {1, 1}), nemo(1, 4, {6, 1}, {12, 6}, {1, 0}, {0, 1}),
                         nemo(2, 4, {1, 5}, {7, 10}, {0, 1}, {1, 0}), nemo(3, 4, {6, 5}, {12, 10}, {1, 1}, {0, 0})});
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->schema, nemo(0, 1, {1, 1}, {12, 10}));
  expect_each_once(*w);
  EXPECT_EQ(w->land_points, 0U);
}

TEST(Placement, ProcessesThatNemoLeavesOutAreLand) {
  auto tiles = tiles_of({nemo(0, 3, {1, 1}, {6, 5}), nemo(1, 3, {7, 1}, {12, 5}), nemo(2, 3, {1, 6}, {6, 10})});
  auto w = join_tiles(tiles);
  ASSERT_TRUE(w.ok()) << w.error().message;
  EXPECT_EQ(w->land_points, 30U);
  tiles.pop_back();
  EXPECT_THAT(refusal(tiles), HasSubstr("missing of 3 tiles: number "));
}

TEST(Placement, DomainsOfNemoAreFoundByNameWhereTheirNumbersMeanNothing) {
  auto s = nemo(0, 1, {1, 1}, {12, 10});
  s.dimensions.insert(s.dimensions.begin(), Dimension{"axis_nbounds", 2, false});
  s.variables = {variable("sst", {3, 2, 1})};
  auto p = placement_of(s);
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_FALSE((*p)->spans[0].has_value());
  EXPECT_TRUE((*p)->spans[1].has_value());
  EXPECT_TRUE((*p)->spans[2].has_value());
}

// ---- FMS ----

/// Points [first, last] of `n` in one direction, and the edges around them.
Schema fms(std::int32_t files, const Patch& x, const Patch& y) {
  Schema s;
  const auto length = [](const Patch& p, int more) { return static_cast<std::uint64_t>(p.last - p.first + 1 + more); };
  const auto said = [](const Patch& p, int more) {
    return std::vector<Attribute>{ints("domain_decomposition", {1, p.n + more, p.first, p.last + more})};
  };
  s.dimensions = {{"time", 0, true},
                  {"lon", length(x, 0), false},
                  {"lonb", length(x, 1), false},
                  {"lat", length(y, 0), false},
                  {"latb", length(y, 1), false}};
  s.variables = {variable("lon", {1}, said(x, 0)), variable("lonb", {2}, said(x, 1)),
                 variable("lat", {3}, said(y, 0)), variable("latb", {4}, said(y, 1)),
                 variable("temp", {0, 3, 1}),      variable("u", {0, 3, 2}),
                 variable("vort", {4, 2}),         variable("time", {0})};
  s.attributes = {ints("NumFilesInSet", {files}), text("filename", files == 1 ? "a.nc" : "a.nc.0000")};
  return s;
}

std::vector<Tile> fms_tiles(std::int32_t nx, const std::vector<std::int32_t>& cut_x, std::int32_t ny,
                            const std::vector<std::int32_t>& cut_y) {
  std::vector<Schema> schemas;
  const auto xs = cut(nx, cut_x), ys = cut(ny, cut_y);
  for (const auto& y : ys)
    for (const auto& x : xs) schemas.push_back(fms(static_cast<std::int32_t>(xs.size() * ys.size()), x, y));
  return tiles_of(schemas);
}

TEST(Placement, AnyDecompositionOfFmsFillsEveryPointOnce) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto n = [&] { return static_cast<std::int32_t>(1 + random() % 20); };
    const auto cuts = [&random](std::int32_t length) { return random_cuts(length, random); };
    const auto nx = n(), ny = n();
    auto tiles = fms_tiles(nx, cuts(nx), ny, cuts(ny));
    std::shuffle(tiles.begin(), tiles.end(), random);
    auto w = join_tiles(tiles);
    ASSERT_TRUE(w.ok()) << w.error().message;
    EXPECT_EQ(w->schema.dimensions, fms(1, {1, nx, nx}, {1, ny, ny}).dimensions);
    expect_each_once(*w);
    if (tiles.size() < 2) continue;
    EXPECT_EQ(w->schema.attributes, fms(1, {1, nx, nx}, {1, ny, ny}).attributes);
    const auto count = tiles.size();
    tiles.erase(tiles.begin() + static_cast<std::ptrdiff_t>(random() % count));
    EXPECT_THAT(refusal(tiles), HasSubstr("a part of the domain is in no tile"));
    // The hole is land if the model says that it writes no more of them.
    for (auto& t : tiles) {
      t.schema.attributes[0] = ints("NumFilesInSet", {static_cast<std::int32_t>(tiles.size())});
      t.placement = **placement_of(t.schema);
    }
    // Of the last row or column only the other tiles say how far it reaches: here always.
    w = join_tiles(tiles);
    ASSERT_TRUE(w.ok()) << w.error().message;
    EXPECT_GT(w->land_points, 0U);
  }
}

TEST(Placement, TheLastNumberOfFmsMayBeALength) {
  auto tiles = fms_tiles(9, {4}, 3, {});
  auto& said = tiles[1].schema.variables[0].attributes[0];
  ASSERT_EQ(said, ints("domain_decomposition", {1, 9, 5, 9}));
  said = ints("domain_decomposition", {1, 9, 5, 5});
  auto p = placement_of(tiles[1].schema);
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ((*p)->spans[1], (Span{0, 4, 5, 9}));
  said = ints("domain_decomposition", {1, 9, 1, 4});  // as in a file that was joined without changing it
  EXPECT_FALSE(placement_of(tiles[1].schema).ok());
}

TEST(Placement, FilesOfFmsThatOneProcessWroteAreWhole) {
  const auto share = share_of(fms(1, {1, 9, 9}, {1, 4, 4}), **placement_of(fms(1, {1, 9, 9}, {1, 4, 4})));
  EXPECT_EQ(share.own, share.whole);
  Schema s;
  s.dimensions = {{"lon", 9, false}};
  s.variables = {variable("lon", {0})};
  s.attributes = {ints("NumFilesInSet", {1})};
  auto p = placement_of(s);
  ASSERT_TRUE(p.ok());
  EXPECT_FALSE(p->has_value());
}

// ---- MITgcm ----

/// Tile `number` (from 1) of tx × ty, each of 4 × 3 cells; with `at` where exch2 says that it begins (from 1).
Schema mitgcm(std::int32_t number, std::int32_t tx, std::int32_t ty, const std::vector<std::int32_t>& at = {}) {
  Schema s;
  s.dimensions = {{"X", 4, false},   {"Xp1", 5, false}, {"Xwh", 8, false}, {"Y", 3, false},
                  {"Yp1", 4, false}, {"Ywh", 7, false}, {"Z", 2, false}};
  s.variables = {variable("X", {0}),       variable("Temp", {6, 3, 0}), variable("U", {6, 3, 1}),
                 variable("V", {6, 4, 0}), variable("vort", {4, 1}),    variable("gU", {5, 2})};
  s.attributes = {ints("tile_number", {number}),
                  ints("sNx", {4}),
                  ints("sNy", {3}),
                  ints("OLx", {2}),
                  ints("OLy", {2}),
                  ints("nSx", {1}),
                  ints("nSy", {ty}),
                  ints("nPx", {tx}),
                  ints("nPy", {1})};
  if (!at.empty()) {
    s.attributes.push_back(ints("exch2_txGlobalo", {at[0]}));
    s.attributes.push_back(ints("exch2_tyGlobalo", {at[1]}));
  }
  return s;
}

TEST(Placement, TilesOfMitgcmFillEveryPointOnce) {
  for (const auto& [tx, ty] : std::vector<std::pair<std::int32_t, std::int32_t>>{{1, 1}, {4, 3}, {1, 5}, {3, 1}}) {
    for (const bool exch2 : {false, true}) {
      std::vector<Schema> schemas;
      for (std::int32_t n = 0; n < tx * ty; ++n) {
        const auto at = std::vector<std::int32_t>{n % tx * 4 + 1, n / tx * 3 + 1};
        schemas.push_back(mitgcm(n + 1, tx, ty, exch2 ? at : std::vector<std::int32_t>()));
      }
      auto tiles = tiles_of(schemas);
      auto w = join_tiles(tiles);
      ASSERT_TRUE(w.ok()) << w.error().message;
      expect_each_once(*w);
      const std::uint64_t x = 4 * static_cast<std::uint64_t>(tx), halos = exch2 ? 0 : 4;
      EXPECT_EQ(w->schema.dimensions[0].length, x);
      EXPECT_EQ(w->schema.dimensions[1].length, x + 1);
      EXPECT_EQ(w->schema.dimensions[2].length, x + halos);
      EXPECT_EQ(w->schema.attributes[1], ints("sNx", {4 * tx}));
      EXPECT_EQ(w->schema.attributes[0], ints("tile_number", {1}));
      if (tx * ty == 1) continue;
      tiles = tiles_of({schemas.begin() + 1, schemas.end()});
      const auto there = std::to_string(tx * ty - 1) + " of " + std::to_string(tx * ty) + " tiles are there";
      EXPECT_THAT(refusal(tiles), HasSubstr(exch2 ? there : "number 0"));
    }
  }
}

TEST(Placement, WhatATileOfMitgcmDoesNotSayIsNamed) {
  for (const char* name : {"sNx", "sNy", "nSx", "nSy", "nPx", "nPy"}) {
    auto s = mitgcm(1, 2, 2);
    s.attributes.push_back(text("MITgcm_mnc_ver", "0.9"));
    std::erase_if(s.attributes, [&](const Attribute& a) { return a.name == name; });
    auto p = placement_of(s);
    ASSERT_FALSE(p.ok()) << name;
    EXPECT_THAT(p.error().message, HasSubstr(std::string("attribute ") + name + " is missing"));
  }
  auto s = mitgcm(1, 2, 2, {1, 1});
  s.attributes.pop_back();
  EXPECT_FALSE(placement_of(s).ok());
  EXPECT_FALSE(placement_of(mitgcm(5, 2, 2)).ok());
  EXPECT_TRUE(placement_of(mitgcm(5, 2, 2, {1, 1})).ok());
}

TEST(Placement, DamagedAttributesNeverCrash) {
  std::mt19937 random(5);
  const std::vector<Schema> good = {wrf({1, 5, 10}, {1, 10, 10}),
                                    scale({1, 2, 8, 2, false, true}),
                                    nemo(0, 4, {1, 1}, {7, 6}, {0, 0}, {1, 1}),
                                    fms(2, {1, 5, 9}, {1, 4, 4}),
                                    mitgcm(2, 2, 2),
                                    mitgcm(2, 2, 2, {5, 1})};
  for (int round = 0; round < 3000; ++round) {
    auto s = good[random() % good.size()];
    const auto damage = [&](std::vector<Attribute>& attributes) {
      if (attributes.empty()) return;
      auto& a = attributes[random() % attributes.size()];
      switch (random() % 4) {
        case 0: attributes.erase(attributes.begin()); break;
        case 1:
          for (auto& b : a.values) b = static_cast<std::byte>(random());
          break;
        case 2: a = ints(a.name, {static_cast<std::int32_t>(random() % 20) - 5}); break;
        default: a = Attribute{a.name, DataType::int64, 1, {}, {}}; Encoder(a.values).number(INT64_MIN);
      }
    };
    damage(s.attributes);
    damage(s.variables[0].attributes);
    auto p = placement_of(s);
    if (!p.ok() || !*p) continue;
    std::vector<Tile> tiles{{"damaged", s, **p},
                            {"good", good[round % good.size()], **placement_of(good[round % good.size()])}};
    (void)join_tiles(tiles);
  }
}

TEST(Placement, ATileIsNamedAfterItsWhole) {
  EXPECT_EQ(whole_name("wrfout_d01_2024-05-11_12:00:00_0003"), "wrfout_d01_2024-05-11_12:00:00");
  EXPECT_EQ(whole_name("history.pe000012.nc"), "history.nc");
  EXPECT_EQ(whole_name("mesh_mask_0000.nc"), "mesh_mask.nc");
  EXPECT_EQ(whole_name("atmos_daily.nc.0012"), "atmos_daily.nc");
  EXPECT_EQ(whole_name("state.0000000000.t001.nc"), "state.0000000000.nc");
  for (const char* other : {"a.nc.12", ".nc.0000", "a.t01.nc", "fielddump.000.001.001.nc", "wrfout_d01", "history.nc",
                            "a_12", "_0000", "a.pe0001.nc", ""})
    EXPECT_EQ(whole_name(other), "") << other;
}

TEST(Placement, TilesOfMitgcmHaveOneWholeInAllDirectoriesOfItsProcesses) {
  EXPECT_EQ(whole_path("/run/mnc_test_0012/state.0000000000.t001.nc"), "/run/state.0000000000.nc");
  EXPECT_EQ(whole_path("mnc_0001/grid.t1001.nc"), "grid.nc");
  EXPECT_EQ(whole_path("/run/out_2001/grid.t001.nc"), "/run/out_2001/grid.nc");
  EXPECT_EQ(whole_path("/run/mnc_0001/a.nc.0000"), "/run/mnc_0001/a.nc");
  EXPECT_EQ(whole_path("grid.t001.nc"), "grid.nc");
  EXPECT_EQ(whole_path("/run/mnc_0001/grid.nc"), "");
}

TEST(Placement, SharesOfTilesSumUpToTheWhole) {
  auto tiles = wrf_tiles(10, {3, 7}, 9, {4});
  std::uint64_t own = 0;
  for (const auto& tile : tiles) {
    const auto share = share_of(tile.schema, tile.placement);
    own += share.own;
    EXPECT_EQ(share.whole, 90U);
  }
  EXPECT_EQ(own, 90U);
}

}  // namespace
}  // namespace advectio
