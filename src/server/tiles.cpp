#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "server/server_impl.h"

namespace advectio {

/// One more tile of a whole. A whole that has been begun takes none: whoever writes a tile of that name again begins
/// the next.
void ServerImpl::gather(const std::shared_ptr<Dataset>& d) {
  if (std::strcmp(d->page->whole, journal::alone) == 0 || d->page->visible.load() > 0) return;
  const auto name = whole_name(d->path.substr(d->path.find_last_of('/') + 1));
  if (name.empty())
    return log_.warning(d->path +
                        ": not named like a tile (NAME_0000, NAME.pe000000.nc, NAME_0000.nc); it is written "
                        "as it is");
  const auto path = directory_of(d->path) + name;
  if (split_.contains(path)) return stay_alone(*d);
  auto it = std::find_if(wholes_.begin(), wholes_.end(), [&](const auto& w) {
    return w->path == path && !w->over() && !w->page && !w->merge->has(d->path);
  });
  if (it == wholes_.end()) {
    auto w = std::make_shared<Dataset>();
    w->path = path;
    w->format = d->format;
    w->policy = d->policy;
    w->merge = std::make_unique<Merge>();
    if (d->policy.promise != Promise::staged)
      log_.warning(path + ": its tiles do not wait to be " + std::string(name_of(d->policy.promise)) +
                   " (promise), as each could wait for a rank that waits for it");
    it = wholes_.insert(wholes_.end(), std::move(w));
  }
  d->whole = it->get();
  d->tile = d->whole->merge->add(d->path);
  d->whole->tiles.push_back(d);
}

void ServerImpl::stay_alone(Dataset& d) {
  journal::set_whole(*d.page, journal::alone);
  d.page->waits.store(0, std::memory_order_release);
  d.whole = nullptr;
  d.joined = false;
}

Result<void> ServerImpl::on_tile(const std::shared_ptr<Dataset>& d, const Record& r, bool verify) {
  Dataset& whole = *d->whole;
  const Busy busy(whole.busy_ns);
  auto taken = verify ? journal::verify_payload(r) : Result<void>{};
  if (taken) taken = whole.merge->take(d->tile, r);
  if (!taken) {
    split_at(*d, d->path + ": " + taken.error().message);
    return taken;
  }
  d->seen = std::max(d->seen, r.sequence);
  if (r.type == RecordType::put) {
    if (!whole.page || whole.state == State::failed) return {};
    if (auto given = give(whole, d->tile, false); !given) fail_whole(whole, std::move(given).error());
    return {};
  }
  move_on(whole);
  if (d->whole == nullptr || r.type == RecordType::schema) return {};
  // Whoever waits for this one alone waits in vain.
  d->page->waits.store(d->seen, std::memory_order_release);
  forward(true);
  return {};
}

/// Do what the tiles' records allow. `now`: there is no more room to wait for others.
void ServerImpl::move_on(Dataset& whole, bool now) {
  if (whole.over() || whole.state == State::failed) return;
  if (auto done = try_to_move_on(whole, now); !done) fail_whole(whole, std::move(done).error());
}

Result<void> ServerImpl::try_to_move_on(Dataset& whole, bool now) {
  Merge& m = *whole.merge;
  for (;;) {
    const auto planned = m.plan(now);
    if (!planned) {
      split(whole, planned.error().message);
      return {};
    }
    if (!*planned) break;
    if (!whole.page) {
      if (!may_begin(whole)) return {};
      if (auto begun = begin_whole(whole); !begun) {
        split(whole, begun.error().message);
        return {};
      }
    }
    if (const auto* schema = m.changed()) ADVECTIO_TRY(store_schema(whole, *schema));
    for (std::size_t t = 0; t < m.size(); ++t) ADVECTIO_TRY(give(whole, t, now));
    const auto round = m.end_round();
    if (!round) {
      split(whole, round.error().message);
      return {};
    }
    if (!*round) break;
    ADVECTIO_TRY(end_round(whole, **round));
  }
  if (now && whole.page && whole.uncommitted) ADVECTIO_TRY(commit_part_of(whole));
  return end_if_all_over(whole);
}

/// One that is begun has no other of its name before it.
bool ServerImpl::may_begin(const Dataset& whole) const {
  return std::none_of(wholes_.begin(), wholes_.end(), [&](const auto& w) {
    return w.get() != &whole && w->page && !w->over() && w->path == whole.path;
  });
}

/// The tiles cover the domain: now there is a dataset. Its page comes first; without it a tile that names it is done.
Result<void> ServerImpl::begin_whole(Dataset& whole) {
  const auto first = std::find_if(whole.tiles.begin(), whole.tiles.end(),
                                  [&](const auto& t) { return t->path == whole.merge->first_path(); });
  whole.policy = (*first)->policy;
  whole.writer = (*first)->writer;
  whole.tiles_count = whole.tiles.size();
  for (const auto& d : datasets_)
    if (d->path == whole.path && d->tiles_count == 0)
      return Error{Code::exists, whole.path + " is another file of this run", 0};
  ADVECTIO_TRY(make_whole_file(whole));
  for (const auto& t : whole.tiles) {
    journal::set_whole(*t->page, whole.page_name);
    t->joined = true;
  }
  datasets_.push_back(whole.shared_from_this());
  log_.info(whole.path + ": of " + std::to_string(whole.tiles.size()) + " tiles");
  return {};
}

Result<void> ServerImpl::make_whole_file(Dataset& whole) {
  const auto& path = whole.path;
  struct stat st {};
  if (::stat(path.c_str(), &st) == 0 &&
      (!S_ISREG(st.st_mode) || stage_.open_page(Stage::page_name(st.st_dev, st.st_ino))))
    return Error{Code::exists, path + " is there and cannot be replaced", 0};
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return system_error("create " + path, errno);
  const int failed = ::fstat(fd, &st) != 0 ? errno : 0;
  ::close(fd);
  if (failed != 0) return system_error("create " + path, failed);
  whole.page_name = Stage::page_name(st.st_dev, st.st_ino);
  const auto link_name = journal::hard_link_name(path, whole.tiles[0]->page->journal, "whole");
  const auto link_directories = journal::hard_link_directories(path, run_directory_);
  whole.link = link_directories.front() + link_name;
  if (whole.link.size() >= sizeof(DatasetPage::link)) {
    (void)::unlink(path.c_str());
    return system_error("create " + path, ENAMETOOLONG);
  }
  // The page first: what it names is found again and removed by the next server, should this one die here.
  auto made = stage_.make_dataset(whole.page_name, [&](DatasetPage& p) {
    p.format = whole.format;
    p.writer_pid = static_cast<std::uint32_t>(::getpid());
    p.tiles = static_cast<std::uint32_t>(whole.tiles.size());
    std::memcpy(p.path, path.c_str(), path.size() + 1);
    std::memcpy(p.link, whole.link.c_str(), whole.link.size() + 1);
  });
  if (!made) {
    (void)::unlink(path.c_str());
    return std::move(made).error();
  }
  whole.link = journal::give_hard_link(*made->page, path, link_name, link_directories);
  whole.page = std::move(made->page);
  return {};
}

/// Blocks of a tile to the whole's sink, as far as they may go.
Result<void> ServerImpl::give(Dataset& whole, std::size_t tile, bool now) {
  Merge& m = *whole.merge;
  for (;;) {
    auto block = m.next_block(tile, now);
    if (!block) return std::move(block).error();
    if (!*block) return {};
    ADVECTIO_TRY(ready_sink(whole));
    whole.bytes_put += (*block)->bytes;
    whole.uncommitted = true;
    ADVECTIO_TRY_WITH(whole.sink->write(**block), "write " + whole.schema->variables[(*block)->variable].name);
    if (m.copied_bytes() > config_.server.memory_max) ADVECTIO_TRY(commit_part_of(whole));
  }
}

Result<void> ServerImpl::commit_part_of(Dataset& whole) {
  ADVECTIO_TRY(commit_part(whole.shared_from_this()));
  whole.page->round.fetch_add(1, std::memory_order_release);
  whole.merge->committed_part();
  return settle_tiles(whole);
}

Result<void> ServerImpl::end_round(Dataset& whole, const Merge::Round& round) {
  if (round.frame > 0) {
    whole.frames_synced = std::max(whole.frames_synced, round.frame);
    whole.settle_stall();
    whole.last_stall = seconds(round.stall_ns);
  } else if (whole.last_stall) {
    *whole.last_stall += seconds(round.stall_ns);
  }
  whole.page->frames_synced.store(whole.frames_synced, std::memory_order_relaxed);
  whole.page->synced.store(round.number, std::memory_order_release);
  whole.seen = round.number;
  ADVECTIO_TRY(commit(whole.shared_from_this(), round.number, round.frame > 0 ? round.synced_ns : 0));
  whole.merge->committed();
  whole.partial = whole.merge->is_ahead();
  whole.page->round.store(whole.partial ? 1 : 0, std::memory_order_release);
  return settle_tiles(whole);
}

/// What the whole has committed is done with in the tiles. First the schema that it has left: its record may go.
Result<void> ServerImpl::settle_tiles(Dataset& whole) {
  for (const auto& t : whole.tiles) {
    if (const auto* schema = whole.merge->new_schema(t->tile); schema != nullptr) {
      ADVECTIO_TRY(replace_whole(files_, stage_.datasets() + "/" + t->page_name + ".schema", encode(*schema)));
      t->schema = *schema;
    }
    t->visible = whole.merge->visible(t->tile);
    t->page->round.store(whole.merge->syncs(t->tile), std::memory_order_relaxed);
    journal::set_visible(*t->page, t->visible);
  }
  forward(true);
  return {};
}

Result<void> ServerImpl::end_if_all_over(Dataset& whole) {
  if (whole.over() || !whole.page || !whole.merge->all_over()) return {};
  if (whole.merge->all_closed())
    ADVECTIO_TRY(finish(whole.shared_from_this()));
  else
    drop_rest(whole, "(one of its tiles')");
  end_tiles(whole);
  return {};
}

void ServerImpl::end_tiles(Dataset& whole) {
  for (const auto& t : whole.tiles)
    if (!t->over()) end_tile(*t);
  whole.tiles.clear();
  whole.replayed.clear();
}

/// All of it is in its whole.
void ServerImpl::end_tile(Dataset& d) {
  d.whole = nullptr;
  d.joined = true;
  end_dataset(d, State::finished);
}

/// They do not become one file, or not from here on: what is not in the whole goes to a file of each tile's own.
void ServerImpl::split(Dataset& whole, const std::string& why, Rest rest) {
  if (whole.page)
    if (auto done = take_back(whole); !done) return fail_whole(whole, std::move(done).error());
  const bool begun = whole.page && (whole.page->visible.load() > 0 || whole.partial);
  log_.warning(whole.path + ": " + why + "; its tiles are written " +
               (begun ? "to files of their own from here on; it holds the " + std::to_string(whole.frames_visible) +
                            " frames before" + (whole.partial ? " and a part of the next" : "")
                      : "as files of their own"));
  split_.insert(whole.path);
  const auto tiles = std::move(whole.tiles);
  for (const auto& t : tiles) rest == Rest::at_hand ? give_back(whole, *t) : leave_to_retry(*t);
  if (!whole.page) {
    whole.state = State::dropped;
    return;
  }
  whole.joined = !begun;  // nobody has heard of it
  end_dataset(whole, begun ? State::finished : State::dropped);
}

void ServerImpl::give_back(Dataset& whole, Dataset& d) {
  if (d.over()) return;
  const bool gone = whole.merge->is_gone(d.tile);
  const auto* const left = whole.merge->new_schema(d.tile);
  auto entries = whole.merge->give_back(d.tile);
  const bool comes =
      std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.record.type == RecordType::schema; });
  // After a commit of which its page was not told the whole has left a schema that is in nothing given back.
  if (left != nullptr && (!d.schema || !comes)) d.schema = *left;
  if (d.schema) (void)store_schema(d, *d.schema);
  stay_alone(d);
  d.returned.assign(std::move_iterator(entries.begin()), std::move_iterator(entries.end()));
  d.replayed = whole.replayed;
  const auto self = d.shared_from_this();
  for (const auto& e : d.returned) {
    if (d.over()) break;
    // A block that was kept for comparison is of a frame that has been ended.
    const auto done = e.kept && e.record.type != RecordType::put ? Result<void>{} : act(self, e.record, verify_);
    d.seen = std::max(d.seen, d.visible);  // and that block is of what was said before
    if (done) continue;
    fail(d, done.error());
    break;
  }
  if (gone && !d.over() && d.state != State::failed) drop_rest(d, d.writer);
  forward(true);
}

/// What this one has said cannot be read. What the others have said is not to be lost with it.
void ServerImpl::split_at(Dataset& tile, const std::string& why) {
  split(*tile.whole, why, Rest::read_again);
  tile.state = State::open;  // until it has been said of it, too
}

/// What it has said since the whole's last commit is read again.
void ServerImpl::leave_to_retry(Dataset& d) {
  if (d.over()) return;
  if (d.schema) (void)store_schema(d, *d.schema);
  stay_alone(d);
  d.state = State::failed;
  d.resume = true;
  d.failed_at_ns = 0;
}

/// What holds for the whole holds for its tiles: they keep what is staged, and their ranks are told.
void ServerImpl::fail_whole(Dataset& whole, Error error) {
  fail(whole, std::move(error));
  for (const auto& t : whole.tiles) {
    auto& page = *t->page;
    std::memcpy(page.error_text, whole.page->error_text, sizeof page.error_text);
    page.error_sys.store(whole.page->error_sys.load(), std::memory_order_release);
    page.errors.store(whole.page->errors.load(), std::memory_order_release);
    page.state.store(static_cast<std::uint32_t>(DatasetState::failed), std::memory_order_release);
    t->state = State::failed;
    t->failed_at_ns = whole.failed_at_ns;
  }
  journal::ring(stage_.control().progress);
}

/// With a fresh sink behind the last commit, and everything that the tiles have said since.
void ServerImpl::retry_whole(Dataset& whole) {
  whole.merge = std::make_unique<Merge>();
  whole.merge->resume(whole.visible, whole.partial);
  whole.state = State::open;
  whole.replayed.clear();
  const auto take_all = [&](Dataset& t) -> Result<void> {
    const auto it = std::find_if(journals_.begin(), journals_.end(), [&t](const auto& j) {
      return j.second->reader && j.second->reader->journal() == t.page->journal;
    });
    if (it == journals_.end()) return {};
    auto again = Reader::open(files_, stage_.journals() + "/" + it->first, Trust::published);
    if (!again) return std::move(again).error();
    const auto until = it->second->reader->sequence();
    while ((*again)->sequence() < until) {
      auto next = (*again)->next();
      if (!next) return std::move(next).error();
      if (!next->has_value()) break;
      if ((*next)->dataset != t.number || (*next)->sequence <= t.visible) continue;
      ADVECTIO_TRY_WITH(journal::verify_payload(**next), t.path);
      ADVECTIO_TRY_WITH(whole.merge->take(t.tile, **next), t.path);
    }
    whole.replayed.push_back(std::move(again).value());
    return {};
  };
  Result<void> done;
  for (const auto& t : whole.tiles) {
    const bool closed = t->page->closed.load() != 0 && t->page->synced.load() <= t->visible;
    (void)whole.merge->add(t->path);
    whole.merge->resume(t->tile, t->visible, t->page->round.load(), t->schema, closed);
    t->state = State::open;
    if (done) done = take_all(*t);
    const auto lives = [&t](const auto& j) {
      return j.second->reader && j.second->alive && j.second->reader->journal() == t->page->journal;
    };
    if (std::none_of(journals_.begin(), journals_.end(), lives)) whole.merge->gone(t->tile);
  }
  if (!done && done.error().code == Code::corrupt) return split(whole, done.error().message, Rest::read_again);
  if (done) done = try_to_move_on(whole, false);
  if (!done) return fail_whole(whole, std::move(done).error());
  log_.warning(whole.path + ": could be written after all");
  whole.error = Error{};
  if (whole.over()) return;
  for (const auto& t : whole.tiles)
    t->page->state.store(static_cast<std::uint32_t>(DatasetState::in_flight), std::memory_order_release);
  whole.page->state.store(static_cast<std::uint32_t>(DatasetState::in_flight), std::memory_order_release);
  forward(true);
}

/// The stage is full. First what is known to be of a whole goes there; only then are those given up that wait for tiles
/// which may never come.
bool ServerImpl::make_room_in_wholes() {
  const auto wholes = wholes_;
  const auto waits = [](const auto& w) { return !w->over() && w->state != State::failed && w->merge->holds_any(); };
  bool any = false;
  for (const auto& w : wholes) {
    if (!waits(w)) continue;
    log_.info(w->path + ": writing in the midst of a frame to make room in the stage");
    move_on(*w, true);
    any = any || w->over() || !w->merge->holds_any();
  }
  if (any) return true;
  // A tile may have come that has not been read.
  look_for_writers();
  for (auto& [name, j] : journals_) any = follow(*j) || any;
  if (tiles_come_again()) return any;
  for (const auto& w : wholes) {
    if (any || !waits(w)) continue;
    split(*w, "the stage is full, and " + w->merge->why_not());
    any = true;
  }
  return any;
}

/// Another node waits for room, and of a tile that a server before this one knew nothing has been said again, or less
/// than was heard then. Not for ever, nor in more than twice the room.
bool ServerImpl::tiles_come_again() const {
  const auto& stage = stage_.control();
  if (!relay_ || !relay_->held_up() || stuck_for_ns_ >= stuck_longest_ns ||
      stage.segments_limit.load() >= 2 * stage.segments_max)
    return false;
  return std::any_of(datasets_.begin(), datasets_.end(), [](const auto& d) {
    return d->resume && d->policy.join && d->spread && !d->owner && !d->over() && d->state != State::failed &&
           std::strcmp(d->page->whole, journal::alone) != 0 &&
           (d->seen == d->visible || d->seen < d->page->synced.load());
  });
}

/// Nobody lives who could still bring a tile. True when there was something to do.
bool ServerImpl::settle_wholes() {
  const auto wholes = wholes_;
  bool any = false;
  for (const auto& w : wholes) {
    const auto failed = [](const auto& t) { return t->state == State::failed; };
    if (w->over() || failed(w) || std::any_of(w->tiles.begin(), w->tiles.end(), failed) || !may_begin(*w)) continue;
    any = true;
    if (w->page) {
      for (const auto& t : w->tiles) w->merge->gone(t->tile);
      move_on(*w);
      if (w->over() || w->state == State::failed) continue;
    }
    split(*w, w->merge->why_not());
  }
  look_at_wholes();
  return any;
}

/// Of one name, the next may begin when the one before is over.
void ServerImpl::look_at_wholes() {
  std::erase_if(wholes_, [](const auto& w) { return w->over(); });
  const auto wholes = wholes_;
  for (const auto& w : wholes) move_on(*w);
}

/// The wholes an earlier server has begun. Where nothing is in the file yet, the tiles are gathered anew.
void ServerImpl::take_up_wholes(const std::vector<std::string>& pages) {
  std::vector<std::string> undone;
  for (const auto& name : pages) {
    auto page = name.find_first_of('.') == std::string::npos ? stage_.open_page(name) : Error{Code::not_found, {}, 0};
    if (!page || (*page)->tiles == 0) continue;
    auto w = std::make_shared<Dataset>();
    w->page = std::move(page).value();
    w->page_name = name;
    w->path = w->page->path;
    w->link = w->page->link;
    w->format = w->page->format;
    w->tiles_count = w->page->tiles;
    journal::set_visible(*w->page, std::min(w->page->visible.load(), w->page->visible_next.load()));
    w->seen = w->visible = w->page->visible.load();
    w->frames_visible = w->frames_synced = w->page->frames_visible.load();
    w->partial = w->page->round.load() > 0;
    w->resume = true;
    w->policy = resolve(config_, w->path);
    if (auto bytes = read_whole(files_, stage_.datasets() + "/" + name + ".schema"))
      if (auto schema = decode_schema(*bytes)) w->schema = std::move(schema).value();
    const auto state = static_cast<DatasetState>(w->page->state.load());
    if (state == DatasetState::finished || state == DatasetState::dropped) {
      if (files_.exists(w->link)) (void)bring_to_last_commit(*w);  // what its sink could not remove
      end_dataset(*w, state == DatasetState::finished ? State::finished : State::dropped);
      datasets_.push_back(w);
    } else if (w->visible == 0 && !w->partial) {
      undone.push_back(name);
      wholes_.push_back(w);
    } else {
      w->page->state.store(static_cast<std::uint32_t>(DatasetState::in_flight));
      w->merge = std::make_unique<Merge>();
      w->merge->resume(w->visible, w->partial);
      datasets_.push_back(w);
      wholes_.push_back(w);
      log_.info("taking up " + w->path + " behind round " + std::to_string(w->visible));
    }
  }
  if (undone.empty()) return;
  // Their tiles must not name them any more when they are gone.
  for (const auto& name : pages) {
    auto page = name.find_first_of('.') == std::string::npos ? stage_.open_page(name) : Error{Code::not_found, {}, 0};
    if (page && std::find(undone.begin(), undone.end(), (*page)->whole) != undone.end()) journal::set_whole(**page, {});
  }
  std::erase_if(wholes_, [&](const auto& w) {
    if (w->merge) return false;
    if (files_.exists(w->link)) (void)bring_to_last_commit(*w);  // what its sink had beside it
    end_dataset(*w, State::dropped);
    return true;
  });
}

/// False: it is in its whole, which is finished, and so is it now.
bool ServerImpl::take_up_tile(const std::shared_ptr<Dataset>& d) {
  const std::string name = d->page->whole;
  if (name.empty() || name == journal::alone) return true;
  const auto it = std::find_if(wholes_.begin(), wholes_.end(), [&](const auto& w) { return w->page_name == name; });
  if (it == wholes_.end()) {
    end_tile(*d);
    datasets_.push_back(d);
    return false;
  }
  Dataset& w = **it;
  w.policy = d->policy;
  d->whole = &w;
  d->joined = true;
  d->tile = w.merge->add(d->path);
  const bool closed = d->page->closed.load() != 0 && d->page->synced.load() <= d->visible;
  w.merge->resume(d->tile, d->visible, d->page->round.load(), d->schema, closed);
  w.tiles.push_back(d);
  return true;
}

}  // namespace advectio
