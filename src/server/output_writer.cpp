#include "server/output_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "journal/hard_link.h"
#include "server/coupled.h"
#include "server/events.h"
#include "server/held_markers.h"
#include "server/live.h"
#include "workflow/workflow.h"

namespace advectio {
namespace {

/// Before `sequence` is visible: `frames` will be.
void count_frames(SharedState& shared_state, std::uint64_t frames, std::uint64_t sequence, std::uint64_t by = 0) {
  shared_state.frames_counted.store(by | frames << 32U | (sequence & UINT32_MAX), std::memory_order_release);
  shared_state.frames_visible.store(frames, std::memory_order_relaxed);
}

std::uint64_t bytes_below(const std::string& directory) {
  std::uint64_t bytes = 0;
  std::error_code failed;
  for (std::filesystem::recursive_directory_iterator it(directory, failed), end; !failed && it != end;
       it.increment(failed))
    if (const auto size = it->is_regular_file(failed) ? it->file_size(failed) : 0; !failed) bytes += size;
  return bytes;
}

}  // namespace

/// The disk has refused what is committed, and nobody knows what it holds: all since the last time it did not is
/// written again.
void OutputWriter::lose_durable(Output& d, const Error& error) {
  d.progress.back_to_durable();
  count_frames(*d.shared_state, d.progress.frames_visible, d.progress.visible);
  journal::set_visible(*d.shared_state, d.progress.visible);
  fail(d, error);
}

/// What the durable thread has done, into the ledger.
void OutputWriter::collect_durable() {
  for (auto& x : durability_.collect()) {
    Output& d = *x.output;
    if (!x.result) {
      if (durability_.is_kept(d) && !d.over()) {
        if (d.state != State::failed) lose_durable(d, std::move(x.result).error().with("make durable"));
        continue;
      }
      const std::string text = d.path + ": make durable: " + x.result.error().message;
      run_.report(text);
      run_.not_durable = true;
      run_.events->say_not_durable(d, "make durable: " + x.result.error().message);
      if (d.shared_state) {
        report_error(d, x.result.error());
        d.shared_state->errors.fetch_add(1, std::memory_order_release);
      }
      if (x.last) end(d, State::finished);
      run_.forward(true);
      continue;
    }
    // Of before it failed; what is written since is another matter.
    if (d.state == State::failed && durability_.is_kept(d)) continue;
    d.progress.note_durable(x.sequence, x.frames);
    if (d.shared_state) d.shared_state->durable.store(x.sequence, std::memory_order_release);
    if (x.last) end(d, State::finished);
    if (d.promises_durable() || run_.survives_power) run_.forward(true);
    for (const auto at : x.synced)
      if (at != 0) d.figures.to_durable.add(seconds(x.at_ns - std::min(x.at_ns, at)));
    run_.events->look(d);
  }
}

/// A record of a dataset that one process writes.
Result<void> OutputWriter::act(const std::shared_ptr<Output>& d, const Record& r, bool verify) {
  ADVECTIO_TRY(end_commit(d));
  d->progress.seen = r.sequence;
  switch (r.type) {
    case RecordType::schema: return on_schema(*d, r);
    case RecordType::put: return on_put(*d, r, verify);
    case RecordType::sync: return on_sync(d, r);
    case RecordType::close: return on_close(d, r);
    case RecordType::abort: return on_abort(*d);
    case RecordType::settle:
    case RecordType::enter:
    case RecordType::create: break;
  }
  return Error{
      Code::corrupt,
      "record " + std::to_string(r.sequence) + " is of unknown type " + std::to_string(static_cast<int>(r.type)), 0};
}

Result<void> OutputWriter::on_schema(Output& d, const Record& r) {
  if (auto whole = journal::verify_payload(r); !whole) return whole;
  auto asked = decode_schema(r.payload);
  if (!asked) return std::move(asked).error();
  const bool waits = d.waits_for_answer(), first = !d.schema.asked;
  auto stored = store_schema(d, *asked);
  if (waits) {
    answer(d, std::move(stored));
    return {};
  }
  // The file holds that schema.
  if (stored && first && journal::continues_file_of_others(*d.shared_state) && d.shared_state->changed.load() == 0)
    d.progress.uncommitted = false;
  return stored;
}

/// The program has opened a file that others have made, and told its schema. Can a sink go on with it?
void OutputWriter::answer(Output& d, Result<void> stored) {
  const auto can = [&]() -> Result<void> {
    if (!stored) return std::move(stored);
    // The word may have been lost, and nobody waits for it now.
    if (run_.power_lost) return {};
    ADVECTIO_TRY(is_its_file(d));
    ADVECTIO_TRY(is_as_it_was(d));
    if (d.policy.format.value_or(d.format) != d.format ||
        d.schema.written->variables.size() != d.schema.asked->variables.size())
      return Error{Code::unsupported, "the config asks for another format, or for some of its variables", 0};
    spare_descriptors(d);
    auto request = sink_request(d, true);
    request.made_by_others = true;
    auto sink = run_.sinks(request);
    if (!sink) return std::move(sink).error();
    auto holds = (*sink)->holds(*d.schema.written);
    (*sink)->abandon();
    return holds;
  }();
  d.progress.uncommitted = false;  // the file holds that schema
  d.hidden = !can;
  if (can)
    ledger_.take_place_of_former(d);
  else
    report_error(d, can.error());
  journal::set_answer(*d.shared_state, can ? journal::TakenUp::yes : journal::TakenUp::no);
  run_.forward(true);
  run_.events->look(d);
}

Result<void> OutputWriter::store_schema(Output& d, const Schema& asked) {
  ADVECTIO_TRY_WITH(take_schema(d, asked), "schema");
  d.progress.uncommitted = true;
  return replace_file(run_.files, run_.stage.datasets() + "/" + d.state_name + ".schema", encode(asked),
                      run_.survives_power);
}

/// What the program has asked for, and how it is written.
Result<void> OutputWriter::take_schema(Output& d, const Schema& asked) {
  run_.config_names.look(asked, d.policy);
  d.sink.declared = false;
  return d.schema.take(asked, d.policy);
}

/// Nothing is written through a name that has come to stand for another file than the program's.
Result<void> OutputWriter::is_its_file(const Output& d) const {
  struct stat st {};
  if (::lstat(d.file.link.c_str(), &st) != 0) {
    const int failed = errno;
    if (!is_away(d)) return system_error("open " + d.file.link, failed);
    auto error = system_error(d.path, failed);
    error.message = journal::is_hard_link(d.file.link)
                        ? "the file is not there, and " + directory_of(journal::without_last_links(d.path)) +
                              " is not the directory in which the program made it; is its file system mounted?"
                        : "the file is not there: it has been removed or renamed, or its file system is not mounted";
    return error;
  }
  const bool any_device = d.ownership.is_spread() || run_.stage.control().nodes > 1 ||
                          (run_.options.recover && journal::is_hard_link(d.file.link));
  const bool same =
      any_device ? st.st_ino == Stage::inode_in(d.state_name) : Stage::state_name(st.st_dev, st.st_ino) == d.state_name;
  if (S_ISREG(st.st_mode) && same) return {};
  return Error{Code::permission, d.file.link + " is no longer the file that the program has made", EACCES};
}

/// Of a file that was there before: nobody else has changed it since the program opened it. Asked before the server
/// does.
Result<void> OutputWriter::is_as_it_was(const Output& d) const {
  if (!d.continues_file() || d.shared_state->changed.load() != 0 || run_.power_lost) return {};
  const auto now = journal::Imprint::of(d.file.link);
  if (!now) return now.error();
  if (*now == journal::Imprint{d.shared_state->bytes_before, d.shared_state->changed_before_ns}) return {};
  return Error{Code::exists,
               "somebody else has changed the file since the program opened it to go on with it; what the program has "
               "put since is not written over that",
               EBUSY};
}

/// NAME and NAME.nc, and a further output of either, have the same name where they become directories.
/// A file that is written again takes the place of what it was.
Result<void> OutputWriter::has_its_store_alone(const Output& d) const {
  if (!d.is_store()) return {};
  const auto store = d.destination();
  for (const auto& o : ledger_.outputs) {
    const bool holds_it = o->over() ? o->state == State::finished && o->path != d.path : static_cast<bool>(o->sink);
    if (o.get() == &d || !o->is_store() || !holds_it || o->destination() != store) continue;
    return Error{Code::exists,
                 store + " is the store of " + (o->is_further() ? o->further.source : o->path) +
                     " already; give one of them another rule, or another name",
                 EEXIST};
  }
  return {};
}

/// True when somebody has removed the file. Its inode may by now be another file's, with a dataset and a shared state
/// of its own.
bool OutputWriter::was_removed(const Output& d) const {
  // What becomes one file with others is the run's own, and a loss of power loses names.
  if (d.is_tile() || d.join.tiles_count > 0 || !d.shared_state || run_.power_lost) return false;
  // It is complete, and may go where its owner wants it. Of a store the server itself removes the program's file.
  if (end_of(*d.shared_state) == State::finished) return false;
  const auto names = journal::look_for_file(*d.shared_state, d.state_name);
  if (names != journal::FileNames::away) return names == journal::FileNames::removed;
  const auto now = run_.stage.open_state(d.state_name);
  return journal::is_hard_link(d.file.link) && now &&
         ((*now)->journal != d.shared_state->journal || (*now)->number != d.shared_state->number);
}

bool OutputWriter::is_away(const Output& d) const {
  return d.shared_state && !run_.power_lost && !was_removed(d) &&
         journal::look_for_file(*d.shared_state, d.state_name) == journal::FileNames::away;
}

Result<void> OutputWriter::ready_sink(Output& d) {
  if (!d.schema.written) {
    Schema empty;
    empty.format = d.policy.format.value_or(d.format);
    d.schema.written = empty;
    d.sink.declared = false;
  }
  if (!d.sink) {
    ADVECTIO_TRY(is_its_file(d));
    ADVECTIO_TRY(is_as_it_was(d));
    ADVECTIO_TRY(has_its_store_alone(d));
    if (run_.survives_power) ADVECTIO_TRY_WITH(durability_.keep_names(d), "make its names durable");
    d.file.lend_permission();
    struct stat st {};
    if (::stat(d.file.link.c_str(), &st) == 0) d.file.system = st.st_dev;
    spare_descriptors(d);
    d.shared_state->changed.store(1, std::memory_order_release);
    auto sink = run_.sinks(sink_request(d, d.file.may_hold_commits()));
    if (!sink) return std::move(sink).error().with("open");
    d.sink.open(std::move(sink).value());
    d.file.note_opened();
    d.frame.begin_again();
  }
  d.sink.used = ++sinks_used_;
  if (!d.sink.declared) {
    ADVECTIO_TRY(d.frame.give_to(*d.sink, *d.schema.written));
    ADVECTIO_TRY_WITH(d.sink->declare(*d.schema.written), "define");
    d.frame.declare(*d.schema.written);
    d.sink.declared = true;
    d.progress.uncommitted = true;
  }
  return {};
}

/// The sink takes up its file again when it is needed.
void OutputWriter::let_go(Output& d) {
  if (d.sink) {
    count_sink(d);
    d.sink->abandon();
    if (is_read(d)) run_.live->note_commit(d, false);
    d.sink.close();
    d.clear_frame();
  }
  d.file.note_commits();
}

/// Each commit under way may open a redo file yet. A quarter of the descriptors is left for readers, journals and the
/// libraries.
bool OutputWriter::is_short_of_descriptors() const {
  const auto held = descriptors_held(), enough = descriptors_max() / 4 * 3;
  if (2 * held < enough) return false;  // each commit has a file that is open
  const auto commits = std::count_if(ledger_.outputs.begin(), ledger_.outputs.end(),
                                     [](const auto& o) { return o->commit.has_value(); });
  return held + static_cast<std::uint64_t>(commits) >= enough;
}

/// A program may have more files open than the server may. Each sink holds one to three descriptors. Before they run
/// out, the sinks used least recently are let go, where they are in no frame. Frames that wait are committed. A commit
/// that is under way is waited for where the other sinks are not enough. `needs`: the output that is about to open
/// some.
void OutputWriter::spare_descriptors(const Output& needs) {
  if (!is_short_of_descriptors()) return;
  let_half_go(needs, [](const Output& o) {
    return !o.commit && !o.frame.begun() && (!o.progress.uncommitted || !o.waiting.empty());
  });
  if (is_short_of_descriptors()) let_half_go(needs, [](const Output& o) { return o.commit && !o.commit->in_midst; });
  if (is_short_of_descriptors()) durability_.await_half();
}

void OutputWriter::let_half_go(const Output& needs, const std::function<bool(const Output&)>& can_be) {
  std::vector<std::shared_ptr<Output>> unused;  // the end of a commit may close an output
  for (const auto& o : ledger_.outputs)
    if (o.get() != &needs && o->sink && o->state == State::open && !o->is_store() && can_be(*o)) unused.push_back(o);
  const auto middle = unused.begin() + static_cast<std::ptrdiff_t>((unused.size() + 1) / 2);
  std::nth_element(unused.begin(), middle, unused.end(),
                   [](const auto& a, const auto& b) { return a->sink.used < b->sink.used; });
  std::for_each(unused.begin(), middle, [this](const std::shared_ptr<Output>& o) {
    auto done = o->commit ? end_commit(o) : o->waiting.empty() ? Result<void>{} : commit(o, {o->progress.seen});
    if (!done) return fail(*o, std::move(done).error());
    if (o->sink && o->state == State::open) let_go(*o);
  });
}

Result<void> OutputWriter::give_block(Output& d, const Block& block) {
  const auto what = "write " + d.schema.written->variables[block.variable].name;
  if (!d.frame.begun()) ADVECTIO_TRY_WITH(d.sink->begin(d.progress.frames_ended + 1), what);
  d.frame.begin();
  Events::note_block(d, block);
  if (d.frame.empty()) d.frame.hold_back(is_read(d) && run_.live->is_wanted(d));
  const auto added = d.frame.add(block, *d.schema.written, d.schema.operators);
  if (!added) return Error(added.error()).with(what);
  return d.frame.holds_back() || !*added ? Result<void>{} : d.frame.give_to(*d.sink, *d.schema.written);
}

Result<void> OutputWriter::on_put(Output& d, const Record& r, bool verify) {
  auto put = journal::decode_put(r.meta);
  if (!put) return std::move(put).error();
  if (verify) ADVECTIO_TRY(journal::verify_payload(r));
  // A loss of power may have taken the answer. The program has put this, so it was yes.
  if (d.waits_for_answer()) {
    journal::set_answer(*d.shared_state, journal::TakenUp::yes);
    d.hidden = false;
  }
  ADVECTIO_TRY(ready_sink(d));
  const auto variable = d.schema.number_of(put->variable);
  if (!variable) return {};
  put->variable = *variable;
  if (put->variable >= d.schema.written->variables.size() ||
      put->box.rank() != d.schema.written->variables[put->variable].dimensions.size())
    return Error{Code::corrupt, "put record " + std::to_string(r.sequence) + " does not fit the schema", 0};
  const auto& v = d.schema.written->variables[put->variable];
  const auto element = size_of(v.type);
  if (put->boxes == 0 && element > 0 && put->box.volume() * element != r.payload.size())
    return Error{Code::corrupt, "put record " + std::to_string(r.sequence) + " has not the bytes its box takes", 0};
  if (put->boxes > 0 && (element == 0 || r.payload.size() % element != 0))
    return Error{Code::corrupt, "put record " + std::to_string(r.sequence) + " has not the bytes its boxes take", 0};
  Block block;
  if (put->boxes > 0) {
    auto layout = run_.layouts.of(*put, r.payload.size() / element);
    if (!layout) return std::move(layout).error().with("put record " + std::to_string(r.sequence));
    block.layout = std::move(layout).value();
  }
  block.variable = put->variable;
  block.box = std::move(put->box);
  block.stride = std::move(put->stride);
  block.data = r.payload.data();
  block.lease = r.lease;
  block.bytes = r.payload.size();
  d.figures.bytes_put += block.bytes;
  d.waiting.count(block.bytes);
  d.progress.uncommitted = true;
  return give_block(d, block);
}

Result<void> OutputWriter::prepare_commit(Output& d, const Commit& what) {
  ADVECTIO_TRY(ready_sink(d));
  ADVECTIO_TRY(d.frame.join());
  if (what.synced_ns != 0 && is_read(d)) run_.live->publish(d, d.progress.frames_ended - 1, what.synced_ns, ledger_);
  ADVECTIO_TRY(d.frame.give_to(*d.sink, *d.schema.written));
  d.frame.note_commit(what.synced_ns != 0);
  return {};
}

Result<void> OutputWriter::begin_commit(const std::shared_ptr<Output>& d, Commit what) {
  ADVECTIO_TRY(end_commit(d));
  spare_descriptors(*d);
  ADVECTIO_TRY(prepare_commit(*d, what));
  if (d->progress.uncommitted) ADVECTIO_TRY_WITH(d->sink->seal(), "commit");
  d->commit = std::move(what);
  // Live readers get frames of all files, and programs get versions of a coupled name, in the order of the program.
  if (run_.coupled->has(*d) || (is_read(*d) && run_.live->is_wanted(*d))) return end_commit(d);
  const auto over = advance_commit(d);
  if (!over) return over.error();
  if (!*over) d->commit->waits_since_ns = monotonic_ns();
  return {};
}

Result<bool> OutputWriter::advance_commit(const std::shared_ptr<Output>& d) {
  if (d->commit && d->progress.uncommitted && !d->sink.has_commit()) {
    auto sealed = d->sink->advance();
    if (!sealed) {
      d->commit.reset();
      return std::move(sealed).error().with("commit");
    }
    charge(*d);
    if (!*sealed) return false;
    if (d->sink.may_commit_elsewhere()) {
      if (is_read(*d)) run_.live->note_commit(*d, true);
      d->sink.begin_commit(
          d->commit->in_midst, [&](auto job) { run_.disk_threads.of(d->file.system).run(std::move(job)); },
          [&run = run_] { run.wake(); });
    }
  }
  if (d->sink.is_committing()) return false;
  ADVECTIO_TRY(end_commit(d));
  return true;
}

Result<void> OutputWriter::end_commit(const std::shared_ptr<Output>& d) {
  if (!d->commit) return {};
  const auto what = std::move(*d->commit);
  d->commit.reset();
  if (what.waits_since_ns != 0) d->figures.busy_ns += monotonic_ns() - what.waits_since_ns;
  if (d->progress.uncommitted) {
    const bool live = is_read(*d);
    if (live) run_.live->note_commit(*d, true);
    auto done = d->sink.has_commit() ? d->sink.end_commit() : what.in_midst ? d->sink->checkpoint() : d->sink->end();
    if (live) run_.live->note_commit(*d, false);
    if (!done) return std::move(done).error().with("commit");
  }
  ADVECTIO_TRY(note_commit(*d, what));
  return what.then ? what.then() : Result<void>{};
}

Result<void> OutputWriter::commit(const std::shared_ptr<Output>& d, Commit what) {
  ADVECTIO_TRY(end_commit(d));
  ADVECTIO_TRY(prepare_commit(*d, what));
  d->commit = std::move(what);
  return end_commit(d);
}

/// It is in the file: whoever asks how far the output is hears of it.
Result<void> OutputWriter::note_commit(Output& d, const Commit& what) {
  auto sequence = what.sequence;
  auto synced = d.waiting.take();
  if (what.synced_ns != 0) synced.push_back(what.synced_ns);
  d.clear_frame();
  if (!what.in_midst) d.frame.begin_again();
  d.progress.uncommitted = false;
  ++run_.commits;
  count_sink(d);
  if (!synced.empty()) {
    d.progress.frames_visible = d.progress.frames_ended;
    if (what.record > 0)
      count_frames(*d.shared_state, d.progress.frames_visible, what.record, journal::counted_by_record);
    else
      count_frames(*d.shared_state, d.progress.frames_visible, sequence);
    if (name_file(run_, d, false)) d.file.note_name();
    if (is_read(d)) run_.live->note_visible(d);
    ADVECTIO_TRY_WITH(run_.coupled->frame(d), "for other programs");
  }
  if (d.shared()) {
    d.writers.note_commit();
    sequence = std::max(sequence, d.shared_state->visible.load());  // 0: in the midst of a sync
  } else {
    d.progress.visible = sequence;
  }
  const auto now = realtime_ns();
  for (const auto at : synced) d.figures.to_visible.add(seconds(now - std::min(now, at)));
  journal::set_visible(*d.shared_state, sequence);
  run_.forward(true);
  run_.events->look(d);
  if (d.policy.durable || d.promises_durable()) {
    auto make = d.sink->make_durable();
    // A file is no use after a loss of power without its name.
    if (d.file.needs_durable_names())
      make = [make = std::move(make), &files = run_.files, path = d.path, link = d.file.link]() -> Result<void> {
        ADVECTIO_TRY(make());
        return journal::make_file_names_durable(files, path, link);
      };
    Events::note_commit(d, sequence);
    durability_.push(d.shared_from_this(), std::move(make), sequence, std::move(synced));
  }
  return {};
}

/// In the midst of a frame.
Result<bool> OutputWriter::commit_part(const std::shared_ptr<Output>& d) {
  ADVECTIO_TRY(end_commit(d));
  ADVECTIO_TRY(ready_sink(*d));
  if (!d->sink->abilities().checkpoints) return false;
  const bool any = d->progress.uncommitted;
  Commit part;
  part.sequence = d->shared() ? 0 : d->join.sequencer ? d->progress.visible : d->progress.seen;
  part.in_midst = true;
  ADVECTIO_TRY(commit(d, std::move(part)));
  d->progress.partial = d->progress.partial || any;
  return true;
}

/// A file of others that the program has opened for writing, and has changed nothing in.
bool OutputWriter::is_untouched(const Output& d) {
  return journal::continues_file_of_others(*d.shared_state) && d.shared_state->changed.load() == 0 && !d.sink &&
         !d.progress.uncommitted && !d.trouble.any();
}

void OutputWriter::pass_untouched(Output& d, std::uint64_t sequence) {
  if (d.shared())
    d.writers.note_commit();
  else
    d.progress.visible = sequence;
  journal::set_visible(*d.shared_state, sequence);
  d.shared_state->durable.store(sequence, std::memory_order_release);
  run_.forward(true);
}

/// `closed_at`: the sequence of that record, where it closes the output.
Result<void> OutputWriter::on_sync(const std::shared_ptr<Output>& d, const Record& r, std::uint64_t closed_at) {
  auto sync = journal::decode_sync(r.meta);
  if (!sync) return std::move(sync).error();
  if (sync->frame == 0 && is_untouched(*d)) {
    pass_untouched(*d, r.sequence);
    if (closed_at != 0 && !goes_on(*d, closed_at)) end(*d, State::finished);
    return {};
  }
  d->progress.end_frame(sync->frame);
  d->progress.sync_frame(sync->frame);
  if (d->is_further()) {
    d->shared_state->frames_synced.store(d->progress.frames_synced, std::memory_order_relaxed);
    d->shared_state->synced.store(r.sequence, std::memory_order_release);
  } else {
    d->figures.stall.note(sync->frame > 0, seconds(sync->stall_ns));
  }
  if (sync->frame > 0 && r.type == RecordType::sync && may_wait(*d, r.sequence)) {
    d->waiting.add(r.time_ns);
    // The sink gets small blocks in their own frame.
    if (d->sink) ADVECTIO_TRY(d->frame.give_to(*d->sink, *d->schema.written));
    // Without its fields, as the frames behind it add to them: a reader that comes now reads the file.
    if (run_.live) run_.live->publish(*d, d->progress.frames_ended - 1, r.time_ns, ledger_);
    d->frame.end_uncommitted();
    d->progress.partial = false;
    return {};
  }
  Commit what{r.sequence, sync->frame > 0 ? r.time_ns : 0};
  what.then = [this, &o = *d, closed_at]() -> Result<void> {
    o.progress.partial = false;
    return closed_at == 0 || goes_on(o, closed_at) ? Result<void>{} : finish(o.shared_from_this());
  };
  return begin_commit(d, std::move(what));
}

/// Frames so small that the commit is most of their cost are committed together, when the program is ahead of us: a
/// later sync is in the journal already. Nobody can tell, except by when he can read them.
bool OutputWriter::may_wait(const Output& d, std::uint64_t sequence) const {
  const auto& control = run_.stage.control();
  const auto bytes_max = std::min<std::uint64_t>(16U << 20U, control.segments_max * control.segment_bytes / 8);
  return !d.is_further() && d.state == State::open &&
         d.shared_state->synced.load(std::memory_order_acquire) > sequence && !d.trouble.any() && !d.shared() &&
         !d.join.sequencer && !d.progress.partial && !d.frame.in_parts() && !run_.coupled->has(d) &&
         !(run_.live && (d.frame.holds_back() || run_.live->is_wanted(d))) && d.waiting.has_room(bytes_max);
}

Result<void> OutputWriter::on_close(const std::shared_ptr<Output>& d, const Record& r) {
  if (journal::reopened_behind(*d->shared_state) >= r.sequence) {
    Record sync = r;
    sync.type = RecordType::sync;
    return on_sync(d, sync);
  }
  return on_sync(d, r, r.sequence);
}

bool OutputWriter::goes_on(const Output& d, std::uint64_t closed_at) const {
  if (!d.is_further()) {
    if (!journal::end_at(*d.shared_state, closed_at)) return true;
    // It may end long before its further outputs come to that record.
    for (const auto& o : ledger_.outputs_of(d))
      if (o->shared_state)
        o->shared_state->reopened.store(journal::reopened_behind(*d.shared_state), std::memory_order_release);
    return false;
  }
  // The program has opened its own file again, and the shared state of that file says so.
  for (const auto& o : ledger_.outputs)
    if (!o->is_further() && o->shared_state && o->shared_state->journal == d.shared_state->journal &&
        o->shared_state->number == d.shared_state->number)
      d.shared_state->reopened.store(journal::reopened_behind(*o->shared_state), std::memory_order_release);
  return journal::reopened_behind(*d.shared_state) >= closed_at;
}

/// Closed, and all of it committed: leave the file as it will be. May be done again after a failure or a death.
Result<void> OutputWriter::finish(const std::shared_ptr<Output>& d) {
  if (d->state == State::ending) return {};
  d->become(State::closed);
  d->whole = true;
  if (is_untouched(*d) || (!d->sink && run_.coupled->is_published(*d))) {
    end(*d, State::finished);
    return {};
  }
  if (!d->sink) ADVECTIO_TRY(commit(d, {d->progress.visible}));
  auto make_durable = d->sink->make_durable();
  const bool live = is_read(*d);
  if (live) run_.live->note_commit(*d, true);
  auto closed = d->sink->close();
  if (live) run_.live->note_commit(*d, false);
  if (!closed) return std::move(closed).error().with("close");
  count_sink(*d);
  ADVECTIO_TRY_WITH(run_.coupled->complete(*d), "for other programs");
  if ((d->promises_durable() && !d->join.sequencer) || durability_.is_kept(*d)) {
    d->become(State::ending);
    Events::note_commit(*d, d->shared_state->visible.load());
    durability_.push(d, std::move(make_durable), d->shared_state->visible.load(), {}, true);
  } else {
    end(*d, State::finished);
  }
  return {};
}

Result<void> OutputWriter::on_abort(Output& d) {
  ADVECTIO_TRY(take_back(d));
  end(d, journal::has_commits(*d.shared_state) || d.continues_file() ? State::finished : State::dropped);
  return {};
}

void OutputWriter::count_sink(Output& d) {
  d.figures.count(d.sink->counters());
  charge(d);
}

void OutputWriter::charge(Output& d) {
  if (d.sink && run_.rate.limited()) run_.rate.spend(d.sink.newly_written());
}

/// `resume`: what the file holds is taken up, as far as it may be.
SinkRequest OutputWriter::sink_request(const Output& d, bool resume) const {
  SinkRequest request{d.is_store() ? d.destination() : d.file.link,
                      d.schema.written ? d.schema.written->format : d.policy.format.value_or(d.format), d.policy,
                      resume};
  request.ordered = run_.survives_power && (d.policy.durable || d.promises_durable());
  request.power_lost = d.file.power_lost();
  if (d.is_store() && d.shared_state) {
    const auto& s = *d.shared_state;
    const auto& file = d.is_further() ? d.further.source : d.path;
    request.owner = file.substr(file.find_last_of('/') + 1) + '/' + d.state_name + '-' + std::to_string(s.journal) +
                    '-' + std::to_string(s.number) + '-' + std::to_string(s.output) + '-' +
                    std::to_string(s.created_ns);
  }
  request.continues = d.continues_file();
  request.wake = [&run = run_] { run.wake(); };
  if (run_.options.disk_threads > 0) request.disk = &run_.disk_threads.of(d.file.system);
  request.together = d.shared() || (d.shared_state && d.shared_state->writers > 0);
  // Of a classic file only what was durable is known to be what it seems; nothing that was put before has been let go.
  if (d.file.power_lost() && !d.progress.any_durable() && !is_hdf5(request.format) && !d.continues_file())
    request.resume = false;
  return request;
}

/// What a failure or a death has left in the midst of a commit nobody may ever take up again.
Result<void> OutputWriter::bring_to_last_commit(const Output& d) {
  if (was_removed(d)) return {};
  if (d.continues_file() && d.shared_state->changed.load() == 0) return {};
  ADVECTIO_TRY(is_its_file(d));
  if (d.is_store() && !run_.files.exists(d.destination())) return {};
  auto sink = run_.sinks(sink_request(d, true));
  if (!sink) return std::move(sink).error();
  (*sink)->abandon();
  return {};
}

/// Drop what is not committed, and know that it is dropped: `abandon` cannot say that the disk has refused.
Result<void> OutputWriter::take_back(Output& d) {
  if (!d.sink && !d.file.may_hold_commits()) return {};
  if (d.sink) d.sink->abandon();
  d.sink.close();
  d.clear_frame();
  d.progress.uncommitted = false;
  auto done = bring_to_last_commit(d);
  // Its process died before it had made the hard link: nothing has ever been written through that.
  const bool begun = journal::has_commits(*d.shared_state) || d.shared_state->synced.load() > 0;
  if (!done && (begun || done.error().code != Code::not_found))
    return std::move(done).error().with("leave it at its last commit");
  return {};
}

void OutputWriter::begin_anew(Output& d) {
  let_go(d);
  d.frame.set_in_parts();
  d.progress.back_to_visible();
}

/// The sink could not do it. What is staged stays staged; the program hears of it at its next sync or close.
void OutputWriter::fail(Output& d, Error error) {
  if (!d.sink && d.file.may_hold_commits() && error.code == Code::corrupt) (void)bring_to_last_commit(d);
  begin_anew(d);
  if (was_removed(d)) return end(d, State::removed);
  const bool last =
      d.state == State::closed && !d.progress.uncommitted;  // nothing but the end of the file was left to do
  const std::string text =
      d.path + (last ? "" : ": frame " + std::to_string(d.progress.frames_visible + 1)) + ": " + error.message;
  const bool again = d.trouble.any();
  const bool known = d.state == State::failed || d.trouble.error.message == error.message;
  d.become(State::failed);
  d.trouble.failed_at_ns = monotonic_ns();
  auto& shared_state = *d.shared_state;
  report_error(d, error);
  if (!known) run_.coupled->trouble(d, error.message);
  if (!known) {
    shared_state.errors.fetch_add(1, std::memory_order_release);
    run_.log.error(text + "; what is staged is kept and tried again");
    run_.errors.push_back(text);
  }
  tell_state(shared_state, DatasetState::failed);
  d.trouble.error = std::move(error);
  run_.events->look(d);
  // A retry that fails again is no step forward: whoever waits for room may give up after stage.wait_max.
  if (again)
    journal::ring(run_.stage.control().progress);
  else
    run_.forward(true);
}

/// For whoever writes it: what the next sync or close gives when `errors` has been counted up.
void OutputWriter::report_error(Output& d, const Error& error) {
  auto& shared_state = *d.shared_state;
  const auto n = std::min(sizeof shared_state.error_text - 1, error.message.size());
  std::memcpy(shared_state.error_text, error.message.data(), n);
  shared_state.error_text[n] = '\0';
  shared_state.error_sys.store(error.sys != 0 ? error.sys : EIO, std::memory_order_release);
}

/// The file is as it will be; nothing of the dataset is needed in the stage any more.
void OutputWriter::end(Output& d, State state, Result<void> brought) {
  const bool is_durable = d.state == State::ending && state == State::finished;
  d.become(state);
  ++run_.commits;
  if (d.is_elsewhere()) return end_elsewhere(d);
  d.figures.stall.end_frame();
  d.sink.close();
  d.let_go();
  if (was_removed(d)) {
    run_.log.info(d.path + ": the file was removed before it was complete; its output is dropped");
    d.become(State::removed);
    d.trouble.error = Error{};
  }
  if (d.is_store() && d.has_no_file() && journal::has_commits(*d.shared_state)) remove_store(d);
  if (d.state == State::finished) {
    const bool named = name_file(run_, d, true);
    if (run_.survives_power || (named && d.promises_durable())) durability_.keep_name(d);
  }
  count_end(d);
  tell_end(d);
  const bool shared = d.shared_state->writers > 0;
  journal::set_visible(*d.shared_state, shared ? d.shared_state->synced.load() : d.progress.seen);
  if (run_.survives_power && (d.is_store() ? !is_durable : d.state == State::finished)) durability_.keep_end(d);
  d.file.remove_mark();  // who waits for the end may create the file anew
  // First of all: a server that takes over from here must not look for what is removed below.
  tell_state(*d.shared_state, d.has_no_file() ? DatasetState::dropped : DatasetState::finished);
  // On the disk, too, before its hard link goes.
  if (run_.survives_power) (void)make_durable(run_.files, run_.stage.datasets() + "/" + d.state_name);
  const bool left = !remove_links(d, std::move(brought));
  // Before its shared state goes: a server that finds that says what is missing.
  run_.events->look(d);
  leave_stage(d, left);
}

/// Another node writes it.
void OutputWriter::end_elsewhere(Output& d) {
  run_.stage.remove_dataset(d.state_name, d.id.journal, d.id.number);
  run_.peers->farewell(d.id, d.ownership.owner());
  d.let_go();
  d.shared_state = MappedState<SharedState>();
  d.writers.let_go();
  run_.forward(true);
}

/// The last figures of the output.
void OutputWriter::count_end(Output& d) {
  if (d.state == State::finished && d.is_store()) {
    d.figures.bytes_written = bytes_below(d.destination());
  } else if (const auto file = journal::Imprint::of(d.file.link); d.state == State::finished && file) {
    d.figures.bytes_written = file->bytes;
    // A program that opens it again must know that it is still as it was left here.
    d.shared_state->changed_at_end_ns.store(file->changed_ns, std::memory_order_relaxed);
    d.shared_state->bytes_at_end.store(file->bytes, std::memory_order_release);
  }
  d.figures.frames_dropped = d.shared_state->frames_dropped.load();
  if (d.figures.frames_dropped > 0)
    run_.log.warning(d.path + ": " + std::to_string(d.figures.frames_dropped) +
                     " frames were left out, as the stage was full (full: drop-frame)");
}

/// Whoever reads the file hears that it is complete.
void OutputWriter::tell_end(Output& d) {
  if (is_read(d)) run_.live->note_over(d);
  run_.coupled->over(d);
  if (d.state == State::finished && journal::is_hard_link(d.file.link) && !d.is_store()) tell_watchers(d.path);
  d.file.give_permission_back();
}

/// The program's empty file, and the hard link. That goes last: as long as it is there the next server knows that there
/// is something to remove. False: it stays (Ledger::LeftBehind). `brought`: see `end`.
bool OutputWriter::remove_links(Output& d, Result<void> brought) {
  auto removed = d.hidden || d.is_store() || d.has_no_file() ? remove_placeholder(d) : Result<void>{};
  if (!brought && brought.error().sys != 0) removed = std::move(brought);
  const bool is_linked = journal::is_hard_link(d.file.link);
  if (is_linked && removed) removed = remove_hard_link(d);
  if (removed) return true;
  if (!is_linked) {
    run_.log.warning(d.path + " stays as it is: " + removed.error().message);
    return true;
  }
  run_.report(d.path + ": its hard link " + d.file.link + " stays: " + removed.error().message);
  ledger_.left_behind.push_back({d.shared_from_this(), d.shared_state->journal, d.shared_state->number,
                                 d.continues_file() && d.shared_state->changed.load() == 0});
  return false;
}

Result<void> OutputWriter::remove_hard_link(const Output& d) const {
  // A later mount may know the device by another number.
  const auto inode = d.file.made_in.inode;
  struct stat link {};
  const bool is_its_link = ::lstat(d.file.link.c_str(), &link) == 0 && link.st_ino == Stage::inode_in(d.state_name);
  if (run_.options.recover && !run_.power_lost && inode != 0 && !is_its_link &&
      journal::DirectoryId::of(d.path).inode != inode)
    return Error{Code::not_found, "its directory is not there, or is not the one in which the program made it", ENOENT};
  return journal::remove_hard_link(run_.files, d.file.link);
}

/// The stage keeps nothing of the output; of one that is `left` behind its shared state.
void OutputWriter::leave_stage(Output& d, bool left) {
  // The shared state of that name may be another dataset's, whose file has the inode now; so is the schema beside it.
  if (const auto shared_state = run_.stage.open_state(d.state_name);
      !shared_state ||
      ((*shared_state)->journal == d.shared_state->journal && (*shared_state)->number == d.shared_state->number))
    (void)run_.files.remove(run_.stage.datasets() + "/" + d.state_name + ".schema");
  // Other nodes may still announce it, and must be told. While the server begins they are not there yet; the shared
  // state says it then.
  if (d.ownership.is_spread() && run_.has_other_nodes())
    run_.peers->ended(d.id, d.has_no_file() ? DatasetState::dropped : DatasetState::finished);
  else if (!left)
    run_.stage.remove_dataset(d.state_name, d.shared_state->journal, d.shared_state->number);
  d.continued = d.continues_file();
  d.shared_state = MappedState<SharedState>();
  d.further.program_slots = MappedState<WriterSlot>();
  d.writers.let_go();
  run_.forward(true);
}

/// The empty file that nc_create has made, where nothing ever came to be in it. One that is not empty is never removed,
/// whatever the stage says of it.
Result<void> OutputWriter::remove_placeholder(const Output& d) {
  if (d.continues_file()) return {};
  // It may have no name of its own yet; its note goes with the next look at all notes.
  for (const auto& name : {d.path, journal::held_name_of_new(workflow::resolved(d.path))}) {
    struct stat file {};
    if (::stat(name.c_str(), &file) == 0 && file.st_size == 0 &&
        Stage::state_name(file.st_dev, file.st_ino) == d.state_name)
      ADVECTIO_TRY(run_.files.remove(name));
  }
  return {};
}

/// What was committed of a dataset that the program has removed.
void OutputWriter::remove_store(const Output& d) const {
  std::error_code failed;
  std::filesystem::remove_all(d.destination(), failed);
  if (failed) run_.log.warning(d.destination() + " stays as it is: " + failed.message());
}

void OutputWriter::drop_rest(Output& d, const std::string& writer) {
  if (d.state == State::ending) return;
  // Its empty file and its hard link go when they are there again.
  if (run_.options.recover && is_away(d)) return fail(d, is_its_file(d).error());
  if (auto done = take_back(d); !done) return fail(d, std::move(done).error());
  const auto told = (run_.power_lost ? d.shared_state->kept : d.shared_state->synced).load();
  if (!d.shared() && !d.join.sequencer && told > d.progress.visible) {
    fail(d, Error{Code::corrupt,
                  "its writer " + writer + " has synced up to record " + std::to_string(told) +
                      ", and the journal ends at " + std::to_string(d.progress.visible),
                  EIO});
    return;
  }
  const bool any = run_.power_lost ? d.shared_state->visible.load() > 0 || d.progress.any_durable()
                                   : d.shared_state->frames_visible.load() > 0 ||
                                         (d.shared() ? d.shared_state->visible : d.shared_state->synced).load() > 0;
  if (!any && !d.progress.partial && d.continues_file()) {
    const char* holds = d.shared_state->changed.load() == 0 ? "it is as it was"
                        : is_hdf5(d.format)                 ? "it holds what was in it before"
                                                            : "values put over old ones since may be in it";
    run_.log.warning(d.path + ": its writer " + writer + " has gone before anything more was synced; " + holds);
    end(d, State::finished);
    return;
  }
  if (!any && !d.progress.partial) {
    run_.log.warning(d.path + ": its writer " + writer + " has gone before anything was synced; the file is removed");
    end(d, State::dropped);
    return;
  }
  run_.log.warning(
      d.path + ": its writer " + writer + " has gone without closing it; it holds the " +
      std::to_string(d.progress.frames_visible) + " frames that were synced" +
      (d.progress.partial ? " and part of the next, which had been written to make room in the stage" : ""));
  end(d, State::finished);
}

}  // namespace advectio
