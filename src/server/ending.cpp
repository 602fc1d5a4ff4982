#include "server/ending.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "journal/hard_link.h"
#include "journal/mirror.h"

namespace advectio {

namespace {
constexpr auto retry_pause = std::chrono::milliseconds(100);  // of a disk that refuses to take back what was begun
constexpr std::uint64_t last_chance_every_ns = 200'000'000;
}  // namespace

bool Ending::may_leave() {
  journal_set_.look_for_writers();
  bool rest = std::any_of(ledger_.outputs.begin(), ledger_.outputs.end(),
                          [](const auto& d) { return d->state == State::failed; });
  for (const auto& [name, j] : ledger_.journals) {
    if (j->reader && j->reader->writer_alive()) return false;
    // A dataset of which nothing has been read would be missing in the summary.
    if (!j->begun() && !run_.in_debt()) return false;
    rest = rest || !j->is_read();
  }
  return rest && journal_set_.close([](const Journal& j) { return !j.reader || !j.reader->writer_alive(); });
}

void Ending::leave() {
  for (auto& d : ledger_.outputs)
    if (!d->over() && d->sink) d->sink->abandon();
  auto safe = run_.stage.make_durable();
  if (safe) {
    run_.shutdown.rest = Shutdown::Rest::on_disk;
    return;
  }
  const auto text = "what is staged could not be made durable: " + safe.error().message;
  run_.report(text);
}

bool Ending::finished() {
  const auto now = monotonic_ns();
  const bool idle_end = run_.options.exit_when_idle_s >= 0 &&
                        seconds(now - run_.last_writer_ns) > run_.options.exit_when_idle_s &&
                        (run_.any_writer || seconds(now - run_.started_ns) > 60) && nodes_.others_idle();
  if (!run_.shutdown.draining() && !run_.options.recover && !idle_end) return false;
  const auto over = [](const Journal& j) { return !j.alive && j.is_read(); };
  for (const auto& [name, j] : ledger_.journals)
    if (!journal::is_mirror(name) && !over(*j)) return false;
  // Either we see who has just begun to write, or it sees that nobody serves it any more.
  if (!journal_set_.close(over)) return false;
  if (run_.has_other_nodes()) {
    run_.peers->drain();
    if (!run_.peers->is_quiet()) nodes_.announce_rest();
    run_.peers->quiet();
    if (!run_.peers->all_quiet()) return false;
    journal_set_.look_for_writers();
  }
  for (const auto& [name, j] : ledger_.journals)
    if (j->alive || !j->is_read()) return false;
  nodes_.end_spread();
  if (!durability_.is_idle()) return false;
  end_orphans();
  // Whatever failed gets a last chance; while it is waited for other nodes one from time to time. What
  // fails within that gets no other at once: a retry leaves files to be made durable, and the end waits
  // for those.
  const bool news =
      !reported_end_ && std::any_of(ledger_.outputs.begin(), ledger_.outputs.end(), [this](const auto& d) {
        return d->state == State::failed && d->trouble.failed_at_ns > last_chance_ns_;
      });
  if (news || now - last_chance_ns_ > last_chance_every_ns) {
    retry_failed_(true);
    last_chance_ns_ = monotonic_ns();
  }
  remove_left_behind();
  if (tiles_.end_wholes()) return false;
  journal_set_.forget_journals();
  if (!durability_.is_idle()) return false;
  reported_end_ = true;
  if (run_.has_other_nodes() && !nodes_.agreed_on_end()) return false;
  // All datasets have ended, so that no program holds back another marker; or they stay in the stage, and so do notes.
  return markers_.settle();
}

/// Shared states of which no journal speaks: their writer died between registering the dataset and its first record, or
/// an earlier server died between the end of the journal and the end of the shared state.
void Ending::end_orphans() {
  auto names = run_.files.list(run_.stage.datasets());
  if (!names) return;
  for (const auto& name : *names) {
    if (name.find_first_of('.') != std::string::npos) continue;
    auto shared_state = run_.stage.open_state(name);
    if (!shared_state) continue;
    if ((*shared_state)->tiles > 0) continue;
    if ((*shared_state)->owner != 0 && end_of(**shared_state)) continue;
    if (run_.peers->own(**shared_state)) continue;
    // It has a journal on another node, of which there was no room to take what it says.
    if ((*shared_state)->owner != 0 && run_.peers->missed_any()) continue;
    const auto uid = (*shared_state)->journal;
    const DatasetId id{name, uid, (*shared_state)->number};
    const auto ended = [&id](const auto& d) { return d->over() && d->id == id; };
    if (std::any_of(ledger_.outputs.begin(), ledger_.outputs.end(), ended)) continue;  // see Ledger::LeftBehind
    std::vector<std::uint64_t> writers{uid};
    if (auto slots = run_.stage.open_slots(name, (*shared_state)->writers); slots && (*shared_state)->writers > 0)
      for (std::uint32_t w = 0; w < (*shared_state)->writers; ++w) writers.push_back((*slots)[w].journal.load());
    // All of them have been read to the end: one that has not named it never will.
    const bool followed = std::any_of(ledger_.journals.begin(), ledger_.journals.end(), [&](const auto& x) {
      const Journal& j = *x.second;
      return j.reader && std::find(writers.begin(), writers.end(), j.reader->journal()) != writers.end() &&
             (j.broken() ||
              std::any_of(j.datasets.begin(), j.datasets.end(), [&id](const auto& d) { return d.second->id == id; }));
    });
    if (followed) continue;
    const auto there =
        std::find_if(ledger_.outputs.begin(), ledger_.outputs.end(), [&id](const auto& d) { return d->id == id; });
    auto d = there != ledger_.outputs.end() ? *there : nullptr;
    if (!d) {
      d = ledger_.entry_of(name, std::move(shared_state).value());
      ledger_.outputs.push_back(d);
      ledger_.taken_up.insert({{uid, d->number}, d});
    }
    if (d->over() || d->is_tile()) continue;
    if (run_.power_lost) {
      if (d->state != State::failed) writer_.drop_rest(*d, "(whose journal had not been made durable)");
      continue;
    }
    if (auto done = writer_.take_back(*d); !done) {
      writer_.fail(*d, std::move(done).error());
      continue;
    }
    writer_.end(*d, journal::has_commits(*d->shared_state) || d->continues_file() ? State::finished : State::dropped);
  }
}

void Ending::remove_left_behind() {
  std::erase_if(ledger_.left_behind, [this](const Ledger::LeftBehind& left) {
    const Output& d = *left.dataset;
    if (!left.is_as_it_was && run_.files.exists(d.file.link))  // what its sink could not remove
      if (const auto done = writer_.bring_to_last_commit(d); !done && done.error().sys != 0) return false;
    if ((d.hidden || d.has_no_file()) && !writer_.remove_placeholder(d)) return false;
    if (!writer_.remove_hard_link(d)) return false;
    run_.stage.remove_dataset(d.state_name, left.journal, left.number);
    return true;
  });
}

void Ending::look_at_stage() {
  if (run_.shutdown.stage_gone || run_.stage.there()) return;
  run_.shutdown.stage_gone = true;
  const std::string text =
      "the stage " + run_.stage.directory() + " has been removed: what was in it and in no file is lost";
  run_.report(text);
}

void Ending::leave_all_at_last_commit() {
  std::vector<std::shared_ptr<Output>> begun;
  for (const auto& d : ledger_.outputs) {
    if (d->over() || d->is_elsewhere() || d->is_tile()) continue;
    if (d->state != State::failed) writer_.fail(*d, Error{Code::gone, "the stage has been removed", EIO});
    begun.push_back(d);
  }
  const auto until = monotonic_ns() + run_.options.wait_max_ns;
  for (bool warned = false;;) {
    std::string refused;
    std::erase_if(begun, [&](const auto& d) {
      const auto done = writer_.bring_to_last_commit(*d);
      if (!done) refused = done.error().message;
      return done.ok();
    });
    if (begun.empty()) return;
    if (run_.shutdown.stopping() || monotonic_ns() > until) break;
    if (!std::exchange(warned, true))
      run_.log.warning("the disk refuses to take back what was begun (" + refused + "); it is tried again");
    std::this_thread::sleep_for(retry_pause);
  }
  for (const auto& d : begun) {
    const auto text = d->path + ": to the end the disk has refused to take back what was begun after frame " +
                      std::to_string(d->progress.frames_visible) +
                      "; what comes after that frame in it is not to be trusted";
    run_.report(text);
  }
}

bool Ending::all_done() const {
  bool clean = !run_.not_durable && !run_.shutdown.stage_gone && !run_.state_damaged && !run_.output_lost &&
               ledger_.left_behind.empty();
  clean = clean && !markers_.any() && !run_.peers->missed_any() && run_.shutdown.rest != Shutdown::Rest::with_others;
  for (const auto& [name, j] : ledger_.journals) clean = clean && j->at_end();
  for (const auto& d : ledger_.outputs) clean = clean && d->over();
  // One that is stopped has not looked for what no journal speaks of (end_orphans).
  return clean && !(run_.shutdown.stopping() && any_in_flight());
}

bool Ending::any_in_flight() const {
  const auto names = run_.files.list(run_.stage.datasets());
  return names && std::any_of(names->begin(), names->end(), [this](const std::string& name) {
           if (name.find('.') != std::string::npos) return false;
           const auto shared_state = run_.stage.open_state(name);
           return !shared_state || !end_of(**shared_state);
         });
}

}  // namespace advectio
