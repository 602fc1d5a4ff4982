#include "cluster/followed_datasets.h"

#include <algorithm>
#include <cstring>

#include "cluster/messages.h"
#include "cluster/shared_states.h"

namespace advectio {

using journal::SharedState;
using Lane = Transport::Lane;

void FollowedDatasets::announce(const DatasetId& id, const SharedState& shared_state) {
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  out.number(static_cast<std::uint32_t>(shared_state.format));
  out.number(shared_state.writers);
  out.number(shared_state.owner);
  out.number(shared_state.created_ns);
  out.text(shared_state.path);
  out.text(shared_state.link);
  if (auto own = stage_.open_state(id.shared_state); own && is_of(**own, id)) {
    Followed f{std::move(own).value(), {}};
    if (auto slots = stage_.open_slots(id.shared_state, shared_state.writers); slots && shared_state.writers > 0)
      f.slots = std::move(slots).value();
    const std::lock_guard guard(mutex_);
    followed_[id] = std::move(f);
  }
  outbox_.push({shared_state.owner - 1, Lane::journals, announce_kind, std::move(bytes), {}});
}

void FollowedDatasets::send_slot(const DatasetId& id, const SharedState& shared_state, std::uint32_t writer,
                                 const SlotState& slot) {
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  out.number(shared_state.synced.load(std::memory_order_acquire));
  out.number(shared_state.frames_synced.load(std::memory_order_acquire));
  out.number(shared_state.frames_dropped.load(std::memory_order_acquire));
  out.number(shared_state.closed.load(std::memory_order_acquire));
  out.number(writer);
  put(out, slot);
  auto& said = sent_states_[{id, writer}];
  if (said == bytes) return;
  said = bytes;
  outbox_.push({shared_state.owner - 1, Lane::journals, tell_kind, std::move(bytes), {}});
}

void FollowedDatasets::farewell(const DatasetId& id, unsigned owner) {
  for (auto it = sent_states_.lower_bound({id, 0}); it != sent_states_.end() && it->first.first == id;)
    it = sent_states_.erase(it);
  {
    const std::lock_guard guard(mutex_);
    followed_.erase(id);
  }
  Bytes bytes;
  Encoder out(bytes);
  put(out, id);
  outbox_.push({owner, Lane::words, farewell_kind, std::move(bytes), {}});
}

void FollowedDatasets::on_progress(Decoder& in) {
  const auto id = take_id(in);
  const std::lock_guard guard(mutex_);
  const auto it = followed_.find(id);
  if (it == followed_.end() || has_ended(*it->second.shared_state)) return;
  SharedState& p = *it->second.shared_state;
  const auto state = in.number<std::uint32_t>();
  const auto come_to = [&p, slots = &it->second.slots] {
    auto sum = p.visible.load() + p.durable.load() + p.waits.load();
    for (std::uint32_t w = 0; *slots && w < p.writers; ++w) sum += (*slots)[w].visible.load() + (*slots)[w].read.load();
    return sum;
  };
  const auto before = come_to();
  if (!in.at_end()) {
    raise(p.synced, in.number<std::uint64_t>());
    raise(p.frames_synced, in.number<std::uint64_t>());
    const auto closed = in.number<std::uint32_t>();
    if (p.writers == 0) raise(p.closed, closed);
    const auto visible = in.number<std::uint64_t>();
    const auto durable = in.number<std::uint64_t>();
    p.waits.store(in.number<std::uint64_t>(), std::memory_order_release);
    p.frames_visible.store(in.number<std::uint64_t>(), std::memory_order_relaxed);
    const auto errors = in.number<std::uint32_t>();
    const auto error_sys = in.number<std::int32_t>();
    const auto text = in.text();
    if (errors != p.errors.load()) {
      std::memcpy(p.error_text, text.c_str(), std::min(text.size() + 1, sizeof p.error_text));
      p.error_sys.store(error_sys, std::memory_order_release);
      p.errors.store(errors, std::memory_order_release);
    }
    auto& slots = it->second.slots;
    for (std::uint32_t w = 0; slots && w < p.writers && in.ok(); ++w) {
      auto& slot = slots[w];
      const auto sent_state = take_slot(in);
      const auto visible_w = in.number<std::uint64_t>();
      const auto sync_index = in.number<std::uint64_t>();
      const auto read = in.number<std::uint64_t>();
      if (!in.ok()) return;
      if (slot.pid == 0 && sent_state.journal != 0) store(slot, sent_state);
      slot.sync_index.store(sync_index, std::memory_order_relaxed);
      slot.read.store(read, std::memory_order_release);
      slot.visible.store(visible_w, std::memory_order_release);
    }
    p.visible.store(visible, std::memory_order_release);
    p.durable.store(durable, std::memory_order_release);
  }
  p.state.store(state, std::memory_order_release);
  // That it still cannot be written is no step forward.
  if (come_to() != before || has_ended(p)) stage_.control().activity.fetch_add(1, std::memory_order_relaxed);
  journal::ring(stage_.control().progress);
}

}  // namespace advectio
