#include "server/shared_outputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace advectio {

bool SharedOutputs::make_room(const std::shared_ptr<Output>& d) {
  // Not before their schema: a writer that owes it has a segment for it. Once it is told it must also have been read.
  if (slot_of(*d, 0).schema_pending.load(std::memory_order_acquire) != 0) return false;
  (void)read_on_();
  if (d->over() || d->state == State::failed || !d->schema.written) return false;
  // A file that nobody has changed stays as it is.
  if (d->waits_for_answer() || (OutputWriter::is_untouched(*d) && !d->writers.sequencer->holds_puts())) return false;
  // Before anything is given out of turn: a sink that only commits whole frames would commit it with this one.
  auto ready = writer_.end_commit(d);
  if (ready && d->over()) return true;
  if (ready) ready = writer_.ready_sink(*d);
  if (!ready) {
    writer_.fail(*d, std::move(ready).error());
    return true;
  }
  if (!d->sink->abilities().checkpoints) return false;
  if (auto kept = keep_ends(*d, true); !kept) {
    writer_.fail(*d, std::move(kept).error());
    return true;
  }
  auto step = d->writers.sequencer->next_at_any_price();
  const bool pending = !step;
  if (pending) step = d->writers.sequencer->next_pending();
  if (!step) return false;
  run_.log.info(d->path + (pending ? ": writing requests before they are waited for" : ": writing out of turn") +
                " to make room in the stage");
  Result<void> given;
  for (; given && step;
       step = pending ? d->writers.sequencer->next_pending() : d->writers.sequencer->next_at_any_price())
    given = do_step(d, *step, false);
  auto done = given ? writer_.commit_part(d) : Result<bool>(std::move(given).error());
  if (done) return *done;
  writer_.fail(*d, std::move(done).error());
  return true;
}

Result<void> SharedOutputs::share(Output& d) {
  const auto writers = d.shared_state->writers;
  auto slots = run_.stage.open_slots(d.state_name, writers);
  if (!slots) return std::move(slots).error();
  d.writers.take_up(std::move(slots).value(), writers, d.shared_state->journal);
  if (!d.is_elsewhere() && d.shared_state->closed_sync.load() == ~d.shared_state->visible.load()) d.writers.close_all();
  return take_up_ends(d);
}

/// Ends of records that an earlier server has let others overtake.
Result<void> SharedOutputs::take_up_ends(Output& d) {
  const auto file = run_.stage.datasets() + "/" + d.state_name + journal::ends_suffix;
  if (!run_.files.exists(file)) return {};
  const auto bytes = read_file(run_.files, file);
  auto ends = bytes ? journal::decode_ends(*bytes) : Result<std::vector<journal::RecordEnd>>(Error(bytes.error()));
  if (!ends) {
    run_.report(d.path + ": " + ends.error().message + "; frames that end there become part of the next one");
    return {};
  }
  d.writers.ends_kept = *ends;
  // The earlier one may have died behind the commit of such a frame.
  const auto counted = d.shared_state->frames_counted.load();
  if ((counted & journal::counted_by_record) != 0)
    std::erase_if(*ends, [counted](const journal::RecordEnd& end) {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(counted - end.sequence)) >= 0;
    });
  d.writers.sequencer->remember(*ends);
  return {};
}

/// The next server finds where records end that others have overtaken: what is committed leaves the journals. `ahead`:
/// before others overtake them.
Result<void> SharedOutputs::keep_ends(Output& d, bool ahead) {
  auto ends = d.writers.sequencer->overtaken(ahead);
  if (ends == d.writers.ends_kept) return {};
  const auto file = run_.stage.datasets() + "/" + d.state_name + journal::ends_suffix;
  auto kept = ends.empty() ? run_.files.remove(file) : replace_file(run_.files, file, journal::encode(ends));
  if (kept) d.writers.ends_kept = std::move(ends);
  return kept;
}

Result<void> SharedOutputs::advance(const std::shared_ptr<Output>& d, bool verify, const std::function<bool()>& stop) {
  // One record may make a whole frame's blocks ready.
  constexpr std::uint64_t at_once = 1024;
  for (std::uint64_t steps = 1; !d->over(); ++steps) {
    // Before anything else is taken from the sequencer: what that has given counts as committed.
    ADVECTIO_TRY(writer_.end_commit(d));
    if (d->over()) return {};
    const auto step = d->writers.sequencer->next();
    if (!step) return {};
    ADVECTIO_TRY(do_step(d, *step, verify));
    if ((number(step->sync_index) != 0 || d->commit) && stop()) return {};
    if (steps % at_once != 0) continue;
    run_.forward(false);
    run_.answer();
  }
  return {};
}

Result<void> SharedOutputs::do_step(const std::shared_ptr<Output>& d, const CollectiveSequencer::Step& step,
                                    bool verify) {
  if (number(step.sync_index) != 0) return end_sync(d, step);
  const Record& r = step.parts[0].record;
  switch (r.type) {
    case RecordType::schema: return writer_.on_schema(*d, r);
    case RecordType::put:
      // Nobody will tell the schema.
      if (!d->schema.written && d->writers.any_aborted()) return {};
      return writer_.on_put(*d, r, verify);
    case RecordType::sync:
      if (CollectiveSequencer::ends_record(r)) return end_record(d, r);
      if ((r.flags & journal::flag_implicit) == 0) return {};
      return let_read(d, step.parts[0].writer, r.sequence);
    case RecordType::close: return {};  // taken before its time: the last of the others ends the dataset
    default: return Error{Code::corrupt, std::string("a ") + journal::name_of(r.type) + " record out of place", 0};
  }
}

/// Its process lives, as far as this server knows.
bool SharedOutputs::lives(const Output& d, std::size_t writer) const {
  const auto& share = d.writers.shares[writer];
  if (share.over()) return false;
  const auto its = std::find_if(ledger_.journals.begin(), ledger_.journals.end(), [&share](const auto& j) {
    return j.second->reader && j.second->reader->journal() == share.journal;
  });
  return its == ledger_.journals.end() || its->second->reader->writer_alive();
}

/// A writer waits until it can read what was put before that record, also in the midst of a frame.
/// Nobody waits if the writer has gone. Then no part of a frame is committed.
Result<void> SharedOutputs::let_read(const std::shared_ptr<Output>& d, std::size_t writer, std::uint64_t sequence) {
  if (!lives(*d, writer)) return {};
  if (OutputWriter::is_untouched(*d))
    d->writers.note_commit();  // after a restart the record must not come again, behind later puts
  else
    ADVECTIO_TRY(writer_.commit_part(d));
  d->writers.slots[writer].read.store(sequence, std::memory_order_release);
  run_.forward(true);
  return {};
}

/// Writer 0 has gone on to its next record, and the others have made the collective calls before that one.
Result<void> SharedOutputs::end_record(const std::shared_ptr<Output>& d, const Record& r) {
  if (d->is_further()) d->shared_state->frames_synced.fetch_add(1, std::memory_order_relaxed);
  d->progress.sync_frame(++d->progress.frames_ended);
  const auto sync = journal::decode_sync(r.meta);  // not there where blocks behind it were written first
  d->figures.stall.note(true, sync && !d->is_further() ? seconds(sync->stall_ns) : 0);
  Commit what{0, r.time_ns};
  what.record = r.sequence;
  what.then = [this, &o = *d]() -> Result<void> {
    o.progress.partial = false;
    (void)keep_ends(o, false);  // the shared state says as much, up to the next sync
    return {};
  };
  return writer_.begin_commit(d, std::move(what));
}

/// Every writer has synced, closed or aborted.
Result<void> SharedOutputs::end_sync(const std::shared_ptr<Output>& d, const CollectiveSequencer::Step& step) {
  // What all have synced before is committed by now; the rest is dropped.
  if (std::any_of(step.parts.begin(), step.parts.end(),
                  [](const auto& part) { return part.record.type == RecordType::abort; }))
    return end_aborted(*d);
  ADVECTIO_TRY(keep_ends(*d, false));
  bool frame = false, closed = true;
  std::uint64_t stall_ns = 0, synced_ns = 0;
  for (const auto& part : step.parts) {
    auto sync = journal::decode_sync(part.record.meta);
    if (!sync) return std::move(sync).error();
    frame = frame || sync->frame > 0;
    closed = closed && part.record.type == RecordType::close;
    stall_ns = std::max(stall_ns, sync->stall_ns);
    synced_ns = std::max(synced_ns, part.record.time_ns);
  }
  if (d->is_further()) {
    d->shared_state->frames_synced.fetch_add(frame ? 1 : 0, std::memory_order_relaxed);
    d->shared_state->synced.store(number(step.sync_index), std::memory_order_release);
    stall_ns = 0;
  }
  if (frame) d->progress.sync_frame(++d->progress.frames_ended);
  d->figures.stall.note(frame, seconds(stall_ns));
  if (closed) {
    d->become(State::closed);
    d->writers.close_all();  // whose record was taken before its time, perhaps by an earlier server
    d->shared_state->closed_sync.store(~number(step.sync_index), std::memory_order_release);
  }
  if (!frame && OutputWriter::is_untouched(*d)) {
    writer_.pass_untouched(*d, number(step.sync_index));
    if (closed) writer_.end(*d, State::finished);
    return {};
  }
  Commit what{number(step.sync_index), frame ? synced_ns : 0};
  what.then = [this, &o = *d, closed]() -> Result<void> {
    o.progress.partial = false;
    return closed ? writer_.finish(o.shared_from_this()) : Result<void>{};
  };
  return writer_.begin_commit(d, std::move(what));
}

/// The ranks abort a dataset together. One alone does so where it has no memory to close it.
Result<void> SharedOutputs::end_aborted(Output& d) {
  if (d.shared_state->frames_synced.load() > d.shared_state->frames_visible.load())
    run_.report(d.path + ": a rank has given it up, for want of memory; frames that others have synced are lost");
  return writer_.on_abort(d);
}

/// It was about to enter, has said so in its slot, and died before it could say it in its journal.
bool SharedOutputs::died_before_entering(Output& d, std::size_t w) {
  const auto uid = slot_of(d, w).journal.load(std::memory_order_acquire);
  if (uid == 0 || d.ownership.is_spread()) return false;
  const auto names = run_.files.list(run_.stage.journals());
  if (!names) return false;
  for (const auto& name : *names) {
    if (name[0] == '.') continue;  // of one that has never begun
    const auto it = ledger_.journals.find(name);
    if (it == ledger_.journals.end()) return false;  // it may be that one
    const Journal& j = *it->second;
    if (!j.reader || j.broken()) continue;
    if (j.reader->journal() != uid) continue;
    return j.over() &&
           std::none_of(j.datasets.begin(), j.datasets.end(), [&d](const auto& x) { return x.second.get() == &d; });
  }
  return true;
}

void SharedOutputs::look_around() {
  const auto datasets = ledger_.outputs;
  for (const auto& d : datasets) {
    if (!d->shared() || d->is_elsewhere() || d->over() || d->state == State::failed) continue;
    bool news = d->writers.all_closed();
    for (std::size_t w = 0; w < d->writers.shares.size(); ++w) {
      if (d->writers.shares[w].over() || !died_before_entering(*d, w)) continue;
      d->writers.shares[w].lose();
      news = true;
    }
    if (!news) continue;
    if (auto done = end_if_all_over(d); !done) writer_.fail(*d, std::move(done).error());
  }
}

bool SharedOutputs::all_writers_over(Output& d) {
  for (std::size_t w = 0; w < d.writers.shares.size(); ++w)
    if (!d.writers.shares[w].over() &&
        (slot_of(d, w).journal.load(std::memory_order_acquire) != 0 ||
         (d.ownership.is_spread() && (!run_.peers->all_quiet() || run_.peers->missed_any()))))
      return false;  // on another node it may only not have been heard of
  return true;
}

Result<void> SharedOutputs::end_if_all_over(const std::shared_ptr<Output>& d) {
  if (d->over() || d->postponed || !all_writers_over(*d)) return {};
  if (d->writers.all_closed()) return writer_.finish(d);
  if (d->writers.any_aborted()) return end_aborted(*d);
  writer_.drop_rest(*d, "(one of several)");
  return {};
}

WriterSlot& SharedOutputs::slot_of(Output& d, std::size_t writer) {
  if (!d.is_further()) return d.writers.slots[writer];
  if (!d.further.program_slots)
    for (const auto& other : ledger_.outputs)
      if (!other->is_further() && other->shared() && other->shared_state &&
          other->shared_state->journal == d.shared_state->journal &&
          other->shared_state->number == d.shared_state->number)
        if (auto slots = run_.stage.open_slots(other->state_name, other->shared_state->writers))
          d.further.program_slots = std::move(slots).value();
  // That one is over: every writer has closed it, and its records say all.
  return d.further.program_slots ? d.further.program_slots[writer] : d.writers.slots[writer];
}

}  // namespace advectio
