// The messages between the servers of several nodes: their kinds, and how ids and slots are encoded.
#pragma once

#include "cluster/peers.h"
#include "core/bytes.h"

namespace advectio {

/// On the lane of journals, in the order of the records. Kinds from `first_writer_kind` on are records themselves, as
/// they are in the segment, of the writer of that number.
enum JournalKind : int { announce_kind = 1, tell_kind, writer_kind, gone_kind, quiet_kind, first_writer_kind = 16 };
/// On the lane of words.
enum WordKind : int {
  progress_kind = 1,
  farewell_kind,
  request_space_kind,
  drain_kind,
  final_kind,
  snapshot_kind,
  question_kind,
  answer_kind
};

void put(Encoder& out, const DatasetId& id);
DatasetId take_id(Decoder& in);
void put(Encoder& out, const SlotState& s);
SlotState take_slot(Decoder& in);

}  // namespace advectio
