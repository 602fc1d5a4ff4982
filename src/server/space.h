// What happens when the stage is nearly full, and when the cores are.
#pragma once

#include "server/further_outputs.h"
#include "server/journal_set.h"

namespace advectio {

/// After a writer has found no segment, the stage counts as starved for so long.
constexpr std::uint64_t starved_recently_ns = 200'000'000;

class Space {
 public:
  Space(Run& run, Ledger& ledger, OutputWriter& writer, SharedOutputs& shared, FurtherOutputs& further, Tiles& tiles,
        JournalSet& journal_set)
      : run_(run),
        ledger_(ledger),
        writer_(writer),
        shared_(shared),
        further_(further),
        tiles_(tiles),
        journal_set_(journal_set) {}

  /// A writer has found no segment. Takes back segments that others hold only ahead of need, then commits in the midst
  /// of frames.
  void make_room();
  /// True if writers have lacked a segment for longer than it takes to make one.
  bool needs_room(std::uint64_t now);
  /// Nobody here writes any more, and for as long as a program would wait there has been no room for what other nodes
  /// still have to say. Where files have failed, a stage that grows is no step forward: only commits are.
  bool has_no_room_to_end(std::uint64_t now);
  /// A model that puts a frame has the cores to itself where there are none to spare: compressing what it has put so
  /// far would take from it the very time it is to get back. As soon as it has synced, or pauses, or the stage fills,
  /// its frame is drained.
  bool give_way(std::uint32_t work, std::uint64_t now);

 private:
  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  SharedOutputs& shared_;
  FurtherOutputs& further_;
  Tiles& tiles_;
  JournalSet& journal_set_;
  std::uint64_t stuck_since_ns_ = 0;
  std::uint64_t grown_activity_ = 0;  ///< when the stage last grew for it
  std::uint64_t held_up_since_ns_ = 0, held_up_steps_ = 0;
  std::uint64_t needy_since_ns_ = 0;
  std::uint32_t burst_work_ = 0;
  std::uint64_t burst_moved_ns_ = 0, burst_began_ns_ = 0;
};

}  // namespace advectio
