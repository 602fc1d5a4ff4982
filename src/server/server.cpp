#include "server/server.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "journal/mirror.h"
#include "journal/spill.h"
#include "platform/machine.h"
#include "server/server_impl.h"

namespace advectio {

namespace {

constexpr std::uint64_t idle_slice_ns = 5'000'000;
constexpr std::uint64_t look_around_ns = 50'000'000;  // new and dead writers
constexpr std::uint64_t starved_recently_ns = 200'000'000;
constexpr std::uint64_t burst_pause_ns = 20'000'000;  // a frame under way that has stood still so long is drained
constexpr std::uint64_t burst_max_ns = 3'000'000'000;
constexpr auto retry_pause = std::chrono::milliseconds(100);  // of a disk that refuses to take back what was begun
constexpr std::uint64_t last_chance_every_ns = 200'000'000;

/// True when fewer threads want to run than there are cores (/proc/loadavg: "runnable/all").
bool cores_to_spare() {
  std::ifstream in("/proc/loadavg");
  std::string a, b, c, tasks;
  if (!(in >> a >> b >> c >> tasks)) return true;
  return std::strtoul(tasks.c_str(), nullptr, 10) < usable_cores();
}

}  // namespace

ServerImpl::~ServerImpl() {
  socket_.reset();
  {
    const std::lock_guard guard(durable_mutex_);
    durable_ending_ = true;
  }
  durable_wake_.notify_all();
  if (durable_thread_.joinable()) durable_thread_.join();
  relay_.reset();
  pool_.reset();
}

Result<std::unique_ptr<Server>> Server::open(Files& files, const ServerOptions& options, const Config& config,
                                             SinkFactory sinks, Log& log) {
  ADVECTIO_TRY_WITH(files.make_directory(options.run_dir, 0700), "run directory");
  auto lock = journal::ProcessLock::take(options.run_dir + "/server.lock");
  if (!lock) {
    if (lock.error().code == Code::exists)
      return Error{Code::exists, options.run_dir + " is being served by another advectiod", 0};
    return std::move(lock).error();
  }
  auto segment_bytes = options.segment_bytes;
  auto segments_max = options.segments_max;
  if (auto there = Stage::open(files, options.run_dir)) {
    // The segments that exist keep their size; the cap in bytes holds.
    segments_max = std::max<std::uint64_t>(2, segments_max * segment_bytes / there->control().segment_bytes);
    segment_bytes = there->control().segment_bytes;
    if (there->control().nodes > 1 && options.neighbours == nullptr)
      return Error{Code::invalid,
                   options.run_dir + " is the stage of one of " + std::to_string(there->control().nodes) +
                       " nodes; their servers must be started together (`advectio recover`, in a job with those nodes)",
                   0};
  } else if (there.error().code != Code::not_found) {
    return std::move(there).error();
  } else if (options.recover && options.neighbours == nullptr) {
    return Error{Code::not_found, options.run_dir + " is not the run directory of a run (there is no control page)", 0};
  }
  auto stage = Stage::make(files, options.run_dir, segment_bytes, segments_max, options.wait_max_ns,
                           {options.boot, options.survives_power});
  if (!stage) return std::move(stage).error();
  if (const auto* all = options.neighbours; all != nullptr) {
    auto& control = stage->control();
    control.node = all->node();
    control.nodes = all->nodes();
    control.io_nodes = all->io_nodes();
  }
  auto server = std::make_unique<ServerImpl>(files, options, config, std::move(sinks), log, std::move(lock).value(),
                                             std::move(stage).value());
  ADVECTIO_TRY(server->begin());
  return std::unique_ptr<Server>(std::move(server));
}

Result<void> ServerImpl::begin() {
  last_writer_ns_ = monotonic_ns();
  ADVECTIO_TRY(journal::remove_mirrors(stage_));
  const auto left = files_.list(stage_.journals());
  verify_ = options_.recover || (left && !left->empty());
  survives_power_ = stage_.survives_power();
  power_lost_ = survives_power_ && stage_.has_lost_power(options_.boot);
  if (power_lost_ && left) lost_journals_.insert(left->begin(), left->end());
  if (power_lost_ && !options_.recover)
    return Error{Code::exists, options_.run_dir + " is of a run that has lost power; `advectio recover` finishes it",
                 0};
  if (power_lost_) {
    log_.warning("the power was lost during this run: what its programs had not made durable may be lost");
    forget_unforced_journals();
  }
  if (stage_.control().left != 0) {
    // From here on it changes again.
    stage_.control().left = 0;
    std::snprintf(stage_.control().boot, sizeof stage_.control().boot, "%s", options_.boot.c_str());
    if (survives_power_) ADVECTIO_TRY(make_durable(files_, stage_.directory() + "/control"));
  }
  take_up_datasets();
  if (options_.neighbours != nullptr && options_.neighbours->nodes() > 1) {
    ADVECTIO_TRY(files_.make_directory(stage_.questions(), 0700));
    relay_ = std::make_unique<Relay>(stage_, *options_.neighbours, options_.helping, log_);
    asked_ = stage_.control().asked.load() - 1;  // those that an earlier server has heard, too
  }
  if (!options_.spill.empty())
    ADVECTIO_TRY_WITH(journal::begin_spill(stage_, options_.spill, options_.spill_max / stage_.control().segment_bytes),
                      "stage.spill");
  durable_thread_ = std::thread([this] { make_durable_jobs(); });
  if (!options_.recover) {
    // What the ranks need of the config: see SessionImpl in capture/session.cpp.
    std::string rules = options_.drain_later ? "later\n" : "";
    if (!run_directory_.empty()) rules += "directory " + run_directory_ + '\n';
    for (const auto& r : config_.datasets) {
      const auto flag = [&r](const char* key, char set) { return std::string(1, r.sets(key) ? set : '-') + ' '; };
      rules += "rule " + flag("capture", r.values.capture ? '1' : '0') +
               flag("close", r.values.close == CloseMode::wait ? '1' : '0') + flag("join", r.values.join ? '1' : '0') +
               flag("promise", "svd"[static_cast<int>(r.values.promise)]) +
               flag("full", "awsd"[static_cast<int>(r.values.full)]) + r.match + '\n';
    }
    ADVECTIO_TRY(replace_whole(files_, options_.run_dir + "/capture.conf", std::as_bytes(std::span(rules))));
  }
  if (!options_.recover || relay_) pool_ = std::make_unique<SegmentPool>(stage_, options_.warm_segments, log_);
  auto secret = secret_of_run(files_, options_.run_dir);
  if (!secret) return std::move(secret).error().with("the run's secret");
  auto socket = ControlSocket::open(options_.run_dir + "/socket", std::move(secret).value(),
                                    {[this] { return status(); },
                                     [this] {
                                       draining_ = true;
                                       journal::ring(stage_.control().work);
                                     },
                                     [this] {
                                       leaving_ = true;
                                       draining_ = true;
                                       journal::ring(stage_.control().work);
                                     }});
  if (!socket) return std::move(socket).error();
  socket_ = std::move(socket).value();
  return {};
}

void ServerImpl::look_for_writers() {
  auto names = files_.list(stage_.journals());
  if (!names) return;
  for (const auto& name : *names) {
    if (name[0] == '.' || journals_.count(name) > 0) continue;
    auto reader = Reader::open(files_, stage_.journals() + "/" + name, trust_in(name));
    if (!reader) {
      log_.error(reader.error().message);
      errors_.push_back(reader.error().message);
      auto broken = std::make_unique<Journal>();
      broken->name = name;
      broken->broken = true;
      broken->alive = false;
      broken->read_to_end = true;
      journals_[name] = std::move(broken);
      continue;
    }
    auto j = std::make_unique<Journal>();
    j->name = name;
    j->reader = std::move(reader).value();
    for (auto& [key, d] : taken_up_)
      if (key.first == j->reader->journal()) {
        if (!d->shared() || d->shares[0].journal == key.first) d->writer = name;
        attach(*j, key.second, d);
      }
    any_writer_ = true;
    log_.info("writer " + name + " (" + j->reader->writer().command + ")");
    journals_[name] = std::move(j);
  }
}

/// Give back the segments whose every record is committed.
void ServerImpl::release(Journal& j) {
  if (!j.reader) return;
  while (!j.reader->held().empty()) {
    const auto& oldest = j.reader->held().front();
    if (!oldest.done && (j.alive || !j.read_to_end || j.broken)) return;
    // What was sent may be known to be in the file, from before a restart, and yet be under way once more.
    if (relay_ && relay_->unsent(j.reader->journal()) <= oldest.last_sequence) return;
    if (!j.loads.empty() && j.loads.front().index == oldest.index) {
      for (const auto& [number, last] : j.loads.front().last) {
        const auto it = j.datasets.find(number);
        if (it == j.datasets.end() || it->second->over()) continue;
        if (!is_done_with(*it->second, j.reader->journal(), last)) return;
      }
      j.loads.pop_front();
    }
    if (auto r = j.reader->release_oldest(stage_, true); !r) {
      log_.warning("recycle a segment: " + r.error().message);
      return;
    }
    forward(true);
  }
}

/// Nothing of that dataset is needed of the journal up to that record.
bool ServerImpl::is_done_with(const Dataset& d, std::uint64_t journal, std::uint64_t sequence) const {
  if (d.ending || d.state == State::failed) return false;
  return std::min(d.visible_of(journal), is_kept(d) ? d.durable : UINT64_MAX) >= sequence;
}

/// Its records are kept until they are durable in the file, so that a loss of power finds them in one of the two.
bool ServerImpl::is_kept(const Dataset& d) const {
  return survives_power_ && !d.shared() && !d.merge && d.whole == nullptr && (d.policy.durable || d.promises_durable());
}

/// A step forward: whoever waits for it looks again.
void ServerImpl::forward(bool rang) {
  stage_.control().activity.fetch_add(1, std::memory_order_relaxed);
  if (rang) journal::ring(stage_.control().progress);
}

/// A writer has found the pool empty: take back what others have only mapped ahead, and commit in the midst of frames.
void ServerImpl::make_room() {
  // It may have got one since, unless it is on another node.
  if (stage_.free_segments() > 0 && !(relay_ && relay_->pleaded())) return;
  bool reclaimed = false;
  for (auto& [name, j] : journals_) {
    const std::string directory = stage_.journals() + "/" + name;
    auto names = files_.list(directory);
    if (!names) continue;
    for (const auto& file : *names)
      if (file.rfind("ahead-", 0) == 0 && journal::give_back(stage_, directory + "/" + file, file.substr(6)))
        reclaimed = true;
  }
  if (reclaimed) {
    forward(true);
    return;
  }
  bool any = false;
  for (const auto& d : datasets_) {
    if (d->over() || d->state == State::failed || d->owner || !d->uncommitted || d->merge) continue;
    any = true;
    log_.info(d->path + ": committing in the midst of a frame to make room in the stage");
    if (auto r = commit_part(d); !r) fail(*d, std::move(r).error());
  }
  const auto datasets = datasets_;  // reading on may find new ones
  for (const auto& d : datasets)
    if (!any && d->shared() && !d->owner && !d->over() && d->state != State::failed) any = make_room_at_any_price(d);
  if (!any) any = make_room_in_wholes();
  if (!any && relay_ && !elsewhere_.empty()) relay_->plead();
  // What would let something go may be behind what there is no room for.
  const bool stuck = !any && relay_ && relay_->held_up() && pool_->exhausted();
  if (!stuck || stuck_since_ns_ == 0) stuck_since_ns_ = stuck ? monotonic_ns() : 0;
  if (!stuck) stuck_for_ns_ = stuck_max_ns;
  if (stuck && monotonic_ns() - stuck_since_ns_ > stuck_for_ns_) {
    pool_->grow_beyond_cap();
    const auto beyond = stage_.control().segments_limit.load() - stage_.control().segments_max;
    if (std::has_single_bit(beyond))  // 1, 2, 4, 8 ...
      log_.warning("the stage grows beyond its cap by " + std::to_string(beyond) +
                   (beyond == 1 ? " segment" : " segments") + ", as there is no room for what other nodes send");
    stuck_since_ns_ = 0;
    // In vain: the one before has brought nothing on, or time is what it takes.
    const auto activity = stage_.control().activity.load();
    const bool in_vain =
        activity == grown_activity_ ||
        std::any_of(datasets_.begin(), datasets_.end(), [](const auto& d) { return d->state == State::failed; });
    stuck_for_ns_ = in_vain ? std::min(2 * stuck_for_ns_, stuck_longest_ns) : stuck_max_ns;
    grown_activity_ = activity;
  }
  for (auto& [name, j] : journals_) release(*j);
}

/// Nobody here writes any more, and for as long as a program would wait there has been no room for what other nodes
/// still have to say. Where files have failed, a stage that grows is no step forward: only commits are.
bool ServerImpl::has_no_room_to_end(std::uint64_t now) {
  const bool failed =
      std::any_of(datasets_.begin(), datasets_.end(), [](const auto& d) { return d->state == State::failed; });
  const bool writes = std::any_of(journals_.begin(), journals_.end(),
                                  [](const auto& j) { return j.second->alive && !journal::is_mirror(j.first); });
  const bool held_up = relay_->held_up() && pool_->exhausted();
  const auto steps = failed ? commits_ : stage_.control().activity.load();
  if (!draining_ || writes || (!held_up && !failed) || steps != held_up_steps_ || held_up_since_ns_ == 0) {
    held_up_steps_ = steps;
    held_up_since_ns_ = now;
    return false;
  }
  return held_up && now - held_up_since_ns_ > options_.wait_max_ns;
}

/// It stays with them, until somebody begins again where there is room.
void ServerImpl::leave_to_others() {
  left_to_others_ = true;
  const std::string text = "the stage " + stage_.directory() +
                           " is full and has no room for what other nodes still have to say; it stays in their stages";
  log_.error(text);
  errors_.push_back(text);
  for (auto& d : datasets_)
    if (!d->over() && d->sink) d->sink->abandon();
  relay_->quiet();
  (void)agreed_on_end();
}

/// Writers of a shared dataset wait for room that others of them hold: what those have put goes to the file out of its
/// turn.
bool ServerImpl::make_room_at_any_price(const std::shared_ptr<Dataset>& d) {
  // Not before their schema: a writer that owes it has a segment for it. Once it is told it must also have been read.
  if (d->slots[0].owed.load(std::memory_order_acquire) != 0) return false;
  for (auto& [name, j] : journals_) (void)follow(*j);
  if (d->over() || d->state == State::failed || !d->schema) return false;
  auto step = d->weave->next_at_any_price();
  const bool pending = !step;
  if (pending) step = d->weave->next_pending();
  if (!step) return false;
  log_.info(d->path + (pending ? ": writing requests before they are waited for" : ": writing out of turn") +
            " to make room in the stage");
  Result<void> done;
  for (; done && step; step = pending ? d->weave->next_pending() : d->weave->next_at_any_price())
    done = do_step(d, *step, false);
  if (done) done = commit_part(d);
  if (!done) fail(*d, std::move(done).error());
  return true;
}

void ServerImpl::make_durable_jobs() {
  std::unique_lock guard(durable_mutex_);
  for (;;) {
    durable_wake_.wait(guard, [this] { return durable_ending_ || !durable_jobs_.empty(); });
    if (durable_jobs_.empty()) return;
    DurableJob job = std::move(durable_jobs_.front());
    durable_jobs_.pop_front();
    // Of several commits of one dataset the latest speaks for all.
    std::vector<std::uint64_t> synced{job.synced_ns};
    for (auto it = durable_jobs_.begin(); it != durable_jobs_.end();) {
      if (it->dataset != job.dataset) {
        ++it;
        continue;
      }
      synced.push_back(it->synced_ns);
      job.make = std::move(it->make);
      job.sequence = it->sequence;
      job.frames = it->frames;
      job.last = it->last;
      it = durable_jobs_.erase(it);
    }
    ++durable_busy_;
    guard.unlock();
    auto done = job.make();
    // The system tells an error once: who asks again hears that all is well.
    if (done && job.dataset->refused) done = Error{Code::io, "the disk has refused what came before", EIO};
    if (!done) job.dataset->refused = true;
    if (done && survives_power_) done = note_durable(job);
    const auto now = realtime_ns();
    guard.lock();
    --durable_busy_;
    durable_done_.push_back(
        {std::move(job.dataset), job.sequence, job.frames, job.last, std::move(synced), now, std::move(done)});
    journal::ring(stage_.control().work);
  }
}

/// Before a segment goes whose records are durable in the file: where the file goes on must be known.
Result<void> ServerImpl::note_durable(const DurableJob& job) const {
  auto page = stage_.open_page(job.dataset->page_name);
  if (!page || (*page)->journal != job.journal || (*page)->number != job.number) return {};
  (*page)->durable_forced.store(job.sequence, std::memory_order_release);
  auto forced = make_durable(files_, stage_.datasets() + "/" + job.dataset->page_name);
  return forced || forced.error().code != Code::not_found ? std::move(forced) : Result<void>{};  // it has ended
}

/// The disk has refused what is committed, and nobody knows what it holds: all since the last time it did not is
/// written again.
void ServerImpl::lose_durable(Dataset& d, const Error& error) {
  d.ending = false;
  d.visible = d.seen = d.durable;
  journal::set_visible(*d.page, d.visible);
  fail(d, error);
}

/// What the durable thread has done, into the ledger.
void ServerImpl::collect_durable() {
  std::vector<DurableDone> done;
  {
    const std::lock_guard guard(durable_mutex_);
    done.swap(durable_done_);
  }
  for (auto& x : done) {
    if (!x.result) {
      if (is_kept(*x.dataset) && !x.dataset->over()) {
        if (x.dataset->state != State::failed)
          lose_durable(*x.dataset, std::move(x.result).error().with("make durable"));
        continue;
      }
      const std::string text = x.dataset->path + ": make durable: " + x.result.error().message;
      log_.error(text);
      errors_.push_back(text);
      not_durable_ = true;
      if (x.dataset->page) {
        tell_error(*x.dataset, x.result.error());
        x.dataset->page->errors.fetch_add(1, std::memory_order_release);
      }
      if (x.last) end_dataset(*x.dataset, State::finished);
      forward(true);
      continue;
    }
    // Of before it failed; what is written since is another matter.
    if (x.dataset->state == State::failed && is_kept(*x.dataset)) continue;
    x.dataset->frames_durable = x.frames;
    x.dataset->durable = std::max(x.dataset->durable, x.sequence);
    if (x.dataset->page) x.dataset->page->durable.store(x.sequence, std::memory_order_release);
    if (x.last) end_dataset(*x.dataset, State::finished);
    if (x.dataset->promises_durable() || survives_power_) forward(true);
    for (const auto at : x.synced)
      if (at != 0) x.dataset->to_durable.add(seconds(x.at_ns - std::min(x.at_ns, at)));
  }
}

/// A model that puts a frame has the cores to itself where there are none to spare: compressing what it has put so far
/// would take from it the very time it is to get back. As soon as it has synced, or pauses, or the stage fills, its
/// frame is drained.
bool ServerImpl::give_way(std::uint32_t work, std::uint64_t now) {
  if (work != burst_work_) {
    burst_work_ = work;
    burst_moved_ns_ = now;
  }
  auto& control = stage_.control();
  const bool burst = control.bursts.load(std::memory_order_relaxed) > 0 && now - burst_moved_ns_ < burst_pause_ns &&
                     control.starved_ns.load() + starved_recently_ns < now && !stopping_ && !cores_to_spare();
  if (!burst) {
    burst_began_ns_ = 0;
    return false;
  }
  if (burst_began_ns_ == 0) burst_began_ns_ = now;
  if (now - burst_began_ns_ > burst_max_ns) return false;
  if (pool_ && !pool_->exhausted()) return true;
  return stage_.free_segments() >= 2;
}

Outcome ServerImpl::run() {
  // Not before: until the server answers, the program waits to be started, and warming takes a core.
  if (pool_) pool_->begin();
  bool moved = true;
  for (;;) {
    const auto seen = stage_.control().work.load(std::memory_order_acquire);
    const auto now = monotonic_ns();
    const bool giving_way = give_way(seen, now);
    if (pool_) pool_->rest(giving_way);
    if (giving_way) {
      // Not on the doorbell: to be woken at every block would take the time that is to be given.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    // In an idle drain the death of a program may be all that is waited for.
    const bool look = now - last_look_ns_ > look_around_ns || (draining_ && !moved);
    moved = false;
    for (auto& [name, j] : journals_) moved = follow(*j) || moved;
    if (look || !moved) look_for_writers();
    if (leaving_ && may_leave()) {
      leave();
      break;
    }
    if (look) {
      last_look_ns_ = now;
      look_at_stage();
      for (auto& [name, j] : journals_) {
        if (!j->alive || !j->reader) continue;
        if (j->reader->writer_alive()) {
          last_writer_ns_ = now;
          continue;
        }
        // Gone. What it had written before is handled first.
        j->reader->set_writer_gone();
        while (follow(*j) && !leaving_) {
        }
        if (!j->broken && !j->read_to_end) continue;  // not all of it yet: `server.drain_max`, or it will be left
        if (!j->broken) writer_gone(*j);
        j->alive = false;
      }
      if (std::none_of(journals_.begin(), journals_.end(), [](const auto& j) { return j.second->alive; })) {
        if (pool_ && draining_ && !relay_) {
          allocated_peak_ =
              std::max(allocated_peak_, stage_.control().segments_total.load() * stage_.control().segment_bytes);
          pool_->give_back();
        }
        stage_.control().bursts.store(0);  // what the dead have left
      }
      look_at_shared();
      forget_journals();
      retry_failed(false);
      look_at_wholes();
    }
    for (auto& [name, j] : journals_) release(*j);
    collect_durable();
    const bool starved = stage_.control().starved_ns.load() + starved_recently_ns > now;
    // While written bytes are paid for, time is what makes room: no commits in the midst of frames for its sake.
    const bool pays = in_debt();
    if (pays) forward(false);
    if (pool_ && starved && pool_->exhausted() && !moved && !pays) make_room();
    if (relay_) {
      if (!moved && !starved && !pays && relay_->pleaded()) make_room();
      look_at_owners();
      if (has_no_room_to_end(now)) {
        leave_to_others();
        break;
      }
    }
    make_picture();
    if ((stopping_ || stage_gone_) && !moved) {
      if (stage_gone_) leave_all_at_last_commit();
      for (auto& d : datasets_)
        if (!d->over() && d->sink) d->sink->abandon();
      if (relay_) relay_->cut_short();
      break;
    }
    if (!moved && finished()) break;
    if (!moved) journal::await_ring(stage_.control().work, seen, idle_slice_ns);
  }
  return conclude();
}

/// Nobody writes any more, and there is something to leave: what is done at once is done.
bool ServerImpl::may_leave() {
  look_for_writers();
  bool rest = std::any_of(datasets_.begin(), datasets_.end(), [](const auto& d) { return d->state == State::failed; });
  for (const auto& [name, j] : journals_) {
    if (j->reader && j->reader->writer_alive()) return false;
    rest = rest || !j->read_to_end;
  }
  return rest;
}

/// For another server, perhaps on another node, perhaps after this one has been without power.
void ServerImpl::leave() {
  for (auto& d : datasets_)
    if (!d->over() && d->sink) d->sink->abandon();
  auto safe = stage_.make_durable();
  left_ = safe.ok();
  if (left_) return;
  const auto text = "what is staged could not be made durable: " + safe.error().message;
  log_.error(text);
  errors_.push_back(text);
}

/// Journals of processes that have gone, and of which nothing is needed any more.
void ServerImpl::forget_journals() {
  for (auto it = journals_.begin(); it != journals_.end();) {
    Journal& j = *it->second;
    bool needed = j.alive || j.broken || !j.read_to_end;
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
    journal::free_journal(stage_, j.name);
    forward(true);
    it = journals_.erase(it);
  }
}

/// Is there nothing left to do, and nobody to wait for?
bool ServerImpl::finished() {
  const auto now = monotonic_ns();
  const bool idle_end = options_.exit_when_idle_s >= 0 && seconds(now - last_writer_ns_) > options_.exit_when_idle_s &&
                        (any_writer_ || seconds(now - started_ns_) > 60) && others_idle();
  if (!draining_ && !options_.recover && !idle_end) return false;
  // Whoever came in since the last look has to be seen.
  look_for_writers();
  for (const auto& [name, j] : journals_)
    if (!journal::is_mirror(name) && (j->alive || !j->read_to_end)) return false;
  if (relay_) {
    relay_->drain();
    if (!relay_->is_quiet()) announce_rest();
    relay_->quiet();
    if (!relay_->all_quiet()) return false;
    look_for_writers();
  }
  for (const auto& [name, j] : journals_)
    if (j->alive || !j->read_to_end) return false;
  if (relay_) settle_spread();
  {
    const std::lock_guard guard(durable_mutex_);
    if (!durable_jobs_.empty() || durable_busy_ > 0 || !durable_done_.empty()) return false;
  }
  settle_orphans();
  // Whatever failed gets a last chance; while it is waited for other nodes one from time to time. What
  // fails within that gets no other at once: a retry leaves files to be made durable, and the end waits
  // for those.
  const bool news = !told_end_ && std::any_of(datasets_.begin(), datasets_.end(), [this](const auto& d) {
    return d->state == State::failed && d->failed_at_ns > last_chance_ns_;
  });
  if (news || now - last_chance_ns_ > last_chance_every_ns) {
    retry_failed(true);
    last_chance_ns_ = monotonic_ns();
  }
  settle_left_behind();
  if (settle_wholes()) return false;
  forget_journals();
  {
    const std::lock_guard guard(durable_mutex_);
    if (!durable_jobs_.empty() || durable_busy_ > 0 || !durable_done_.empty()) return false;
  }
  told_end_ = true;
  return !relay_ || agreed_on_end();
}

/// Pages of which no journal speaks: their writer died between registering the dataset and its first record, or an
/// earlier server died between the end of the journal and the end of the page.
void ServerImpl::settle_orphans() {
  auto names = files_.list(stage_.datasets());
  if (!names) return;
  for (const auto& name : *names) {
    if (name.find_first_of('.') != std::string::npos) continue;
    auto page = stage_.open_page(name);
    if (!page) continue;
    if ((*page)->tiles > 0) continue;
    const auto state = static_cast<DatasetState>((*page)->state.load());
    if ((*page)->owner != 0 && (state == DatasetState::finished || state == DatasetState::dropped)) continue;
    if (relay_ && (*page)->owner != 0 && (*page)->owner - 1 != relay_->node()) continue;  // its owner's concern
    // It has a journal on another node, of which there was no room to take what it says.
    if (relay_ && (*page)->owner != 0 && relay_->missed_any()) continue;
    const auto uid = (*page)->journal;
    const DatasetId id{name, uid, (*page)->number};
    const auto ended = [&id](const auto& d) { return d->over() && d->id == id; };
    if (std::any_of(datasets_.begin(), datasets_.end(), ended)) continue;  // see LeftBehind
    std::vector<std::uint64_t> writers{uid};
    if (auto slots = stage_.open_slots(name, (*page)->writers); slots && (*page)->writers > 0)
      for (std::uint32_t w = 0; w < (*page)->writers; ++w) writers.push_back((*slots)[w].journal.load());
    // All of them have been read to the end: one that has not named it never will.
    const bool followed = std::any_of(journals_.begin(), journals_.end(), [&](const auto& x) {
      const Journal& j = *x.second;
      return j.reader && std::find(writers.begin(), writers.end(), j.reader->journal()) != writers.end() &&
             (j.broken ||
              std::any_of(j.datasets.begin(), j.datasets.end(), [&id](const auto& d) { return d.second->id == id; }));
    });
    if (followed) continue;
    auto& d = taken_up_[{uid, (*page)->number}];
    if (!d) {
      d = entry_of(name, std::move(page).value());
      datasets_.push_back(d);
    }
    if (d->over() || d->whole != nullptr) continue;
    if (power_lost_) {
      if (d->state != State::failed) drop_rest(*d, "(whose journal had not been made durable)");
      continue;
    }
    if (auto done = take_back(*d); !done) {
      fail(*d, std::move(done).error());
      continue;
    }
    end_dataset(*d, d->page->visible.load() > 0 ? State::finished : State::dropped);
  }
}

void ServerImpl::settle_left_behind() {
  std::erase_if(left_behind_, [this](const LeftBehind& left) {
    const Dataset& d = *left.dataset;
    if (files_.exists(d.link))  // what its sink could not remove
      if (const auto done = bring_to_last_commit(d); !done && done.error().sys != 0) return false;
    if ((d.joined || d.state == State::dropped) && !remove_placeholder(d)) return false;
    if (!journal::remove_hard_link(files_, d.link)) return false;
    stage_.remove_dataset(d.page_name, left.journal, left.number);
    return true;
  });
}

/// Somebody may have removed it under the run. What is mapped can still be read; nothing new comes, and nobody could
/// ask for the drain.
void ServerImpl::look_at_stage() {
  if (stage_gone_ || stage_.there()) return;
  stage_gone_ = true;
  const std::string text =
      "the stage " + stage_.directory() + " has been removed: what was in it and in no file is lost";
  log_.error(text);
  errors_.push_back(text);
}

/// Nobody can take up these files later: what is begun in them is taken back now. A disk that refuses even that is
/// asked again for as long as a program would wait for room.
void ServerImpl::leave_all_at_last_commit() {
  std::vector<std::shared_ptr<Dataset>> begun;
  for (const auto& d : datasets_) {
    if (d->over() || d->owner || d->whole != nullptr) continue;
    if (d->state != State::failed) fail(*d, Error{Code::gone, "the stage has been removed", EIO});
    begun.push_back(d);
  }
  const auto until = monotonic_ns() + options_.wait_max_ns;
  for (bool warned = false;;) {
    std::string refused;
    std::erase_if(begun, [&](const auto& d) {
      const auto done = bring_to_last_commit(*d);
      if (!done) refused = done.error().message;
      return done.ok();
    });
    if (begun.empty()) return;
    if (stopping_ || monotonic_ns() > until) break;
    if (!std::exchange(warned, true))
      log_.warning("the disk refuses to take back what was begun (" + refused + "); it is tried again");
    std::this_thread::sleep_for(retry_pause);
  }
  for (const auto& d : begun) {
    const auto text = d->path + ": to the end the disk has refused to take back what was begun after frame " +
                      std::to_string(d->frames_visible) + "; what comes after that frame in it is not to be trusted";
    log_.error(text);
    errors_.push_back(text);
  }
}

/// Everything that is for this node to write is in its file.
bool ServerImpl::all_done() const {
  bool clean = !not_durable_ && !stage_gone_ && !page_damaged_ && left_behind_.empty();
  clean = clean && !(relay_ && relay_->missed_any()) && !left_to_others_;
  for (const auto& [name, j] : journals_) clean = clean && !j->broken && j->read_to_end;
  for (const auto& d : datasets_) clean = clean && d->over();
  // One that is stopped has not looked for what no journal speaks of (settle_orphans).
  return clean && !(stopping_ && any_in_flight());
}

bool ServerImpl::any_in_flight() const {
  const auto names = files_.list(stage_.datasets());
  return names && std::any_of(names->begin(), names->end(), [this](const std::string& name) {
           if (name.find('.') != std::string::npos) return false;
           const auto page = stage_.open_page(name);
           const auto state = page ? static_cast<DatasetState>((*page)->state.load()) : DatasetState::in_flight;
           return state != DatasetState::finished && state != DatasetState::dropped;
         });
}

Outcome ServerImpl::conclude() {
  if (!stage_gone_) {
    look_at_stage();
    if (stage_gone_) leave_all_at_last_commit();
  }
  const bool clean = all_done() && (!relay_ || (relay_->all_final() && relay_->all_clean()));
  const auto final = status_json(true).dump(-1, ' ', false, json::error_handler_t::replace);
  relay_.reset();
  pool_.reset();
  if (clean) {
    // The control page last: who dies meanwhile leaves a run directory that recovery knows for one.
    std::error_code ignored;
    journal::remove_spill(stage_);
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(options_.run_dir, ignored))
      if (entry.path().filename() != "control") all.push_back(entry.path());
    for (const auto& path : all) std::filesystem::remove_all(path, ignored);
    std::filesystem::remove_all(options_.run_dir, ignored);
  }
  {
    const std::lock_guard guard(picture_mutex_);
    picture_ = final;
    concluded_ = true;
  }
  socket_->finish(final);
  if (stage_gone_) return Outcome::stage_gone;
  return clean ? Outcome::clean : left_ ? Outcome::left : Outcome::incomplete;
}

}  // namespace advectio
