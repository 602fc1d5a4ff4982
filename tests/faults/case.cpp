#include "faults/case.h"

#include <algorithm>
#include <set>

namespace advectio::faults {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}
std::uint64_t mix(std::size_t dataset, std::uint64_t variable, std::uint64_t frame, std::uint64_t cell) {
  return mix(mix(mix(dataset * 4 + variable) + frame) + cell);
}

/// Where the stage is removed and no server lives, nobody is left to say or to mend anything.
bool exclude_each_other(Kind a, Kind b) {
  const auto ends_servers = [](Kind k) {
    return k == Kind::server_killed || k == Kind::journal_damaged || k == Kind::page_damaged;
  };
  return (a == Kind::stage_vanishes && ends_servers(b)) || (b == Kind::stage_vanishes && ends_servers(a));
}

using Random = std::mt19937_64;

std::uint64_t below(Random& random, std::uint64_t n) {
  return random() % n;
}

/// `parts` of that length, no two of them equal but by chance, none empty.
std::vector<std::uint64_t> cut(Random& random, std::uint64_t length, std::uint64_t parts) {
  std::set<std::uint64_t> at{0, length};
  while (at.size() < parts + 1) at.insert(1 + below(random, length - 1));
  return {at.begin(), at.end()};
}

void cut_into_tiles(Random& random, DatasetCase& d, std::uint32_t writers) {
  d.writing = Writing::tiles;
  auto rows = 1 + below(random, writers);
  while (writers % rows != 0) --rows;
  d.cuts_y = cut(random, d.y, rows);
  d.cuts_x = cut(random, d.x, writers / rows);
  d.halo = below(random, 3) == 0 ? 1 + below(random, 2) : 0;
}

DatasetCase dataset_of(Random& random, std::size_t number, std::uint32_t writers) {
  constexpr std::array formats = {FileFormat::netcdf4, FileFormat::netcdf4, FileFormat::netcdf4_classic,
                                  FileFormat::cdf5, FileFormat::offset64};
  DatasetCase d;
  d.format = formats[below(random, formats.size())];
  d.owner = static_cast<std::uint32_t>(below(random, writers));
  d.begins = static_cast<std::uint32_t>(below(random, 4));
  d.frames = static_cast<std::uint32_t>(1 + below(random, 12));
  d.y = 4 + below(random, 40);
  d.x = 8 + below(random, 120);
  d.chunk_y = 1 + below(random, d.y);
  d.deflate = below(random, 2) == 0;
  const auto how = below(random, 4);
  if (how == 0) d.writing = Writing::together;
  if (how == 1 && writers > 1) cut_into_tiles(random, d, writers);
  d.name = std::string(d.tiled() ? "t" : "d") += std::to_string(number);
  if (!d.tiled()) d.name += ".nc";
  return d;
}

Attribute numbers(const std::string& name, const std::vector<std::uint64_t>& values) {
  Attribute a{name, DataType::int32, values.size(), {}, {}};
  Encoder encoder(a.values);
  for (const auto value : values) encoder.number(static_cast<std::int32_t>(value));
  return a;
}

/// As WRF says where a tile lies.
void place_as_wrf(Schema& s, const DatasetCase& d, const Area& own) {
  s.dimensions[1].name = "south_north";
  s.dimensions[2].name = "west_east";
  const auto axis = [&s](const std::string& name, std::uint64_t first, std::uint64_t count, std::uint64_t whole) {
    for (const auto* kind : {"_UNSTAG", "_STAG"}) {
      s.attributes.push_back(numbers(name + "_PATCH_START" + kind, {first + 1}));
      s.attributes.push_back(numbers(name + "_PATCH_END" + kind, {first + count}));
    }
    s.attributes.push_back(numbers(name + "_GRID_DIMENSION", {whole + 1}));
  };
  axis("WEST-EAST", own.x, own.nx, d.x);
  axis("SOUTH-NORTH", own.y, own.ny, d.y);
}

/// As NEMO does, which leaves halos in its files.
void place_as_nemo(Schema& s, const DatasetCase& d, const Area& own, const Area& held, std::uint32_t tile) {
  s.attributes = {
      numbers("DOMAIN_number_total", {(d.cuts_y.size() - 1) * (d.cuts_x.size() - 1)}),
      numbers("DOMAIN_number", {tile}),
      numbers("DOMAIN_dimensions_ids", {3, 2}),
      numbers("DOMAIN_size_global", {d.x, d.y}),
      numbers("DOMAIN_size_local", {held.nx, held.ny}),
      numbers("DOMAIN_position_first", {held.x + 1, held.y + 1}),
      numbers("DOMAIN_position_last", {held.x + held.nx, held.y + held.ny}),
      numbers("DOMAIN_halo_size_start", {own.x - held.x, own.y - held.y}),
      numbers("DOMAIN_halo_size_end", {held.x + held.nx - own.x - own.nx, held.y + held.ny - own.y - own.ny})};
}

}  // namespace

float value_t(std::size_t dataset, std::uint64_t frame, std::uint64_t cell) {
  return static_cast<float>(mix(dataset, 0, frame, cell) & 0xFFFFFFU) - 8e6F;
}
double value_u(std::size_t dataset, std::uint64_t frame, std::uint64_t cell) {
  return static_cast<double>(mix(dataset, 1, frame, cell) >> 11U);
}
std::int32_t value_h(std::size_t dataset, std::uint64_t cell) {
  return static_cast<std::int32_t>(mix(dataset, 2, 0, cell) >> 33U);
}
std::int32_t value_s(std::size_t dataset, std::uint64_t frame) {
  return static_cast<std::int32_t>(mix(dataset, 3, frame, 0) >> 33U);
}

Area DatasetCase::own(std::uint32_t writer, std::uint32_t writers) const {
  if (writing == Writing::alone) return domain();
  if (shared()) {
    const auto from = y * writer / writers;
    return {from, 0, y * (writer + 1) / writers - from, x};
  }
  const auto row = writer / (cuts_x.size() - 1), column = writer % (cuts_x.size() - 1);
  return {cuts_y[row], cuts_x[column], cuts_y[row + 1] - cuts_y[row], cuts_x[column + 1] - cuts_x[column]};
}

Area DatasetCase::held(std::uint32_t writer, std::uint32_t writers) const {
  if (!tiled()) return domain();
  const auto a = own(writer, writers);
  const auto from_y = a.y - std::min(a.y, halo), from_x = a.x - std::min(a.x, halo);
  return {from_y, from_x, std::min(y, a.y + a.ny + halo) - from_y, std::min(x, a.x + a.nx + halo) - from_x};
}

std::string DatasetCase::file_of(std::uint32_t writer) const {
  return tiled() ? name + "_000" + std::to_string(writer) : name;
}

std::string DatasetCase::made() const {
  if (!store) return name;
  return name.substr(0, name.size() - 3) + (*store == FileFormat::zarr ? ".zarr" : ".bp");
}

void Case::write_as(FileFormat store) {
  for (auto& d : datasets)
    if (!d.tiled()) d.store = store;
}

Case Case::of(std::uint64_t seed) {
  Random random(mix(seed));
  const auto below = [&random](std::uint64_t n) { return faults::below(random, n); };
  Case c;
  c.seed = seed;
  c.kinds.push_back(static_cast<Kind>(seed % kinds_drawn));
  // Two of those that do not take the ground from under each other.
  if (const auto other = static_cast<Kind>(below(kinds_drawn));
      below(3) == 0 && other != c.kinds[0] && !exclude_each_other(other, c.kinds[0]))
    c.kinds.push_back(other);
  c.writers = static_cast<std::uint32_t>(1 + below(writers_max));
  c.segments_max = c.writers * 2 + (below(3) == 0 ? 0 : below(24));
  c.pause_us = static_cast<std::uint32_t>(below(3) == 0 ? 0 : below(4000));
  c.restarts = static_cast<std::uint32_t>(below(4));
  const bool several = below(4) == 0 && !c.may_lose(), only_output = below(3) == 0;
  if (several) {
    c.io_nodes = only_output ? 1 : 0;
    const auto with_writers = std::min<std::uint64_t>(c.writers, (only_output ? 1 : 2) + below(2));
    c.nodes = static_cast<std::uint32_t>(with_writers) + c.io_nodes;
  }
  const auto count = 1 + below(datasets_max);
  for (std::size_t i = 0; i < count; ++i) {
    auto d = dataset_of(random, i, c.writers);
    // One after the other, as the files of a model are.
    if (i > 0 && below(3) == 0) d.begins = c.datasets.back().begins + c.datasets.back().frames;
    // Seeds below are known for what they were without.
    d.second = seed >= 90'000 && c.nodes == 1 && !d.tiled() && mix(seed * datasets_max + i) % 3 == 0;
    d.unsynced = seed >= 300'000 && !d.tiled() && mix(seed * datasets_max + i + 7) % 2 == 0;
    c.datasets.push_back(std::move(d));
  }
  return c;
}

Case Case::of_power(std::uint64_t seed) {
  auto c = of(seed);
  c.kinds = {Kind::power_lost};
  c.nodes = 1;
  c.io_nodes = 0;
  for (auto& d : c.datasets) {
    d.second = false;                           // it is no part of a promise
    if (d.tiled()) d.writing = Writing::alone;  // tiles that become one file do not wait for a promise
    d.promised = mix(seed * datasets_max + static_cast<std::uint64_t>(&d - c.datasets.data())) % 4 != 0;
  }
  c.datasets[0].promised = true;
  for (auto& d : c.datasets) d.unsynced = d.unsynced && !d.promised;  // a record keeps no promise
  // Segments that are used again and again.
  if (seed % 2 == 0) {
    c.segments_max = c.writers * 2;
    for (auto& d : c.datasets) d.frames *= 2;
  }
  return c;
}

Case Case::of_away(std::uint64_t seed) {
  auto c = of(seed);
  c.kinds = {Kind::server_killed};
  c.restarts = 0;
  c.away = true;
  return c;
}

bool Case::has(Kind kind) const {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

bool Case::may_lose() const {
  return has(Kind::stage_vanishes) || has(Kind::journal_damaged) || has(Kind::page_damaged);
}

std::uint32_t Case::frames() const {
  std::uint32_t n = 0;
  for (const auto& d : datasets) n = std::max(n, d.begins + d.frames);
  return n;
}

std::string Case::text() const {
  std::string s = "seed " + std::to_string(seed) + ":";
  for (const auto k : kinds) s += std::string(" ") + kind_names[static_cast<std::size_t>(k)] + ",";
  if (nodes > 1) s += " " + std::to_string(nodes) + " nodes" + (io_nodes > 0 ? ", one of them for output only," : ",");
  s += " " + std::to_string(writers) + " writers, " + std::to_string(segments_max) + " segments, pause " +
       std::to_string(pause_us) + " us, " + std::to_string(restarts) + " restarts;";
  for (const auto& d : datasets)
    s += " " + d.name + " " + std::string(name_of(d.format)) + (d.deflate ? " deflate" : "") +
         (d.store ? " as " + std::string(name_of(*d.store)) : "") + (d.promised ? " promised" : "") +
         (d.unsynced ? " unsynced" : "") + (d.second ? " twice" : "") + " by " +
         (d.tiled() ? std::to_string(d.cuts_y.size() - 1) + "x" + std::to_string(d.cuts_x.size() - 1) + " tiles" +
                          (d.halo > 0 ? " with halos" : "")
          : d.shared() ? "all"
                       : std::to_string(d.owner)) +
         " from " + std::to_string(d.begins) + " " + std::to_string(d.frames) + "x" + std::to_string(d.y) + "x" +
         std::to_string(d.x) + ";";
  return s;
}

Schema schema_of(const DatasetCase& d, std::uint32_t writer, std::uint32_t writers) {
  const auto held = d.held(writer, writers);
  Schema s;
  s.format = d.format;
  s.dimensions = {{"Time", 0, true}, {"y", held.ny, false}, {"x", held.nx, false}};
  const auto variable = [&](const char* name, DataType type, std::vector<std::uint32_t> dimensions) {
    Variable v;
    v.name = name;
    v.type = type;
    v.dimensions = std::move(dimensions);
    if (is_hdf5(d.format) && v.dimensions[0] == 0) {
      v.contiguous = false;
      v.chunks = v.dimensions.size() == 1 ? std::vector<std::uint64_t>{16}
                                          : std::vector<std::uint64_t>{1, std::min(d.chunk_y, held.ny), held.nx};
      if (d.deflate) v.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {1}}};
    }
    return v;
  };
  s.variables = {variable("T", DataType::float32, {0, 1, 2}), variable("U", DataType::float64, {0, 1, 2}),
                 variable("HGT", DataType::int32, {1, 2}), variable("S", DataType::int32, {0})};
  if (d.tiled() && d.halo == 0) place_as_wrf(s, d, held);
  if (d.tiled() && d.halo > 0) place_as_nemo(s, d, d.own(writer, writers), held, writer);
  return s;
}

}  // namespace advectio::faults
