// Datasets that other nodes own and this one has part in. Their owners hear what this node's writers have synced and
// have in their slots; back comes how far the dataset is.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "cluster/outbox.h"
#include "cluster/peers.h"
#include "core/bytes.h"
#include "journal/reader.h"

namespace advectio {

class FollowedDatasets {
 public:
  FollowedDatasets(const journal::Stage& stage, Outbox& outbox) : stage_(stage), outbox_(outbox) {}

  // ---- the server's loop ----

  /// As in `Peers`.
  void announce(const DatasetId& id, const journal::SharedState& shared_state);
  void send_slot(const DatasetId& id, const journal::SharedState& shared_state, std::uint32_t writer,
                 const SlotState& slot);
  void farewell(const DatasetId& id, unsigned owner);

  // ---- the relay's thread ----

  /// The owner's news of a dataset: into its shared state here, for the ranks and for the server.
  void on_progress(Decoder& in);

 private:
  /// The shared states are those from its beginning: its name may be another's by now.
  struct Followed {
    journal::MappedState<journal::SharedState> shared_state;
    journal::MappedState<journal::WriterSlot> slots;
  };

  const journal::Stage& stage_;
  Outbox& outbox_;

  std::mutex mutex_;  // of what follows
  std::map<DatasetId, Followed> followed_;

  // The server's loop only.
  std::map<std::pair<DatasetId, std::uint32_t>, Bytes> sent_states_;  ///< the last `tell`, by writer
};

}  // namespace advectio
