#include "cluster/shared_states.h"

namespace advectio {

using journal::DatasetState;
using journal::SharedState;
using journal::WriterSlot;

bool is_of(const SharedState& shared_state, const DatasetId& id) noexcept {
  return shared_state.journal == id.journal && shared_state.number == id.number;
}

void store(WriterSlot& slot, const SlotState& s) noexcept {
  slot.number = s.number;
  slot.journal.store(s.journal, std::memory_order_release);
  slot.schema_pending.store(s.schema_pending, std::memory_order_release);
  for (std::size_t i = 0; i < WriterSlot::steps_kept; ++i) {
    slot.step[i].collective_index.store(s.step_index[i], std::memory_order_relaxed);
    slot.step[i].records.store(s.step_records[i], std::memory_order_relaxed);
  }
  slot.steps.store(s.steps, std::memory_order_release);
  slot.collective_index.store(s.collective_index, std::memory_order_release);
}

}  // namespace advectio
