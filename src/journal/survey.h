// What a stage holds, found out by looking only: for `advectio inspect` and for what `advectio recover` tells. A living
// server and living writers are not disturbed; what they change meanwhile may be told as it was or as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "journal/hard_link.h"
#include "journal/reader.h"

namespace advectio::journal {

/// One process, and what it has said that is still staged.
struct SurveyedJournal {
  std::string name, host, command;
  std::int64_t rank = -1;
  std::uint32_t pid = 0;
  std::uint64_t uid = 0, started_ns = 0;
  bool alive = false;   ///< its lock is held, as far as the file system tells
  bool mirror = false;  ///< of a journal on another node
  std::uint64_t segments = 0, segment_bytes = 0;
  std::uint64_t first = 0, last = 0;  ///< sequences; 0: no record
  std::uint64_t records_bytes = 0;
  std::map<std::string, std::uint64_t> records;  ///< by type
  std::uint64_t payloads_checked = 0, payloads_wrong = 0;
  /// Where it cannot be read any further.
  struct Damage {
    std::string segment;  ///< empty: the journal itself cannot be opened, or the next segment
    std::uint64_t byte = 0;
    std::string reason;
  };
  std::optional<Damage> damage;
};

/// One dataset in flight. Frames and bytes that are in the file and staged no more are only counted by its shared
/// state.
struct SurveyedDataset {
  std::string shared_state, path, link, error, whole;
  FileFormat format = FileFormat::netcdf4;
  DatasetState state = DatasetState::in_flight;
  FileNames file = FileNames::there;  ///< of one that is in flight
  bool closed = false;
  std::uint64_t frames_synced = 0, frames_visible = 0;
  std::optional<std::uint64_t> frames_durable;  ///< nothing: some of those that are visible
  std::uint64_t bytes_put = 0;
  std::uint64_t frames_staged = 0, bytes_staged = 0;  ///< synced, and not known to be in the file
  std::uint64_t bytes_unsynced = 0;                   ///< put since the last sync
  std::uint64_t frames_dropped = 0;                   ///< left out by the program, as the stage was full
  std::uint32_t writers = 0, tiles = 0;
  std::optional<std::uint32_t> owner;  ///< number of the node that writes it
};

struct Survey {
  bool served = false;
  bool power_lost = false;       ///< of an earlier boot, and its run was under way then (it `survives_power`)
  std::uint32_t server_pid = 0;  ///< of the last one
  std::uint32_t node = 0, nodes = 0, io_nodes = 0;
  std::uint64_t segment_bytes = 0, segments_max = 0, segments_free = 0;
  std::vector<SurveyedJournal> journals;
  std::vector<SurveyedDataset> datasets;
  std::vector<std::string> markers;   ///< paths of those that are held back (markers.h)
  std::vector<std::string> problems;  ///< shared states and notes that cannot be read

  [[nodiscard]] bool damaged() const;
};

struct SurveyOptions {
  std::string boot;     ///< the present one; empty: not known
  bool verify = false;  ///< every payload against its CRC
  /// Each record in the order of its journal; `whole`: its payload is what was written (true where not verified).
  std::function<void(const SurveyedJournal&, const Record&, bool whole)> on_record;
  /// Now and then: how many bytes of segments have been gone through, and of how many.
  std::function<void(std::uint64_t done, std::uint64_t of)> on_progress;
};

/// `stage`: opened with Access::look. Damage is told in the survey, it is no error of it.
Result<Survey> survey(const Stage& stage, const SurveyOptions& options);

}  // namespace advectio::journal
