// When the server may end, and in what state it leaves files and stage.
#pragma once

#include "server/held_markers.h"
#include "server/journal_set.h"
#include "server/other_nodes.h"

namespace advectio {

class Ending {
 public:
  Ending(Run& run, Ledger& ledger, OutputWriter& writer, Durability& durability, Tiles& tiles, JournalSet& journal_set,
         OtherNodes& nodes, HeldMarkers& markers, std::function<void(bool)> retry_failed)
      : run_(run),
        ledger_(ledger),
        writer_(writer),
        durability_(durability),
        tiles_(tiles),
        journal_set_(journal_set),
        nodes_(nodes),
        markers_(markers),
        retry_failed_(retry_failed) {}

  /// Is there nothing left to do, and nobody to wait for?
  bool finished();
  /// Nobody writes any more, and there is something to leave: what is done at once is done.
  bool may_leave();
  /// For another server, perhaps on another node, perhaps after this one has been without power.
  void leave();
  /// Has somebody removed the stage? What is mapped can still be read; nothing new comes, and nobody could ask for the
  /// drain.
  void look_at_stage();
  /// Nobody can take up these files later: what is begun in them is taken back now. A disk that refuses even that is
  /// asked again for as long as a program would wait for room.
  void leave_all_at_last_commit();
  /// Everything that is for this node to write is in its file.
  [[nodiscard]] bool all_done() const;

 private:
  void end_orphans();
  void remove_left_behind();
  [[nodiscard]] bool any_in_flight() const;

  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  Durability& durability_;
  Tiles& tiles_;
  JournalSet& journal_set_;
  OtherNodes& nodes_;
  HeldMarkers& markers_;
  std::function<void(bool)> retry_failed_;
  bool reported_end_ = false;  ///< this node can do no more, unless what has failed can be written after all
  std::uint64_t last_chance_ns_ = 0;
};

}  // namespace advectio
