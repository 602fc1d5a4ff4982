#include "server/urgency.h"

#include <algorithm>
#include <utility>

#include "server/coupled.h"
#include "server/live.h"

namespace advectio {

namespace {

constexpr std::uint64_t urgencies_every_ns = 2'000'000;
/// A process that waits notes the time more often than that (SharedState::waited_ns).
constexpr std::uint64_t waited_recently_ns = 200'000'000;

bool has_something(const SharedState& s) {
  return s.synced.load(std::memory_order_acquire) > s.visible.load(std::memory_order_acquire) &&
         journal::state_of(s) == DatasetState::in_flight;
}

}  // namespace

Urgency Urgencies::of(const Output& d) const {
  if (d.is_further() || !d.shared_state) return Urgency::normal;
  if (run_.live && run_.live->is_wanted(d)) return Urgency::waited;
  return of(d.state_name, *d.shared_state, d.policy);
}

Urgency Urgencies::of(const std::string& name, const SharedState& shared_state, const DatasetPolicy& policy) const {
  const bool promised = policy.promise != Promise::staged && has_something(shared_state);
  const auto waited_ns = shared_state.waited_ns.load(std::memory_order_relaxed);
  if (promised || (waited_ns != 0 && waited_ns + waited_recently_ns > monotonic_ns())) return Urgency::waited;
  if (run_.live && run_.live->is_wanted(std::string(shared_state.path))) return Urgency::waited;
  if (policy.priority == Priority::high) return Urgency::high;
  return run_.awaited_by_markers.contains(name) ? Urgency::marker : Urgency::normal;
}

Urgency Urgencies::most() {
  // A commit may have written the most urgent dataset.
  const bool news = most_ != Urgency::normal && run_.commits != commits_seen_;
  if (const auto now = monotonic_ns(); news || now >= look_again_ns_) {
    commits_seen_ = run_.commits;
    look();
    look_again_ns_ = now + std::max(urgencies_every_ns, run_.options.urgencies_share * (monotonic_ns() - now));
  }
  return most_;
}

void Urgencies::look() {
  most_ = Urgency::normal;
  markers_.look(monotonic_ns());
  const auto names = run_.files.list(run_.stage.datasets());
  if (!names) return;
  for (auto& [name, dataset] : datasets_) dataset.seen = false;
  for (const auto& name : *names) {
    if (name.find('.') != std::string::npos) continue;
    auto it = datasets_.find(name);
    // A file that goes leaves its inode, and so this name, to the next.
    if (it != datasets_.end() && journal::has_ended(*it->second.shared_state)) {
      datasets_.erase(it);
      it = datasets_.end();
    }
    if (it == datasets_.end()) {
      auto shared_state = run_.stage.open_state(name);
      if (!shared_state || (*shared_state)->output > 0 || ledger_.is_over(**shared_state)) continue;
      auto policy = run_.coupled->policy((*shared_state)->path);
      it = datasets_.insert({name, Dataset{std::move(shared_state).value(), std::move(policy)}}).first;
    }
    it->second.seen = true;
  }
  std::erase_if(datasets_, [](const auto& x) { return !x.second.seen; });
  const auto* all = run_.options.transport;
  for (const auto& [name, dataset] : datasets_) {
    const SharedState& s = *dataset.shared_state;
    const bool elsewhere = s.owner != 0 && all != nullptr && s.owner - 1 != all->node();
    if (!elsewhere && has_something(s)) most_ = std::max(most_, of(name, s, dataset.policy));
  }
}

}  // namespace advectio
