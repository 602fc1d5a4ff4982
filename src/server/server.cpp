#include "server/server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "journal/mirror.h"
#include "journal/reader.h"
#include "platform/machine.h"
#include "server/control_socket.h"
#include "server/merge.h"
#include "server/relay.h"
#include "server/segment_pool.h"
#include "server/storage.h"
#include "server/weave.h"

namespace advectio {

namespace {

using journal::DatasetPage;
using journal::DatasetState;
using journal::monotonic_ns;
using journal::Page;
using journal::Reader;
using journal::realtime_ns;
using journal::Record;
using journal::RecordType;
using journal::Stage;
using journal::Trust;
using journal::WriterSlot;
using nlohmann::json;

constexpr std::uint64_t idle_slice_ns = 5'000'000;
constexpr std::uint64_t look_around_ns = 50'000'000;  // new and dead writers
constexpr std::uint64_t starved_recently_ns = 200'000'000;
constexpr std::uint64_t retry_after_ns = 5'000'000'000;
constexpr std::uint64_t burst_pause_ns = 20'000'000;  // a frame under way that has stood still so long is drained
constexpr std::uint64_t burst_max_ns = 3'000'000'000;
constexpr std::uint64_t stuck_max_ns = 100'000'000;  // for room that others need and nothing makes
constexpr std::uint64_t turn_bytes = 64ULL << 20;    // of one journal before the next has its turn

double seconds(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

/// Times of frames. The maximum is exact; the median is over the latest 1024.
class Samples {
 public:
  void add(double value) {
    max_ = count_ == 0 ? value : std::max(max_, value);
    if (latest_.size() < kept)
      latest_.push_back(value);
    else
      latest_[count_ % kept] = value;
    ++count_;
  }
  [[nodiscard]] json to_json() const {
    if (count_ == 0) return nullptr;
    auto sorted = latest_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return {{"median", *middle}, {"max", max_}};
  }

 private:
  static constexpr std::size_t kept = 1024;
  std::vector<double> latest_;
  std::uint64_t count_ = 0;
  double max_ = 0;
};

/// True when fewer threads want to run than there are cores (/proc/loadavg: "runnable/all").
bool cores_to_spare() {
  std::ifstream in("/proc/loadavg");
  std::string a, b, c, tasks;
  if (!(in >> a >> b >> c >> tasks)) return true;
  return std::strtoul(tasks.c_str(), nullptr, 10) < usable_cores();
}

/// With the slash at its end.
std::string directory_of(const std::string& path) {
  return path.substr(0, path.find_last_of('/') + 1);
}

enum class State : std::uint8_t { open, closed, finished, failed, dropped };

const char* name_of(State s) {
  switch (s) {
    case State::open: return "open";
    case State::closed: return "closed";
    case State::finished: return "finished";
    case State::failed: return "failed";
    case State::dropped: return "dropped";
  }
  return "?";
}

/// One dataset of the ledger. Finished ones stay, for the summary; what they no longer need is let go.
struct Dataset : std::enable_shared_from_this<Dataset> {
  std::string path, link, page_name, writer;
  std::uint32_t number = 0;
  FileFormat format = FileFormat::netcdf4;
  State state = State::open;
  Page<DatasetPage> page;
  DatasetPolicy policy;
  bool resume = false;           ///< the file may hold commits of an earlier life
  std::optional<Schema> schema;  ///< as stored, the latest
  bool declared = false;         ///< the sink knows `schema`
  std::unique_ptr<Sink> sink;
  std::uint64_t seen = 0;     ///< sequence of the last record handled
  std::uint64_t visible = 0;  ///< everything up to here is committed
  bool uncommitted = false;   ///< blocks or a schema have gone to the sink since
  bool partial = false;       ///< committed in the midst of a frame, to make room
  std::uint64_t failed_at_ns = 0;
  Error error;

  std::uint64_t frames_synced = 0, frames_visible = 0, frames_durable = 0;
  std::uint64_t bytes_put = 0, bytes_written = 0, encode_ns = 0;
  std::uint64_t busy_ns = 0;  ///< time this server has spent on it
  Samples stall, to_visible, to_durable;
  std::optional<double> last_stall;  ///< of the latest frame: closing the dataset still adds to it
  void settle_stall() {
    if (last_stall) stall.add(*last_stall);
    last_stall.reset();
  }

  [[nodiscard]] bool over() const { return state == State::finished || state == State::dropped; }

  // Where a server of another node may have to do with it.
  DatasetId id;
  bool spread = false;
  std::optional<unsigned> owner;  ///< the other node that writes it; what is here of it is only sent there
  bool announced = false;
  std::set<std::uint64_t> introduced;  ///< of several writers those whose slot has been told, by journal

  // Where several processes write it together; `seen` and `visible` above are not used then.
  struct Share {
    std::uint64_t journal = 0;  ///< 0: has not joined yet
    std::uint64_t visible = 0;  ///< its records up to here are committed
    bool over = false;          ///< it has closed the dataset, or died
    bool closed = false;        ///< it has closed it
  };
  std::vector<Share> shares;  ///< by number of the writer
  Page<WriterSlot> slots;
  std::unique_ptr<Weave> weave;
  std::vector<std::unique_ptr<Reader>> replayed;  ///< hold what `weave` refers to, after it has been read again

  // Where it is a tile of another, which is written in its stead.
  Dataset* whole = nullptr;
  std::size_t tile = 0;                ///< its number there
  bool joined = false;                 ///< it is never told of: the whole is
  std::vector<Merge::Entry> returned;  ///< what it was given back, when it was to be a file of its own after all
  // Where others are tiles of it.
  std::unique_ptr<Merge> merge;
  std::vector<std::shared_ptr<Dataset>> tiles;  ///< by number
  std::uint64_t tiles_count = 0;                ///< also when all is over

  [[nodiscard]] bool shared() const { return !shares.empty(); }
  /// The writer whose journal that is.
  [[nodiscard]] std::size_t share_of(std::uint64_t journal) const {
    const auto it = std::find_if(shares.begin(), shares.end(), [&](const Share& s) { return s.journal == journal; });
    return static_cast<std::size_t>(it - shares.begin());
  }
  [[nodiscard]] std::uint64_t visible_of(std::uint64_t journal) const {
    return shared() ? shares[share_of(journal)].visible : visible;
  }
};

/// Adds the time until it goes out of scope.
struct Busy {
  explicit Busy(std::uint64_t& sum) : sum_(sum), from_(monotonic_ns()) {}
  ~Busy() { sum_ += monotonic_ns() - from_; }
  std::uint64_t& sum_;
  std::uint64_t from_;
};

/// One journal being followed.
struct Journal {
  std::string name;
  std::unique_ptr<Reader> reader;
  std::map<std::uint32_t, std::shared_ptr<Dataset>> datasets;
  std::vector<std::shared_ptr<Dataset>> shared;  ///< of these, the ones in flight that others write too
  /// For each held segment, oldest first: the last record of each dataset in it.
  struct Load {
    std::uint64_t index = 0;
    std::map<std::uint32_t, std::uint64_t> last;
    std::uint64_t bytes = 0;
  };
  std::deque<Load> loads;
  bool alive = true;
  bool broken = false;
  bool read_to_end = false;  ///< nothing more was there when last asked
};

struct DurableDone {
  std::shared_ptr<Dataset> dataset;
  std::uint64_t frames = 0;
  std::vector<std::uint64_t> synced;
  std::uint64_t at_ns = 0;
  Result<void> result;
};

struct DurableJob {
  std::function<Result<void>()> make;
  std::shared_ptr<Dataset> dataset;
  std::uint64_t sequence = 0;
  std::uint64_t frames = 0;
  std::uint64_t synced_ns = 0;  ///< real time of the sync record; 0: no frame ended here
};

}  // namespace

class ServerImpl final : public Server {
 public:
  ServerImpl(Files& files, const ServerOptions& options, const Config& config, SinkFactory sinks, Log& log,
             journal::ProcessLock lock, Stage stage)
      : files_(files),
        options_(options),
        config_(config),
        sinks_(std::move(sinks)),
        log_(log),
        lock_(std::move(lock)),
        stage_(std::move(stage)),
        started_ns_(monotonic_ns()) {}
  ~ServerImpl() override;

  Result<void> begin();
  Outcome run() override;
  void stop() noexcept override { stopping_ = true; }
  void drain() noexcept override { draining_ = true; }
  std::string status() override;

 private:
  void take_up_datasets();
  void look_for_writers();
  bool follow(Journal& j);
  Result<void> handle(Journal& j, const Record& r, bool verify);
  Result<void> on_create(Journal& j, const Record& r);
  Result<void> on_join(Journal& j, const Record& r);
  std::shared_ptr<Dataset> shared_dataset(const std::string& page_name);
  Result<void> share(Dataset& d);
  void attach(Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d);
  Result<void> weave(const std::shared_ptr<Dataset>& d, bool verify);
  Result<void> do_step(const std::shared_ptr<Dataset>& d, const Weave::Step& step, bool verify);
  Result<void> end_round(const std::shared_ptr<Dataset>& d, const Weave::Step& step);
  Result<void> replay(Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d);
  Result<void> replay_shared(const std::shared_ptr<Dataset>& d);
  // Tiles that become one file: what it takes to call the rest of the ledger for them. Their order and place is
  // Merge's.
  void gather(const std::shared_ptr<Dataset>& d);
  void stay_alone(Dataset& d);
  Result<void> on_tile(const std::shared_ptr<Dataset>& d, const Record& r, bool verify);
  void move_on(Dataset& whole, bool now = false);
  Result<void> try_to_move_on(Dataset& whole, bool now);
  [[nodiscard]] bool may_begin(const Dataset& whole) const;
  Result<void> begin_whole(Dataset& whole);
  Result<void> make_whole_file(Dataset& whole);
  Result<void> give(Dataset& whole, std::size_t tile, bool now);
  Result<void> commit_part(Dataset& whole);
  Result<void> end_round(Dataset& whole, const Merge::Round& round);
  Result<void> settle_tiles(Dataset& whole);
  Result<void> end_if_all_over(Dataset& whole);
  void end_tiles(Dataset& whole);
  void end_tile(Dataset& d);
  void split(Dataset& whole, const std::string& why);
  void give_back(Dataset& whole, Dataset& d);
  void fail_whole(Dataset& whole, Error error);
  void retry_whole(Dataset& whole);
  bool make_room_in_wholes();
  bool settle_wholes();
  void look_at_wholes();
  void take_up_wholes(const std::vector<std::string>& pages);
  bool take_up_tile(const std::shared_ptr<Dataset>& d);
  Result<void> act(const std::shared_ptr<Dataset>& d, const Record& r, bool verify);
  Result<void> store_schema(Dataset& d, const Schema& asked);

  bool make_room_at_any_price(const std::shared_ptr<Dataset>& d);
  Result<void> on_schema(Dataset& d, const Record& r);
  Result<void> on_put(Dataset& d, const Record& r, bool verify);
  Result<void> on_sync(const std::shared_ptr<Dataset>& d, const Record& r);
  Result<void> on_close(const std::shared_ptr<Dataset>& d, const Record& r);
  Result<void> finish(const std::shared_ptr<Dataset>& d);
  Result<void> end_if_all_over(const std::shared_ptr<Dataset>& d);
  void on_abort(Dataset& d);
  Result<void> ready_sink(Dataset& d);
  Result<void> commit(const std::shared_ptr<Dataset>& d, std::uint64_t sequence, std::uint64_t synced_ns);
  void count_sink(Dataset& d);
  void fail(Dataset& d, Error error);
  void end_dataset(Dataset& d, State state);
  void remove_placeholder(Dataset& d);
  void writer_gone(Journal& j);
  void writer_gone(Journal& j, Dataset& d);
  bool all_writers_over(const Dataset& d) const;
  void drop_rest(Dataset& d, const std::string& writer);
  void release(Journal& j);
  void make_room();
  void retry_failed(bool now);
  void make_durable_jobs();
  void forward(bool rang);
  bool finished();
  bool give_way(std::uint32_t work, std::uint64_t now);
  void forget_journals();
  void settle_orphans();
  void collect_durable();
  void make_picture();
  json status_json(bool final);
  std::uint64_t backlog() const;
  [[nodiscard]] bool all_done() const;
  Outcome conclude();
  // With servers on other nodes.
  void place(Dataset& d) const;
  void pass_on(Journal& j, const Record& r, Dataset& d);
  void tell_of(Journal& j);
  void look_at_owners();
  bool others_idle();
  bool agreed_on_end();
  void settle_spread();
  json with_others(json own) const;

  Files& files_;
  ServerOptions options_;
  Config config_;
  SinkFactory sinks_;
  Log& log_;
  journal::ProcessLock lock_;
  Stage stage_;
  std::uint64_t started_ns_;

  std::unique_ptr<Relay> relay_;                     ///< null: this node is the only one
  std::vector<std::shared_ptr<Dataset>> elsewhere_;  ///< in flight, and written by other nodes
  std::uint32_t asked_ = 0;
  std::uint64_t pictured_ns_ = 0, stuck_since_ns_ = 0;

  std::unique_ptr<SegmentPool> pool_;
  std::unique_ptr<ControlSocket> socket_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> draining_{false};

  // The ledger. Only the loop (`run`) touches it.
  std::map<std::string, std::unique_ptr<Journal>> journals_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::shared_ptr<Dataset>> taken_up_;  ///< by journal uid and number
  std::vector<std::shared_ptr<Dataset>> datasets_;
  std::vector<std::shared_ptr<Dataset>> wholes_;  ///< of tiles, in the order in which they were begun
  std::set<std::string> split_;                   ///< names of wholes whose tiles stay files of their own
  std::vector<std::string> errors_;
  std::uint64_t backlog_peak_ = 0;
  std::uint64_t last_look_ns_ = 0, last_writer_ns_ = 0;
  bool any_writer_ = false;
  std::uint32_t burst_work_ = 0;
  std::uint64_t burst_moved_ns_ = 0, burst_began_ns_ = 0;
  std::uint64_t allocated_peak_ = 0;
  std::uint64_t memory_peak_ = 0;

  bool not_durable_ = false;

  std::mutex picture_mutex_;
  std::condition_variable picture_made_;
  std::string picture_;
  bool picture_wanted_ = false;
  bool concluded_ = false;

  std::mutex durable_mutex_;
  std::condition_variable durable_wake_;
  std::deque<DurableJob> durable_jobs_;
  std::vector<DurableDone> durable_done_;
  std::size_t durable_busy_ = 0;
  bool durable_ending_ = false;
  std::thread durable_thread_;
};

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
  auto stage = Stage::make(files, options.run_dir, segment_bytes, segments_max, options.wait_max_ns);
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
  take_up_datasets();
  if (options_.neighbours != nullptr && options_.neighbours->nodes() > 1) {
    ADVECTIO_TRY(files_.make_directory(stage_.questions(), 0700));
    relay_ = std::make_unique<Relay>(stage_, *options_.neighbours, log_);
    asked_ = stage_.control().asked.load() - 1;  // those that an earlier server has heard, too
  }
  durable_thread_ = std::thread([this] { make_durable_jobs(); });
  if (!options_.recover) {
    // What the ranks need of the config: see SessionImpl in capture/session.cpp.
    std::string rules;
    for (const auto& r : config_.datasets) {
      const char capture = !r.sets("capture") ? '-' : r.values.capture ? '1' : '0';
      const char close = !r.sets("close") ? '-' : r.values.close == CloseMode::wait ? '1' : '0';
      rules += std::string("rule ") + capture + ' ' + close + ' ' + r.match + '\n';
    }
    ADVECTIO_TRY(replace_whole(files_, options_.run_dir + "/capture.conf", std::as_bytes(std::span(rules))));
  }
  if (!options_.recover || relay_) pool_ = std::make_unique<SegmentPool>(stage_, options_.warm_segments, log_);
  auto socket = ControlSocket::open(options_.run_dir + "/socket", {[this] { return status(); },
                                                                   [this] {
                                                                     draining_ = true;
                                                                     journal::ring(stage_.control().work);
                                                                   }});
  if (!socket) return std::move(socket).error();
  socket_ = std::move(socket).value();
  return {};
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
      log_.error(page.error().message);
      errors_.push_back(page.error().message);
      continue;
    }
    auto d = std::make_shared<Dataset>();
    d->page = std::move(page).value();
    d->page_name = name;
    d->path = d->page->path;
    d->link = d->page->link;
    d->number = d->page->number;
    d->format = d->page->format;
    d->seen = d->visible = d->page->visible.load();
    d->frames_visible = d->frames_synced = d->page->frames_visible.load();
    d->resume = true;
    d->policy = resolve(config_, d->path);
    if (auto bytes = read_whole(files_, stage_.datasets() + "/" + name + ".schema")) {
      if (auto schema = decode_schema(*bytes)) d->schema = std::move(schema).value();
    }
    place(*d);
    // Died on its last steps with it. Of one that other nodes had part in the page stays until they know it.
    const auto state = static_cast<DatasetState>(d->page->state.load());
    if (d->spread && !d->owner && (state == DatasetState::finished || state == DatasetState::dropped)) continue;
    if (!d->owner && (state == DatasetState::finished || state == DatasetState::dropped)) {
      end_dataset(*d, state == DatasetState::finished ? State::finished : State::dropped);
      datasets_.push_back(d);
      continue;
    }
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

void ServerImpl::look_for_writers() {
  auto names = files_.list(stage_.journals());
  if (!names) return;
  for (const auto& name : *names) {
    if (name[0] == '.' || journals_.count(name) > 0) continue;
    auto reader = Reader::open(files_, stage_.journals() + "/" + name, Trust::published);
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
    if (r.type == RecordType::abort) {
      // Collective: all of them say it, and what the others have not synced is dropped with it.
      on_abort(*d);
      return {};
    }
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
    case RecordType::abort: on_abort(*d); return {};
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
  if (!page || (*page)->journal != j.reader->journal() || (*page)->number != r.dataset) return {};
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
    d->seen = d->visible = r.sequence;
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
  if (!page || (*page)->writers == 0) return nullptr;
  auto d = std::make_shared<Dataset>();
  d->page = std::move(page).value();
  d->path = d->page->path;
  d->link = d->page->link;
  d->page_name = page_name;
  d->number = d->page->number;
  d->format = d->page->format;
  d->policy = resolve(config_, d->path);
  if (!share(*d)) return nullptr;
  place(*d);
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
  }
  return {};
}

void ServerImpl::attach(Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d) {
  j.datasets[number] = d;
  if (d->shared())
    j.shared.push_back(d);
  else if (d->policy.join && d->whole == nullptr && !d->over())
    gather(d);
}

// ---- tiles that become one file ----

/// One more tile of a whole. A whole that has been begun takes none: whoever writes a tile of that name again begins
/// the next.
void ServerImpl::gather(const std::shared_ptr<Dataset>& d) {
  if (std::strcmp(d->page->whole, journal::alone) == 0 || d->page->visible.load() > 0) return;
  if (stage_.control().nodes > 1) {
    if (split_.insert("").second)
      log_.warning("join: true holds for runs on one node only; in this one tiles stay files of their own");
    return;
  }
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
    it = wholes_.insert(wholes_.end(), std::move(w));
  }
  d->whole = it->get();
  d->tile = d->whole->merge->add(d->path);
  d->whole->tiles.push_back(d);
}

void ServerImpl::stay_alone(Dataset& d) {
  std::strcpy(d.page->whole, journal::alone);
  d.page->waits.store(0, std::memory_order_release);
  d.whole = nullptr;
  d.joined = false;
}

Result<void> ServerImpl::on_tile(const std::shared_ptr<Dataset>& d, const Record& r, bool verify) {
  if (verify) ADVECTIO_TRY(journal::verify_payload(r));
  Dataset& whole = *d->whole;
  const Busy busy(whole.busy_ns);
  ADVECTIO_TRY(whole.merge->take(d->tile, r));
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
  if (now && whole.page && whole.uncommitted) ADVECTIO_TRY(commit_part(whole));
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
    if (d->path == whole.path && !d->merge) return Error{Code::exists, whole.path + " is another file of this run", 0};
  ADVECTIO_TRY(make_whole_file(whole));
  for (const auto& t : whole.tiles) {
    std::strcpy(t->page->whole, whole.page_name.c_str());
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
  char suffix[48];
  std::snprintf(suffix, sizeof suffix, ".advectio-%08x-whole", static_cast<unsigned>(whole.tiles[0]->page->journal));
  whole.link = directory_of(path) + "." + path.substr(path.find_last_of('/') + 1) + suffix;
  (void)::unlink(whole.link.c_str());
  if (::link(path.c_str(), whole.link.c_str()) != 0) whole.link = path;
  if (whole.link.size() >= sizeof(DatasetPage::link)) return system_error("create " + path, ENAMETOOLONG);
  auto made = stage_.make_dataset(whole.page_name, [&](DatasetPage& p) {
    p.format = whole.format;
    p.writer_pid = static_cast<std::uint32_t>(::getpid());
    p.tiles = static_cast<std::uint32_t>(whole.tiles.size());
    std::memcpy(p.path, path.c_str(), path.size() + 1);
    std::memcpy(p.link, whole.link.c_str(), whole.link.size() + 1);
  });
  if (!made) return std::move(made).error();
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
    if (m.copied_bytes() > config_.server.memory_max) ADVECTIO_TRY(commit_part(whole));
  }
}

Result<void> ServerImpl::commit_part(Dataset& whole) {
  whole.partial = true;
  ADVECTIO_TRY(commit(whole.shared_from_this(), whole.visible, 0));
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
  whole.partial = false;
  whole.page->round.store(0, std::memory_order_release);
  whole.merge->committed();
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
    t->page->visible.store(t->visible, std::memory_order_release);
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
  remove_placeholder(d);
  d.whole = nullptr;
  d.joined = true;
  end_dataset(d, State::finished);
}

/// They do not become one file, or not from here on: what is not in the whole goes to a file of each tile's own.
void ServerImpl::split(Dataset& whole, const std::string& why) {
  const bool begun = whole.page && (whole.page->visible.load() > 0 || whole.partial);
  log_.warning(whole.path + ": " + why + "; its tiles are written " +
               (begun ? "to files of their own from here on; it holds the " + std::to_string(whole.frames_visible) +
                            " frames before" + (whole.partial ? " and a part of the next" : "")
                      : "as files of their own"));
  split_.insert(whole.path);
  if (whole.sink) whole.sink->abandon();
  const auto tiles = std::move(whole.tiles);
  for (const auto& t : tiles) give_back(whole, *t);
  if (!whole.page) {
    whole.state = State::dropped;
    return;
  }
  if (!begun) {
    remove_placeholder(whole);
    whole.joined = true;  // nobody has heard of it
  }
  end_dataset(whole, begun ? State::finished : State::dropped);
}

void ServerImpl::give_back(Dataset& whole, Dataset& d) {
  if (d.over()) return;
  const bool gone = whole.merge->is_gone(d.tile);
  if (d.schema) (void)store_schema(d, *d.schema);
  stay_alone(d);
  auto entries = whole.merge->give_back(d.tile);
  d.returned.assign(std::move_iterator(entries.begin()), std::move_iterator(entries.end()));
  const auto self = d.shared_from_this();
  for (const auto& e : d.returned) {
    if (d.over()) break;
    // A block that was kept for comparison is of a frame that has been ended.
    const auto done =
        e.kept && e.record.type != RecordType::put ? Result<void>{} : act(self, e.record, options_.recover);
    if (done) continue;
    fail(d, done.error());
    break;
  }
  if (gone && !d.over() && d.state != State::failed) drop_rest(d, d.writer);
  forward(true);
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
  forward(true);
}

/// With a fresh sink behind the last commit, and everything that the tiles have said since.
void ServerImpl::retry_whole(Dataset& whole) {
  whole.merge = std::make_unique<Merge>();
  whole.merge->resume(whole.visible, whole.partial);
  whole.state = State::open;
  std::vector<std::unique_ptr<Reader>> readers;
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
      if ((*next)->dataset == t.number) ADVECTIO_TRY(whole.merge->take(t.tile, **next));
    }
    readers.push_back(std::move(again).value());
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
  if (done) done = try_to_move_on(whole, false);
  if (!done) return fail_whole(whole, std::move(done).error());
  log_.warning(whole.path + ": could be written after all");
  whole.error = Error{};
  if (whole.over()) return;
  // The blocks of the round under way stay mapped until they are committed.
  whole.replayed = std::move(readers);
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
  for (const auto& w : wholes) {
    if (any || !waits(w)) continue;
    split(*w, "the stage is full, and " + w->merge->why_not());
    any = true;
  }
  return any;
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
    w->seen = w->visible = w->page->visible.load();
    w->frames_visible = w->frames_synced = w->page->frames_visible.load();
    w->partial = w->page->round.load() > 0;
    w->resume = true;
    const auto state = static_cast<DatasetState>(w->page->state.load());
    if (state == DatasetState::finished || state == DatasetState::dropped) {
      end_dataset(*w, state == DatasetState::finished ? State::finished : State::dropped);
      datasets_.push_back(w);
    } else if (w->visible == 0 && !w->partial) {
      undone.push_back(name);
      wholes_.push_back(w);
    } else {
      w->page->state.store(static_cast<std::uint32_t>(DatasetState::in_flight));
      if (auto bytes = read_whole(files_, stage_.datasets() + "/" + name + ".schema"))
        if (auto schema = decode_schema(*bytes)) w->schema = std::move(schema).value();
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
    if (page && std::find(undone.begin(), undone.end(), (*page)->whole) != undone.end()) (*page)->whole[0] = '\0';
  }
  std::erase_if(wholes_, [&](const auto& w) {
    if (w->merge) return false;
    remove_placeholder(*w);
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
      d->partial = d->partial || d->uncommitted;
      ADVECTIO_TRY(commit(d, 0, 0));
      d->slots[step.parts[0].writer].read.store(r.sequence, std::memory_order_release);
      forward(true);
      return {};
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
  if (closed) d->state = State::closed;
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
  return replace_whole(files_, stage_.datasets() + "/" + d.page_name + ".schema", bytes);
}

Result<void> ServerImpl::ready_sink(Dataset& d) {
  if (!d.schema) {
    Schema empty;
    empty.format = d.policy.format.value_or(d.format);
    d.schema = empty;
    d.declared = false;
  }
  if (!d.sink) {
    auto sink = sinks_({d.link, d.schema->format, d.policy, d.resume});
    if (!sink) return std::move(sink).error().with("open");
    d.sink = std::move(sink).value();
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
  d->page->visible.store(sequence, std::memory_order_release);
  forward(true);
  if (d->policy.durable) {
    const std::lock_guard guard(durable_mutex_);
    durable_jobs_.push_back({d->sink->make_durable(), d, sequence, d->frames_visible, synced_ns});
    durable_wake_.notify_one();
  }
  return {};
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
  d->state = State::closed;
  if (!d->sink) ADVECTIO_TRY(commit(d, d->visible, 0));
  ADVECTIO_TRY_WITH(d->sink->close(), "close");
  count_sink(*d);
  end_dataset(*d, State::finished);
  return {};
}

void ServerImpl::on_abort(Dataset& d) {
  if (d.sink) d.sink->abandon();
  if (d.page->visible.load() == 0) {
    remove_placeholder(d);
    end_dataset(d, State::dropped);
  } else {
    end_dataset(d, State::finished);
  }
}

void ServerImpl::count_sink(Dataset& d) {
  const auto c = d.sink->counters();
  d.bytes_written = c.bytes_out;
  d.encode_ns = c.encode_ns;
}

/// The sink could not do it. What is staged stays staged; the program hears of it at its next sync or close.
void ServerImpl::fail(Dataset& d, Error error) {
  if (d.sink) {
    count_sink(d);
    d.sink->abandon();
    d.sink.reset();
  }
  const bool last = d.state == State::closed && !d.uncommitted;  // nothing but the end of the file was left to do
  const std::string text =
      d.path + (last ? "" : ": frame " + std::to_string(d.frames_visible + 1)) + ": " + error.message;
  const bool known = d.state == State::failed || d.error.message == error.message;
  d.state = State::failed;
  d.resume = true;
  d.declared = false;
  d.failed_at_ns = monotonic_ns();
  auto& page = *d.page;
  const auto n = std::min(sizeof page.error_text - 1, error.message.size());
  std::memcpy(page.error_text, error.message.data(), n);
  page.error_text[n] = '\0';
  page.error_sys.store(error.sys != 0 ? error.sys : EIO, std::memory_order_release);
  if (!known) {
    page.errors.fetch_add(1, std::memory_order_release);
    log_.error(text + "; what is staged is kept and tried again");
    errors_.push_back(text);
  }
  page.state.store(static_cast<std::uint32_t>(DatasetState::failed), std::memory_order_release);
  d.error = std::move(error);
  forward(true);
}

/// The file is as it will be; nothing of the dataset is needed in the stage any more.
void ServerImpl::end_dataset(Dataset& d, State state) {
  d.state = state;
  if (d.owner) {
    (void)files_.remove(stage_.datasets() + "/" + d.page_name);
    if (d.shared()) (void)files_.remove(stage_.datasets() + "/" + d.page_name + journal::slots_suffix);
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
  struct stat file {};
  if (state == State::finished && ::stat(d.link.c_str(), &file) == 0)
    d.bytes_written = static_cast<std::uint64_t>(file.st_size);
  const bool shared = d.page->writers > 0;
  d.page->visible.store(shared ? d.page->synced.load() : d.seen, std::memory_order_release);
  // First of all: a server that takes over from here must not look for what is removed below.
  d.page->state.store(
      static_cast<std::uint32_t>(state == State::dropped ? DatasetState::dropped : DatasetState::finished),
      std::memory_order_release);
  const auto name = d.link.substr(d.link.find_last_of('/') + 1);
  if (name[0] == '.' && name.find(".advectio-") != std::string::npos) (void)files_.remove(d.link);
  (void)files_.remove(stage_.datasets() + "/" + d.page_name + ".schema");
  if (d.spread && relay_)
    relay_->ended(d.id, static_cast<DatasetState>(d.page->state.load()));
  else
    (void)files_.remove(stage_.datasets() + "/" + d.page_name);
  if (shared && !(d.spread && relay_))
    (void)files_.remove(stage_.datasets() + "/" + d.page_name + journal::slots_suffix);
  d.page = Page<DatasetPage>();
  d.slots = Page<WriterSlot>();
  d.weave.reset();
  d.replayed.clear();
  forward(true);
}

/// The empty file that nc_create has made, where nothing ever came to be in it.
void ServerImpl::remove_placeholder(Dataset& d) {
  struct stat file {};
  if (::stat(d.path.c_str(), &file) == 0 && Stage::page_name(file.st_dev, file.st_ino) == d.page_name)
    (void)files_.remove(d.path);
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

/// Of a shared dataset: the others may still have to say what belongs to a frame that one which has gone has synced.
bool ServerImpl::all_writers_over(const Dataset& d) const {
  for (std::size_t w = 0; w < d.shares.size(); ++w)
    if (!d.shares[w].over &&
        (d.slots[w].journal.load(std::memory_order_acquire) != 0 || (d.spread && relay_ && !relay_->all_quiet())))
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
  if (d.sink) d.sink->abandon();
  const bool any = d.page->frames_visible.load() > 0 || (d.shared() ? d.page->visible : d.page->synced).load() > 0;
  if (!any && !d.partial) {
    log_.warning(d.path + ": its writer " + writer + " has gone before anything was synced; the file is removed");
    remove_placeholder(d);
    end_dataset(d, State::dropped);
    return;
  }
  log_.warning(d.path + ": its writer " + writer + " has gone without closing it; it holds the " +
               std::to_string(d.frames_visible) + " frames that were synced" +
               (d.partial ? " and part of the next, which had been written to make room in the stage" : ""));
  end_dataset(d, State::finished);
}

/// Give back the segments whose every record is committed.
void ServerImpl::release(Journal& j) {
  if (!j.reader) return;
  while (!j.reader->held().empty()) {
    const auto& oldest = j.reader->held().front();
    if (!oldest.done && j.alive) return;
    if (!oldest.done && !j.read_to_end) return;
    // What was sent may be known to be in the file, from before a restart, and yet be under way once more.
    if (relay_ && relay_->unsent(j.reader->journal()) <= oldest.last_sequence) return;
    if (!j.loads.empty() && j.loads.front().index == oldest.index) {
      for (const auto& [number, last] : j.loads.front().last) {
        const auto it = j.datasets.find(number);
        if (it == j.datasets.end() || it->second->over()) continue;
        if (it->second->state == State::failed || it->second->visible_of(j.reader->journal()) < last) return;
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
  while (bytes < turn_bytes) {
    auto next = j.reader->next();
    if (!next) {
      j.broken = true;
      j.read_to_end = true;
      const std::string text = "journal " + j.name + ": " + next.error().message;
      log_.error(text);
      errors_.push_back(text);
      for (auto& [number, d] : j.datasets)
        if (!d->over() && d->state != State::failed) fail(*d, Error{Code::corrupt, text, EIO});
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
    // Replayed records may have been through a crash: look at every byte.
    auto done = handle(j, r, options_.recover);
    if (!done) {
      if (const auto it = j.datasets.find(r.dataset); it != j.datasets.end()) {
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
    if (auto done = weave(d, options_.recover); !done) fail(*d, std::move(done).error());
  }
  if (any && relay_) tell_of(j);
  if (any) forward(false);
  return any;
}

/// A step forward: whoever waits for it looks again.
void ServerImpl::forward(bool rang) {
  stage_.control().activity.fetch_add(1, std::memory_order_relaxed);
  if (rang) journal::ring(stage_.control().progress);
}

/// A writer has found the pool empty: take back what others have only mapped ahead, and commit in the midst of frames.
void ServerImpl::make_room() {
  // It may have got one since, unless it is on another node.
  if (const auto free = files_.list(stage_.pool()); free && !free->empty() && !(relay_ && relay_->pleaded())) return;
  bool reclaimed = false;
  for (auto& [name, j] : journals_) {
    const std::string directory = stage_.journals() + "/" + name;
    auto names = files_.list(directory);
    if (!names) continue;
    for (const auto& file : *names)
      if (file.rfind("ahead-", 0) == 0 && files_.rename(directory + "/" + file, stage_.pool() + "/" + file.substr(6)))
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
    d->partial = true;
    if (auto r = commit(d, d->shared() ? 0 : d->seen, 0); !r) fail(*d, std::move(r).error());
  }
  const auto datasets = datasets_;  // reading on may find new ones
  for (const auto& d : datasets)
    if (!any && d->shared() && !d->owner && !d->over() && d->state != State::failed) any = make_room_at_any_price(d);
  if (!any) any = make_room_in_wholes();
  if (!any && relay_ && !elsewhere_.empty()) relay_->plead();
  // What would let something go may be behind what there is no room for.
  const bool stuck = !any && relay_ && relay_->held_up() && pool_->exhausted();
  if (!stuck || stuck_since_ns_ == 0) stuck_since_ns_ = stuck ? monotonic_ns() : 0;
  if (stuck && monotonic_ns() - stuck_since_ns_ > stuck_max_ns) {
    log_.warning("the stage grows beyond its cap by a segment, as there is no room for what other nodes send");
    pool_->grow_beyond_cap();
    stuck_since_ns_ = 0;
  }
  for (auto& [name, j] : journals_) release(*j);
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
  d->partial = true;
  Result<void> done;
  for (; done && step; step = pending ? d->weave->next_pending() : d->weave->next_at_any_price())
    done = do_step(d, *step, false);
  if (done) done = commit(d, 0, 0);
  if (!done) fail(*d, std::move(done).error());
  return true;
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
  auto again = Reader::open(files_, stage_.journals() + "/" + j.name, Trust::published);
  if (!again) return std::move(again).error();
  const auto until = j.reader->sequence();
  // The blocks stay mapped by `again` until they are committed.
  while (!d->over() && (*again)->sequence() < until) {
    auto next = (*again)->next();
    if (!next) return std::move(next).error();
    if (!next->has_value()) break;
    if ((*next)->dataset == number) ADVECTIO_TRY(handle(j, **next, true));
  }
  if (d->over() || !d->uncommitted) return {};
  d->partial = true;
  return commit(d, d->seen, 0);
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
    auto again = Reader::open(files_, stage_.journals() + "/" + j.name, Trust::published);
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
      if (type == RecordType::close) d->shares[w].over = d->shares[w].closed = true;
      ADVECTIO_TRY(d->weave->take(w, **next));
    }
    d->replayed.push_back(std::move(again).value());
  }
  ADVECTIO_TRY(weave(d, true));
  ADVECTIO_TRY(end_if_all_over(d));
  if (d->over() || !d->uncommitted) return {};
  d->partial = true;
  return commit(d, 0, 0);
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
      it = durable_jobs_.erase(it);
    }
    ++durable_busy_;
    guard.unlock();
    auto done = job.make();
    const auto now = realtime_ns();
    guard.lock();
    --durable_busy_;
    durable_done_.push_back({std::move(job.dataset), job.frames, std::move(synced), now, std::move(done)});
    journal::ring(stage_.control().work);
  }
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
      const std::string text = x.dataset->path + ": make durable: " + x.result.error().message;
      log_.error(text);
      errors_.push_back(text);
      not_durable_ = true;
      continue;
    }
    x.dataset->frames_durable = x.frames;
    for (const auto at : x.synced)
      if (at != 0) x.dataset->to_durable.add(seconds(x.at_ns - std::min(x.at_ns, at)));
  }
}

std::uint64_t ServerImpl::backlog() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, j] : journals_) {
    for (const auto& load : j->loads) bytes += load.bytes;
    if (j->reader) bytes += j->reader->bytes_ahead();
  }
  return bytes;
}

json ServerImpl::status_json(bool final) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto cpu = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  std::uint64_t memory = 0;
  {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);)
      if (line.rfind("RssAnon:", 0) == 0) memory = std::strtoull(line.c_str() + 8, nullptr, 10) * 1024;
  }
  memory_peak_ = std::max(memory_peak_, memory);
  auto& control = stage_.control();
  const auto segment = control.segment_bytes;
  const auto allocated = control.segments_total.load() * segment;
  allocated_peak_ = std::max(allocated_peak_, allocated);
  const auto waiting = backlog();
  backlog_peak_ = std::max(backlog_peak_, waiting);

  json writers = json::array();
  for (const auto& [name, j] : journals_) {
    if (!j->reader || journal::is_mirror(name)) continue;
    const auto& w = j->reader->writer();
    writers.push_back(
        {{"rank", w.rank}, {"pid", w.pid}, {"host", w.host}, {"alive", j->alive}, {"command", w.command}});
  }
  std::uint64_t encode_ns = 0;
  json datasets = json::array();
  for (const auto& d : datasets_) {
    if (d->owner) continue;  // its owner knows it all
    encode_ns += d->encode_ns;
    if (d->joined) continue;
    datasets.push_back(
        {{"path", d->path},
         {"format", std::string(name_of(d->policy.format.value_or(d->format)))},
         {"state", name_of(d->state)},
         {"writer", d->writer},
         {"tiles", d->tiles_count > 0 ? json(d->tiles_count) : json()},
         {"frames_synced", d->page ? std::max(d->frames_synced, d->page->frames_synced.load()) : d->frames_synced},
         {"frames_visible", d->frames_visible},
         {"frames_durable", d->frames_durable},
         {"bytes_put", d->bytes_put},
         {"bytes_written", d->bytes_written},
         {"ratio", d->bytes_written > 0
                       ? json(static_cast<double>(d->bytes_put) / static_cast<double>(d->bytes_written))
                       : json()},
         {"stall_s", d->stall.to_json()},
         {"to_visible_s", d->to_visible.to_json()},
         {"to_durable_s", d->to_durable.to_json()},
         {"drain_bytes_per_s", d->busy_ns > 0 ? json(static_cast<double>(d->bytes_put) / seconds(d->busy_ns)) : json()},
         {"error", d->state == State::failed ? json(d->error.message) : json()}});
  }
  json all = {{"version", ADVECTIO_VERSION},
              {"run_dir", options_.run_dir},
              {"pid", ::getpid()},
              {"uptime_s", seconds(monotonic_ns() - started_ns_)},
              {"final", final},
              {"server",
               {{"threads", options_.threads},
                {"memory_bytes", memory},
                {"memory_peak_bytes", memory_peak_},
                {"cpu_s", cpu(usage.ru_utime) + cpu(usage.ru_stime)},
                {"encode_cpu_s", seconds(encode_ns)}}},
              {"stage",
               {{"directory", stage_.directory()},
                {"bytes_max", control.segments_max * segment},
                {"bytes_allocated", allocated},
                {"bytes_allocated_peak", allocated_peak_},
                {"backlog_bytes", waiting},
                {"backlog_peak_bytes", backlog_peak_},
                {"waits", control.waits.load()},
                {"wait_s", seconds(control.wait_ns.load())}}},
              {"writers", writers},
              {"datasets", datasets},
              {"errors", errors_}};
  return relay_ ? with_others(std::move(all)) : all;
}

std::string ServerImpl::status() {
  // The ledger belongs to the loop: ask it for a picture, and take the last one when it is deep in a commit.
  std::unique_lock guard(picture_mutex_);
  if (concluded_) return picture_;
  picture_wanted_ = true;
  journal::ring(stage_.control().work);
  picture_made_.wait_for(guard, std::chrono::milliseconds(500), [this] { return !picture_wanted_; });
  return picture_;
}

void ServerImpl::make_picture() {
  {
    const std::lock_guard guard(picture_mutex_);
    if (!picture_wanted_ && !picture_.empty()) return;
  }
  auto text = status_json(false).dump(-1, ' ', false, json::error_handler_t::replace);
  const std::lock_guard guard(picture_mutex_);
  picture_ = std::move(text);
  picture_wanted_ = false;
  picture_made_.notify_all();
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
  const auto free = files_.list(stage_.pool());
  return free && free->size() >= 2;
}

// ---- with servers on other nodes ----

/// Whose dataset it is.
void ServerImpl::place(Dataset& d) const {
  d.id = {d.page_name, d.page->journal, d.page->number};
  d.spread = d.page->owner != 0;
  if (options_.neighbours != nullptr && d.spread && d.page->owner - 1 != options_.neighbours->node())
    d.owner = d.page->owner - 1;
}

/// A record of a dataset that another node writes.
void ServerImpl::pass_on(Journal& j, const Record& r, Dataset& d) {
  const auto uid = j.reader->journal();
  // What the owner has committed was sent before. The end is said again: the owner may have died between the two.
  if (r.type != RecordType::close && r.sequence <= d.visible_of(uid)) return;
  if (!d.announced) relay_->announce(d.id, *d.page);
  d.announced = true;
  if (d.shared() && d.introduced.insert(uid).second) {
    const auto writer = d.share_of(uid);
    SlotState slot;  // without a turn: what is before it has not been sent yet
    slot.journal = uid;
    slot.number = d.slots[writer].number;
    relay_->tell(d.id, *d.page, static_cast<std::uint32_t>(writer), slot);
  }
  relay_->send(*d.owner, j.name, j.reader->writer(), r);
  if (d.shared() && r.type == RecordType::schema) {
    // Nothing is owed any more. To be known before all that this node has still to send.
    const auto writer = d.share_of(uid);
    auto slot = state_of(d.slots[writer]);
    slot.turn = r.turn;
    slot.owed = 0;
    relay_->tell(d.id, *d.page, static_cast<std::uint32_t>(writer), slot);
  }
  d.bytes_put += r.payload.size();
}

/// What is known of the datasets of one process that another node writes.
void ServerImpl::tell_of(Journal& j) {
  for (const auto& [number, d] : j.datasets)
    if (d->owner && !d->shared() && !d->over() && d->announced) relay_->tell(d->id, *d->page, 0, {});
}

/// How far the owners of what other nodes write have come.
void ServerImpl::look_at_owners() {
  for (const auto& d : elsewhere_) {
    const auto state = static_cast<DatasetState>(d->page->state.load(std::memory_order_acquire));
    d->visible = d->page->visible.load(std::memory_order_acquire);
    for (std::size_t w = 0; w < d->shares.size(); ++w)
      d->shares[w].visible = d->slots[w].visible.load(std::memory_order_acquire);
    if (state == DatasetState::finished || state == DatasetState::dropped)
      end_dataset(*d, state == DatasetState::finished ? State::finished : State::dropped);
  }
  std::erase_if(elsewhere_, [](const auto& d) { return d->over(); });
  if (const auto asked = stage_.control().asked.load(std::memory_order_acquire); asked != asked_) {
    asked_ = asked;
    if (auto names = files_.list(stage_.questions()))
      for (const auto& name : *names)
        if (name.find('+') != std::string::npos && name.find('.') == std::string::npos &&
            !files_.exists(stage_.questions() + "/" + name + journal::answer_suffix))
          relay_->ask(name);
  }
  if (relay_->drain_wanted()) draining_ = true;
  if (draining_) relay_->drain();
  if (const auto now = monotonic_ns(); relay_->node() != 0 && now - pictured_ns_ > 500'000'000) {
    pictured_ns_ = now;
    relay_->picture(status_json(false).dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

/// No process writes on the other nodes, as far as node 0 has heard. Only it ends a run by itself.
bool ServerImpl::others_idle() {
  if (!relay_) return true;
  if (relay_->node() != 0) return false;
  const auto pictures = relay_->pictures();
  return std::all_of(pictures.begin() + 1, pictures.end(), [](const std::string& text) {
    const auto status = json::parse(text, nullptr, false);
    if (!status.is_object()) return false;
    const auto& writers = status["writers"];
    return std::none_of(writers.begin(), writers.end(), [](const json& w) { return w.value("alive", false); });
  });
}

/// Nobody writes any more, and everything has been heard: a writer that has not been heard of never was.
void ServerImpl::settle_spread() {
  const auto datasets = datasets_;
  for (const auto& d : datasets) {
    if (!d->spread || d->owner || d->over() || d->state == State::failed || !d->shared()) continue;
    if (auto done = end_if_all_over(d); !done) fail(*d, std::move(done).error());
  }
}

/// This node can do no more. True when that holds for all of them; what they own and could not finish stays here too.
bool ServerImpl::agreed_on_end() {
  const bool own = std::all_of(datasets_.begin(), datasets_.end(), [](const auto& d) { return d->over() || d->owner; });
  relay_->final(own && !not_durable_, status_json(true).dump(-1, ' ', false, json::error_handler_t::replace));
  if (!relay_->all_final()) return false;
  look_at_owners();  // what they have told before that
  return true;
}

/// The status of all nodes, for node 0 to tell: sums of the stages, everybody's datasets.
json ServerImpl::with_others(json own) const {
  const auto describe = [this](unsigned node, const json& status) -> json {
    return {{"node", node},
            {"name", relay_->name(node)},
            {"pid", status["pid"]},
            {"backlog_bytes", status["stage"]["backlog_bytes"]},
            {"bytes_max", status["stage"]["bytes_max"]},
            {"memory_peak_bytes", status["server"]["memory_peak_bytes"]}};
  };
  for (auto& d : own["datasets"]) d["node"] = relay_->name(relay_->node());
  if (relay_->node() != 0) return own;
  own["nodes"] = json::array({describe(0, own)});
  const auto pictures = relay_->pictures();
  for (unsigned n = 1; n < pictures.size(); ++n) {
    const auto other = json::parse(pictures[n], nullptr, false);
    if (!other.is_object()) continue;
    own["nodes"].push_back(describe(n, other));
    for (const char* list : {"writers", "datasets", "errors"})
      for (const auto& x : other[list]) own[list].push_back(x);
    for (const char* group : {"server", "stage"})
      for (auto& [key, value] : own[group].items())
        if (value.is_number() && other[group].contains(key)) {
          if (value.is_number_float())
            value = value.get<double>() + other[group][key].get<double>();
          else
            value = value.get<std::uint64_t>() + other[group][key].get<std::uint64_t>();
        }
  }
  return own;
}

Outcome ServerImpl::run() {
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
    bool moved = false;
    const bool look = now - last_look_ns_ > look_around_ns;
    for (auto& [name, j] : journals_) moved = follow(*j) || moved;
    if (look || !moved) look_for_writers();
    if (look) {
      last_look_ns_ = now;
      for (auto& [name, j] : journals_) {
        if (!j->alive || !j->reader) continue;
        if (j->reader->writer_alive()) {
          last_writer_ns_ = now;
          continue;
        }
        // Gone. What it had published before is handled first.
        while (follow(*j)) {
        }
        if (!j->broken) writer_gone(*j);
        j->alive = false;
      }
      if (std::none_of(journals_.begin(), journals_.end(), [](const auto& j) { return j.second->alive; }))
        stage_.control().bursts.store(0);  // what the dead have left
      forget_journals();
      retry_failed(false);
      look_at_wholes();
    }
    for (auto& [name, j] : journals_) release(*j);
    collect_durable();
    const bool starved = stage_.control().starved_ns.load() + starved_recently_ns > now;
    if (pool_ && starved && pool_->exhausted() && !moved) make_room();
    if (relay_) {
      if (!moved && !starved && relay_->pleaded()) make_room();
      look_at_owners();
    }
    make_picture();
    if (stopping_ && !moved) {
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
  // Whatever failed gets a last chance.
  retry_failed(true);
  if (settle_wholes()) return false;
  forget_journals();
  {
    const std::lock_guard guard(durable_mutex_);
    if (!durable_jobs_.empty() || durable_busy_ > 0 || !durable_done_.empty()) return false;
  }
  return !relay_ || agreed_on_end();
}

/// Pages without a journal: their writer died between registering the dataset and its first record, or an earlier
/// server died between the end of the journal and the end of the page.
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
    const auto uid = (*page)->journal;
    std::vector<std::uint64_t> writers{uid};
    if (auto slots = stage_.open_slots(name, (*page)->writers); slots && (*page)->writers > 0)
      for (std::uint32_t w = 0; w < (*page)->writers; ++w) writers.push_back((*slots)[w].journal.load());
    const bool followed = std::any_of(journals_.begin(), journals_.end(), [&writers](const auto& j) {
      return j.second->reader &&
             std::find(writers.begin(), writers.end(), j.second->reader->journal()) != writers.end();
    });
    if (followed) continue;
    auto& d = taken_up_[{uid, (*page)->number}];
    if (!d) {
      d = std::make_shared<Dataset>();
      d->path = (*page)->path;
      d->link = (*page)->link;
      d->page_name = name;
      d->number = (*page)->number;
      d->page = std::move(page).value();
      place(*d);
      datasets_.push_back(d);
    }
    if (d->over() || d->whole != nullptr) continue;
    if (d->owner) {
      // Its owner has not heard of it from here, and what others have said of it is theirs.
      if (d->page->writer_pid != 0) remove_placeholder(*d);
      if (d->page->writer_pid != 0) (void)files_.remove(d->link);
      end_dataset(*d, State::dropped);
      continue;
    }
    const bool any = d->page->visible.load() > 0;
    if (!any) remove_placeholder(*d);
    end_dataset(*d, any ? State::finished : State::dropped);
  }
}

/// Everything that is for this node to write is in its file.
bool ServerImpl::all_done() const {
  bool clean = !not_durable_;
  for (const auto& [name, j] : journals_) clean = clean && !j->broken;
  for (const auto& d : datasets_) clean = clean && d->over();
  return clean;
}

Outcome ServerImpl::conclude() {
  const bool clean = all_done() && (!relay_ || (relay_->all_final() && relay_->all_clean()));
  const auto final = status_json(true).dump(-1, ' ', false, json::error_handler_t::replace);
  relay_.reset();
  pool_.reset();
  if (clean) {
    std::error_code ignored;
    std::filesystem::remove_all(options_.run_dir, ignored);
  }
  {
    const std::lock_guard guard(picture_mutex_);
    picture_ = final;
    concluded_ = true;
  }
  socket_->finish(final);
  return clean ? Outcome::clean : Outcome::incomplete;
}

}  // namespace advectio
