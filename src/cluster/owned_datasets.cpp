#include "cluster/owned_datasets.h"

#include <algorithm>
#include <cstring>

#include "cluster/messages.h"
#include "cluster/shared_states.h"
#include "journal/hard_link.h"

namespace advectio {

using journal::DatasetState;
using journal::monotonic_ns;
using journal::SharedState;
using Lane = Transport::Lane;

namespace {

constexpr std::uint64_t tell_every_ns = 2'000'000;

}  // namespace

void OwnedDatasets::ended(const DatasetId& id, DatasetState state) {
  const std::lock_guard guard(mutex_);
  ended_[id] = state;
  if (const auto it = owned_.find(id); it == owned_.end() || it->second.nodes.empty()) forget(id);
}

/// Called with the mutex held.
void OwnedDatasets::forget(const DatasetId& id) {
  owned_.erase(id);
  const auto shared_state = stage_.open_state(id.shared_state);
  if (ended_.find(id) == ended_.end()) {
    // It ended before this server began, and which nodes have not been told yet nobody remembers. One of them may still
    // announce it, now or after another restart: without a shared state it would be taken for a new one, of which
    // nothing is in its file.
    ended_[id] = shared_state && is_of(**shared_state, id) ? static_cast<DatasetState>((*shared_state)->state.load())
                                                           : DatasetState::finished;
    journal::ring(stage_.control().progress);
    return;
  }
  // Where its hard link could not be removed the shared state is what the next server knows it by.
  if (!shared_state || !journal::is_hard_link((*shared_state)->link) || !stage_.files().exists((*shared_state)->link))
    stage_.remove_dataset(id.shared_state, id.journal, id.number);
  journal::ring(stage_.control().progress);
}

bool OwnedDatasets::send_progress() {
  const auto now = monotonic_ns();
  if (now - sent_ns_ < tell_every_ns) return false;
  sent_ns_ = now;
  return send_news();
}

bool OwnedDatasets::send_news() {
  const std::lock_guard guard(mutex_);
  bool moved = false;
  for (auto& [id, o] : owned_) {
    if (!o.shared_state) continue;
    Bytes bytes;
    Encoder out(bytes);
    put(out, id);
    const auto& p = *o.shared_state;
    // The state is read first: whatever was true before it changed is then sent with it, or has been sent before.
    out.number(p.state.load(std::memory_order_acquire));
    out.number(p.synced.load(std::memory_order_acquire));
    out.number(p.frames_synced.load(std::memory_order_acquire));
    out.number(p.closed.load(std::memory_order_acquire));
    out.number(p.visible.load(std::memory_order_acquire));
    out.number(p.durable.load(std::memory_order_acquire));
    out.number(p.waits.load(std::memory_order_acquire));
    out.number(p.frames_visible.load(std::memory_order_acquire));
    out.number(p.errors.load(std::memory_order_acquire));
    out.number(p.error_sys.load(std::memory_order_acquire));
    out.text({p.error_text, ::strnlen(p.error_text, sizeof p.error_text)});
    for (std::uint32_t w = 0; w < o.writers; ++w) {
      put(out, state_of(o.slots[w]));
      out.number(o.slots[w].visible.load(std::memory_order_acquire));
      out.number(o.slots[w].sync_index.load(std::memory_order_acquire));
      out.number(o.slots[w].read.load(std::memory_order_acquire));
    }
    if (bytes == o.sent_state) continue;
    o.sent_state = bytes;
    for (const auto n : o.nodes) outbox_.push({n, Lane::words, progress_kind, bytes, {}});
    moved = true;
  }
  return moved;
}

Result<void> OwnedDatasets::on_announce(unsigned from, Decoder& in) {
  const auto id = take_id(in);
  const auto format = static_cast<FileFormat>(in.number<std::uint32_t>());
  const auto writers = in.number<std::uint32_t>();
  const auto owner = in.number<std::uint32_t>();
  const auto created_ns = in.number<std::uint64_t>();
  const auto path = in.text();
  const auto link = in.text();
  const std::lock_guard guard(mutex_);
  auto ended = ended_.find(id);
  // One that came later has the name: this one is over, and has been for longer than this server lives.
  if (auto shared_state = stage_.open_state(id.shared_state);
      ended == ended_.end() && shared_state && !is_of(**shared_state, id) && (*shared_state)->created_ns > created_ns)
    ended = ended_.emplace(id, DatasetState::finished).first;
  if (ended != ended_.end()) {
    // It was over before that node came: an abort.
    Bytes answer;
    Encoder out(answer);
    put(out, id);
    out.number(static_cast<std::uint32_t>(ended->second));
    outbox_.push({from, Lane::words, progress_kind, std::move(answer), {}});
    return {};
  }
  Owned& o = owned_[id];
  o.nodes.insert(from);
  o.sent_state.clear();
  o.writers = writers;
  if (auto shared_state = stage_.open_state(id.shared_state); shared_state && is_of(**shared_state, id)) {
    o.shared_state = std::move(shared_state).value();  // what it takes to make another there may be no room for
    if (auto slots = stage_.open_slots(id.shared_state, writers); slots && writers > 0)
      o.slots = std::move(slots).value();
    return {};
  }
  auto made = stage_.make_dataset(id.shared_state, [&](SharedState& p) {
    p.format = format;
    p.journal = id.journal;
    p.number = id.number;
    p.writers = writers;
    p.owner = owner;
    p.created_ns = created_ns;
    std::memcpy(p.path, path.c_str(), std::min(path.size() + 1, sizeof p.path));
    std::memcpy(p.link, link.c_str(), std::min(link.size() + 1, sizeof p.link));
  });
  if (!made) return std::move(made).error().with(path + ": a page for it");
  o.shared_state = std::move(made->shared_state);
  o.slots = std::move(made->slots);
  return {};
}

void OwnedDatasets::on_tell(Decoder& in) {
  const auto id = take_id(in);
  const auto synced = in.number<std::uint64_t>();
  const auto frames = in.number<std::uint64_t>();
  const auto dropped = in.number<std::uint64_t>();
  const auto closed = in.number<std::uint32_t>();
  const auto writer = in.number<std::uint32_t>();
  const auto slot = take_slot(in);
  const std::lock_guard guard(mutex_);
  const auto it = owned_.find(id);
  if (it == owned_.end() || !it->second.shared_state) return;
  auto& shared_state = *it->second.shared_state;
  raise(shared_state.synced, synced);
  raise(shared_state.frames_synced, frames);
  raise(shared_state.frames_dropped, dropped);
  // Of several writers each says it for itself.
  if (it->second.writers == 0) raise(shared_state.closed, closed);
  if (writer < it->second.writers) store(it->second.slots[writer], slot);
}

void OwnedDatasets::on_farewell(unsigned from, const DatasetId& id) {
  const std::lock_guard guard(mutex_);
  const auto it = owned_.find(id);
  if (it == owned_.end()) return;
  it->second.nodes.erase(from);
  if (it->second.nodes.empty()) forget(id);
}

}  // namespace advectio
