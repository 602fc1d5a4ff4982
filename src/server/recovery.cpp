#include "server/recovery.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "journal/hard_link.h"
#include "journal/markers.h"
#include "journal/mirror.h"
#include "server/coupled.h"
#include "server/events.h"
#include "server/output_file.h"

namespace advectio {

/// The hard link of the file whose shared state that is, whatever the shared state says. Where none could be made: the
/// file's own name.
std::string Recovery::find_hard_link(const std::string& state_name, const SharedState& shared_state) const {
  const auto is_it = [&state_name](const std::string& path) {
    struct stat st {};
    return ::lstat(path.c_str(), &st) == 0 && Stage::state_name(st.st_dev, st.st_ino) == state_name;
  };
  std::string only;
  const auto text = [](const char* in) { return std::string(in, ::strnlen(in, sizeof shared_state.link)); };
  // A file that had no frame yet may have its held name.
  for (const auto& path : {text(shared_state.link), text(shared_state.path),
                           journal::held_name_of_new(workflow::resolved(text(shared_state.path)))}) {
    if (is_it(path)) only = path;
    auto directories = journal::hard_link_directories(path, run_.directory);
    directories.push_back(directory_of(path));
    for (const auto& directory : directories) {
      const auto names =
          directory.empty() ? Result<std::vector<std::string>>(std::vector<std::string>()) : run_.files.list(directory);
      if (!names) continue;
      for (const auto& name : *names)
        if (journal::is_hard_link(name) && !name.ends_with("-redo") && is_it(directory + name)) return directory + name;
    }
  }
  return only;
}

/// A shared state that is damaged: which records belong to the dataset, and which of them are in the file, cannot be
/// told. The file is brought to its last commit, the stage stays as it is.
void Recovery::leave_at_last_commit(const std::string& state_name, const Error& why) {
  run_.state_damaged = true;
  std::string path = run_.stage.datasets() + "/" + state_name;
  if (auto shared_state = run_.stage.open_damaged_state(state_name)) {
    if (const auto link = find_hard_link(state_name, **shared_state); !link.empty()) {
      path = link;
      const std::string told((*shared_state)->path, ::strnlen((*shared_state)->path, sizeof(*shared_state)->path));
      if (link == journal::held_name_of_new(workflow::resolved(told))) path = told;
      if (journal::is_hard_link(link)) {
        // The shared state may be wrong about the path, but the link keeps the file's name.
        const auto kept = journal::name_in_hard_link(link);
        path = journal::name_kept(told) == kept ? told : directory_of(link) + kept;
      }
      SinkRequest request{link, FileFormat::netcdf4, resolve(run_.config, path), true};
      request.format = request.policy.format.value_or(request.format);
      request.continues = (*shared_state)->continues != 0;
      if (const auto schema = stored_schema(state_name))
        request.format = request.policy.format.value_or(schema->format);
      const bool in_store = is_store(request.format);
      if (in_store) request.path = store_path(path, request.format);
      // A file of others that the server has not begun to change is as it was. Opening it might change it.
      const bool is_as_it_was =
          journal::continues_file_of_others(**shared_state) && (*shared_state)->changed.load() == 0;
      if (!is_as_it_was && (!in_store || run_.files.exists(request.path)))
        if (auto sink = run_.sinks(request)) (*sink)->abandon();
    }
  }
  give_name_to_what_is_there(state_name);
  const std::string text =
      path + ": " + why.message + "; it holds what had been committed, and what was staged of it after that is lost";
  run_.report(text);
}

/// A file whose dataset cannot be taken up shows what it holds, unless its name is to say that it is complete.
void Recovery::give_name_to_what_is_there(const std::string& state_name) const {
  const auto notes = journal::Markers::take(run_.stage);
  const auto all = notes ? notes->all() : Result<std::vector<journal::Marker>>(Error(notes.error()));
  if (!all) return run_.report(all.error().message);
  for (const auto& marker : *all) {
    struct stat st {};
    if (marker.file != state_name || ::stat(marker.held.c_str(), &st) != 0 || st.st_size == 0) continue;
    if (!marker.files.empty() && marker.files.front().closed) continue;
    if (const auto named = notes->name(marker); !named) run_.report(named.error().message);
  }
}

/// As the program has asked for it (OutputWriter::store_schema).
Result<Schema> Recovery::stored_schema(const std::string& state_name) const {
  auto bytes = read_file(run_.files, run_.stage.datasets() + "/" + state_name + ".schema");
  if (!bytes) return std::move(bytes).error();
  return decode_schema(*bytes);
}

/// A shared state is forced to the disk before anything of its dataset is promised, and before anything is in its file.
void Recovery::forget_unforced_state(const std::string& state_name, const Error& why) {
  run_.log.warning(why.message + ": nothing of that dataset had been made durable when the power was lost");
  for (const char* suffix : {"", journal::slots_suffix, journal::ends_suffix, ".schema"})
    (void)run_.files.remove(run_.stage.datasets() + "/" + state_name + suffix);
}

void Recovery::forget_unforced_journals() {
  for (auto it = run_.lost_journals.begin(); it != run_.lost_journals.end();) {
    auto reader = Reader::open(run_.files, run_.stage.journals() + "/" + *it, Trust::scan);
    if (reader && it->front() != '.') {
      ++it;
      continue;
    }
    if (!reader)
      run_.log.warning(reader.error().message +
                       ": nothing of that journal had been made durable when the power was lost");
    journal::free_journal(run_.stage, *it);
    it = run_.lost_journals.erase(it);
  }
}

void Recovery::forget_unforced_notes() const {
  const auto notes = journal::Markers::take(run_.stage);
  auto damaged = notes ? notes->forget_damaged() : Result<std::vector<std::string>>(Error(notes.error()));
  if (!damaged) return run_.report(damaged.error().message);
  for (const auto& note : *damaged)
    run_.log.warning(note + ": the note of a held name had not been made durable when the power was lost");
}

/// After a loss of power: the note of a file that still has its held name may be lost.
void Recovery::note_held_name(const Output& d) const {
  const auto path = workflow::resolved(d.path);
  const auto held = Stage::state_name_of(journal::held_name_of_new(path));
  if (!held || *held != d.state_name) return;
  const auto notes = journal::Markers::take(run_.stage);
  if (!notes) return run_.report(notes.error().message);
  if (const auto known = notes->of(path); known && *known) return;
  const bool awaits_all = d.policy.appear == Appear::complete;
  const auto noted = notes->keep(notes->make_new(
      path, {d.state_name, d.shared_state->journal, d.number, journal::Awaited::first_frame, awaits_all}));
  if (!noted) run_.report(noted.error().message);
}

/// The shared state says the same from here on: a damaged page may have said more.
void Recovery::take_up_frames(Output& d) const {
  const auto frames = frames_of(d);
  d.progress.take_up_frames(frames);
  auto& s = *d.shared_state;
  const bool is_known = s.writers == 0 || d.shared();  // what the slots say, too
  if (is_known && !d.is_elsewhere() && s.frames_visible.load() > frames) s.frames_visible.store(frames);
}

/// Counts the frames that are visible. Each has a record of its own there, whatever a damaged page says.
std::uint64_t Recovery::frames_of(const Output& d) const {
  // The records of several writers that end a frame are not among those that `visible` counts.
  const auto& s = *d.shared_state;
  const auto records = s.writers > 0 ? std::max(d.progress.visible, s.frames_synced.load()) : d.progress.visible;
  return std::min(frames_noted(d), s.frames_before + records);
}

std::uint64_t Recovery::frames_noted(const Output& d) const {
  const auto& s = *d.shared_state;
  if (const auto forced = journal::forced_of(s); run_.power_lost && d.progress.visible == forced.sequence)
    return forced.frames;
  const auto counted = s.frames_counted.load();
  // Servers of other nodes tell no more than `frames_visible`.
  if (counted == 0) return d.is_elsewhere() ? s.frames_visible.load() : s.frames_before;
  const auto frames = (counted & ~journal::counted_by_record) >> 32U;
  auto visible = d.progress.visible;
  if (d.shared()) {  // their slots say what will be read again
    visible = UINT64_MAX;
    for (std::size_t w = 0; w < d.writers.shares.size(); ++w)
      visible = std::min(visible, d.writers.slots[w].sync_index.load());
  }
  if ((counted & journal::counted_by_record) != 0) {
    if (!d.shared()) return frames;
    visible = d.writers.slots[0].visible.load();
  }
  const auto ahead = static_cast<std::int32_t>(static_cast<std::uint32_t>(counted - visible));
  return frames - (ahead > 0 ? 1 : 0);
}

void Recovery::take_up_datasets() {
  auto names = run_.files.list(run_.stage.datasets());
  if (!names) return;
  take_up_wholes(*names);
  for (const auto& name : *names) {
    if (name.find_first_of('.') != std::string::npos) continue;
    auto shared_state = run_.stage.open_state(name);
    if (shared_state && (*shared_state)->tiles > 0) continue;
    if (!shared_state) {
      if (shared_state.error().code == Code::not_found) continue;  // of a whole that has just been ended
      if (run_.power_lost) {
        forget_unforced_state(name, shared_state.error());
        continue;
      }
      leave_at_last_commit(name, shared_state.error());
      continue;
    }
    if (!journal::whole_is_right(**shared_state)) {
      leave_at_last_commit(name,
                           Error{Code::corrupt, "what it says of the file that it goes into is damaged (CRC)", 0});
      continue;
    }
    if ((*shared_state)->owner == 0)
      journal::set_visible(**shared_state,
                           std::min((*shared_state)->visible.load(), (*shared_state)->visible_next.load()));
    auto d = ledger_.entry_of(name, std::move(shared_state).value());
    const auto forced = journal::forced_of(*d->shared_state);
    if (run_.power_lost) journal::set_visible(*d->shared_state, forced.sequence);
    d->progress.take_up(d->shared_state->visible.load());
    d->progress.durable = std::min(d->progress.visible, forced.sequence);
    take_up_frames(*d);
    d->progress.frames_durable = forced.frames;
    d->file.note_commits();
    if (run_.power_lost) {
      d->file.lose_power();
      note_held_name(*d);
    }
    if (const auto schema = stored_schema(name)) (void)writer_.take_schema(*d, *schema);
    const auto uid = d->shared_state->journal;
    // Died on its last steps with it. Of one that other nodes had part in the shared state stays until they know it.
    const auto ended = d->is_elsewhere() ? std::nullopt : end_of(*d->shared_state);
    if (ended) {
      const std::string whole = d->shared_state->whole;
      d->hidden = !whole.empty() && whole != journal::alone;
    }
    if (ended && d->ownership.is_spread()) {
      // The earlier server may have died before it could remove the link's directory.
      if (journal::is_hard_link(d->file.link) && (run_.files.exists(d->file.link) || !writer_.remove_hard_link(*d))) {
        ledger_.left_behind.push_back({d, uid, d->number, false});
        d->become(*ended);
        ledger_.outputs.push_back(d);
      }
      continue;
    }
    if (ended) {
      // What its sink could not remove. (A loss of power finds nothing of that: the end was forced to the disk last.)
      Result<void> brought;
      if (run_.files.exists(d->file.link) && !run_.power_lost) brought = writer_.bring_to_last_commit(*d);
      writer_.end(*d, *ended, std::move(brought));
      ledger_.outputs.push_back(d);
      ledger_.taken_up.insert({{uid, d->number}, d});
      continue;
    }
    if (run_.power_lost && !d->progress.any_durable() && d->shared_state->kept.load() == 0 &&
        !run_.files.exists(d->file.link)) {
      forget_unforced_state(name, Error{Code::not_found, d->file.link + " is not there", ENOENT});
      continue;
    }
    if (run_.power_lost && !take_up_after_power_loss(d)) continue;
    if (d->is_elsewhere())
      ledger_.elsewhere.push_back(d);
    else
      tell_state(*d->shared_state, DatasetState::in_flight);
    if (!take_up_tile(d)) continue;
    std::set<std::pair<std::uint64_t, std::uint32_t>> keys{{d->shared_state->journal, d->number}};
    if (d->shared_state->writers > 0) {
      if (auto r = shared_.share(*d); !r) {
        run_.log.error(d->path + ": " + r.error().message);
        run_.errors.push_back(r.error().message);
        continue;
      }
      take_up_frames(*d);
      for (std::size_t w = 0; w < d->writers.shares.size(); ++w) {
        // What was heard from writers on other nodes holds once it has been heard again.
        if (d->ownership.owns() && d->writers.slots[w].pid == 0) d->writers.slots[w].collective_index.store(0);
        if (d->writers.shares[w].journal != 0) keys.insert({d->writers.shares[w].journal, d->writers.slots[w].number});
      }
    }
    for (const auto& key : keys) ledger_.taken_up.insert({key, d});
    ledger_.outputs.push_back(d);
    run_.log.info("taking up " + d->path + " behind record " + std::to_string(d->progress.visible));
    keep_promise(d);
  }
  const auto taken = ledger_.outputs;
  for (const auto& d : taken) {
    run_.events->look(*d);
    // Who joined while no server was there is known beside the file that the program asked for.
    for (std::size_t w = 0; d->is_further() && !d->over() && w < d->writers.shares.size(); ++w) {
      const auto uid = shared_.slot_of(*d, w).journal.load(std::memory_order_acquire);
      if (uid != 0 && d->writers.shares[w].journal != uid)
        ledger_.taken_up.insert({{uid, shared_.slot_of(*d, w).number}, d});
      if (uid != 0) d->writers.enter(w, uid, shared_.slot_of(*d, w).number);
    }
    // The server before died between the shared state of a dataset and those of its outputs: nothing has been
    // committed. Those that it has made are made anew.
    if (d->over() || d->is_further() || !d->shared_state || journal::has_commits(*d->shared_state) ||
        d->shared_state->outputs_made.load() != 0 || d->continues_file())
      continue;
    for (const auto& o : ledger_.outputs_of(*d)) {
      if (o->over()) continue;
      o->hidden = true;
      writer_.end(*o, State::dropped);
    }
    further_.make(d);
    for (const auto& o : ledger_.outputs_of(*d)) {
      std::set<std::pair<std::uint64_t, std::uint32_t>> keys{{o->shared_state->journal, o->number}};
      for (std::size_t w = 0; w < o->writers.shares.size(); ++w)
        if (o->writers.shares[w].journal != 0)
          keys.insert({o->writers.shares[w].journal, shared_.slot_of(*o, w).number});
      for (const auto& key : keys) ledger_.taken_up.insert({key, o});
    }
  }
}

/// The server before may have died between a commit and the disk. The program waits in its sync for that, and no record
/// says so once more.
void Recovery::keep_promise(const std::shared_ptr<Output>& d) {
  const bool may_wait = !run_.options.recover && d->promises_durable() && d->shared_state->writers == 0 &&
                        !d->is_tile() && !d->is_further() && !d->is_elsewhere();
  if (!may_wait || !d->schema.written || d->shared_state->visible.load() <= d->shared_state->durable.load()) return;
  if (auto done = writer_.commit(d, {d->progress.visible}); !done) writer_.fail(*d, std::move(done).error());
}

/// Those of several writers are promised by their files alone: they are left as those are. True for all others.
bool Recovery::take_up_after_power_loss(const std::shared_ptr<Output>& d) {
  if (d->shared_state->writers == 0) return true;
  const std::string text =
      d->path + ": the power was lost; it holds what was durable, and what was staged of it is lost";
  run_.report(text);
  if (auto done = writer_.bring_to_last_commit(*d); !done) {
    run_.state_damaged = true;
    run_.errors.push_back(d->path + ": " + done.error().message);
    run_.log.error(run_.errors.back());
    return false;
  }
  const auto journal = d->shared_state->journal;
  writer_.end(*d, State::finished);
  ledger_.outputs.push_back(d);
  ledger_.taken_up.insert({{journal, d->number}, d});
  return false;
}

/// The wholes an earlier server has begun. Where nothing is in the file yet, the tiles are gathered anew.
void Recovery::take_up_wholes(const std::vector<std::string>& shared_states) {
  std::vector<std::string> undone;
  for (const auto& name : shared_states) {
    auto shared_state =
        name.find_first_of('.') == std::string::npos ? run_.stage.open_state(name) : Error{Code::not_found, {}, 0};
    if (!shared_state || (*shared_state)->tiles == 0) continue;
    auto w = ledger_.entry_of(name, std::move(shared_state).value());
    w->join.tiles_count = w->shared_state->tiles;
    journal::set_visible(*w->shared_state,
                         std::min(w->shared_state->visible.load(), w->shared_state->visible_next.load()));
    w->progress.take_up(w->shared_state->visible.load());
    take_up_frames(*w);
    w->progress.partial = w->shared_state->sync_index.load() > 0;
    w->file.note_commits();
    if (const auto schema = stored_schema(name)) (void)writer_.take_schema(*w, *schema);
    if (const auto ended = end_of(*w->shared_state)) {
      Result<void> brought;
      if (run_.files.exists(w->file.link))
        brought = writer_.bring_to_last_commit(*w);  // what its sink could not remove
      writer_.end(*w, *ended, std::move(brought));
      ledger_.outputs.push_back(w);
    } else if (w->progress.visible == 0 && !w->progress.partial) {
      undone.push_back(name);
      ledger_.wholes.push_back(w);
    } else {
      tell_state(*w->shared_state, DatasetState::in_flight);
      w->join.sequencer = std::make_unique<TileSequencer>();
      w->join.sequencer->resume(journal::SyncIndex{w->progress.visible}, w->progress.partial);
      ledger_.outputs.push_back(w);
      ledger_.wholes.push_back(w);
      run_.log.info("taking up " + w->path + " behind sync " + std::to_string(w->progress.visible));
    }
  }
  if (undone.empty()) return;
  // Their tiles must not name them any more when they are gone.
  for (const auto& name : shared_states) {
    auto shared_state =
        name.find_first_of('.') == std::string::npos ? run_.stage.open_state(name) : Error{Code::not_found, {}, 0};
    if (shared_state && std::find(undone.begin(), undone.end(), (*shared_state)->whole) != undone.end())
      journal::set_whole(**shared_state, {});
  }
  std::erase_if(ledger_.wholes, [&](const auto& w) {
    if (w->join.sequencer) return false;
    w->hidden = true;  // nobody has heard of it
    Result<void> brought;
    if (run_.files.exists(w->file.link)) brought = writer_.bring_to_last_commit(*w);  // what its sink had beside it
    writer_.end(*w, State::dropped, std::move(brought));
    return true;
  });
}

/// False: it is in its whole, which is finished, and so is it now.
bool Recovery::take_up_tile(const std::shared_ptr<Output>& d) {
  const std::string name = d->shared_state->whole;
  if (name.empty() || name == journal::alone) return true;
  const auto it =
      std::find_if(ledger_.wholes.begin(), ledger_.wholes.end(), [&](const auto& w) { return w->state_name == name; });
  if (it == ledger_.wholes.end()) {
    tiles_.end_tile(*d);
    ledger_.outputs.push_back(d);
    return false;
  }
  Output& w = **it;
  w.policy = d->policy;
  d->tile.whole = &w;
  d->hidden = true;
  d->tile.number = w.join.sequencer->add(run_.coupled->name(d->path));
  const bool closed = d->shared_state->closed.load() != 0 && d->shared_state->synced.load() <= d->progress.visible;
  w.join.sequencer->resume(d->tile.number, d->progress.visible, journal::SyncIndex{d->shared_state->sync_index.load()},
                           d->schema.asked, closed);
  w.join.tiles.push_back(d);
  return true;
}

}  // namespace advectio
