// The journals of this node: found, followed, and given back segment by segment.
#pragma once

#include <functional>

#include "server/durability.h"
#include "server/tiles.h"

namespace advectio {

class JournalSet {
 public:
  JournalSet(Run& run, Ledger& ledger, Durability& durability, Tiles& tiles)
      : run_(run), ledger_(ledger), durability_(durability), tiles_(tiles) {}

  void look_for_writers();
  /// True: no program of this node begins a journal any more, and all that have are known and are
  /// `over`.
  bool close(const std::function<bool(const Journal&)>& over);
  /// A journal speaks of that output.
  void attach(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d);
  /// Gives back segments, oldest first: those read to their end, in which every record is committed
  /// (durable where it is kept, sent where another node owns it). One on which somebody holds a lease
  /// leaves its journal, too, but is parked; and so does one that readers of the server before may map.
  void release(Journal& j);
  /// Parked segments go back to the pool when their last lease has ended. `short_of_room`: all of them
  /// are removed instead, so that others can be made; those of the server before always are. Their memory
  /// stays as it is for whoever reads it.
  void recycle_parked(bool short_of_room);
  /// Journals of processes that have gone, and of which nothing is needed any more.
  void forget_journals();
  /// A second reader of a journal, from the oldest that is held.
  Result<std::unique_ptr<Reader>> read_again(const Journal& j);

 private:
  [[nodiscard]] bool may_be_mapped(const std::string& segment) const;

  Run& run_;
  Ledger& ledger_;
  Durability& durability_;
  Tiles& tiles_;
  std::vector<Reader::Parked> parked_;
};

}  // namespace advectio
