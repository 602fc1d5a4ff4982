#include "server/tiles.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "journal/hard_link.h"
#include "server/coupled.h"
#include "server/events.h"
#include "server/output_file.h"

namespace advectio {

/// One more tile of a whole. A whole that has been begun takes none: whoever writes a tile of that name again begins
/// the next.
void Tiles::gather(const std::shared_ptr<Output>& d) {
  if (std::strcmp(d->shared_state->whole, journal::alone) == 0 || d->shared_state->visible.load() > 0) return;
  if (run_.options.recover && writer_.is_away(*d)) return;  // it fails by itself, and is a tile next time
  // As the program has named it: a coupled tile may be in memory.
  const auto tile = run_.coupled->name(d->path);
  const auto path = whole_path(tile);
  if (path.empty()) {
    if (!std::exchange(told_of_names_, true))
      run_.log.warning(d->path +
                       ": not named like a tile (NAME_0000, NAME.pe000000.nc, NAME_0000.nc, NAME.nc.0000, "
                       "NAME.t001.nc); it is written as it is, like all files of such names");
    return;
  }
  if (ledger_.split.contains(path)) return stay_alone(*d);
  auto it = std::find_if(ledger_.wholes.begin(), ledger_.wholes.end(), [&](const auto& w) {
    return w->path == path && !w->over() && !w->shared_state && !w->join.sequencer->has(tile);
  });
  if (it == ledger_.wholes.end()) {
    auto w = std::make_shared<Output>();
    w->path = path;
    w->format = d->format;
    w->policy = d->policy;
    w->join.sequencer = std::make_unique<TileSequencer>();
    if (d->policy.promise != Promise::staged)
      run_.log.warning(path + ": its tiles do not wait to be " + std::string(name_of(d->policy.promise)) +
                       " (promise), as each could wait for a rank that waits for it");
    it = ledger_.wholes.insert(ledger_.wholes.end(), std::move(w));
  }
  d->tile.whole = it->get();
  d->tile.number = d->tile.whole->join.sequencer->add(tile);
  d->tile.whole->join.tiles.push_back(d);
}

void Tiles::stay_alone(Output& d) {
  journal::set_whole(*d.shared_state, journal::alone);
  if (d.is_tile()) {  // the frames before are in that
    d.progress.frames_visible = d.tile.whole->progress.frames_visible;
    d.progress.back_to_visible();
    d.shared_state->frames_visible.store(d.progress.frames_visible, std::memory_order_relaxed);
  }
  d.shared_state->waits.store(0, std::memory_order_release);
  d.tile.whole = nullptr;
  d.hidden = false;
}

Result<void> Tiles::on_tile(const std::shared_ptr<Output>& d, const Record& r, bool verify) {
  Output& whole = *d->tile.whole;
  const Busy busy(whole.figures.busy_ns);
  auto taken = verify ? journal::verify_payload(r) : Result<void>{};
  if (taken) taken = whole.join.sequencer->take(d->tile.number, r);
  if (!taken) {
    split_at(*d, d->path + ": " + taken.error().message);
    return taken;
  }
  d->progress.seen = std::max(d->progress.seen, r.sequence);
  if (r.type == RecordType::put) {
    if (!whole.shared_state || whole.state == State::failed) return {};
    if (auto given = give(whole, d->tile.number, false); !given) fail_whole(whole, std::move(given).error());
    return {};
  }
  move_on(whole);
  if (!d->is_tile() || r.type == RecordType::schema) return {};
  // Whoever waits for this one alone waits in vain.
  d->shared_state->waits.store(d->progress.seen, std::memory_order_release);
  run_.forward(true);
  return {};
}

/// Do what the tiles' records allow. `now`: there is no more room to wait for others.
void Tiles::move_on(Output& whole, bool now) {
  if (whole.over() || whole.state == State::failed) return;
  if (auto done = try_to_move_on(whole, now); !done) fail_whole(whole, std::move(done).error());
}

Result<void> Tiles::try_to_move_on(Output& whole, bool now) {
  TileSequencer& m = *whole.join.sequencer;
  for (;;) {
    const auto planned = m.plan(now);
    if (!planned) {
      split(whole, planned.error().message);
      return {};
    }
    if (!*planned) break;
    if (!whole.shared_state) {
      if (!may_begin(whole)) return {};
      if (auto begun = begin_whole(whole); !begun) {
        split(whole, begun.error().message);
        return {};
      }
    }
    if (const auto* schema = m.changed()) ADVECTIO_TRY(writer_.store_schema(whole, *schema));
    for (std::size_t t = 0; t < m.size(); ++t) ADVECTIO_TRY(give(whole, t, now));
    const auto ended = m.end_sync();
    if (!ended) {
      split(whole, ended.error().message);
      return {};
    }
    if (!*ended) break;
    ADVECTIO_TRY(end_sync(whole, **ended));
  }
  if (now && whole.shared_state && whole.progress.uncommitted) ADVECTIO_TRY(commit_part_of(whole));
  return end_if_all_over(whole);
}

/// One that is begun has no other of its name before it.
bool Tiles::may_begin(const Output& whole) const {
  const auto name = run_.coupled->name(whole.path);
  return std::none_of(ledger_.wholes.begin(), ledger_.wholes.end(), [&](const auto& w) {
    return w.get() != &whole && w->shared_state && !w->over() && run_.coupled->name(w->path) == name;
  });
}

/// The tiles cover the domain: now there is a dataset. Its shared state comes first; without it a tile that names it is
/// done.
Result<void> Tiles::begin_whole(Output& whole) {
  const auto first = std::find_if(whole.join.tiles.begin(), whole.join.tiles.end(), [&](const auto& t) {
    return run_.coupled->name(t->path) == whole.join.sequencer->first_path();
  });
  whole.policy = (*first)->policy;
  whole.writer = (*first)->writer;
  whole.join.tiles_count = whole.join.tiles.size();
  for (const auto& d : ledger_.outputs)
    if (d->path == whole.path && d->join.tiles_count == 0)
      return Error{Code::exists, whole.path + " is another file of this run", 0};
  const auto version = run_.coupled->begin_whole(whole);
  if (!version) return version.error();
  const auto path = whole.path;
  if (*version) whole.path = (*version)->path;
  const auto link_name = journal::hard_link_name(whole.path, whole.join.tiles[0]->shared_state->journal, "whole");
  auto made = make_output_file(run_, whole, link_name, [&](SharedState& p) {
    p.writer_pid = static_cast<std::uint32_t>(::getpid());
    p.tiles = static_cast<std::uint32_t>(whole.join.tiles.size());
    p.created_ns = *version ? (*version)->created_ns : realtime_ns();
  });
  if (!made) {
    if (*version) run_.coupled->give_up(**version);
    whole.path = path;
    return made;
  }
  for (const auto& t : whole.join.tiles) {
    journal::set_whole(*t->shared_state, whole.state_name);
    t->hidden = true;
  }
  ledger_.outputs.push_back(whole.shared_from_this());
  run_.events->look(whole);
  run_.log.info(path + ": of " + std::to_string(whole.join.tiles.size()) + " tiles");
  return {};
}

/// Blocks of a tile to the whole's sink, as far as they may go.
Result<void> Tiles::give(Output& whole, std::size_t tile, bool now) {
  TileSequencer& m = *whole.join.sequencer;
  for (;;) {
    auto block = m.next_block(tile, now);
    if (!block) return std::move(block).error();
    if (!*block) return {};
    ADVECTIO_TRY(writer_.ready_sink(whole));
    whole.figures.bytes_put += (*block)->bytes;
    whole.progress.uncommitted = true;
    ADVECTIO_TRY(writer_.give_block(whole, **block));
    if (m.copied_bytes() > run_.config.server.memory_max) ADVECTIO_TRY(commit_part_of(whole));
  }
}

Result<void> Tiles::commit_part_of(Output& whole) {
  const auto done = writer_.commit_part(whole.shared_from_this());
  if (!done) return done.error();
  if (!*done) return {};
  whole.shared_state->sync_index.fetch_add(1, std::memory_order_release);
  whole.join.sequencer->committed_part();
  return release_tiles(whole);
}

Result<void> Tiles::end_sync(Output& whole, const TileSequencer::CommonSync& sync) {
  whole.progress.end_frame(sync.frame);
  whole.progress.sync_frame(sync.frame);
  whole.figures.stall.note(sync.frame > 0, seconds(sync.stall_ns));
  whole.shared_state->frames_synced.store(whole.progress.frames_synced, std::memory_order_relaxed);
  whole.shared_state->synced.store(number(sync.index), std::memory_order_release);
  whole.progress.seen = number(sync.index);
  ADVECTIO_TRY(writer_.commit(whole.shared_from_this(), {number(sync.index), sync.frame > 0 ? sync.synced_ns : 0}));
  whole.join.sequencer->committed();
  whole.progress.partial = whole.join.sequencer->is_ahead();
  whole.shared_state->sync_index.store(whole.progress.partial ? 1 : 0, std::memory_order_release);
  return release_tiles(whole);
}

/// What the whole has committed is done with in the tiles. First the schema that it has left: its record may go.
Result<void> Tiles::release_tiles(Output& whole) {
  for (const auto& t : whole.join.tiles) {
    if (const auto* schema = whole.join.sequencer->new_schema(t->tile.number); schema != nullptr) {
      ADVECTIO_TRY(replace_file(run_.files, run_.stage.datasets() + "/" + t->state_name + ".schema", encode(*schema)));
      t->schema.asked = *schema;
    }
    t->progress.visible = whole.join.sequencer->given(t->tile.number);
    t->shared_state->sync_index.store(number(whole.join.sequencer->sync_index(t->tile.number)),
                                      std::memory_order_relaxed);
    journal::set_visible(*t->shared_state, t->progress.visible);
  }
  run_.forward(true);
  return {};
}

Result<void> Tiles::end_if_all_over(Output& whole) {
  if (whole.over() || !whole.shared_state || !whole.join.sequencer->all_over()) return {};
  if (whole.join.sequencer->all_closed())
    ADVECTIO_TRY(writer_.finish(whole.shared_from_this()));
  else
    writer_.drop_rest(whole, "(one of its tiles')");
  end_tiles(whole);
  return {};
}

void Tiles::end_tiles(Output& whole) {
  for (const auto& t : whole.join.tiles)
    if (!t->over()) end_tile(*t);
  whole.join.tiles.clear();
}

/// All of it is in its whole.
void Tiles::end_tile(Output& d) {
  d.tile.whole = nullptr;
  d.hidden = true;
  writer_.end(d, State::finished);
}

/// They do not become one file, or not from here on: what is not in the whole goes to a file of each tile's own.
void Tiles::split(Output& whole, const std::string& why, Rest rest) {
  if (whole.shared_state)
    if (auto done = writer_.take_back(whole); !done) return fail_whole(whole, std::move(done).error());
  const bool begun = whole.shared_state && (whole.shared_state->visible.load() > 0 || whole.progress.partial);
  run_.log.warning(whole.path + ": " + why + "; its tiles are written " +
                   (begun ? "to files of their own from here on; it holds the " +
                                std::to_string(whole.progress.frames_visible) + " frames before" +
                                (whole.progress.partial ? " and a part of the next" : "")
                          : "as files of their own"));
  ledger_.split.insert(run_.coupled->name(whole.path));
  const auto tiles = std::move(whole.join.tiles);
  for (const auto& t : tiles) rest == Rest::at_hand ? give_back(whole, *t) : leave_to_retry(*t);
  if (!whole.shared_state) {
    whole.become(State::dropped);
    return;
  }
  whole.hidden = !begun;  // nobody has heard of it
  writer_.end(whole, begun ? State::finished : State::dropped);
}

void Tiles::give_back(Output& whole, Output& d) {
  if (d.over()) return;
  const bool gone = whole.join.sequencer->is_gone(d.tile.number);
  const auto* const left = whole.join.sequencer->new_schema(d.tile.number);
  auto entries = whole.join.sequencer->take_out(d.tile.number);
  const bool comes =
      std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.record.type == RecordType::schema; });
  // After a commit of which its shared state was not told the whole has left a schema that is in nothing given back.
  if (left != nullptr && (!d.schema.asked || !comes)) d.schema.asked = *left;
  if (d.schema.asked) (void)writer_.store_schema(d, Schema(*d.schema.asked));
  stay_alone(d);
  const auto self = d.shared_from_this();
  for (const auto& e : entries) {
    if (d.over()) break;
    // A block that was kept for comparison is of a frame that has been ended.
    const auto done =
        e.kept && e.record.type != RecordType::put ? Result<void>{} : writer_.act(self, e.record, run_.verify);
    d.progress.seen = std::max(d.progress.seen, d.progress.visible);  // and that block is of what was said before
    if (done) continue;
    writer_.fail(d, done.error());
    break;
  }
  if (auto done = writer_.end_commit(self); !done) writer_.fail(d, std::move(done).error());
  if (gone && !d.over() && d.state != State::failed) writer_.drop_rest(d, d.writer);
  run_.forward(true);
}

/// What this one has said cannot be read. What the others have said is not to be lost with it.
void Tiles::split_at(Output& tile, const std::string& why) {
  split(*tile.tile.whole, why, Rest::read_again);
  tile.become(State::open);  // until it has been said of it, too
}

/// What it has said since the whole's last commit is read again.
void Tiles::leave_to_retry(Output& d) {
  if (d.over()) return;
  if (d.schema.asked) (void)writer_.store_schema(d, Schema(*d.schema.asked));
  stay_alone(d);
  d.become(State::failed);
  d.file.note_commits();
  d.trouble.failed_at_ns = 0;
}

/// What holds for the whole holds for its tiles: they keep what is staged, and their ranks are told.
void Tiles::fail_whole(Output& whole, Error error) {
  writer_.fail(whole, std::move(error));
  for (const auto& t : whole.join.tiles) {
    auto& shared_state = *t->shared_state;
    std::memcpy(shared_state.error_text, whole.shared_state->error_text, sizeof shared_state.error_text);
    shared_state.error_sys.store(whole.shared_state->error_sys.load(), std::memory_order_release);
    shared_state.errors.store(whole.shared_state->errors.load(), std::memory_order_release);
    tell_state(shared_state, DatasetState::failed);
    t->become(State::failed);
    t->trouble.failed_at_ns = whole.trouble.failed_at_ns;
  }
  journal::ring(run_.stage.control().progress);
}

/// With a fresh sink behind the last commit, and everything that the tiles have said since.
void Tiles::retry_whole(Output& whole) {
  whole.join.sequencer = std::make_unique<TileSequencer>();
  whole.join.sequencer->resume(journal::SyncIndex{whole.progress.visible}, whole.progress.partial);
  whole.become(State::open);
  const auto take_all = [&](Output& t) -> Result<void> {
    const auto* j = ledger_.journal_of(t.shared_state->journal);
    if (j == nullptr) return {};
    auto again = Reader::open(run_.files, run_.stage.journals() + "/" + j->name, Trust::published);
    if (!again) return std::move(again).error();
    const auto until = j->reader->sequence();
    while ((*again)->sequence() < until) {
      auto next = (*again)->next();
      if (!next) return std::move(next).error();
      if (!next->has_value()) break;
      if ((*next)->dataset != t.number || (*next)->sequence <= t.progress.visible) continue;
      ADVECTIO_TRY_WITH(journal::verify_payload(**next), t.path);
      ADVECTIO_TRY_WITH(whole.join.sequencer->take(t.tile.number, **next), t.path);
    }
    return {};
  };
  Result<void> done;
  for (const auto& t : whole.join.tiles) {
    const bool closed = t->shared_state->closed.load() != 0 && t->shared_state->synced.load() <= t->progress.visible;
    (void)whole.join.sequencer->add(run_.coupled->name(t->path));
    whole.join.sequencer->resume(t->tile.number, t->progress.visible,
                                 journal::SyncIndex{t->shared_state->sync_index.load()}, t->schema.asked, closed);
    t->become(State::open);
    if (done) done = take_all(*t);
    const auto* j = ledger_.journal_of(t->shared_state->journal);
    if (j == nullptr || !j->alive) whole.join.sequencer->gone(t->tile.number);
  }
  if (!done && done.error().code == Code::corrupt) return split(whole, done.error().message, Rest::read_again);
  if (done) done = try_to_move_on(whole, false);
  if (!done) return fail_whole(whole, std::move(done).error());
  run_.log.warning(whole.path + ": could be written after all");
  whole.trouble.error = Error{};
  if (whole.over()) return;
  for (const auto& t : whole.join.tiles) tell_state(*t->shared_state, DatasetState::in_flight);
  tell_state(*whole.shared_state, DatasetState::in_flight);
  run_.forward(true);
}

/// The stage is full. First what is known to be of a whole goes there; only then are those given up that wait for tiles
/// which may never come.
bool Tiles::make_room() {
  const auto wholes = ledger_.wholes;
  const auto waits = [](const auto& w) {
    return !w->over() && w->state != State::failed && w->join.sequencer->holds_any();
  };
  bool any = false;
  for (const auto& w : wholes) {
    if (!waits(w)) continue;
    run_.log.info(w->path + ": writing in the midst of a frame to make room in the stage");
    move_on(*w, true);
    any = any || w->over() || !w->join.sequencer->holds_any();
  }
  if (any) return true;
  // A tile may have come that has not been read.
  any = read_on_() || any;
  if (tiles_come_again()) return any;
  for (const auto& w : wholes) {
    if (any || !waits(w)) continue;
    split(*w, "the stage is full, and " + w->join.sequencer->why_not());
    any = true;
  }
  return any;
}

/// Another node waits for room, and of a tile that a server before this one knew nothing has been said again, or less
/// than was heard then. Not for ever, nor in more than twice the room.
bool Tiles::tiles_come_again() const {
  const auto& stage = run_.stage.control();
  if (!run_.peers->held_up() || run_.stuck_for_ns >= Run::stuck_longest_ns ||
      stage.segments_limit.load() >= 2 * stage.segments_max)
    return false;
  return std::any_of(ledger_.outputs.begin(), ledger_.outputs.end(), [](const auto& d) {
    return d->file.may_hold_commits() && d->policy.join && d->ownership.owns() && !d->over() &&
           d->state != State::failed && std::strcmp(d->shared_state->whole, journal::alone) != 0 &&
           (d->progress.seen == d->progress.visible || d->progress.seen < d->shared_state->synced.load());
  });
}

/// Nobody lives who could still bring a tile. True when there was something to do.
bool Tiles::end_wholes() {
  const auto wholes = ledger_.wholes;
  bool any = false;
  for (const auto& w : wholes) {
    const auto failed = [](const auto& t) { return t->state == State::failed; };
    if (w->over() || failed(w) || std::any_of(w->join.tiles.begin(), w->join.tiles.end(), failed) || !may_begin(*w))
      continue;
    any = true;
    if (w->shared_state) {
      for (const auto& t : w->join.tiles) w->join.sequencer->gone(t->tile.number);
      move_on(*w);
      if (w->over() || w->state == State::failed) continue;
    }
    split(*w, w->join.sequencer->why_not());
  }
  look_at_wholes();
  return any;
}

/// Of one name, the next may begin when the one before is over.
void Tiles::look_at_wholes() {
  std::erase_if(ledger_.wholes, [](const auto& w) { return w->over(); });
  const auto wholes = ledger_.wholes;
  for (const auto& w : wholes) move_on(*w);
}

}  // namespace advectio
