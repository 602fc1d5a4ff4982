// What one seed stands for: who writes what, and what goes wrong meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/schema.h"

namespace advectio::faults {

enum class Kind : std::uint8_t {
  nothing,
  rank_killed,
  server_killed,  ///< and another one started, as `advectio run` does
  disk_full,
  write_fails,
  sync_fails,
  short_writes,
  slow_disk,
  read_only,
  stage_full,
  clock_jumps,
  stage_vanishes,  // from here on something may be lost
  journal_damaged,
  page_damaged,
  power_lost,  ///< of stage and files; chosen by Case::of_power alone
};
inline constexpr std::array kind_names = {"nothing",          "rank killed",  "server killed", "disk full",
                                          "write fails",      "fsync fails",  "short writes",  "slow disk",
                                          "output read-only", "stage full",   "clock jumps",   "stage vanishes",
                                          "journal damaged",  "page damaged", "power lost"};
inline constexpr std::size_t kinds_drawn = kind_names.size() - 1;

inline constexpr std::size_t writers_max = 4, datasets_max = 6;
inline constexpr std::uint32_t everybody = 99;

/// Variables: T(Time, y, x) in every frame, U(Time, y, x) in every other one, HGT(y, x) in the first.
struct DatasetCase {
  std::string name;
  FileFormat format = FileFormat::netcdf4;
  std::uint32_t owner = 0;  ///< the writer, or everybody
  std::uint32_t begins = 0, frames = 0;
  std::uint64_t y = 0, x = 0;
  std::uint64_t chunk_y = 0;
  bool deflate = false;
  bool promised = false;  ///< `promise: durable`
  [[nodiscard]] bool shared() const { return owner == everybody; }
  [[nodiscard]] bool written_by(std::uint32_t writer) const { return shared() || owner == writer; }
};

struct Case {
  std::uint64_t seed = 0;
  std::vector<Kind> kinds;
  std::uint32_t writers = 1;
  std::vector<DatasetCase> datasets;
  std::uint64_t segments_max = 16;
  std::uint32_t pause_us = 0;  ///< of a writer after each frame
  std::uint32_t restarts = 0;  ///< of the server

  static Case of(std::uint64_t seed);
  /// The same of one whose only fault is that the power goes.
  static Case of_power(std::uint64_t seed);
  [[nodiscard]] bool has(Kind kind) const;
  /// The only copy of something may be gone.
  [[nodiscard]] bool may_lose() const;
  [[nodiscard]] std::uint32_t frames() const;
  [[nodiscard]] std::string text() const;
};

Schema schema_of(const DatasetCase& dataset);

/// What stands where: the only thing that writers and checker have in common.
float value_t(std::size_t dataset, std::uint64_t frame, std::uint64_t cell);
double value_u(std::size_t dataset, std::uint64_t frame, std::uint64_t cell);
std::int32_t value_h(std::size_t dataset, std::uint64_t cell);
constexpr bool has_u(std::uint64_t frame) {
  return frame % 2 == 0;
}

}  // namespace advectio::faults
