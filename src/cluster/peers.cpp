#include "cluster/peers.h"

namespace advectio {

SlotState state_of(const journal::WriterSlot& slot) noexcept {
  SlotState s;
  // The collective index first: what is older than it is known with it.
  s.collective_index = slot.collective_index.load(std::memory_order_acquire);
  s.schema_pending = slot.schema_pending.load(std::memory_order_acquire);
  s.journal = slot.journal.load(std::memory_order_acquire);
  s.number = slot.number;
  s.steps = slot.steps.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < journal::WriterSlot::steps_kept; ++i) {
    s.step_index[i] = slot.step[i].collective_index.load(std::memory_order_relaxed);
    s.step_records[i] = slot.step[i].records.load(std::memory_order_relaxed);
  }
  return s;
}

}  // namespace advectio
