#include "server/journal_set.h"

#include <algorithm>
#include <utility>

#include "journal/mirror.h"
#include "journal/segments.h"
#include "journal/spill.h"
#include "server/live.h"

namespace advectio {

void JournalSet::look_for_writers() {
  auto names = run_.files.list(run_.stage.journals());
  if (!names) return;
  for (const auto& name : *names) {
    if (name[0] == '.' || ledger_.journals.count(name) > 0) continue;
    auto reader = Reader::open(run_.files, run_.stage.journals() + "/" + name, run_.trust_in(name));
    if (!reader) {
      run_.log.error(reader.error().message);
      run_.errors.push_back(reader.error().message);
      auto broken = std::make_unique<Journal>();
      broken->name = name;
      broken->break_off();
      broken->alive = false;
      ledger_.journals[name] = std::move(broken);
      continue;
    }
    auto j = std::make_unique<Journal>();
    j->name = name;
    j->reader = std::move(reader).value();
    for (auto& [key, d] : ledger_.taken_up)
      if (key.first == j->reader->journal()) {
        if (!d->shared() || d->writers.shares[0].journal == key.first) d->writer = name;
        attach(*j, key.second, d);
      }
    run_.any_writer = true;
    run_.log.info("writer " + name + " (" + j->reader->writer().command + ")");
    ledger_.journals[name] = std::move(j);
  }
}

bool JournalSet::close(const std::function<bool(const Journal&)>& over) {
  if (run_.stage.closed()) return true;
  return run_.stage.close([&] {
    look_for_writers();
    return std::all_of(ledger_.journals.begin(), ledger_.journals.end(),
                       [&over](const auto& j) { return journal::is_mirror(j.first) || over(*j.second); });
  });
}

void JournalSet::release(Journal& j) {
  if (!j.reader) return;
  while (!j.reader->held().empty()) {
    const auto& oldest = j.reader->held().front();
    if (!oldest.done && !j.over()) return;
    // What was sent may be known to be in the file, from before a restart, and yet be under way once more.
    if (run_.peers->unsent(j.reader->journal()) <= oldest.last_sequence) return;
    if (!j.loads.empty() && j.loads.front().index == oldest.index) {
      for (const auto& [number, last] : j.loads.front().last) {
        const auto [from, end] = j.datasets.equal_range(number);
        for (auto it = from; it != end; ++it)
          if (!it->second->over() && !durability_.is_done_with(*it->second, j.reader->journal(), last)) return;
      }
      j.loads.pop_front();
    }
    if (oldest.is_leased() || may_be_mapped(oldest.segment)) {
      auto parked = j.reader->park_oldest(run_.stage);
      if (!parked) return run_.log.warning("park a segment: " + parked.error().message);
      if (*parked) parked_.push_back(std::move(**parked));
      continue;
    }
    if (auto r = j.reader->release_oldest(run_.stage, true); !r) {
      run_.log.warning("recycle a segment: " + r.error().message);
      return;
    }
    run_.forward(true);
  }
}

/// Readers of the server before may look at it: its memory is not used again.
bool JournalSet::may_be_mapped(const std::string& segment) const {
  return run_.live && run_.live->may_be_mapped(segment);
}

void JournalSet::recycle_parked(bool short_of_room) {
  std::erase_if(parked_, [&](Reader::Parked& p) {
    const bool leased = p.is_leased();
    if (leased && !short_of_room) return false;
    if (leased || may_be_mapped(p.segment)) {
      if (!run_.files.remove(p.path)) return false;
      journal::uncount_segments(run_.stage.control(), 1);
    } else {
      p.mapping.reset();
      if (auto r = run_.files.rename(p.path, run_.stage.pool() + "/" + p.segment); !r)
        run_.log.warning("recycle a segment: " + r.error().message);
    }
    run_.forward(true);
    return true;
  });
}

void JournalSet::forget_journals() {
  for (auto it = ledger_.journals.begin(); it != ledger_.journals.end();) {
    Journal& j = *it->second;
    bool needed = !j.over();
    for (const auto& [number, d] : j.datasets) needed = needed || !d->over();
    if (needed) {
      ++it;
      continue;
    }
    release(j);
    if (!j.reader->held().empty()) {
      ++it;
      continue;
    }
    journal::free_journal(run_.stage, j.name);
    run_.forward(true);
    it = ledger_.journals.erase(it);
  }
}

void JournalSet::attach(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d) {
  j.datasets.insert({number, d});
  if (!d->over() && !d->is_further() && !d->is_elsewhere()) d->file.mark_as_ours();
  if (d->shared())
    j.shared.push_back(d);
  else if (d->policy.join && !d->is_further() && !d->is_tile() && !d->is_elsewhere() && !d->over())
    tiles_.gather(d);
}

Result<std::unique_ptr<Reader>> JournalSet::read_again(const Journal& j) {
  auto again = Reader::open(run_.files, run_.stage.journals() + "/" + j.name, run_.trust_in(j.name));
  if (again && !j.alive) (*again)->set_writer_gone();
  return again;
}

}  // namespace advectio
