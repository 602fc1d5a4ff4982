#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/server_impl.h"
#include "server/storage.h"

namespace advectio {

namespace {

constexpr std::uint64_t retry_after_ns = 5'000'000'000;
constexpr std::uint64_t turn_bytes = 64ULL << 20;  // of one journal before the next has its turn

}  // namespace

/// What the ledger says of a dataset by its page alone.
std::shared_ptr<Dataset> ServerImpl::entry_of(const std::string& name, Page<DatasetPage> page) const {
  auto d = std::make_shared<Dataset>();
  d->page = std::move(page);
  d->page_name = name;
  d->path = d->page->path;
  d->link = d->page->link;
  d->number = d->page->number;
  d->format = d->page->format;
  d->policy = resolve(config_, d->path);
  place(*d);
  return d;
}

/// Its file is as it will be, though something of it may have stayed (LeftBehind), or other nodes do not know it yet. A
/// page of what another node writes is not over before that has been told from here.
bool ServerImpl::is_over(const DatasetPage& page) const {
  const auto state = static_cast<DatasetState>(page.state.load(std::memory_order_acquire));
  const bool elsewhere =
      page.owner != 0 && options_.neighbours != nullptr && page.owner - 1 != options_.neighbours->node();
  return !elsewhere && (state == DatasetState::finished || state == DatasetState::dropped);
}

/// The hard link of the file whose page that is, whatever the page says. Where none could be made: the file's own name.
std::string ServerImpl::find_hard_link(const std::string& page_name, const DatasetPage& page) const {
  const auto is_it = [&page_name](const std::string& path) {
    struct stat st {};
    return ::lstat(path.c_str(), &st) == 0 && Stage::page_name(st.st_dev, st.st_ino) == page_name;
  };
  std::string only;
  for (const char* named : {page.link, page.path}) {
    const std::string path(named, ::strnlen(named, sizeof page.link));
    if (is_it(path)) only = path;
    auto directories = journal::hard_link_directories(path, run_directory_);
    directories.push_back(directory_of(path));
    for (const auto& directory : directories) {
      const auto names =
          directory.empty() ? Result<std::vector<std::string>>(std::vector<std::string>()) : files_.list(directory);
      if (!names) continue;
      for (const auto& name : *names)
        if (journal::is_hard_link(name) && !name.ends_with("-redo") && is_it(directory + name)) return directory + name;
    }
  }
  return only;
}

/// A page that is damaged: which records belong to the dataset, and which of them are in the file, cannot be told. The
/// file is brought to its last commit, the stage stays as it is.
void ServerImpl::leave_at_last_commit(const std::string& page_name, const Error& why) {
  page_damaged_ = true;
  std::string path = stage_.datasets() + "/" + page_name;
  if (auto page = stage_.open_damaged_page(page_name)) {
    if (const auto link = find_hard_link(page_name, **page); !link.empty()) {
      path = link;
      if (journal::is_hard_link(link)) {
        // The page may be wrong about the path, but the link keeps the file's name.
        const auto name = link.substr(link.find_last_of('/') + 2);
        const auto file = name.substr(0, name.find(".advectio-"));
        const std::string said((*page)->path, ::strnlen((*page)->path, sizeof(*page)->path));
        path = said.ends_with('/' + file) ? said : directory_of(link) + file;
      }
      SinkRequest request{link, FileFormat::netcdf4, resolve(config_, path), true};
      if (auto bytes = read_whole(files_, stage_.datasets() + "/" + page_name + ".schema"))
        if (auto schema = decode_schema(*bytes)) request.format = schema->format;
      if (auto sink = sinks_(request)) (*sink)->abandon();
    }
  }
  const std::string text =
      path + ": " + why.message + "; it holds what had been committed, and what was staged of it after that is lost";
  log_.error(text);
  errors_.push_back(text);
}

/// A page is forced to the disk before anything of its dataset is promised, and before anything is in its file.
void ServerImpl::forget_unforced_page(const std::string& page_name, const Error& why) {
  log_.warning(why.message + ": nothing of that dataset had been made durable when the power was lost");
  for (const char* suffix : {"", journal::slots_suffix, ".schema"})
    (void)files_.remove(stage_.datasets() + "/" + page_name + suffix);
}

/// The same of a journal.
void ServerImpl::forget_unforced_journals() {
  for (auto it = lost_journals_.begin(); it != lost_journals_.end();) {
    auto reader = Reader::open(files_, stage_.journals() + "/" + *it, Trust::scan);
    if (reader && it->front() != '.') {
      ++it;
      continue;
    }
    if (!reader)
      log_.warning(reader.error().message + ": nothing of that journal had been made durable when the power was lost");
    journal::free_journal(stage_, *it);
    it = lost_journals_.erase(it);
  }
}

/// The datasets an earlier server has left in flight.
void ServerImpl::take_up_datasets() {
  auto names = files_.list(stage_.datasets());
  if (!names) return;
  take_up_wholes(*names);
  for (const auto& name : *names) {
    if (name.find_first_of('.') != std::string::npos) continue;
    auto page = stage_.open_page(name);
    if (page && (*page)->tiles > 0) continue;
    if (!page) {
      if (page.error().code == Code::not_found) continue;  // of a whole that has just been ended
      if (power_lost_) {
        forget_unforced_page(name, page.error());
        continue;
      }
      leave_at_last_commit(name, page.error());
      continue;
    }
    if (!journal::whole_is_right(**page)) {
      leave_at_last_commit(name,
                           Error{Code::corrupt, "what it says of the file that it goes into is damaged (CRC)", 0});
      continue;
    }
    if ((*page)->owner == 0)
      journal::set_visible(**page, std::min((*page)->visible.load(), (*page)->visible_next.load()));
    auto d = entry_of(name, std::move(page).value());
    if (power_lost_) journal::set_visible(*d->page, std::min(d->page->visible.load(), d->page->durable_forced.load()));
    d->seen = d->visible = d->page->visible.load();
    d->durable = std::min(d->visible, d->page->durable_forced.load());
    d->power_lost = power_lost_;
    d->frames_visible = d->frames_synced = d->page->frames_visible.load();
    d->resume = true;
    if (auto bytes = read_whole(files_, stage_.datasets() + "/" + name + ".schema")) {
      if (auto schema = decode_schema(*bytes)) d->schema = std::move(schema).value();
    }
    const auto uid = d->page->journal;
    // Died on its last steps with it. Of one that other nodes had part in the page stays until they know it.
    const auto state = static_cast<DatasetState>(d->page->state.load());
    const bool ended = !d->owner && (state == DatasetState::finished || state == DatasetState::dropped);
    if (ended) {
      const std::string whole = d->page->whole;
      d->joined = !whole.empty() && whole != journal::alone;
    }
    if (ended && d->spread) {
      if (journal::is_hard_link(d->link) && files_.exists(d->link)) {
        left_behind_.push_back({d, uid, d->number});
        d->state = state == DatasetState::finished ? State::finished : State::dropped;
        datasets_.push_back(d);
      } else if (journal::is_hard_link(d->link)) {
        // The earlier server may have died before it could remove the link's directory.
        (void)journal::remove_hard_link(files_, d->link);
      }
      continue;
    }
    if (ended) {
      // What its sink could not remove. (A loss of power finds nothing of that: the end was forced to the disk last.)
      if (files_.exists(d->link) && !power_lost_) (void)bring_to_last_commit(*d);
      end_dataset(*d, state == DatasetState::finished ? State::finished : State::dropped);
      datasets_.push_back(d);
      taken_up_[{uid, d->number}] = d;
      continue;
    }
    if (power_lost_ && d->durable == 0 && d->page->kept.load() == 0 && !files_.exists(d->link)) {
      forget_unforced_page(name, Error{Code::not_found, d->link + " is not there", ENOENT});
      continue;
    }
    if (power_lost_ && !take_up_after_power_loss(d)) continue;
    if (d->owner)
      elsewhere_.push_back(d);
    else
      d->page->state.store(static_cast<std::uint32_t>(DatasetState::in_flight));
    if (!take_up_tile(d)) continue;
    taken_up_[{d->page->journal, d->number}] = d;
    if (d->page->writers > 0) {
      if (auto r = share(*d); !r) {
        log_.error(d->path + ": " + r.error().message);
        errors_.push_back(r.error().message);
        continue;
      }
      for (std::size_t w = 0; w < d->shares.size(); ++w) {
        // What was heard from writers on other nodes holds once it has been heard again.
        if (d->spread && !d->owner && d->slots[w].pid == 0) d->slots[w].turn.store(0);
        if (d->shares[w].journal != 0) taken_up_[{d->shares[w].journal, d->slots[w].number}] = d;
      }
    }
    datasets_.push_back(d);
    log_.info("taking up " + d->path + " behind record " + std::to_string(d->visible));
  }
}

Result<void> ServerImpl::handle(Journal& j, const Record& r, bool verify) {
  if (r.type == RecordType::create) ADVECTIO_TRY(on_create(j, r));
  if (r.type == RecordType::join) ADVECTIO_TRY(on_join(j, r));
  const auto it = j.datasets.find(r.dataset);
  if (it == j.datasets.end()) return {};  // finished before this server began
  const auto d = it->second;
  if (d->over() || d->state == State::failed) return {};
  if (d->owner) {
    pass_on(j, r, *d);
    return {};
  }
  if (r.type == RecordType::create || r.type == RecordType::join) return {};
  if (d->whole != nullptr) return on_tile(d, r, verify);
  const Busy busy(d->busy_ns);
  if (d->shared()) {
    const auto writer = d->share_of(j.reader->journal());
    if (r.type == RecordType::close) d->shares[writer].over = d->shares[writer].closed = true;
    // Collective: all of them say it, and what the others have not synced is dropped with it.
    if (r.type == RecordType::abort) return on_abort(*d);
    ADVECTIO_TRY(d->weave->take(writer, r));
    ADVECTIO_TRY(weave(d, verify));
    return r.type == RecordType::close ? end_if_all_over(d) : Result<void>{};
  }
  if (r.sequence <= d->visible) {
    // The last commit was done before, but not what follows it: the sink failed there, or the server died.
    if (r.type == RecordType::close) return finish(d);
    return {};
  }
  return act(d, r, verify);
}

/// A record of a dataset that one process writes.
Result<void> ServerImpl::act(const std::shared_ptr<Dataset>& d, const Record& r, bool verify) {
  d->seen = r.sequence;
  switch (r.type) {
    case RecordType::schema: return on_schema(*d, r);
    case RecordType::put: return on_put(*d, r, verify);
    case RecordType::sync: return on_sync(d, r);
    case RecordType::close: return on_close(d, r);
    case RecordType::abort: return on_abort(*d);
    case RecordType::settle:
    case RecordType::join:
    case RecordType::create: break;
  }
  return Error{
      Code::corrupt,
      "record " + std::to_string(r.sequence) + " is of unknown type " + std::to_string(static_cast<int>(r.type)), 0};
}

Result<void> ServerImpl::on_create(Journal& j, const Record& r) {
  if (j.datasets.count(r.dataset) > 0) return {};  // taken up already
  auto create = journal::decode_create(r.meta);
  if (!create) return std::move(create).error();
  auto page = stage_.open_page(create->page);
  // No page, or another's: it was finished by an earlier server.
  if (!page || (*page)->journal != j.reader->journal() || (*page)->number != r.dataset || is_over(**page)) return {};
  if (create->writers > 0) {
    const auto d = shared_dataset(create->page);
    if (!d) return {};
    d->writer = j.name;
    d->shares[0].journal = j.reader->journal();
    if (!d->owner) {
      d->shares[0].visible = r.sequence;
      d->weave->resume(0, r.sequence, 0);
    }
    attach(j, r.dataset, d);
    log_.debug("create " + d->path + " by " + std::to_string(create->writers) + " writers");
    return {};
  }
  auto d = std::make_shared<Dataset>();
  d->path = create->path;
  d->link = create->link;
  d->page_name = create->page;
  d->writer = j.name;
  d->number = r.dataset;
  d->format = create->format;
  d->page = std::move(page).value();
  d->policy = resolve(config_, d->path);
  place(*d);
  if (d->owner)
    elsewhere_.push_back(d);
  else
    d->seen = d->visible = d->durable = r.sequence;
  attach(j, r.dataset, d);
  datasets_.push_back(d);
  log_.debug("create " + d->path);
  return {};
}

Result<void> ServerImpl::on_join(Journal& j, const Record& r) {
  if (j.datasets.count(r.dataset) > 0) return {};  // taken up already
  auto join = journal::decode_join(r.meta);
  if (!join) return std::move(join).error();
  const auto d = shared_dataset(join->page);
  // None, or another's: it was finished by an earlier server.
  if (!d || join->writer >= d->shares.size()) return {};
  auto& slot = d->slots[join->writer];
  if (slot.journal.load(std::memory_order_acquire) != j.reader->journal() || slot.number != r.dataset) return {};
  auto& s = d->shares[join->writer];
  s.journal = j.reader->journal();
  if (!d->owner) {
    s.visible = r.sequence;
    d->weave->resume(join->writer, r.sequence, 0);
  }
  attach(j, r.dataset, d);
  return {};
}

/// The dataset of that page, which the journals of all its writers name. Whichever is read first makes it.
std::shared_ptr<Dataset> ServerImpl::shared_dataset(const std::string& page_name) {
  for (const auto& d : datasets_)
    if (d->shared() && !d->over() && d->page_name == page_name) return d;
  auto page = stage_.open_page(page_name);
  if (!page || (*page)->writers == 0 || is_over(**page)) return nullptr;
  auto d = entry_of(page_name, std::move(page).value());
  if (!share(*d)) return nullptr;
  if (d->owner) elsewhere_.push_back(d);
  datasets_.push_back(d);
  return d;
}

/// Take up what is known of the writers.
Result<void> ServerImpl::share(Dataset& d) {
  const auto writers = d.page->writers;
  auto slots = stage_.open_slots(d.page_name, writers);
  if (!slots) return std::move(slots).error();
  d.slots = std::move(slots).value();
  d.shares.resize(writers);
  d.weave = std::make_unique<Weave>(writers);
  for (std::size_t w = 0; w < writers; ++w) {
    auto& slot = d.slots[w];
    d.shares[w].journal = slot.journal.load(std::memory_order_acquire);
    if (w == 0) d.shares[w].journal = d.page->journal;  // on another node its slot may not have been heard of yet
    d.shares[w].visible = slot.visible.load();
    d.weave->resume(w, slot.visible.load(), slot.round.load());
    if (!d.owner && d.page->closed_round.load() == ~d.page->visible.load())
      d.shares[w].over = d.shares[w].closed = true;
  }
  return {};
}

void ServerImpl::attach(Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d) {
  j.datasets[number] = d;
  if (d->shared())
    j.shared.push_back(d);
  else if (d->policy.join && d->whole == nullptr && !d->owner && !d->over())
    gather(d);
}

/// Do what the writers of a shared dataset have agreed on so far.
Result<void> ServerImpl::weave(const std::shared_ptr<Dataset>& d, bool verify) {
  while (!d->over()) {
    const auto step = d->weave->next();
    if (!step) return {};
    ADVECTIO_TRY(do_step(d, *step, verify));
  }
  return {};
}

Result<void> ServerImpl::do_step(const std::shared_ptr<Dataset>& d, const Weave::Step& step, bool verify) {
  if (step.round != 0) return end_round(d, step);
  const Record& r = step.parts[0].record;
  switch (r.type) {
    case RecordType::schema: return on_schema(*d, r);
    case RecordType::put: return on_put(*d, r, verify);
    case RecordType::sync:
      if ((r.flags & journal::flag_implicit) == 0) return {};
      ADVECTIO_TRY(commit_part(d));
      d->slots[step.parts[0].writer].read.store(r.sequence, std::memory_order_release);
      forward(true);
      return {};
    case RecordType::close: return {};  // out of turn: the last of the others ends the dataset
    default: return Error{Code::corrupt, std::string("a ") + journal::name_of(r.type) + " record out of place", 0};
  }
}

/// Every writer has synced, or closed.
Result<void> ServerImpl::end_round(const std::shared_ptr<Dataset>& d, const Weave::Step& step) {
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
  if (frame) {
    ++d->frames_synced;
    d->settle_stall();
    d->last_stall = seconds(stall_ns);
  } else if (d->last_stall) {
    *d->last_stall += seconds(stall_ns);
  }
  if (closed) {
    d->state = State::closed;
    for (auto& s : d->shares)
      s.over = s.closed = true;  // whose record had been taken out of turn, by an earlier server, too
    d->page->closed_round.store(~step.round, std::memory_order_release);
  }
  ADVECTIO_TRY(commit(d, step.round, frame ? synced_ns : 0));
  d->partial = false;
  return closed ? finish(d) : Result<void>{};
}

Result<void> ServerImpl::on_schema(Dataset& d, const Record& r) {
  if (auto whole = journal::verify_payload(r); !whole) return whole;
  auto asked = decode_schema(r.payload);
  if (!asked) return std::move(asked).error();
  return store_schema(d, *asked);
}

Result<void> ServerImpl::store_schema(Dataset& d, const Schema& asked) {
  auto stored = as_stored(asked, d.policy);
  if (!stored) return std::move(stored).error().with("schema");
  d.schema = std::move(stored).value();
  d.declared = false;
  d.uncommitted = true;
  const auto bytes = encode(*d.schema);
  return replace_whole(files_, stage_.datasets() + "/" + d.page_name + ".schema", bytes, survives_power_);
}

/// Nothing is written through a name that has come to stand for another file than the program's.
Result<void> ServerImpl::is_its_file(const Dataset& d) const {
  struct stat st {};
  if (::lstat(d.link.c_str(), &st) != 0) return system_error("open " + d.link, errno);
  // Another node may know its device by another number.
  const bool same = d.spread || stage_.control().nodes > 1 || Stage::page_name(st.st_dev, st.st_ino) == d.page_name;
  if (S_ISREG(st.st_mode) && same) return {};
  return Error{Code::permission, d.link + " is no longer the file that the program has made", EACCES};
}

/// True when the program has removed the file: no name of it is left but our link, or not even that. Its inode may by
/// now be another file's, with a dataset and a page of its own.
bool ServerImpl::was_removed(const Dataset& d) const {
  // A file without a hard link may have been renamed, what becomes one file with others is the run's own, and a loss of
  // power loses names.
  if (!journal::is_hard_link(d.link) || d.whole != nullptr || d.tiles_count > 0 || !d.page || power_lost_) return false;
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
  const auto page = stage_.open_page(d.page_name);
  if (page && ((*page)->journal != d.page->journal || (*page)->number != d.page->number)) return true;
  // Another node may know its device by another number.
  return !there || !d.page_name.ends_with('-' + std::to_string(path.st_ino));
}

Result<void> ServerImpl::ready_sink(Dataset& d) {
  if (!d.schema) {
    Schema empty;
    empty.format = d.policy.format.value_or(d.format);
    d.schema = empty;
    d.declared = false;
  }
  if (!d.sink) {
    ADVECTIO_TRY(is_its_file(d));
    if (survives_power_) ADVECTIO_TRY_WITH(keep_names(d), "make its names durable");
    auto sink = sinks_(sink_request(d, d.resume));
    if (!sink) return std::move(sink).error().with("open");
    d.sink = std::move(sink).value();
    d.power_lost = d.refused = false;
    d.charged = 0;
    d.declared = false;
  }
  if (!d.declared) {
    ADVECTIO_TRY_WITH(d.sink->declare(*d.schema), "define");
    d.declared = true;
    d.uncommitted = true;
  }
  return {};
}

Result<void> ServerImpl::on_put(Dataset& d, const Record& r, bool verify) {
  auto put = journal::decode_put(r.meta);
  if (!put) return std::move(put).error();
  if (verify) ADVECTIO_TRY(journal::verify_payload(r));
  ADVECTIO_TRY(ready_sink(d));
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
  block.bytes = r.payload.size();
  d.bytes_put += block.bytes;
  d.uncommitted = true;
  ADVECTIO_TRY_WITH(d.sink->write(block), "write " + v.name);
  return {};
}

/// Bring everything the sink has taken into the readable file. `synced_ns`: when the frame that ends here was synced.
Result<void> ServerImpl::commit(const std::shared_ptr<Dataset>& d, std::uint64_t sequence, std::uint64_t synced_ns) {
  ADVECTIO_TRY(ready_sink(*d));
  if (d->uncommitted) ADVECTIO_TRY_WITH(d->sink->commit(), "commit");
  d->uncommitted = false;
  ++commits_;
  count_sink(*d);
  if (d->shared()) {
    for (std::size_t w = 0; w < d->shares.size(); ++w) {
      d->shares[w].visible = d->weave->given(w);
      d->slots[w].round.store(d->weave->round(w), std::memory_order_relaxed);
      d->slots[w].visible.store(d->shares[w].visible, std::memory_order_release);
    }
    sequence = std::max(sequence, d->page->visible.load());  // 0: in the midst of a round
  } else {
    d->visible = sequence;
  }
  if (synced_ns != 0) {
    // A frame that is committed again counts once: one writer's frames have numbers.
    d->frames_visible = d->shared() ? d->frames_visible + 1 : d->frames_synced;
    d->to_visible.add(seconds(realtime_ns() - std::min(realtime_ns(), synced_ns)));
    d->page->frames_visible.store(d->frames_visible, std::memory_order_relaxed);
  }
  journal::set_visible(*d->page, sequence);
  forward(true);
  if (d->policy.durable || d->promises_durable()) {
    auto make = d->sink->make_durable();
    // A file is no use after a loss of power without its name.
    if (!std::exchange(d->names_durable, true))
      make = [make = std::move(make), &files = files_, path = d->path, link = d->link]() -> Result<void> {
        ADVECTIO_TRY(make());
        return journal::make_file_names_durable(files, path, link);
      };
    make_durable_soon(d, std::move(make), sequence, synced_ns);
  }
  return {};
}

/// In the midst of a frame.
Result<void> ServerImpl::commit_part(const std::shared_ptr<Dataset>& d) {
  const bool any = d->uncommitted;
  ADVECTIO_TRY(commit(d, d->shared() ? 0 : d->merge ? d->visible : d->seen, 0));
  d->partial = d->partial || any;
  return {};
}

void ServerImpl::make_durable_soon(const std::shared_ptr<Dataset>& d, std::function<Result<void>()> make,
                                   std::uint64_t sequence, std::uint64_t synced_ns, bool last) {
  const std::lock_guard guard(durable_mutex_);
  durable_jobs_.push_back(
      {std::move(make), d, sequence, d->frames_visible, synced_ns, last, d->page->journal, d->number});
  durable_wake_.notify_one();
}

Result<void> ServerImpl::on_sync(const std::shared_ptr<Dataset>& d, const Record& r) {
  auto sync = journal::decode_sync(r.meta);
  if (!sync) return std::move(sync).error();
  if (sync->frame > 0) {
    d->frames_synced = std::max(d->frames_synced, sync->frame);
    d->settle_stall();
    d->last_stall = seconds(sync->stall_ns);
  } else if (d->last_stall) {
    *d->last_stall += seconds(sync->stall_ns);
  }
  ADVECTIO_TRY(commit(d, r.sequence, sync->frame > 0 ? r.time_ns : 0));
  d->partial = false;
  return {};
}

Result<void> ServerImpl::on_close(const std::shared_ptr<Dataset>& d, const Record& r) {
  d->state = State::closed;
  ADVECTIO_TRY(on_sync(d, r));
  return finish(d);
}

/// Closed, and all of it committed: leave the file as it will be. May be done again after a failure or a death.
Result<void> ServerImpl::finish(const std::shared_ptr<Dataset>& d) {
  if (d->ending) return {};
  d->state = State::closed;
  if (!d->sink) ADVECTIO_TRY(commit(d, d->visible, 0));
  auto make_durable = d->sink->make_durable();
  ADVECTIO_TRY_WITH(d->sink->close(), "close");
  count_sink(*d);
  d->ending = (d->promises_durable() && !d->merge) || is_kept(*d);
  if (d->ending)
    make_durable_soon(d, std::move(make_durable), d->page->visible.load(), 0, true);
  else
    end_dataset(*d, State::finished);
  return {};
}

Result<void> ServerImpl::on_abort(Dataset& d) {
  ADVECTIO_TRY(take_back(d));
  end_dataset(d, d.page->visible.load() == 0 ? State::dropped : State::finished);
  return {};
}

void ServerImpl::count_sink(Dataset& d) {
  const auto c = d.sink->counters();
  d.bytes_written = c.bytes_out;
  d.encode_ns = c.encode_ns;
  charge(d);
}

void ServerImpl::charge(Dataset& d) {
  if (!d.sink || !rate_.limited()) return;
  const auto written = d.sink->counters().bytes_out;
  if (written > d.charged) rate_.spend(written - d.charged);
  d.charged = written;
}

/// `resume`: what the file holds is taken up, as far as it may be.
SinkRequest ServerImpl::sink_request(const Dataset& d, bool resume) const {
  SinkRequest request{d.link, d.schema ? d.schema->format : d.policy.format.value_or(d.format), d.policy, resume};
  request.ordered = survives_power_ && (d.policy.durable || d.promises_durable());
  request.power_lost = d.power_lost;
  request.together = d.shared() || (d.page && d.page->writers > 0);
  // Of a classic file only what was durable is known to be what it seems; nothing that was put before has been let go.
  if (d.power_lost && d.durable == 0 && !is_hdf5(request.format)) request.resume = false;
  return request;
}

/// Before anything is in the file: a later server must know of it, which may have to bring it to a commit.
Result<void> ServerImpl::keep_names(const Dataset& d) const {
  for (const auto& path : {stage_.datasets() + "/" + d.page_name, stage_.datasets()})
    ADVECTIO_TRY(make_durable(files_, path));
  return journal::make_file_names_durable(files_, d.path, d.link);
}

/// The stage is about to forget it.
void ServerImpl::keep_end(const Dataset& d) {
  auto done = make_durable(files_, d.link);
  if (done || done.error().code == Code::not_found) return;
  not_durable_ = true;
  const auto text = d.path + ": make durable: " + done.error().message;
  log_.error(text);
  errors_.push_back(text);
}

/// Those of several writers are promised by their files alone: they are left as those are. True for all others.
bool ServerImpl::take_up_after_power_loss(const std::shared_ptr<Dataset>& d) {
  if (d->page->writers == 0) return true;
  const std::string text =
      d->path + ": the power was lost; it holds what was durable, and what was staged of it is lost";
  log_.error(text);
  errors_.push_back(text);
  if (auto done = bring_to_last_commit(*d); !done) {
    page_damaged_ = true;
    errors_.push_back(d->path + ": " + done.error().message);
    log_.error(errors_.back());
    return false;
  }
  const auto journal = d->page->journal;
  end_dataset(*d, State::finished);
  datasets_.push_back(d);
  taken_up_[{journal, d->number}] = d;
  return false;
}

/// What a failure or a death has left in the midst of a commit nobody may ever take up again.
Result<void> ServerImpl::bring_to_last_commit(const Dataset& d) {
  if (was_removed(d)) return {};
  ADVECTIO_TRY(is_its_file(d));
  auto sink = sinks_(sink_request(d, true));
  if (!sink) return std::move(sink).error();
  (*sink)->abandon();
  return {};
}

/// Drop what is not committed, and know that it is dropped: `abandon` cannot say that the disk has refused.
Result<void> ServerImpl::take_back(Dataset& d) {
  if (!d.sink && !d.resume) return {};
  if (d.sink) d.sink->abandon();
  d.sink.reset();
  d.declared = d.uncommitted = false;
  auto done = bring_to_last_commit(d);
  // Its process died before it had made the hard link: nothing has ever been written through that.
  const bool begun = d.page->visible.load() > 0 || d.page->synced.load() > 0;
  if (!done && (begun || done.error().code != Code::not_found))
    return std::move(done).error().with("leave it at its last commit");
  return {};
}

/// The sink could not do it. What is staged stays staged; the program hears of it at its next sync or close.
void ServerImpl::fail(Dataset& d, Error error) {
  if (d.sink) {
    count_sink(d);
    d.sink->abandon();
    d.sink.reset();
  } else if (d.resume && error.code == Code::corrupt) {
    (void)bring_to_last_commit(d);
  }
  if (was_removed(d)) return end_dataset(d, State::dropped);
  const bool last = d.state == State::closed && !d.uncommitted;  // nothing but the end of the file was left to do
  const std::string text =
      d.path + (last ? "" : ": frame " + std::to_string(d.frames_visible + 1)) + ": " + error.message;
  const bool again = !d.error.message.empty();
  const bool known = d.state == State::failed || d.error.message == error.message;
  d.state = State::failed;
  d.resume = true;
  d.declared = false;
  d.failed_at_ns = monotonic_ns();
  auto& page = *d.page;
  tell_error(d, error);
  if (!known) {
    page.errors.fetch_add(1, std::memory_order_release);
    log_.error(text + "; what is staged is kept and tried again");
    errors_.push_back(text);
  }
  page.state.store(static_cast<std::uint32_t>(DatasetState::failed), std::memory_order_release);
  d.error = std::move(error);
  // A retry that fails again is no step forward: whoever waits for room may give up after stage.wait_max.
  if (again)
    journal::ring(stage_.control().progress);
  else
    forward(true);
}

/// For whoever writes it: what the next sync or close gives when `errors` has been counted up.
void ServerImpl::tell_error(Dataset& d, const Error& error) {
  auto& page = *d.page;
  const auto n = std::min(sizeof page.error_text - 1, error.message.size());
  std::memcpy(page.error_text, error.message.data(), n);
  page.error_text[n] = '\0';
  page.error_sys.store(error.sys != 0 ? error.sys : EIO, std::memory_order_release);
}

/// The file is as it will be; nothing of the dataset is needed in the stage any more.
void ServerImpl::end_dataset(Dataset& d, State state) {
  d.state = state;
  ++commits_;
  if (d.owner) {
    stage_.remove_dataset(d.page_name, d.id.journal, d.id.number);
    relay_->farewell(d.id, *d.owner);
    d.page = Page<DatasetPage>();
    d.slots = Page<WriterSlot>();
    d.weave.reset();
    forward(true);
    return;
  }
  d.settle_stall();
  d.sink.reset();
  d.schema.reset();
  if (was_removed(d)) {
    log_.info(d.path + ": the file was removed before it was complete; its output is dropped");
    state = d.state = State::dropped;
    d.error = Error{};
  }
  struct stat file {};
  if (state == State::finished && ::stat(d.link.c_str(), &file) == 0)
    d.bytes_written = static_cast<std::uint64_t>(file.st_size);
  const bool shared = d.page->writers > 0;
  d.frames_dropped = d.page->frames_dropped.load();
  if (d.frames_dropped > 0)
    log_.warning(d.path + ": " + std::to_string(d.frames_dropped) +
                 " frames were left out, as the stage was full (full: drop-frame)");
  journal::set_visible(*d.page, shared ? d.page->synced.load() : d.seen);
  if (survives_power_ && state == State::finished) keep_end(d);
  // First of all: a server that takes over from here must not look for what is removed below.
  d.page->state.store(
      static_cast<std::uint32_t>(state == State::dropped ? DatasetState::dropped : DatasetState::finished),
      std::memory_order_release);
  // On the disk, too, before its hard link goes.
  if (survives_power_) (void)make_durable(files_, stage_.datasets() + "/" + d.page_name);
  // The hard link last: as long as that is there the next server knows that there is something to remove.
  auto removed = d.joined || state == State::dropped ? remove_placeholder(d) : Result<void>{};
  if (journal::is_hard_link(d.link)) {
    if (removed) removed = journal::remove_hard_link(files_, d.link);
    if (!removed) {
      const std::string text = d.path + ": its hard link " + d.link + " stays: " + removed.error().message;
      log_.error(text);
      errors_.push_back(text);
      left_behind_.push_back({d.shared_from_this(), d.page->journal, d.page->number});
    }
  } else if (!removed) {
    log_.warning(d.path + ", which is empty, stays: " + removed.error().message);
  }
  // The page of that name may be another dataset's, whose file has the inode now; so is the schema beside it.
  if (const auto page = stage_.open_page(d.page_name);
      !page || ((*page)->journal == d.page->journal && (*page)->number == d.page->number))
    (void)files_.remove(stage_.datasets() + "/" + d.page_name + ".schema");
  const bool left = !left_behind_.empty() && left_behind_.back().dataset.get() == &d;
  // Other nodes may still announce it, and must be told. A server that begins has no relay yet; the page says it then.
  const bool others = options_.neighbours != nullptr && options_.neighbours->nodes() > 1;
  if (d.spread && relay_)
    relay_->ended(d.id, static_cast<DatasetState>(d.page->state.load()));
  else if (!left && !(d.spread && others))
    stage_.remove_dataset(d.page_name, d.page->journal, d.page->number);
  d.page = Page<DatasetPage>();
  d.slots = Page<WriterSlot>();
  d.weave.reset();
  d.replayed.clear();
  forward(true);
}

/// The empty file that nc_create has made, where nothing ever came to be in it. One that is not empty is never removed,
/// whatever the stage says of it.
Result<void> ServerImpl::remove_placeholder(const Dataset& d) {
  struct stat file {};
  const bool there = ::stat(d.path.c_str(), &file) == 0 && file.st_size == 0 &&
                     Stage::page_name(file.st_dev, file.st_ino) == d.page_name;
  return there ? files_.remove(d.path) : Result<void>{};
}

/// The process has ended without closing: what was synced is in the file, the frame under way is dropped.
void ServerImpl::writer_gone(Journal& j) {
  j.alive = false;
  for (auto& [number, d] : j.datasets)
    if (!d->over() && d->state != State::failed) writer_gone(j, *d);
  if (relay_ && !journal::is_mirror(j.name)) relay_->writer_gone(j.reader->journal());
}

void ServerImpl::writer_gone(Journal& j, Dataset& d) {
  if (d.owner) return;
  const auto own =
      std::find_if(j.datasets.begin(), j.datasets.end(), [&d](const auto& x) { return x.second.get() == &d; });
  if (own == j.datasets.end()) return;
  if (d.whole != nullptr) {
    d.whole->merge->gone(d.tile);
    move_on(*d.whole);
    return;
  }
  if (d.shared()) d.shares[d.share_of(j.reader->journal())].over = true;
  if (all_writers_over(d)) drop_rest(d, j.name);
}

/// It was about to join, has said so in its slot, and died before it could say it in its journal.
bool ServerImpl::died_before_joining(const Dataset& d, std::size_t w) const {
  const auto uid = d.slots[w].journal.load(std::memory_order_acquire);
  if (uid == 0 || d.spread) return false;
  const auto names = files_.list(stage_.journals());
  if (!names) return false;
  for (const auto& name : *names) {
    if (name[0] == '.') continue;  // of one that has never begun
    const auto it = journals_.find(name);
    if (it == journals_.end()) return false;  // it may be that one
    const Journal& j = *it->second;
    if (!j.reader || j.broken) continue;
    if (j.reader->journal() != uid) continue;
    return !j.alive && j.read_to_end &&
           std::none_of(j.datasets.begin(), j.datasets.end(), [&d](const auto& x) { return x.second.get() == &d; });
  }
  return true;
}

/// Shared datasets that have lost a writer before it was one; and those that all had closed before this server began.
void ServerImpl::look_at_shared() {
  const auto datasets = datasets_;
  for (const auto& d : datasets) {
    if (!d->shared() || d->owner || d->over() || d->state == State::failed) continue;
    bool news = std::all_of(d->shares.begin(), d->shares.end(), [](const auto& s) { return s.closed; });
    for (std::size_t w = 0; w < d->shares.size(); ++w) {
      if (d->shares[w].over || !died_before_joining(*d, w)) continue;
      d->shares[w].over = news = true;
    }
    if (!news) continue;
    if (auto done = end_if_all_over(d); !done) fail(*d, std::move(done).error());
  }
}

/// Of a shared dataset: the others may still have to say what belongs to a frame that one which has gone has synced.
bool ServerImpl::all_writers_over(const Dataset& d) const {
  for (std::size_t w = 0; w < d.shares.size(); ++w)
    if (!d.shares[w].over && (d.slots[w].journal.load(std::memory_order_acquire) != 0 ||
                              (d.spread && relay_ && (!relay_->all_quiet() || relay_->missed_any()))))
      return false;  // on another node it may only not have been heard of
  return true;
}

Result<void> ServerImpl::end_if_all_over(const std::shared_ptr<Dataset>& d) {
  if (d->over() || !all_writers_over(*d)) return {};
  const bool closed = std::all_of(d->shares.begin(), d->shares.end(), [](const auto& s) { return s.closed; });
  if (closed) return finish(d);
  drop_rest(*d, "(one of several)");
  return {};
}

void ServerImpl::drop_rest(Dataset& d, const std::string& writer) {
  if (d.ending) return;
  if (auto done = take_back(d); !done) return fail(d, std::move(done).error());
  const auto told = (power_lost_ ? d.page->kept : d.page->synced).load();
  if (!d.shared() && !d.merge && told > d.visible) {
    fail(d, Error{Code::corrupt,
                  "its writer " + writer + " has synced up to record " + std::to_string(told) +
                      ", and the journal ends at " + std::to_string(d.visible),
                  EIO});
    return;
  }
  const bool any =
      power_lost_ ? d.page->visible.load() > 0
                  : d.page->frames_visible.load() > 0 || (d.shared() ? d.page->visible : d.page->synced).load() > 0;
  if (!any && !d.partial) {
    log_.warning(d.path + ": its writer " + writer + " has gone before anything was synced; the file is removed");
    end_dataset(d, State::dropped);
    return;
  }
  log_.warning(d.path + ": its writer " + writer + " has gone without closing it; it holds the " +
               std::to_string(d.frames_visible) + " frames that were synced" +
               (d.partial ? " and part of the next, which had been written to make room in the stage" : ""));
  end_dataset(d, State::finished);
}

/// Handle what a journal has, for a turn. True when there was something.
bool ServerImpl::follow(Journal& j) {
  if (j.broken) return false;
  std::uint64_t bytes = 0;
  bool any = false;
  j.read_to_end = false;
  // What a writer has passed before its journal was read to the end, it has passed for us too.
  std::erase_if(j.shared, [](const auto& d) { return d->over(); });
  std::vector<SlotState> slots;
  for (const auto& d : j.shared) slots.push_back(state_of(d->slots[d->share_of(j.reader->journal())]));
  const auto shared = j.shared;
  while (bytes < turn_bytes && !in_debt()) {
    auto next = j.reader->next();
    // Of a writer that has gone more can be read than what its segments say.
    if (!next && !j.reader->writer_alive()) {
      j.reader->set_writer_gone();
      next = j.reader->next();
    }
    if (!next) {
      j.broken = true;
      j.read_to_end = true;
      const std::string text = "journal " + j.name + ": " + next.error().message;
      log_.error(text);
      errors_.push_back(text);
      for (auto& [number, d] : j.datasets) {
        if (d->over() || (d->state == State::failed && d->whole == nullptr)) continue;
        if (d->whole != nullptr) split_at(*d, text);
        fail(*d, Error{Code::corrupt, text, EIO});
      }
      return any;
    }
    if (!next->has_value()) {
      j.read_to_end = true;
      break;
    }
    const Record& r = **next;
    any = true;
    bytes += r.payload.size() + 4096;
    const auto index = j.reader->held().back().index;
    if (j.loads.empty() || j.loads.back().index != index) j.loads.push_back({index, {}, 0});
    j.loads.back().last[r.dataset] = r.sequence;
    j.loads.back().bytes += r.payload.size();
    if (r.type != RecordType::put) backlog_peak_ = std::max(backlog_peak_, backlog());
    auto done = handle(j, r, verify_);
    const auto it = j.datasets.find(r.dataset);
    if (it != j.datasets.end()) charge(it->second->whole != nullptr ? *it->second->whole : *it->second);
    if (!done) {
      if (it != j.datasets.end()) {
        fail(*it->second, std::move(done).error());
      } else {
        log_.error("journal " + j.name + ": " + done.error().message);
        errors_.push_back(done.error().message);
      }
    }
    if (r.type != RecordType::put) release(j);
  }
  for (std::size_t i = 0; j.read_to_end && i < shared.size(); ++i) {
    const auto& d = shared[i];
    if (d->over() || d->state == State::failed) continue;
    const auto writer = d->share_of(j.reader->journal());
    if (d->owner) {
      if (d->introduced.count(j.reader->journal()) > 0)
        relay_->tell(d->id, *d->page, static_cast<std::uint32_t>(writer), slots[i]);
      continue;
    }
    const auto owed = slots[i].owed;
    if (!d->weave->passed(writer, owed != 0 ? std::min(slots[i].turn, owed) : slots[i].turn)) continue;
    if (auto done = weave(d, verify_); !done) fail(*d, std::move(done).error());
  }
  if (any && relay_) tell_of(j);
  if (any) forward(false);
  return any;
}

/// Try the failed datasets again: with a fresh sink behind their last commit.
void ServerImpl::retry_failed(bool now) {
  for (auto& [name, j] : journals_) {
    if (!j->reader || j->broken) continue;
    for (auto& [number, d] : j->datasets) {
      if (d->state != State::failed || (!now && monotonic_ns() - d->failed_at_ns < retry_after_ns)) continue;
      if (d->whole != nullptr) {
        if (d->tile == 0) retry_whole(*d->whole);  // and with it all the others
        continue;
      }
      d->state = State::open;
      if (auto done = d->shared() ? replay_shared(d) : replay(*j, number, d); !done) {
        fail(*d, std::move(done).error());
        continue;
      }
      log_.warning(d->path + ": could be written after all");
      d->error = Error{};
      if (!d->over()) {
        d->page->state.store(static_cast<std::uint32_t>(DatasetState::in_flight), std::memory_order_release);
        for (auto& [other, k] : journals_)
          if (!k->alive && !d->over()) writer_gone(*k, *d);
      }
      forward(true);
      release(*j);
    }
  }
}

/// Everything that the writer has said since the last commit, once more.
Result<void> ServerImpl::replay(Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d) {
  auto again = read_again(j);
  if (!again) return std::move(again).error();
  auto done = replay_from(**again, j, number, d);
  // What the sink has taken is mapped by `again`.
  if (!done && d->sink) d->sink->abandon();
  return done;
}

Result<void> ServerImpl::replay_from(Reader& again, Journal& j, std::uint32_t number,
                                     const std::shared_ptr<Dataset>& d) {
  const auto until = j.reader->sequence();
  while (!d->over() && again.sequence() < until) {
    auto next = again.next();
    if (!next) return std::move(next).error();
    if (!next->has_value()) break;
    if ((*next)->dataset == number) ADVECTIO_TRY(handle(j, **next, true));
  }
  if (d->over() || !d->uncommitted) return {};
  if (!j.alive) return take_back(*d);  // nobody will sync it
  return commit_part(d);
}

/// A second reader of a journal, from the oldest that is held.
Result<std::unique_ptr<Reader>> ServerImpl::read_again(const Journal& j) {
  auto again = Reader::open(files_, stage_.journals() + "/" + j.name, trust_in(j.name));
  if (again && !j.alive) (*again)->set_writer_gone();
  return again;
}

/// The same where there are several.
Result<void> ServerImpl::replay_shared(const std::shared_ptr<Dataset>& d) {
  d->weave = std::make_unique<Weave>(d->shares.size());
  d->replayed.clear();
  for (std::size_t w = 0; w < d->shares.size(); ++w) {
    d->weave->resume(w, d->shares[w].visible, d->slots[w].round.load());
    const auto uid = d->shares[w].journal;
    const auto it = std::find_if(journals_.begin(), journals_.end(), [uid](const auto& j) {
      return j.second->reader && j.second->reader->journal() == uid;
    });
    if (it == journals_.end()) continue;
    Journal& j = *it->second;
    if (j.broken) return Error{Code::corrupt, "journal " + j.name + " cannot be read", EIO};
    auto again = read_again(j);
    if (!again) return std::move(again).error();
    const auto until = j.reader->sequence();
    while ((*again)->sequence() < until) {
      auto next = (*again)->next();
      if (!next) return std::move(next).error();
      if (!next->has_value()) break;
      const auto own = j.datasets.find((*next)->dataset);
      const auto type = (*next)->type;
      if (own == j.datasets.end() || own->second != d || type == RecordType::create || type == RecordType::join)
        continue;
      if (type == RecordType::abort) return on_abort(*d);
      if (type == RecordType::close) d->shares[w].over = d->shares[w].closed = true;
      ADVECTIO_TRY(d->weave->take(w, **next));
    }
    d->replayed.push_back(std::move(again).value());
  }
  ADVECTIO_TRY(weave(d, true));
  ADVECTIO_TRY(end_if_all_over(d));
  if (d->over() || !d->uncommitted) return {};
  return commit_part(d);
}

}  // namespace advectio
