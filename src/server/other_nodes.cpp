#include "server/other_nodes.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "server/live.h"

namespace advectio {

void OtherNodes::leave_to_others() {
  run_.shutdown.rest = Shutdown::Rest::with_others;
  const std::string text = "the stage " + run_.stage.directory() +
                           " is full and has no room for what other nodes still have to say; it stays in their stages";
  run_.report(text);
  for (auto& d : ledger_.outputs)
    if (!d->over() && d->sink) d->sink->abandon();
  run_.peers->quiet();
  (void)agreed_on_end();
}

void OtherNodes::pass_on(Journal& j, const Record& r, Output& d) {
  const auto uid = j.reader->journal();
  // What the owner has committed was sent before. The end is said again: the owner may have died between the two.
  if (r.type != RecordType::close && r.sequence <= d.visible_of(uid)) return;
  if (!d.ownership.is_announced()) run_.peers->announce(d.id, *d.shared_state);
  d.ownership.note_announced();
  if (d.shared() && d.ownership.introduce(uid)) {
    const auto writer = d.writers.number_of(uid);
    SlotState slot;  // without a collective index: what is before it has not been sent yet
    slot.journal = uid;
    slot.number = d.writers.slots[writer].number;
    run_.peers->send_slot(d.id, *d.shared_state, static_cast<std::uint32_t>(writer), slot);
  }
  run_.peers->send(d.ownership.owner(), j.name, j.reader->writer(), r);
  if (d.shared() && r.type == RecordType::schema) {
    // Nothing is pending any more. To be known before all that this node has still to send.
    const auto writer = d.writers.number_of(uid);
    auto slot = state_of(d.writers.slots[writer]);
    slot.collective_index = r.collective_index;
    slot.schema_pending = 0;
    run_.peers->send_slot(d.id, *d.shared_state, static_cast<std::uint32_t>(writer), slot);
  }
  d.figures.bytes_put += r.payload.size();
}

void OtherNodes::send_progress_of(Journal& j) {
  for (const auto& [number, d] : j.datasets)
    if (!d->shared() && !d->over() && d->ownership.is_announced())
      run_.peers->send_slot(d->id, *d->shared_state, 0, {});
}

void OtherNodes::look_at_owners() {
  for (const auto& d : ledger_.elsewhere) {
    const auto end = end_of(*d->shared_state);  // first: what was true before it is known with it
    d->progress.visible = d->shared_state->visible.load(std::memory_order_acquire);
    for (std::size_t w = 0; w < d->writers.shares.size(); ++w)
      d->writers.shares[w].visible = d->writers.slots[w].visible.load(std::memory_order_acquire);
    if (end) writer_.end(*d, *end);
  }
  std::erase_if(ledger_.elsewhere, [](const auto& d) { return d->over(); });
  if (const auto asked = run_.stage.control().asked.load(std::memory_order_acquire); asked != asked_) {
    asked_ = asked;
    if (auto names = run_.files.list(run_.stage.questions()))
      for (const auto& name : *names)
        if (name.find('+') != std::string::npos && name.find('.') == std::string::npos &&
            !run_.files.exists(run_.stage.questions() + "/" + name + journal::answer_suffix))
          run_.peers->ask(name);
  }
  if (run_.peers->drain_wanted()) run_.shutdown.drain();
  if (run_.shutdown.draining()) run_.peers->drain();
  if (const auto now = monotonic_ns(); run_.peers->node() != 0 && now - snapshot_ns_ > 500'000'000) {
    snapshot_ns_ = now;
    run_.peers->snapshot(snapshot(false));
  }
  if (run_.peers->node() == 0 && !contact_written_) write_contact();
}

/// For node 0: this node's status, and its part of the contact file, which the status of the run does not show.
std::string OtherNodes::snapshot(bool final) {
  auto all = status_.to_json(final);
  if (run_.live) all["contact"] = run_.live->contact();
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Once, when all nodes have said where they listen. Only readers on other nodes need it: the run goes on without.
void OtherNodes::write_contact() {
  if (!run_.live) return;
  auto nodes = json::array({run_.live->contact()});
  if (nodes[0].is_null()) return;
  const auto snapshots = run_.peers->snapshots();
  for (unsigned n = 1; n < snapshots.size(); ++n) {
    const auto status = json::parse(snapshots[n], nullptr, false);
    if (!status.is_object() || !status.contains("contact") || !status["contact"].is_object()) return;
    nodes.push_back(status["contact"]);
  }
  contact_written_ = true;
  if (auto written = run_.live->write_contact(nodes); !written)
    run_.log.warning(written.error().message + "; readers on other nodes will not find the run");
}

bool OtherNodes::others_idle() {
  if (run_.peers->node() != 0) return false;
  const auto snapshots = run_.peers->snapshots();
  return std::all_of(snapshots.begin() + 1, snapshots.end(), [](const std::string& text) {
    const auto status = json::parse(text, nullptr, false);
    if (!status.is_object()) return false;
    const auto& writers = status["writers"];
    return std::none_of(writers.begin(), writers.end(), [](const json& w) { return w.value("alive", false); });
  });
}

void OtherNodes::end_spread() {
  const auto datasets = ledger_.outputs;
  for (const auto& d : datasets) {
    if (!d->ownership.owns() || d->over() || d->state == State::failed || !d->shared()) continue;
    for (std::size_t w = 0; w < d->writers.shares.size() && !run_.peers->missed_any(); ++w) {
      auto& share = d->writers.shares[w];
      const auto uid = share.journal != 0 ? share.journal : d->writers.slots[w].journal.load();
      if (ledger_.journal_of(uid) == nullptr) share.lose();
    }
    if (auto done = shared_.end_if_all_over(d); !done) writer_.fail(*d, std::move(done).error());
  }
}

void OtherNodes::announce_rest() {
  auto names = run_.files.list(run_.stage.datasets());
  if (!names) return;
  for (const auto& name : *names) {
    if (name.find_first_of('.') != std::string::npos) continue;
    auto shared_state = run_.stage.open_state(name);
    if (!shared_state || !run_.peers->own(**shared_state)) continue;
    const DatasetId id{name, (*shared_state)->journal, (*shared_state)->number};
    const auto it =
        std::find_if(ledger_.elsewhere.begin(), ledger_.elsewhere.end(), [&id](const auto& d) { return d->id == id; });
    if (it != ledger_.elsewhere.end() && (*it)->ownership.is_announced()) continue;
    run_.peers->announce(id, **shared_state);
    if (it != ledger_.elsewhere.end()) {
      (*it)->ownership.note_announced();
      continue;
    }
    auto d = ledger_.entry_of(name, std::move(shared_state).value());
    d->ownership.note_announced();
    ledger_.outputs.push_back(d);
    ledger_.elsewhere.push_back(d);
  }
}

bool OtherNodes::agreed_on_end() {
  const bool own = std::all_of(ledger_.outputs.begin(), ledger_.outputs.end(),
                               [](const auto& d) { return d->over() || d->is_elsewhere(); });
  run_.peers->final(own && !run_.not_durable, snapshot(true));
  if (!run_.peers->all_final()) return false;
  look_at_owners();  // what they have told before that
  return true;
}

}  // namespace advectio
