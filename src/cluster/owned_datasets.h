// Datasets that this node owns and others have part in. What the others have synced goes into the shared states and
// slots here; how far the datasets are goes to the others.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "cluster/outbox.h"
#include "cluster/peers.h"
#include "core/bytes.h"
#include "journal/reader.h"

namespace advectio {

/// Holds its mutex while it puts messages into the outbox.
class OwnedDatasets {
 public:
  OwnedDatasets(const journal::Stage& stage, Outbox& outbox) : stage_(stage), outbox_(outbox) {}

  // ---- the server's loop ----

  /// As in `Peers`.
  void ended(const DatasetId& id, journal::DatasetState state);

  // ---- both ----

  /// To the nodes that have part in them. True: there was something new.
  bool send_news();

  // ---- the relay's thread ----

  /// The same, but not too often.
  bool send_progress();
  /// Another node has part in a dataset that is to be written here. Fails: its shared state could not be made.
  Result<void> on_announce(unsigned from, Decoder& in);
  void on_tell(Decoder& in);
  void on_farewell(unsigned from, const DatasetId& id);

 private:
  struct Owned {
    journal::MappedState<journal::SharedState> shared_state;
    journal::MappedState<journal::WriterSlot> slots;
    std::uint32_t writers = 0;
    std::set<unsigned> nodes;
    Bytes sent_state;
  };

  void forget(const DatasetId& id);

  const journal::Stage& stage_;
  Outbox& outbox_;

  std::mutex mutex_;  // of what follows
  std::map<DatasetId, Owned> owned_;
  std::map<DatasetId, journal::DatasetState> ended_;

  std::uint64_t sent_ns_ = 0;  // the relay's thread only
};

}  // namespace advectio
