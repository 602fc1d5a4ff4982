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
#include "operators/operated_field.h"
#include "server/coupled.h"
#include "server/live.h"
#include "server/storage.h"

namespace advectio {
namespace {

/// Before `sequence` is visible: `frames` will be.
void count_frames(SharedState& shared_state, std::uint64_t frames, std::uint64_t sequence) {
  shared_state.frames_counted.store(frames << 32U | (sequence & UINT32_MAX), std::memory_order_release);
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
  d.visible = d.seen = d.durable;
  d.frames_visible = d.frames_durable;
  count_frames(*d.shared_state, d.frames_visible, d.visible);
  journal::set_visible(*d.shared_state, d.visible);
  fail(d, error);
}

/// What the durable thread has done, into the ledger.
void OutputWriter::collect_durable() {
  for (auto& x : durability_.collect()) {
    if (!x.result) {
      if (durability_.is_kept(*x.output) && !x.output->over()) {
        if (x.output->state != State::failed) lose_durable(*x.output, std::move(x.result).error().with("make durable"));
        continue;
      }
      const std::string text = x.output->path + ": make durable: " + x.result.error().message;
      run_.report(text);
      run_.not_durable = true;
      if (x.output->shared_state) {
        report_error(*x.output, x.result.error());
        x.output->shared_state->errors.fetch_add(1, std::memory_order_release);
      }
      if (x.last) end(*x.output, State::finished);
      run_.forward(true);
      continue;
    }
    // Of before it failed; what is written since is another matter.
    if (x.output->state == State::failed && durability_.is_kept(*x.output)) continue;
    x.output->frames_durable = x.frames;
    x.output->durable = std::max(x.output->durable, x.sequence);
    if (x.output->shared_state) x.output->shared_state->durable.store(x.sequence, std::memory_order_release);
    if (x.last) end(*x.output, State::finished);
    if (x.output->promises_durable() || run_.survives_power) run_.forward(true);
    for (const auto at : x.synced)
      if (at != 0) x.output->to_durable.add(seconds(x.at_ns - std::min(x.at_ns, at)));
  }
}

/// A record of a dataset that one process writes.
Result<void> OutputWriter::act(const std::shared_ptr<Output>& d, const Record& r, bool verify) {
  d->seen = r.sequence;
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
  return store_schema(d, *asked);
}

Result<void> OutputWriter::store_schema(Output& d, const Schema& asked) {
  ADVECTIO_TRY_WITH(take_schema(d, asked), "schema");
  d.uncommitted = true;
  return replace_file(run_.files, run_.stage.datasets() + "/" + d.state_name + ".schema", encode(asked),
                      run_.survives_power);
}

/// What the program has asked for, and how it is written.
Result<void> OutputWriter::take_schema(Output& d, const Schema& asked) {
  run_.config_names.look(asked, d.policy);
  d.asked = asked;
  d.schema.reset();
  d.declared = false;
  auto stored = as_stored(asked, d.policy);
  if (!stored) return std::move(stored).error();
  d.numbers = select_variables(*stored, d.policy);
  auto operators = operators_of(d.policy);
  auto made = operators.declare(std::move(stored).value());
  if (!made) return std::move(made).error();
  d.schema = std::move(made).value();
  d.operators = std::make_shared<const Operators>(std::move(operators));
  return {};
}

/// A program may make its file read-only while it is written. The server opens the file by its name, so it adds the
/// owner's permission until the end.
void OutputWriter::lend_permission(Output& d) {
  constexpr mode_t needed = S_IRUSR | S_IWUSR;
  struct stat st {};
  if (::access(d.link.c_str(), R_OK | W_OK) == 0 || errno != EACCES || ::stat(d.link.c_str(), &st) != 0 ||
      st.st_uid != ::geteuid() || ::chmod(d.link.c_str(), (st.st_mode & 07777) | needed) != 0)
    return;
  d.lent_permission |= needed & ~st.st_mode;
}

void OutputWriter::give_permission_back(Output& d) {
  struct stat st {};
  if (const auto lent = std::exchange(d.lent_permission, 0); lent != 0 && ::stat(d.link.c_str(), &st) == 0)
    (void)::chmod(d.link.c_str(), st.st_mode & 07777 & ~lent);
}

/// Raises IN_CLOSE_WRITE (inotify) for the file's path. The server writes through the hard link, and a watcher of the
/// directory does not see that.
void OutputWriter::tell_watchers(const Output& d) {
  const int fd = ::open(d.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd >= 0) ::close(fd);
}

/// Nothing is written through a name that has come to stand for another file than the program's.
Result<void> OutputWriter::is_its_file(const Output& d) const {
  struct stat st {};
  if (::lstat(d.link.c_str(), &st) != 0) return system_error("open " + d.link, errno);
  // Another node may know its device by another number.
  const bool same =
      d.spread || run_.stage.control().nodes > 1 || Stage::state_name(st.st_dev, st.st_ino) == d.state_name;
  if (S_ISREG(st.st_mode) && same) return {};
  return Error{Code::permission, d.link + " is no longer the file that the program has made", EACCES};
}

/// NAME and NAME.nc, and a further output of either, have the same name where they become directories.
/// A file that is written again takes the place of what it was.
Result<void> OutputWriter::has_its_store_alone(const Output& d) const {
  if (!d.is_store()) return {};
  const auto store = d.destination();
  for (const auto& o : ledger_.outputs) {
    const bool holds_it = o->over() ? o->state == State::finished && o->path != d.path : o->sink != nullptr;
    if (o.get() == &d || !o->is_store() || !holds_it || o->destination() != store) continue;
    return Error{Code::exists,
                 store + " is the store of " + (o->output > 0 ? o->source : o->path) +
                     " already; give one of them another rule, or another name",
                 EEXIST};
  }
  return {};
}

/// True when the program has removed the file: no name of it is left but our link, or not even that. Its inode may by
/// now be another file's, with a dataset and a shared state of its own.
bool OutputWriter::was_removed(const Output& d) const {
  // A file without a hard link may have been renamed, what becomes one file with others is the run's own, and a loss of
  // power loses names.
  if (!journal::is_hard_link(d.link) || d.whole != nullptr || d.tiles_count > 0 || !d.shared_state || run_.power_lost)
    return false;
  // At its end the server itself removes the program's empty file (remove_placeholder), and may have died since.
  if (d.is_store() && static_cast<DatasetState>(d.shared_state->state.load()) == DatasetState::finished) return false;
  struct stat path {
  }, link{};
  const bool there = ::stat(d.path.c_str(), &path) == 0;
  // Opened, because a network file system then asks its server how many names there are.
  const int fd = ::open(d.link.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd >= 0) {
    const bool known = ::fstat(fd, &link) == 0;
    ::close(fd);
    return known && link.st_nlink == 1 && !(there && path.st_dev == link.st_dev && path.st_ino == link.st_ino);
  }
  if (errno != ENOENT) return false;
  const auto shared_state = run_.stage.open_state(d.state_name);
  if (shared_state &&
      ((*shared_state)->journal != d.shared_state->journal || (*shared_state)->number != d.shared_state->number))
    return true;
  // Another node may know its device by another number.
  return !there || !d.state_name.ends_with('-' + std::to_string(path.st_ino));
}

Result<void> OutputWriter::ready_sink(Output& d) {
  if (!d.schema) {
    Schema empty;
    empty.format = d.policy.format.value_or(d.format);
    d.schema = empty;
    d.declared = false;
  }
  if (!d.sink) {
    ADVECTIO_TRY(is_its_file(d));
    ADVECTIO_TRY(has_its_store_alone(d));
    if (run_.survives_power) ADVECTIO_TRY_WITH(durability_.keep_names(d), "make its names durable");
    lend_permission(d);
    spare_descriptors();
    auto sink = run_.sinks(sink_request(d, d.resume));
    if (!sink) return std::move(sink).error().with("open");
    d.sink = std::move(sink).value();
    d.power_lost = d.refused = d.begun = false;
    d.charged = 0;
    d.declared = false;
  }
  d.sink_used = ++sinks_used_;
  if (!d.declared) {
    ADVECTIO_TRY(give_held_back(d));
    ADVECTIO_TRY_WITH(d.sink->declare(*d.schema), "define");
    d.frame.declare(*d.schema);
    d.declared = true;
    d.uncommitted = true;
  }
  return {};
}

/// The sink takes up its file again when it is needed.
void OutputWriter::let_go(Output& d) {
  if (d.sink) {
    count_sink(d);
    d.sink->abandon();
    d.sink.reset();
    d.clear_frame();
  }
  d.resume = true;
  d.declared = false;
}

/// A program may have more files open than the server may, and each sink holds two or three descriptors. Before they
/// run out, the sinks used least recently are let go, where they are in no frame. Frames that wait are committed.
void OutputWriter::spare_descriptors() {
  if (!is_short_of_descriptors()) return;
  std::vector<Output*> unused;
  for (const auto& o : ledger_.outputs)
    if (o->sink && o->state == State::open && !o->begun && (!o->uncommitted || !o->waiting.empty()) && !o->is_store())
      unused.push_back(o.get());
  const auto middle = unused.begin() + static_cast<std::ptrdiff_t>((unused.size() + 1) / 2);
  std::nth_element(unused.begin(), middle, unused.end(),
                   [](const Output* a, const Output* b) { return a->sink_used < b->sink_used; });
  std::for_each(unused.begin(), middle, [this](Output* o) {
    if (o->waiting.empty()) return let_go(*o);
    auto done = commit(o->shared_from_this(), o->seen, 0);
    done ? let_go(*o) : fail(*o, std::move(done).error());
  });
  if (is_short_of_descriptors()) durability_.await_half();
}

Result<void> OutputWriter::give_block(Output& d, const Block& block) {
  const auto what = "write " + d.schema->variables[block.variable].name;
  if (!d.begun) ADVECTIO_TRY_WITH(d.sink->begin(d.frames_ended + 1), what);
  d.begun = true;
  if (d.frame.empty()) d.holds_back = run_.live && d.output == 0 && run_.live->is_wanted(d);
  auto field = d.frame.add(block);
  if (!field) return std::move(field).error().with(what);
  Part part{block.box, block.stride};
  if (d.output == 0) note_records(d, block.variable, part.bounds());
  d.held_back.emplace_back(operated(std::move(field).value(), d.operators), std::move(part));
  return d.holds_back ? Result<void>{} : give_held_back(d);
}

/// Which records the frame has, along the unlimited dimension that comes first.
void OutputWriter::note_records(Output& d, std::uint32_t variable, const Box& bounds) {
  const auto& dimensions = d.schema->variables[variable].dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (!d.schema->dimensions[dimensions[i]].unlimited) continue;
    const auto first = bounds.start[i], end = first + bounds.count[i];
    d.records = d.records ? std::pair{std::min(d.records->first, first), std::max(d.records->second, end)}
                          : std::pair{first, end};
    return;
  }
}

Result<void> OutputWriter::give_held_back(Output& d) {
  for (const auto& [field, part] : d.held_back)
    ADVECTIO_TRY_WITH(d.sink->ready(field, part), "write " + d.schema->variables[field->variable()].name);
  d.held_back.clear();
  return {};
}

Result<void> OutputWriter::on_put(Output& d, const Record& r, bool verify) {
  auto put = journal::decode_put(r.meta);
  if (!put) return std::move(put).error();
  if (verify) ADVECTIO_TRY(journal::verify_payload(r));
  ADVECTIO_TRY(ready_sink(d));
  if (put->variable < d.numbers.size()) {
    if (d.numbers[put->variable] < 0) return {};
    put->variable = static_cast<std::uint32_t>(d.numbers[put->variable]);
  }
  if (put->variable >= d.schema->variables.size() ||
      put->box.rank() != d.schema->variables[put->variable].dimensions.size())
    return Error{Code::corrupt, "put record " + std::to_string(r.sequence) + " does not fit the schema", 0};
  const auto& v = d.schema->variables[put->variable];
  if (const auto element = size_of(v.type); element > 0 && put->box.volume() * element != r.payload.size())
    return Error{Code::corrupt, "put record " + std::to_string(r.sequence) + " has not the bytes its box takes", 0};
  Block block;
  block.variable = put->variable;
  block.box = std::move(put->box);
  block.stride = std::move(put->stride);
  block.data = r.payload.data();
  block.lease = r.lease;
  block.bytes = r.payload.size();
  d.bytes_put += block.bytes;
  d.waiting_bytes += block.bytes;
  d.uncommitted = true;
  return give_block(d, block);
}

/// Bring everything the sink has taken into the readable file. `synced_ns`: when the frame that ends here was synced.
Result<void> OutputWriter::commit(const std::shared_ptr<Output>& d, std::uint64_t sequence, std::uint64_t synced_ns,
                                  bool in_midst) {
  ADVECTIO_TRY(ready_sink(*d));
  const bool is_read = run_.live && d->output == 0;
  if (synced_ns != 0 && is_read) run_.live->publish(*d, d->frames_ended - 1, synced_ns, ledger_);
  ADVECTIO_TRY(give_held_back(*d));
  d->frame_in_parts = synced_ns == 0 && (d->frame_in_parts || (d->begun && !d->frame.empty()));
  if (d->uncommitted) {
    if (is_read) run_.live->note_commit(*d, true);
    auto done = in_midst ? d->sink->checkpoint() : d->sink->end();
    if (is_read) run_.live->note_commit(*d, false);
    if (!done) return std::move(done).error().with("commit");
  }
  auto synced = std::exchange(d->waiting, {});
  if (synced_ns != 0) synced.push_back(synced_ns);
  d->clear_frame();
  d->begun = d->begun && in_midst;
  d->uncommitted = false;
  ++run_.commits;
  count_sink(*d);
  if (!synced.empty()) {
    d->frames_visible = d->frames_ended;
    count_frames(*d->shared_state, d->frames_visible, sequence);
    if (is_read) run_.live->note_visible(*d);
    ADVECTIO_TRY_WITH(run_.coupled->frame(*d), "for other programs");
  }
  if (d->shared()) {
    for (std::size_t w = 0; w < d->shares.size(); ++w) {
      d->shares[w].visible = d->sequencer->given(w);
      d->slots[w].sync_index.store(number(d->sequencer->sync_index(w)), std::memory_order_relaxed);
      d->slots[w].visible.store(d->shares[w].visible, std::memory_order_release);
    }
    sequence = std::max(sequence, d->shared_state->visible.load());  // 0: in the midst of a sync
  } else {
    d->visible = sequence;
  }
  const auto now = realtime_ns();
  for (const auto at : synced) d->to_visible.add(seconds(now - std::min(now, at)));
  journal::set_visible(*d->shared_state, sequence);
  run_.forward(true);
  if (d->policy.durable || d->promises_durable()) {
    auto make = d->sink->make_durable();
    // A file is no use after a loss of power without its name.
    if (!std::exchange(d->names_durable, true))
      make = [make = std::move(make), &files = run_.files, path = d->path, link = d->link]() -> Result<void> {
        ADVECTIO_TRY(make());
        return journal::make_file_names_durable(files, path, link);
      };
    durability_.push(d, std::move(make), sequence, std::move(synced));
  }
  return {};
}

/// In the midst of a frame.
Result<bool> OutputWriter::commit_part(const std::shared_ptr<Output>& d) {
  ADVECTIO_TRY(ready_sink(*d));
  if (!d->sink->abilities().checkpoints) return false;
  const bool any = d->uncommitted;
  ADVECTIO_TRY(commit(d, d->shared() ? 0 : d->tile_sequencer ? d->visible : d->seen, 0, true));
  d->partial = d->partial || any;
  return true;
}

Result<void> OutputWriter::on_sync(const std::shared_ptr<Output>& d, const Record& r) {
  auto sync = journal::decode_sync(r.meta);
  if (!sync) return std::move(sync).error();
  d->frames_ended = std::max(d->frames_ended, sync->frame);
  if (d->output > 0) {
    d->frames_synced = std::max(d->frames_synced, sync->frame);
    d->shared_state->frames_synced.store(d->frames_synced, std::memory_order_relaxed);
    d->shared_state->synced.store(r.sequence, std::memory_order_release);
  } else if (sync->frame > 0) {
    d->frames_synced = std::max(d->frames_synced, sync->frame);
    d->count_stall();
    d->last_stall = seconds(sync->stall_ns);
  } else if (d->last_stall) {
    *d->last_stall += seconds(sync->stall_ns);
  }
  if (sync->frame > 0 && r.type == RecordType::sync && may_wait(*d, r.sequence)) {
    if (d->waiting.empty()) d->waiting_since_ns = monotonic_ns();
    d->waiting.push_back(r.time_ns);
    // Without its fields, as the frames behind it add to them: a reader that comes now reads the file.
    if (run_.live) run_.live->publish(*d, d->frames_ended - 1, r.time_ns, ledger_);
    d->records.reset();
    d->begun = d->partial = d->frame_in_parts = false;
    return {};
  }
  ADVECTIO_TRY(commit(d, r.sequence, sync->frame > 0 ? r.time_ns : 0));
  d->partial = false;
  return {};
}

/// Frames so small that the commit is most of their cost are committed together, when the program is ahead of us: a
/// later sync is in the journal already. Nobody can tell, except by when he can read them.
bool OutputWriter::may_wait(const Output& d, std::uint64_t sequence) const {
  constexpr std::size_t frames_max = 256;
  constexpr std::uint64_t time_max_ns = 100'000'000;
  const auto& control = run_.stage.control();
  const auto bytes_max = std::min<std::uint64_t>(16U << 20U, control.segments_max * control.segment_bytes / 8);
  return d.output == 0 && d.state == State::open && d.shared_state->synced.load(std::memory_order_acquire) > sequence &&
         !d.commits_each && d.error.message.empty() && !d.shared() && !d.tile_sequencer && !d.partial &&
         !d.frame_in_parts && !run_.coupled->has(d) && !(run_.live && (d.holds_back || run_.live->is_wanted(d))) &&
         d.waiting.size() < frames_max && d.waiting_bytes < bytes_max &&
         (d.waiting.empty() || monotonic_ns() - d.waiting_since_ns < time_max_ns);
}

Result<void> OutputWriter::on_close(const std::shared_ptr<Output>& d, const Record& r) {
  d->become(State::closed);
  ADVECTIO_TRY(on_sync(d, r));
  return finish(d);
}

/// Closed, and all of it committed: leave the file as it will be. May be done again after a failure or a death.
Result<void> OutputWriter::finish(const std::shared_ptr<Output>& d) {
  if (d->state == State::ending) return {};
  d->become(State::closed);
  if (!d->sink && run_.coupled->is_published(*d)) {
    end(*d, State::finished);
    return {};
  }
  if (!d->sink) ADVECTIO_TRY(commit(d, d->visible, 0));
  auto make_durable = d->sink->make_durable();
  const bool is_read = run_.live && d->output == 0;
  if (is_read) run_.live->note_commit(*d, true);
  auto closed = d->sink->close();
  if (is_read) run_.live->note_commit(*d, false);
  if (!closed) return std::move(closed).error().with("close");
  count_sink(*d);
  ADVECTIO_TRY_WITH(run_.coupled->complete(*d), "for other programs");
  if ((d->promises_durable() && !d->tile_sequencer) || durability_.is_kept(*d)) {
    d->become(State::ending);
    durability_.push(d, std::move(make_durable), d->shared_state->visible.load(), {}, true);
  } else {
    end(*d, State::finished);
  }
  return {};
}

Result<void> OutputWriter::on_abort(Output& d) {
  ADVECTIO_TRY(take_back(d));
  end(d, d.shared_state->visible.load() == 0 ? State::dropped : State::finished);
  return {};
}

void OutputWriter::count_sink(Output& d) {
  const auto c = d.sink->counters();
  d.bytes_written = c.bytes_out;
  d.encode_ns = c.encode_ns;
  charge(d);
}

void OutputWriter::charge(Output& d) {
  if (!d.sink || !run_.rate.limited()) return;
  const auto written = d.sink->counters().bytes_out;
  if (written > d.charged) run_.rate.spend(written - d.charged);
  d.charged = written;
}

/// `resume`: what the file holds is taken up, as far as it may be.
SinkRequest OutputWriter::sink_request(const Output& d, bool resume) const {
  SinkRequest request{d.is_store() ? d.destination() : d.link,
                      d.schema ? d.schema->format : d.policy.format.value_or(d.format), d.policy, resume};
  request.ordered = run_.survives_power && (d.policy.durable || d.promises_durable());
  request.power_lost = d.power_lost;
  if (d.is_store() && d.shared_state) {
    const auto& s = *d.shared_state;
    const auto& file = d.output > 0 ? d.source : d.path;
    request.owner = file.substr(file.find_last_of('/') + 1) + '/' + d.state_name + '-' + std::to_string(s.journal) +
                    '-' + std::to_string(s.number) + '-' + std::to_string(s.output) + '-' +
                    std::to_string(s.created_ns);
  }
  request.together = d.shared() || (d.shared_state && d.shared_state->writers > 0);
  // Of a classic file only what was durable is known to be what it seems; nothing that was put before has been let go.
  if (d.power_lost && d.durable == 0 && !is_hdf5(request.format)) request.resume = false;
  return request;
}

/// What a failure or a death has left in the midst of a commit nobody may ever take up again.
Result<void> OutputWriter::bring_to_last_commit(const Output& d) {
  if (was_removed(d)) return {};
  ADVECTIO_TRY(is_its_file(d));
  if (d.is_store() && !run_.files.exists(d.destination())) return {};
  auto sink = run_.sinks(sink_request(d, true));
  if (!sink) return std::move(sink).error();
  (*sink)->abandon();
  return {};
}

/// Drop what is not committed, and know that it is dropped: `abandon` cannot say that the disk has refused.
Result<void> OutputWriter::take_back(Output& d) {
  if (!d.sink && !d.resume) return {};
  if (d.sink) d.sink->abandon();
  d.sink.reset();
  d.clear_frame();
  d.declared = d.uncommitted = false;
  auto done = bring_to_last_commit(d);
  // Its process died before it had made the hard link: nothing has ever been written through that.
  const bool begun = d.shared_state->visible.load() > 0 || d.shared_state->synced.load() > 0;
  if (!done && (begun || done.error().code != Code::not_found))
    return std::move(done).error().with("leave it at its last commit");
  return {};
}

void OutputWriter::begin_anew(Output& d) {
  let_go(d);
  d.frame_in_parts = true;
  d.frames_ended = d.frames_visible;
}

/// The sink could not do it. What is staged stays staged; the program hears of it at its next sync or close.
void OutputWriter::fail(Output& d, Error error) {
  if (!d.sink && d.resume && error.code == Code::corrupt) (void)bring_to_last_commit(d);
  begin_anew(d);
  if (was_removed(d)) return end(d, State::dropped);
  const bool last = d.state == State::closed && !d.uncommitted;  // nothing but the end of the file was left to do
  const std::string text =
      d.path + (last ? "" : ": frame " + std::to_string(d.frames_visible + 1)) + ": " + error.message;
  const bool again = !d.error.message.empty();
  const bool known = d.state == State::failed || d.error.message == error.message;
  d.become(State::failed);
  d.failed_at_ns = monotonic_ns();
  auto& shared_state = *d.shared_state;
  report_error(d, error);
  if (!known) run_.coupled->trouble(d, error.message);
  if (!known) {
    shared_state.errors.fetch_add(1, std::memory_order_release);
    run_.log.error(text + "; what is staged is kept and tried again");
    run_.errors.push_back(text);
  }
  shared_state.state.store(static_cast<std::uint32_t>(DatasetState::failed), std::memory_order_release);
  d.error = std::move(error);
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
  if (d.owner) {
    run_.stage.remove_dataset(d.state_name, d.id.journal, d.id.number);
    run_.relay->farewell(d.id, *d.owner);
    d.shared_state = MappedState<SharedState>();
    d.slots = MappedState<WriterSlot>();
    d.sequencer.reset();
    run_.forward(true);
    return;
  }
  d.count_stall();
  d.sink.reset();
  d.clear_frame();
  d.schema.reset();
  d.asked.reset();
  d.operators.reset();
  if (was_removed(d)) {
    run_.log.info(d.path + ": the file was removed before it was complete; its output is dropped");
    state = State::dropped;
    d.become(state);
    d.error = Error{};
  }
  const bool committed = d.shared_state->visible.load() > 0;
  if (d.is_store() && state == State::dropped && committed) remove_store(d);
  struct stat file {};
  if (state == State::finished && d.is_store())
    d.bytes_written = bytes_below(d.destination());
  else if (state == State::finished && ::stat(d.link.c_str(), &file) == 0)
    d.bytes_written = static_cast<std::uint64_t>(file.st_size);
  if (run_.live && d.output == 0) run_.live->note_over(d);
  run_.coupled->over(d);
  if (state == State::finished && journal::is_hard_link(d.link) && !d.is_store()) tell_watchers(d);
  give_permission_back(d);
  const bool shared = d.shared_state->writers > 0;
  d.frames_dropped = d.shared_state->frames_dropped.load();
  if (d.frames_dropped > 0)
    run_.log.warning(d.path + ": " + std::to_string(d.frames_dropped) +
                     " frames were left out, as the stage was full (full: drop-frame)");
  journal::set_visible(*d.shared_state, shared ? d.shared_state->synced.load() : d.seen);
  if (run_.survives_power && (d.is_store() ? !is_durable : state == State::finished)) durability_.keep_end(d);
  // First of all: a server that takes over from here must not look for what is removed below.
  d.shared_state->state.store(
      static_cast<std::uint32_t>(state == State::dropped ? DatasetState::dropped : DatasetState::finished),
      std::memory_order_release);
  // On the disk, too, before its hard link goes.
  if (run_.survives_power) (void)make_durable(run_.files, run_.stage.datasets() + "/" + d.state_name);
  // The hard link last: as long as that is there the next server knows that there is something to remove.
  auto removed = d.joined || d.is_store() || state == State::dropped ? remove_placeholder(d) : Result<void>{};
  if (!brought && brought.error().sys != 0) removed = std::move(brought);
  if (journal::is_hard_link(d.link)) {
    if (removed) removed = journal::remove_hard_link(run_.files, d.link);
    if (!removed) {
      const std::string text = d.path + ": its hard link " + d.link + " stays: " + removed.error().message;
      run_.report(text);
      ledger_.left_behind.push_back({d.shared_from_this(), d.shared_state->journal, d.shared_state->number});
    }
  } else if (!removed) {
    run_.log.warning(d.path + " stays as it is: " + removed.error().message);
  }
  // The shared state of that name may be another dataset's, whose file has the inode now; so is the schema beside it.
  if (const auto shared_state = run_.stage.open_state(d.state_name);
      !shared_state ||
      ((*shared_state)->journal == d.shared_state->journal && (*shared_state)->number == d.shared_state->number))
    (void)run_.files.remove(run_.stage.datasets() + "/" + d.state_name + ".schema");
  const bool left = !ledger_.left_behind.empty() && ledger_.left_behind.back().dataset.get() == &d;
  // Other nodes may still announce it, and must be told. A server that begins has no relay yet; the shared state says
  // it then.
  const bool others = run_.options.transport != nullptr && run_.options.transport->nodes() > 1;
  if (d.spread && run_.relay)
    run_.relay->ended(d.id, static_cast<DatasetState>(d.shared_state->state.load()));
  else if (!left && !(d.spread && others))
    run_.stage.remove_dataset(d.state_name, d.shared_state->journal, d.shared_state->number);
  d.shared_state = MappedState<SharedState>();
  d.slots = MappedState<WriterSlot>();
  d.program_slots = MappedState<WriterSlot>();
  d.sequencer.reset();
  run_.forward(true);
}

/// The empty file that nc_create has made, where nothing ever came to be in it. One that is not empty is never removed,
/// whatever the stage says of it.
Result<void> OutputWriter::remove_placeholder(const Output& d) {
  struct stat file {};
  const bool there = ::stat(d.path.c_str(), &file) == 0 && file.st_size == 0 &&
                     Stage::state_name(file.st_dev, file.st_ino) == d.state_name;
  return there ? run_.files.remove(d.path) : Result<void>{};
}

/// What was committed of a dataset that the program has removed.
void OutputWriter::remove_store(const Output& d) const {
  std::error_code failed;
  std::filesystem::remove_all(d.destination(), failed);
  if (failed) run_.log.warning(d.destination() + " stays as it is: " + failed.message());
}

void OutputWriter::drop_rest(Output& d, const std::string& writer) {
  if (d.state == State::ending) return;
  if (auto done = take_back(d); !done) return fail(d, std::move(done).error());
  const auto told = (run_.power_lost ? d.shared_state->kept : d.shared_state->synced).load();
  if (!d.shared() && !d.tile_sequencer && told > d.visible) {
    fail(d, Error{Code::corrupt,
                  "its writer " + writer + " has synced up to record " + std::to_string(told) +
                      ", and the journal ends at " + std::to_string(d.visible),
                  EIO});
    return;
  }
  const bool any = run_.power_lost ? d.shared_state->visible.load() > 0
                                   : d.shared_state->frames_visible.load() > 0 ||
                                         (d.shared() ? d.shared_state->visible : d.shared_state->synced).load() > 0;
  if (!any && !d.partial) {
    run_.log.warning(d.path + ": its writer " + writer + " has gone before anything was synced; the file is removed");
    end(d, State::dropped);
    return;
  }
  run_.log.warning(d.path + ": its writer " + writer + " has gone without closing it; it holds the " +
                   std::to_string(d.frames_visible) + " frames that were synced" +
                   (d.partial ? " and part of the next, which had been written to make room in the stage" : ""));
  end(d, State::finished);
}

}  // namespace advectio
