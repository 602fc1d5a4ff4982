// Which datasets of this node are written first, when several have something in the stage.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/held_markers.h"
#include "server/ledger.h"

namespace advectio {

/// Those of a higher one first.
enum class Urgency : std::uint8_t {
  normal,
  marker,  ///< a marker is held back for it
  high,    ///< `priority: high` in the config, or a set's file
  waited,  ///< a process waits for it: at a sync with a promise, to open it again, or as a live reader
};

class Urgencies {
 public:
  Urgencies(Run& run, Ledger& ledger, HeldMarkers& markers) : run_(run), ledger_(ledger), markers_(markers) {}

  [[nodiscard]] Urgency of(const Output& d) const;
  /// The highest of all datasets that have been synced and are not visible yet: also of those of which the server has
  /// read nothing so far. As it was some milliseconds ago at most.
  [[nodiscard]] Urgency most();

 private:
  struct Dataset {
    MappedState<SharedState> shared_state;
    DatasetPolicy policy{};
    bool seen = false;
  };
  [[nodiscard]] Urgency of(const std::string& name, const SharedState& shared_state, const DatasetPolicy& policy) const;
  void look();

  Run& run_;
  Ledger& ledger_;
  HeldMarkers& markers_;
  std::map<std::string, Dataset> datasets_;  ///< in flight, by the names of their shared states
  Urgency most_ = Urgency::normal;
  std::uint64_t look_again_ns_ = 0, commits_seen_ = 0;
};

}  // namespace advectio
