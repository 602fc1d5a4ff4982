// Tiles of split output that become one file (the config's `join`). Their order and place is the tile sequencer's.
#pragma once

#include <functional>

#include "server/output_writer.h"

namespace advectio {

class Tiles {
 public:
  Tiles(Run& run, Ledger& ledger, OutputWriter& writer, std::function<bool()> read_on)
      : run_(run), ledger_(ledger), writer_(writer), read_on_(read_on) {}

  /// One more tile of a whole.
  void gather(const std::shared_ptr<Output>& d);
  /// A record of a tile.
  Result<void> on_tile(const std::shared_ptr<Output>& d, const Record& r, bool verify);
  /// Do what the tiles' records allow. `now`: there is no more room to wait for others.
  void move_on(Output& whole, bool now = false);
  /// All of it is in its whole.
  void end_tile(Output& d);
  /// What this tile has said cannot be read: all become files of their own, so that the others lose nothing.
  void split_at(Output& tile, const std::string& why);
  /// With a fresh sink behind the last commit, and everything that the tiles have said since.
  void retry_whole(Output& whole);
  /// The stage is full: write in the midst of frames, then give up wholes that cannot be completed.
  bool make_room();
  /// Nobody lives who could still bring a tile. True when there was something to do.
  bool end_wholes();
  /// Of one name, the next may begin when the one before is over.
  void look_at_wholes();

 private:
  enum class Rest : std::uint8_t { at_hand, read_again };  ///< of the tiles' records: can they be had?
  void stay_alone(Output& d);
  Result<void> try_to_move_on(Output& whole, bool now);
  [[nodiscard]] bool may_begin(const Output& whole) const;
  Result<void> begin_whole(Output& whole);
  Result<void> give(Output& whole, std::size_t tile, bool now);
  Result<void> commit_part_of(Output& whole);
  Result<void> end_sync(Output& whole, const TileSequencer::CommonSync& sync);
  Result<void> release_tiles(Output& whole);
  Result<void> end_if_all_over(Output& whole);
  void end_tiles(Output& whole);
  void split(Output& whole, const std::string& why, Rest rest = Rest::at_hand);
  void give_back(Output& whole, Output& d);
  void leave_to_retry(Output& d);
  void fail_whole(Output& whole, Error error);
  [[nodiscard]] bool tiles_come_again() const;

  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  std::function<bool()> read_on_;
  bool told_of_names_ = false;  ///< that are none of tiles
};

}  // namespace advectio
