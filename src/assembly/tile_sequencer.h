// The tiles of split output on their way into one dataset (the config's `join`).
//
// Each tile is a dataset of its own in the stage. Its records wait here until the tiles cover the domain. Their bytes
// stay in the journals' segments. From then on the sequencer returns blocks of the whole.
//
// Sync k of the whole ends when every tile has made its k-th sync. Before that, data which several tiles hold (halos,
// coordinates) are compared: they must agree.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/block.h"
#include "core/placement.h"
#include "core/result.h"
#include "core/schema.h"
#include "journal/reader.h"

namespace advectio {

class TileSequencer {
 public:
  /// One record of a tile that is not (all) in the whole yet.
  struct Entry {
    journal::Record record;
    journal::Put put;      ///< where it is one
    journal::Sync sync;    ///< or this
    bool kept = false;     ///< what `record` refers to is a copy, and no segment is held for it any more
    bool applied = false;  ///< of a schema: it counts by now
  };

  /// A tile more, by its path; returns its number.
  std::size_t add(std::string path);
  [[nodiscard]] bool has(const std::string& path) const;
  [[nodiscard]] std::size_t size() const noexcept { return queues_.size(); }

  /// What an earlier server has committed of the whole, and of a tile: its records up to `sequence`, its syncs up to
  /// `sync_index`, and the schema that they have left.
  /// `partly`: and a part of the next sync, which cannot be compared any more.
  void resume(journal::SyncIndex committed, bool partly);
  void resume(std::size_t tile, std::uint64_t sequence, journal::SyncIndex sync_index, std::optional<Schema> schema,
              bool closed);

  /// The next record of a tile. Errors: Code::corrupt.
  Result<void> take(std::size_t tile, const journal::Record& record);
  /// No more will come from it.
  void gone(std::size_t tile);
  [[nodiscard]] bool is_gone(std::size_t tile) const { return queues_[tile].gone; }

  /// Does it stand where the blocks of the tiles go? They are asked for their place when all have synced. `now`: with
  /// what is known, and whatever still comes. Errors: these will never be one dataset.
  Result<bool> plan(bool now);
  /// Why not.
  [[nodiscard]] std::string why_not();
  /// The schema of the whole as the program asks for it, where it is not what it was at the last call.
  const Schema* changed();
  [[nodiscard]] std::string first_path() const { return queues_[first_].path; }

  /// The next block of a tile, while it is of the sync under way; `now`: whatever sync it is of. Its bytes stay until
  /// `committed` or `committed_part`.
  Result<std::optional<Block>> next_block(std::size_t tile, bool now);
  /// Of the blocks given out and not committed yet: what had to be copied, because a tile's halo was cut off.
  [[nodiscard]] std::uint64_t copied_bytes() const noexcept { return copied_bytes_; }

  struct CommonSync {
    journal::SyncIndex index{};
    std::uint64_t frame = 0;  ///< 0: nothing was put in it
    std::uint64_t stall_ns = 0, synced_ns = 0;
  };
  /// The sync under way, when all tiles have ended it. Errors: they disagree, and nothing of it may be committed.
  Result<std::optional<CommonSync>> end_sync();
  /// That sync is in the file.
  void committed();
  /// All that was given out is, in the midst of a sync.
  void committed_part();
  /// Has anything of the sync under way, or of one after it, been committed?
  [[nodiscard]] bool is_ahead() const;
  /// Is there anything that `committed_part` could let go of?
  [[nodiscard]] bool holds_any() const;

  [[nodiscard]] bool all_over() const;
  [[nodiscard]] bool all_closed() const;

  /// Every record of this tile up to this sequence is in the whole. To be asked when that is committed.
  [[nodiscard]] std::uint64_t given(std::size_t tile) const;
  /// The tile's last sync among those.
  [[nodiscard]] journal::SyncIndex sync_index(std::size_t tile) const {
    return journal::SyncIndex{queues_[tile].past()};
  }
  /// The schema that this has left, where it is not what it was at the last call.
  const Schema* new_schema(std::size_t tile);

  /// What of a tile is not in the whole, for a file of its own. Nothing else may be asked of the tile then.
  std::deque<Entry> take_out(std::size_t tile) { return std::move(queues_[tile].entries); }

 private:
  struct TileQueue {
    std::string path;
    std::optional<Schema> schema;  ///< as of the last schema record that counts by now
    bool schema_changed = false;
    std::optional<Placement> placement;        ///< as the tile says it
    std::vector<std::optional<Span>> settled;  ///< as all of them together have it
    Share share;
    std::deque<Entry> entries;
    std::size_t given = 0;         ///< of the entries, from the front
    std::uint64_t seen = 0;        ///< sequence of the last record taken
    std::uint64_t base = 0;        ///< syncs before the first entry
    std::uint64_t ended = 0;       ///< all its syncs so far
    std::uint64_t ends_given = 0;  ///< syncs among the entries that are given
    bool closed = false, gone = false;
    [[nodiscard]] std::uint64_t past() const noexcept { return base + ends_given; }
    [[nodiscard]] bool over() const noexcept { return closed || gone; }
  };
  enum class Role : std::uint8_t { none, owner, repeated };
  /// What of a block goes into the whole.
  struct Cut {
    Box part;  ///< in the block's own index space
    Box to;    ///< in the whole; `part.count` elements, `stride` of the block apart
  };
  using OfVariable = std::map<std::uint32_t, std::vector<const Entry*>>;

  static bool ends_sync(const journal::Record& record) noexcept;
  [[nodiscard]] bool complete() const;
  [[nodiscard]] bool covers() const;
  [[nodiscard]] std::vector<Tile> tiles_of_all() const;  // when each has a schema and a place
  Result<void> apply_schemas(bool now);
  Result<void> make_plan();
  Result<void> fits(const Entry& entry) const;
  [[nodiscard]] std::optional<Cut> cut(const TileQueue& queue, const Entry& entry) const;
  [[nodiscard]] std::span<const std::byte> bytes_of(const Entry& entry, const Cut& cut,
                                                    std::deque<std::shared_ptr<Bytes>>& copies) const;
  [[nodiscard]] OfVariable compared_entries(const TileQueue& queue) const;
  [[nodiscard]] bool agree(std::size_t a, std::size_t b, const std::vector<const Entry*>& of_a,
                           const std::vector<const Entry*>& of_b) const;
  Result<void> compare() const;
  [[nodiscard]] const Entry* end_of_sync(const TileQueue& queue) const;
  Result<void> same_syncs() const;
  static void keep(Entry& entry);
  void shed(TileQueue& queue);

  std::vector<TileQueue> queues_;
  std::uint64_t sync_index_ = 0;  // the last that is committed
  bool begun_ = false;            // a plan has been made, by us or an earlier server
  bool planned_ = false, stale_ = false, handed_out_ = true;
  // Of the sync under way, and of others up to that one, a part may have been committed by an earlier server.
  bool resumed_ = false;
  std::uint64_t resumed_until_ = 0;
  std::size_t first_ = 0;
  Whole whole_;                                                   // its pieces are not kept
  std::vector<std::vector<Role>> roles_;                          // by variable and tile
  std::vector<std::vector<std::pair<std::size_t, Role>>> parts_;  // of variables of which something is repeated
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace advectio
