// What one seed stands for: who writes what, and what goes wrong meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

inline constexpr std::size_t writers_max = 4, datasets_max = 6, nodes_max = 3;

/// Who writes a dataset.
enum class Writing : std::uint8_t {
  alone,     ///< one process
  together,  ///< all of them, each some rows
  tiles,     ///< all of them, each a file of its own; they become one (`join: true`)
};
inline constexpr std::array writing_names = {"one writer", "together", "tiles"};

/// A part of the domain.
struct Area {
  std::uint64_t y = 0, x = 0;  ///< where it begins
  std::uint64_t ny = 0, nx = 0;
};

/// Variables: T(Time, y, x) and S(Time) in every frame, U(Time, y, x) in every other one, HGT(y, x) in the first.
struct DatasetCase {
  std::string name;
  FileFormat format = FileFormat::netcdf4;
  Writing writing = Writing::alone;
  std::uint32_t owner = 0;  ///< the writer, where there is one
  std::uint32_t begins = 0, frames = 0;
  std::uint64_t y = 0, x = 0;
  std::uint64_t chunk_y = 0;
  bool deflate = false;
  bool unsynced = false;                      ///< only its close syncs; a record ends where the next begins
  bool promised = false;                      ///< `promise: durable`
  std::optional<FileFormat> store;            ///< zarr or bp5: written as that, in place of the file
  bool second = false;                        ///< it has a further output, a classic file (`outputs`)
  std::vector<std::uint64_t> cuts_y, cuts_x;  ///< of tiles: where each begins, and the end
  std::uint64_t halo = 0;                     ///< cells of its neighbours that a tile has on each side

  [[nodiscard]] bool shared() const { return writing == Writing::together; }
  [[nodiscard]] bool tiled() const { return writing == Writing::tiles; }
  [[nodiscard]] bool written_by(std::uint32_t writer) const { return writing != Writing::alone || owner == writer; }
  [[nodiscard]] Area domain() const { return {0, 0, y, x}; }
  /// What only this writer puts.
  [[nodiscard]] Area own(std::uint32_t writer, std::uint32_t writers) const;
  /// What of the domain its file holds.
  [[nodiscard]] Area held(std::uint32_t writer, std::uint32_t writers) const;
  /// The name of the file that this writer creates.
  [[nodiscard]] std::string file_of(std::uint32_t writer) const;
  /// The name of what is made of it.
  [[nodiscard]] std::string made() const;
  /// Of the further output's file.
  [[nodiscard]] std::string second_file() const { return "second_" + name; }
};

struct Case {
  std::uint64_t seed = 0;
  std::vector<Kind> kinds;
  std::uint32_t writers = 1;
  std::uint32_t nodes = 1, io_nodes = 0;  ///< the last so many nodes have no writers
  std::vector<DatasetCase> datasets;
  std::uint64_t segments_max = 16;  ///< of each node
  std::uint32_t pause_us = 0;       ///< of a writer after each frame
  std::uint32_t restarts = 0;       ///< of the server
  bool away = false;                ///< the directory of the output, for a first recovery

  static Case of(std::uint64_t seed);
  /// The same of one whose only fault is that the power goes.
  static Case of_power(std::uint64_t seed);
  /// The same of one whose server dies for good; the directory of the output is away when it is recovered.
  static Case of_away(std::uint64_t seed);
  /// All datasets but tiles are written as stores of that format.
  void write_as(FileFormat store);
  [[nodiscard]] bool has(Kind kind) const;
  /// The only copy of something may be gone.
  [[nodiscard]] bool may_lose() const;
  [[nodiscard]] std::uint32_t frames() const;
  [[nodiscard]] std::uint32_t node_of(std::uint32_t writer) const { return writer % (nodes - io_nodes); }
  [[nodiscard]] std::string text() const;
};

/// Of the file that this writer creates.
Schema schema_of(const DatasetCase& dataset, std::uint32_t writer, std::uint32_t writers);

/// What stands where: the only thing that writers and checker have in common.
float value_t(std::size_t dataset, std::uint64_t frame, std::uint64_t cell);
double value_u(std::size_t dataset, std::uint64_t frame, std::uint64_t cell);
std::int32_t value_h(std::size_t dataset, std::uint64_t cell);
std::int32_t value_s(std::size_t dataset, std::uint64_t frame);
constexpr bool has_u(std::uint64_t frame) {
  return frame % 2 == 0;
}

}  // namespace advectio::faults
