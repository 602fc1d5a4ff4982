#include "faults/case.h"

#include <algorithm>

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

Case Case::of(std::uint64_t seed) {
  std::mt19937_64 random(mix(seed));
  const auto below = [&random](std::uint64_t n) { return random() % n; };
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
  const auto count = 1 + below(datasets_max);
  for (std::size_t i = 0; i < count; ++i) {
    DatasetCase d;
    d.name = "d" + std::to_string(i) + ".nc";
    constexpr std::array formats = {FileFormat::netcdf4, FileFormat::netcdf4, FileFormat::netcdf4_classic,
                                    FileFormat::cdf5, FileFormat::offset64};
    d.format = formats[below(formats.size())];
    d.owner = below(3) == 0 ? everybody : static_cast<std::uint32_t>(below(c.writers));
    d.begins = static_cast<std::uint32_t>(below(4));
    d.frames = static_cast<std::uint32_t>(1 + below(12));
    d.y = 4 + below(40);
    d.x = 8 + below(120);
    d.chunk_y = 1 + below(d.y);
    d.deflate = below(2) == 0;
    c.datasets.push_back(std::move(d));
  }
  return c;
}

Case Case::of_power(std::uint64_t seed) {
  auto c = of(seed);
  c.kinds = {Kind::power_lost};
  for (auto& d : c.datasets)
    d.promised = mix(seed * datasets_max + static_cast<std::uint64_t>(&d - c.datasets.data())) % 4 != 0;
  c.datasets[0].promised = true;
  // Segments that are used again and again.
  if (seed % 2 == 0) {
    c.segments_max = c.writers * 2;
    for (auto& d : c.datasets) d.frames *= 2;
  }
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
  s += " " + std::to_string(writers) + " writers, " + std::to_string(segments_max) + " segments, pause " +
       std::to_string(pause_us) + " us, " + std::to_string(restarts) + " restarts;";
  for (const auto& d : datasets)
    s += " " + d.name + " " + std::string(name_of(d.format)) + (d.deflate ? " deflate" : "") +
         (d.promised ? " promised" : "") + " by " + (d.shared() ? "all" : std::to_string(d.owner)) + " " +
         std::to_string(d.frames) + "x" + std::to_string(d.y) + "x" + std::to_string(d.x) + ";";
  return s;
}

Schema schema_of(const DatasetCase& d) {
  Schema s;
  s.format = d.format;
  s.dimensions = {{"Time", 0, true}, {"y", d.y, false}, {"x", d.x, false}};
  const auto variable = [&](const char* name, DataType type, std::vector<std::uint32_t> dimensions) {
    Variable v;
    v.name = name;
    v.type = type;
    v.dimensions = std::move(dimensions);
    if (is_hdf5(d.format) && v.dimensions.size() == 3) {
      v.contiguous = false;
      v.chunks = {1, d.chunk_y, d.x};
      if (d.deflate) v.filters = {{filter_id::shuffle, {}}, {filter_id::deflate, {1}}};
    }
    return v;
  };
  s.variables = {variable("T", DataType::float32, {0, 1, 2}), variable("U", DataType::float64, {0, 1, 2}),
                 variable("HGT", DataType::int32, {1, 2})};
  return s;
}

}  // namespace advectio::faults
