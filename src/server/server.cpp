// The loop, around its parts: in the order in which a record meets them they are journal_set, records, then
// output_writer (alone, or by way of shared_outputs, tiles, further_outputs, other_nodes), durability. Beside them
// stand recovery (the beginning), space (a full stage), ending, status.
#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>

#include "cluster/relay.h"
#include "exchange/node_server.h"
#include "journal/mirror.h"
#include "journal/spill.h"
#include "server/control_socket.h"
#include "server/coupled.h"
#include "server/ending.h"
#include "server/events.h"
#include "server/live.h"
#include "server/records.h"
#include "server/recovery.h"
#include "server/space.h"
#include "server/sprint.h"

namespace advectio {

namespace {

constexpr std::uint64_t idle_slice_ns = 5'000'000;
constexpr std::uint64_t look_around_ns = 50'000'000;  // new and dead writers

/// For capture/rules.h. A store is a directory beside the program's file, and has its name from the start.
std::string appear_of(const DatasetRule& rule) {
  if (rule.values.format && is_store(*rule.values.format)) return "n ";
  return std::string(1, rule.sets("appear") ? "fcn"[static_cast<int>(rule.values.appear)] : '-') + ' ';
}

class ServerImpl final : public Server {
 public:
  ServerImpl(Files& files, const ServerOptions& options, const Config& config, SinkFactory sinks, Log& log,
             journal::ProcessLock lock, Stage stage)
      : lock_(std::move(lock)), run_(files, options, config, std::move(sinks), log, std::move(stage)) {}
  ~ServerImpl() override;

  Result<void> begin();
  Outcome run() override;
  void stop() noexcept override { run_.shutdown.stop(); }
  void drain() noexcept override { run_.shutdown.drain(); }
  std::uint64_t turns() const noexcept override { return turns_.load(); }
  std::string status() override {
    return snapshot_.get([this] { journal::ring(run_.stage.control().work); }, run_.backlog);
  }

 private:
  /// What became of a turn of the loop.
  enum class Turn : std::uint8_t { moved, idle, gave_way, ended };
  Turn turn(std::uint64_t now);
  bool read_on();
  Result<void> serve_workflow();
  void look_at_writers(std::uint64_t now);
  std::vector<std::string> settle_coupled();
  Outcome conclude();

  journal::ProcessLock lock_;
  Run run_;
  Ledger ledger_{run_};
  Durability durability_{run_};
  OutputWriter writer_{run_, ledger_, durability_};
  Status status_{run_, ledger_};
  SharedOutputs shared_{run_, ledger_, writer_, [this] { return read_on(); }};
  FurtherOutputs further_{run_, ledger_, writer_, shared_};
  Tiles tiles_{run_, ledger_, writer_, [this] { return read_on(); }};
  OtherNodes nodes_{run_, ledger_, writer_, shared_, status_};
  JournalSet journal_set_{run_, ledger_, durability_, tiles_};
  Recovery recovery_{run_, ledger_, writer_, shared_, further_, tiles_};
  HeldMarkers markers_{run_};
  Urgencies urgencies_{run_, ledger_, markers_};
  Records records_{run_, ledger_, writer_, shared_, further_, tiles_, nodes_, journal_set_, urgencies_};
  Space space_{run_, ledger_, writer_, shared_, further_, tiles_, journal_set_};
  Ending ending_{run_,        ledger_,  writer_,
                 durability_, tiles_,   journal_set_,
                 nodes_,      markers_, [this](bool now) { records_.retry_failed(now); }};
  Snapshot snapshot_;
  std::unique_ptr<ControlSocket> socket_;
  std::atomic<std::uint64_t> turns_{0};
  bool moved_ = true;  ///< in the last turn that did not give way
  std::uint64_t last_look_ns_ = 0;
  std::uint64_t workflow_served_ns_ = monotonic_ns();
};

ServerImpl::~ServerImpl() {
  socket_.reset();
  run_.sprint.reset();
  durability_.stop();
  run_.live.reset();
  run_.peers.reset();
  run_.pool.reset();
}

Result<void> ServerImpl::begin() {
  run_.last_writer_ns = monotonic_ns();
  run_.answer = [this] {
    if (snapshot_.is_wanted()) snapshot_.put(status_.text(false));
  };
  ADVECTIO_TRY(journal::remove_mirrors(run_.stage));
  const auto left = run_.files.list(run_.stage.journals());
  run_.verify = run_.options.recover || (left && !left->empty());
  run_.survives_power = run_.stage.survives_power();
  run_.power_lost = run_.survives_power && run_.stage.has_lost_power(run_.options.boot);
  if (run_.power_lost && left) run_.lost_journals.insert(left->begin(), left->end());
  if (run_.power_lost && !run_.options.recover)
    return Error{Code::exists,
                 run_.options.run_dir + " is of a run that has lost power; `advectio recover` finishes it", 0};
  if (run_.power_lost) {
    run_.log.warning("the power was lost during this run: what its programs had not made durable may be lost");
    recovery_.forget_unforced_journals();
    recovery_.forget_unforced_notes();
  }
  if (!run_.options.recover) run_.stage.reopen();
  if (run_.stage.control().left != 0) {
    // From here on it changes again.
    run_.stage.control().left = 0;
    std::snprintf(run_.stage.control().boot, sizeof run_.stage.control().boot, "%s", run_.options.boot.c_str());
    if (run_.survives_power) ADVECTIO_TRY(make_durable(run_.files, run_.stage.directory() + "/control"));
  }
  if (run_.has_other_nodes())
    for (const auto& rule : run_.config.datasets)
      if (!rule.values.outputs.empty())
        return Error{Code::config, rule.origin + ": outputs are not made on several nodes yet; leave them out", 0};
  ADVECTIO_TRY_WITH(run_.events->open(), "events");
  recovery_.take_up_datasets();
  if (run_.has_other_nodes()) {
    ADVECTIO_TRY(run_.files.make_directory(run_.stage.questions(), 0700));
    run_.peers = std::make_unique<Relay>(run_.stage, *run_.options.transport, run_.options.remote_encoder, run_.log);
    nodes_.begin();
  }
  if (!run_.options.spill.empty())
    ADVECTIO_TRY_WITH(journal::begin_spill(run_.stage, run_.options.spill,
                                           run_.options.spill_max / run_.stage.control().segment_bytes),
                      "stage.spill");
  if (!run_.options.recover) {
    // What the ranks need of the config: see capture/rules.h.
    std::string rules = run_.options.drain_later ? "later\n" : "";
    if (!run_.options.workflow.memory.empty()) rules += "workflow " + run_.options.workflow.memory + '\n';
    if (!run_.directory.empty()) rules += "directory " + run_.directory + '\n';
    for (const auto& r : run_.config.datasets) {
      const auto flag = [&r](const char* key, char set) { return std::string(1, r.sets(key) ? set : '-') + ' '; };
      rules += "rule " + flag("capture", r.values.capture ? '1' : '0') +
               flag("close", r.values.close == CloseMode::wait ? '1' : '0') + flag("join", r.values.join ? '1' : '0') +
               flag("promise", "svd"[static_cast<int>(r.values.promise)]) +
               flag("full", "awsd"[static_cast<int>(r.values.full)]) + appear_of(r) +
               flag("frames", "asr"[static_cast<int>(r.values.frames)]) + r.match + '\n';
    }
    for (const auto& set : run_.config.sets)
      for (const auto& pattern : set.match) rules += "set " + set_glob(pattern) + '\n';
    ADVECTIO_TRY(replace_file(run_.files, run_.options.run_dir + "/capture.conf", std::as_bytes(std::span(rules))));
    std::string markers;
    for (const auto& pattern : run_.config.outside.markers) markers += pattern + '\n';
    ADVECTIO_TRY(replace_file(run_.files, run_.options.run_dir + "/markers.conf", std::as_bytes(std::span(markers))));
    if (!run_.options.workflow.memory.empty()) {
      ADVECTIO_TRY(serve_workflow());
      const auto lines = run_.options.workflow.to_lines();
      ADVECTIO_TRY(replace_file(run_.files, run_.options.run_dir + "/couple.conf", std::as_bytes(std::span(lines))));
    }
  }
  if (!run_.options.recover || run_.has_other_nodes())
    run_.pool = std::make_unique<SegmentPool>(run_.stage, run_.options.warm_segments, run_.log);
  if (!run_.options.recover && run_.config.server.sprint && run_.options.encoders != nullptr)
    run_.sprint = std::make_unique<Sprint>(run_, *run_.options.encoders, run_.options.cores);
  auto secret = secret_of_run(run_.files, run_.options.run_dir);
  if (!secret) return std::move(secret).error().with("the run's secret");
  if (!run_.options.recover) {
    auto live = Live::open(run_, *secret);
    if (!live) return std::move(live).error();
    run_.live = std::move(live).value();
    for (const auto& d : ledger_.outputs)
      if (!d->is_further() && !d->over() && !d->is_elsewhere() && d->shared_state) {
        d->frame.set_in_parts();
        run_.live->note_taken_up(*d);
      }
  }
  auto socket = ControlSocket::open(run_.options.run_dir + "/socket", std::move(secret).value(),
                                    {[this] { return status(); },
                                     [this] {
                                       run_.shutdown.drain();
                                       journal::ring(run_.stage.control().work);
                                     },
                                     [this] {
                                       run_.shutdown.leave();
                                       journal::ring(run_.stage.control().work);
                                     }});
  if (!socket) return std::move(socket).error();
  socket_ = std::move(socket).value();
  return {};
}

/// Of a workflow of several nodes: this one has a server, which outlives us.
Result<void> ServerImpl::serve_workflow() {
  const auto& [directory, memory] = std::tie(run_.options.workflow.directory, run_.options.workflow.memory);
  if (memory.empty() || run_.config.workflow.listen.empty()) return {};
  for (const char* below : {"/members", "/waits", "/files"})
    ADVECTIO_TRY(run_.files.make_directory(memory + below, 0700));
  return exchange::is_served(memory) ? Result<void>{}
                                     : exchange::start_node_server({memory, directory, run_.config.workflow.listen});
}

/// Read what the journals have, of new processes too. True when there was something.
bool ServerImpl::read_on() {
  journal_set_.look_for_writers();
  bool any = false;
  for (auto& [name, j] : ledger_.journals) any = records_.follow(*j) || any;
  return any;
}

/// Publishes files that programs have written to coupled names without a library, when nobody writes them.
std::vector<std::string> ServerImpl::settle_coupled() {
  return run_.coupled->settle([this](const std::string& path) {
    const auto name = Stage::state_name_of(path);
    return name && run_.files.exists(run_.stage.datasets() + "/" + *name);
  });
}

/// Which processes have gone?
void ServerImpl::look_at_writers(std::uint64_t now) {
  for (auto& [name, j] : ledger_.journals) {
    if (!j->alive || !j->reader) continue;
    if (j->reader->writer_alive()) {
      run_.last_writer_ns = now;
      records_.look_for_ends(*j);
      continue;
    }
    // Gone. What it had written before is handled first.
    j->reader->set_writer_gone();
    while (records_.follow(*j) && !run_.shutdown.leaving()) run_.answer();
    if (!j->is_read()) continue;  // not all of it yet: `server.drain_max`, or it will be left
    if (!j->broken()) records_.writer_gone(*j);
    j->alive = false;
  }
  if (std::none_of(ledger_.journals.begin(), ledger_.journals.end(), [](const auto& j) { return j.second->alive; })) {
    if (run_.pool && run_.shutdown.draining() && !run_.has_other_nodes()) run_.pool->give_back();
    run_.stage.control().bursts.store(0);  // what the dead have left
  }
}

Outcome ServerImpl::run() {
  // Not before: until the server answers, the program waits to be started, and warming takes a core.
  if (run_.pool) run_.pool->begin();
  if (run_.sprint) run_.sprint->begin();
  for (;; ++turns_) {
    const auto seen = run_.stage.control().work.load(std::memory_order_acquire);
    switch (turn(monotonic_ns())) {
      case Turn::moved: break;
      case Turn::idle: journal::await_ring(run_.stage.control().work, seen, idle_slice_ns); break;
      // Not on the doorbell: to be woken at every block would take the time that is to be given.
      case Turn::gave_way: std::this_thread::sleep_for(std::chrono::milliseconds(2)); break;
      case Turn::ended: return conclude();
    }
  }
}

ServerImpl::Turn ServerImpl::turn(std::uint64_t now) {
  const auto rings = run_.stage.control().work.load(std::memory_order_acquire) - run_.own_rings;
  const bool giving_way = space_.give_way(rings, now);
  if (run_.pool) run_.pool->rest(giving_way);
  if (giving_way) return Turn::gave_way;
  // In an idle drain the death of a program may be all that is waited for.
  const bool look = now - last_look_ns_ > look_around_ns || (run_.shutdown.draining() && !moved_);
  bool moved = false;
  for (auto& [name, j] : ledger_.journals) {
    moved = records_.follow(*j) || moved;
    run_.answer();
  }
  records_.advance_sinks();
  moved = records_.go_on_with_postponed(!moved) || moved;
  if (look || !moved) journal_set_.look_for_writers();
  if (run_.shutdown.leaving() && ending_.may_leave()) {
    ending_.leave();
    return Turn::ended;
  }
  if (look || !moved) (void)settle_coupled();
  if (look) {
    last_look_ns_ = now;
    ending_.look_at_stage();
    look_at_writers(now);
    shared_.look_around();
    journal_set_.forget_journals();
    records_.retry_failed(false);
    tiles_.look_at_wholes();
    if (run_.live) run_.live->look_for_new_names(false);
    if (now - workflow_served_ns_ > 1'000'000'000) {
      workflow_served_ns_ = now;
      if (auto served = serve_workflow(); !served) run_.log.error(served.error().message);
    }
  }
  for (auto& [name, j] : ledger_.journals) journal_set_.release(*j);
  journal_set_.recycle_parked(run_.stage.control().starved_ns.load() + starved_recently_ns > now);
  writer_.collect_durable();
  markers_.look(now);
  const bool starved = run_.stage.control().starved_ns.load() + starved_recently_ns > now;
  // While written bytes are paid for, time is what makes room: no commits in the midst of frames for its sake.
  const bool pays = run_.in_debt();
  if (pays) run_.forward(false);
  if (run_.pool && starved && run_.pool->exhausted() && space_.needs_room(now) && !moved && !pays) space_.make_room();
  if (!moved && !starved && !pays && run_.peers->space_requested()) space_.make_room();
  if (run_.has_other_nodes()) {
    nodes_.look_at_owners();
    if (space_.has_no_room_to_end(now)) {
      nodes_.leave_to_others();
      return Turn::ended;
    }
  }
  run_.answer();
  if ((run_.shutdown.stopping() || run_.shutdown.stage_gone) && !moved) {
    if (run_.shutdown.stage_gone) ending_.leave_all_at_last_commit();
    for (auto& d : ledger_.outputs)
      if (!d->over() && d->sink) d->sink->abandon();
    run_.peers->cut_short();
    return Turn::ended;
  }
  if (!moved && ending_.finished()) return Turn::ended;
  moved_ = moved;
  return moved ? Turn::moved : Turn::idle;
}

Outcome ServerImpl::conclude() {
  if (!run_.shutdown.stage_gone) {
    ending_.look_at_stage();
    if (run_.shutdown.stage_gone) ending_.leave_all_at_last_commit();
  }
  for (const auto& path : settle_coupled())
    run_.report(path + ": a process still has it open for writing; no other program gets what it has written of it");
  const bool clean = ending_.all_done() && run_.peers->all_final() && run_.peers->all_clean();
  if (clean) run_.shutdown.rest = Shutdown::Rest::nothing;
  if (!clean && run_.shutdown.rest == Shutdown::Rest::as_it_is && !run_.shutdown.stage_gone) markers_.report_rest();
  // One that is stopped will be followed by another.
  if (clean || !run_.shutdown.stopping()) run_.events->end(clean);
  const auto final = status_.text(true);
  const bool left = run_.shutdown.rest == Shutdown::Rest::on_disk;
  if (run_.live) run_.live->look_for_new_names(true);
  if (run_.live && run_.shutdown.draining() && !run_.shutdown.stopping() && !left) run_.live->finish();
  // One of several that is stopped since another has died begins again with it.
  if (run_.live && run_.shutdown.stopping() && !clean) run_.live->keep_contact();
  run_.live.reset();
  run_.peers.reset();
  run_.pool.reset();
  if (clean) journal::remove_spill(run_.stage);
  // Before the directory goes: who is killed in its removal has said that nothing is lost.
  snapshot_.conclude(final);
  socket_->finish(final);
  if (clean) {
    // The control file last: who dies meanwhile leaves a run directory that recovery knows for one.
    std::error_code ignored;
    std::vector<std::filesystem::path> all;
    // The command line still needs two things, and removes them: the work that is left to operators, and events of
    // files of sets.
    const auto is_kept = [this](const std::filesystem::path& name) {
      const bool of_sets = name == Events::file_name || name == "on.json" || name == "advectio.yaml";
      return name == "processed.json" || (of_sets && !run_.config.sets.empty());
    };
    bool kept = false;
    for (const auto& entry : std::filesystem::directory_iterator(run_.options.run_dir, ignored)) {
      const auto name = entry.path().filename();
      kept = kept || is_kept(name);
      if (name != "control" && !is_kept(name)) all.push_back(entry.path());
    }
    for (const auto& path : all) std::filesystem::remove_all(path, ignored);
    std::filesystem::remove_all(kept ? run_.options.run_dir + "/control" : run_.options.run_dir, ignored);
  }
  if (run_.shutdown.stage_gone) return Outcome::stage_gone;
  return clean ? Outcome::clean : left ? Outcome::left : Outcome::incomplete;
}

}  // namespace

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
    if (there->control().nodes > 1 && options.transport == nullptr)
      return Error{Code::invalid,
                   options.run_dir + " is the stage of one of " + std::to_string(there->control().nodes) +
                       " nodes; their servers must be started together (`advectio recover`, in a job with those nodes)",
                   0};
  } else if (there.error().code != Code::not_found) {
    return std::move(there).error();
  } else if (options.recover && options.transport == nullptr) {
    return Error{Code::not_found, options.run_dir + " is not the run directory of a run (there is no control page)", 0};
  }
  auto stage = Stage::make(files, options.run_dir, segment_bytes, segments_max, options.wait_max_ns,
                           {options.boot, options.survives_power});
  if (!stage) return std::move(stage).error();
  if (const auto* all = options.transport; all != nullptr) {
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

}  // namespace advectio
