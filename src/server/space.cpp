#include "server/space.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "journal/mirror.h"
#include "journal/spill.h"
#include "platform/machine.h"

namespace advectio {

namespace {

constexpr std::uint64_t needy_for_ns = 10'000'000;    // longer than it takes to make a segment
constexpr std::uint64_t burst_pause_ns = 20'000'000;  // a frame under way that has stood still so long is drained
constexpr std::uint64_t burst_max_ns = 3'000'000'000;

/// True when fewer threads want to run than there are cores (/proc/loadavg: "runnable/all").
bool cores_to_spare() {
  std::ifstream in("/proc/loadavg");
  std::string a, b, c, tasks;
  if (!(in >> a >> b >> c >> tasks)) return true;
  return std::strtoul(tasks.c_str(), nullptr, 10) < usable_cores();
}

}  // namespace

void Space::make_room() {
  // It may have got one since, unless it is on another node.
  if (run_.stage.free_segments() > 0 && !run_.peers->space_requested()) return;
  bool reclaimed = false;
  for (auto& [name, j] : ledger_.journals) {
    const std::string directory = run_.stage.journals() + "/" + name;
    auto names = run_.files.list(directory);
    if (!names) continue;
    for (const auto& file : *names)
      if (file.rfind("ahead-", 0) == 0 && journal::give_back(run_.stage, directory + "/" + file, file.substr(6)))
        reclaimed = true;
  }
  if (reclaimed) {
    run_.forward(true);
    return;
  }
  if (further_.give_up_failed()) {
    for (auto& [name, j] : ledger_.journals) journal_set_.release(*j);
    return;
  }
  bool any = false;
  for (const auto& d : ledger_.outputs) {
    if (d->over() || d->state == State::failed || d->is_elsewhere() || !d->progress.uncommitted || d->join.sequencer)
      continue;
    // That makes room when it is over.
    if (d->commit) {
      any = true;
      continue;
    }
    if (d->sink && !d->sink->abilities().checkpoints) continue;
    run_.log.info(d->path + ": committing in the midst of a frame to make room in the stage");
    auto done = writer_.commit_part(d);
    any = any || !done || *done;
    if (!done) writer_.fail(*d, std::move(done).error());
  }
  const auto datasets = ledger_.outputs;  // reading on may find new ones
  for (const auto& d : datasets)
    if (!any && d->shared() && !d->is_elsewhere() && !d->over() && d->state != State::failed)
      any = shared_.make_room(d);
  if (!any) any = tiles_.make_room();
  if (!any && !ledger_.elsewhere.empty()) run_.peers->request_space();
  // What would let something go may be behind what there is no room for.
  const bool stuck = !any && run_.peers->held_up() && run_.pool->exhausted();
  if (!stuck || stuck_since_ns_ == 0) stuck_since_ns_ = stuck ? monotonic_ns() : 0;
  if (!stuck) run_.stuck_for_ns = Run::stuck_max_ns;
  if (stuck && monotonic_ns() - stuck_since_ns_ > run_.stuck_for_ns) {
    run_.pool->grow_beyond_cap();
    const auto beyond = run_.stage.control().segments_limit.load() - run_.stage.control().segments_max;
    if (std::has_single_bit(beyond))  // 1, 2, 4, 8 ...
      run_.log.warning("the stage grows beyond its cap by " + std::to_string(beyond) +
                       (beyond == 1 ? " segment" : " segments") + ", as there is no room for what other nodes send");
    stuck_since_ns_ = 0;
    // In vain: the one before has brought nothing on, or time is what it takes.
    const auto activity = run_.stage.control().activity.load();
    const bool in_vain =
        activity == grown_activity_ || std::any_of(ledger_.outputs.begin(), ledger_.outputs.end(),
                                                   [](const auto& d) { return d->state == State::failed; });
    run_.stuck_for_ns = in_vain ? std::min(2 * run_.stuck_for_ns, Run::stuck_longest_ns) : Run::stuck_max_ns;
    grown_activity_ = activity;
  }
  for (auto& [name, j] : ledger_.journals) journal_set_.release(*j);
}

bool Space::needs_room(std::uint64_t now) {
  const auto& control = run_.stage.control();
  const auto relieved = control.relieved_ns.load();
  if (control.starved_ns.load() <= relieved)
    needy_since_ns_ = 0;
  else if (needy_since_ns_ == 0)
    needy_since_ns_ = now;
  return needy_since_ns_ != 0 && now > std::max(needy_since_ns_, relieved) + needy_for_ns;
}

bool Space::has_no_room_to_end(std::uint64_t now) {
  const bool failed = std::any_of(ledger_.outputs.begin(), ledger_.outputs.end(),
                                  [](const auto& d) { return d->state == State::failed; });
  const bool writes = std::any_of(ledger_.journals.begin(), ledger_.journals.end(),
                                  [](const auto& j) { return j.second->alive && !journal::is_mirror(j.first); });
  const bool held_up = run_.peers->held_up() && run_.pool->exhausted();
  const auto steps = failed ? run_.commits : run_.stage.control().activity.load();
  if (!run_.shutdown.draining() || writes || (!held_up && !failed) || steps != held_up_steps_ ||
      held_up_since_ns_ == 0) {
    held_up_steps_ = steps;
    held_up_since_ns_ = now;
    return false;
  }
  return held_up && now - held_up_since_ns_ > run_.options.wait_max_ns;
}

bool Space::give_way(std::uint32_t work, std::uint64_t now) {
  if (work != burst_work_) {
    burst_work_ = work;
    burst_moved_ns_ = now;
  }
  auto& control = run_.stage.control();
  const bool burst = control.bursts.load(std::memory_order_relaxed) > 0 && now - burst_moved_ns_ < burst_pause_ns &&
                     control.starved_ns.load() + starved_recently_ns < now && !run_.shutdown.stopping() &&
                     !cores_to_spare();
  if (!burst) {
    burst_began_ns_ = 0;
    return false;
  }
  if (burst_began_ns_ == 0) burst_began_ns_ = now;
  if (now - burst_began_ns_ > burst_max_ns) return false;
  if (run_.pool && !run_.pool->exhausted()) return true;
  return run_.stage.free_segments() >= 2;
}

}  // namespace advectio
