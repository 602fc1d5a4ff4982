#include "cluster/messages.h"

namespace advectio {

void put(Encoder& out, const DatasetId& id) {
  out.text(id.shared_state);
  out.number(id.journal);
  out.number(id.number);
}

DatasetId take_id(Decoder& in) {
  DatasetId id;
  id.shared_state = in.text();
  id.journal = in.number<std::uint64_t>();
  id.number = in.number<std::uint32_t>();
  return id;
}

void put(Encoder& out, const SlotState& s) {
  out.raw(&s, sizeof s);
}

SlotState take_slot(Decoder& in) {
  SlotState s;
  s.journal = in.number<std::uint64_t>();
  s.collective_index = in.number<std::uint64_t>();
  s.schema_pending = in.number<std::uint64_t>();
  s.steps = in.number<std::uint64_t>();
  s.number = in.number<std::uint32_t>();
  (void)in.number<std::uint32_t>();  // padding
  for (auto& t : s.step_index) t = in.number<std::uint64_t>();
  for (auto& r : s.step_records) r = in.number<std::uint64_t>();
  return s;
}
static_assert(sizeof(SlotState) == 40 + 16 * journal::WriterSlot::steps_kept);

}  // namespace advectio
