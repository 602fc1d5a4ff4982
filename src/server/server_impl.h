// The server from within: the ledger's entries and the class, whose parts are in
//   server.cpp    the loop, the beginning and the end, room in the stage, durability
//   datasets.cpp  what the records of a dataset do, commits, failures, replay
//   tiles.cpp     tiles of split output that become one file
//   nodes.cpp     datasets that servers of several nodes have part in
//   status.cpp    what is told of all that
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "journal/hard_link.h"
#include "journal/reader.h"
#include "server/control_socket.h"
#include "server/drain_rate.h"
#include "server/merge.h"
#include "server/relay.h"
#include "server/segment_pool.h"
#include "server/server.h"
#include "server/weave.h"

namespace advectio {

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

inline double seconds(std::uint64_t ns) {
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

enum class State : std::uint8_t { open, closed, finished, failed, dropped };

inline const char* name_of(State s) {
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
  std::uint64_t seen = 0;            ///< sequence of the last record handled
  std::uint64_t visible = 0;         ///< everything up to here is committed
  std::uint64_t durable = 0;         ///< everything up to here is durable in the file, or has nothing to do with it
  std::atomic<bool> refused{false};  ///< the disk has refused what was written through the present sink
  bool names_durable = false;        ///< asked for: its directory entries survive a loss of power
  bool power_lost = false;           ///< nobody has opened the file since the power was lost
  bool uncommitted = false;          ///< blocks or a schema have gone to the sink since
  bool partial = false;              ///< committed in the midst of a frame, to make room
  std::uint64_t failed_at_ns = 0;
  Error error;

  std::uint64_t frames_synced = 0, frames_visible = 0, frames_durable = 0;
  std::uint64_t frames_dropped = 0;  ///< once its page is gone
  std::uint64_t bytes_put = 0, bytes_written = 0, encode_ns = 0;
  std::uint64_t charged = 0;  ///< of what its sink has written, so much has been counted against `server.drain_max`
  std::uint64_t busy_ns = 0;  ///< time this server has spent on it
  Samples stall, to_visible, to_durable;
  std::optional<double> last_stall;  ///< of the latest frame: closing the dataset still adds to it
  void settle_stall() {
    if (last_stall) stall.add(*last_stall);
    last_stall.reset();
  }

  [[nodiscard]] bool over() const { return state == State::finished || state == State::dropped; }
  bool ending = false;  ///< all that is left to do is to make it durable, as was promised
  [[nodiscard]] bool promises_durable() const { return policy.promise == Promise::durable; }

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
  /// Hold what `weave`, `merge` or the sink refers to, after it has been read again; a whole's tiles share them when it
  /// is split.
  std::vector<std::shared_ptr<Reader>> replayed;

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
  std::uint64_t sequence = 0;
  std::uint64_t frames = 0;
  bool last = false;
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
  bool last = false;            ///< the file is closed, and the dataset ends with this
  std::uint64_t journal = 0;    ///< and `number`: whose page it is
  std::uint32_t number = 0;
};

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
        rate_(config_.server.drain_max),
        started_ns_(monotonic_ns()) {
    std::error_code ignored;
    run_directory_ = std::filesystem::current_path(ignored).string();
  }
  ~ServerImpl() override;

  Result<void> begin();
  Outcome run() override;
  void stop() noexcept override { stopping_ = true; }
  void drain() noexcept override { draining_ = true; }
  std::string status() override;

 private:
  void take_up_datasets();
  [[nodiscard]] std::string find_hard_link(const std::string& page_name, const DatasetPage& page) const;
  void leave_at_last_commit(const std::string& page_name, const Error& why);
  void leave_all_at_last_commit();
  void look_for_writers();
  bool follow(Journal& j);
  Result<void> handle(Journal& j, const Record& r, bool verify);
  Result<void> on_create(Journal& j, const Record& r);
  Result<void> on_join(Journal& j, const Record& r);
  [[nodiscard]] bool is_over(const DatasetPage& page) const;
  std::shared_ptr<Dataset> shared_dataset(const std::string& page_name);
  Result<void> share(Dataset& d);
  void attach(Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d);
  Result<void> weave(const std::shared_ptr<Dataset>& d, bool verify);
  Result<void> do_step(const std::shared_ptr<Dataset>& d, const Weave::Step& step, bool verify);
  Result<void> end_round(const std::shared_ptr<Dataset>& d, const Weave::Step& step);
  Result<void> replay(Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d);
  Result<void> replay_from(Reader& again, Journal& j, std::uint32_t number, const std::shared_ptr<Dataset>& d);
  Result<std::unique_ptr<Reader>> read_again(const Journal& j);
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
  Result<void> commit_part_of(Dataset& whole);
  Result<void> end_round(Dataset& whole, const Merge::Round& round);
  Result<void> settle_tiles(Dataset& whole);
  Result<void> end_if_all_over(Dataset& whole);
  void end_tiles(Dataset& whole);
  void end_tile(Dataset& d);
  enum class Rest : std::uint8_t { at_hand, read_again };  ///< of the tiles' records: can they be had?
  void split(Dataset& whole, const std::string& why, Rest rest = Rest::at_hand);
  void give_back(Dataset& whole, Dataset& d);
  void split_at(Dataset& tile, const std::string& why);
  void leave_to_retry(Dataset& d);
  void fail_whole(Dataset& whole, Error error);
  void retry_whole(Dataset& whole);
  bool make_room_in_wholes();
  [[nodiscard]] bool tiles_come_again() const;
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
  Result<void> on_abort(Dataset& d);
  [[nodiscard]] bool was_removed(const Dataset& d) const;
  Result<void> ready_sink(Dataset& d);
  [[nodiscard]] Result<void> is_its_file(const Dataset& d) const;
  Result<void> commit(const std::shared_ptr<Dataset>& d, std::uint64_t sequence, std::uint64_t synced_ns);
  Result<void> commit_part(const std::shared_ptr<Dataset>& d);
  void count_sink(Dataset& d);
  void make_durable_soon(const std::shared_ptr<Dataset>& d, std::function<Result<void>()> make, std::uint64_t sequence,
                         std::uint64_t synced_ns, bool last = false);
  void tell_error(Dataset& d, const Error& error);
  void charge(Dataset& d);
  bool in_debt() { return rate_.limited() && rate_.in_debt(monotonic_ns()); }
  void fail(Dataset& d, Error error);
  Result<void> bring_to_last_commit(const Dataset& d);
  Result<void> take_back(Dataset& d);
  void end_dataset(Dataset& d, State state);
  Result<void> remove_placeholder(const Dataset& d);
  void writer_gone(Journal& j);
  void writer_gone(Journal& j, Dataset& d);
  bool died_before_joining(const Dataset& d, std::size_t w) const;
  void look_at_shared();
  bool all_writers_over(const Dataset& d) const;
  void drop_rest(Dataset& d, const std::string& writer);
  void release(Journal& j);
  void make_room();
  void retry_failed(bool now);
  void make_durable_jobs();
  Result<void> note_durable(const DurableJob& job) const;
  void lose_durable(Dataset& d, const Error& error);
  [[nodiscard]] bool is_kept(const Dataset& d) const;
  [[nodiscard]] bool is_done_with(const Dataset& d, std::uint64_t journal, std::uint64_t sequence) const;
  [[nodiscard]] SinkRequest sink_request(const Dataset& d, bool resume) const;
  [[nodiscard]] Result<void> keep_names(const Dataset& d) const;
  void keep_end(const Dataset& d);
  void forget_unforced_page(const std::string& page_name, const Error& why);
  void forget_unforced_journals();
  [[nodiscard]] Trust trust_in(const std::string& journal) const {
    return lost_journals_.contains(journal) ? Trust::scan : Trust::published;
  }
  bool take_up_after_power_loss(const std::shared_ptr<Dataset>& d);
  void forward(bool rang);
  bool finished();
  bool may_leave();
  void leave();
  bool give_way(std::uint32_t work, std::uint64_t now);
  void forget_journals();
  void settle_orphans();
  void settle_left_behind();
  void look_at_stage();
  void collect_durable();
  void make_picture();
  json status_json(bool final);
  std::uint64_t backlog() const;
  [[nodiscard]] bool all_done() const;
  [[nodiscard]] bool any_in_flight() const;
  Outcome conclude();
  // With servers on other nodes.
  void place(Dataset& d) const;
  std::shared_ptr<Dataset> entry_of(const std::string& name, Page<DatasetPage> page) const;
  void pass_on(Journal& j, const Record& r, Dataset& d);
  void tell_of(Journal& j);
  void look_at_owners();
  bool others_idle();
  bool agreed_on_end();
  bool has_no_room_to_end(std::uint64_t now);
  void leave_to_others();
  void settle_spread();
  void announce_rest();
  json with_others(json own) const;

  Files& files_;
  ServerOptions options_;
  Config config_;
  SinkFactory sinks_;
  Log& log_;
  journal::ProcessLock lock_;
  Stage stage_;
  DrainRate rate_;
  std::uint64_t started_ns_;
  std::string run_directory_;  ///< where the run was started

  std::unique_ptr<Relay> relay_;                     ///< null: this node is the only one
  std::vector<std::shared_ptr<Dataset>> elsewhere_;  ///< in flight, and written by other nodes
  std::uint32_t asked_ = 0;
  std::uint64_t pictured_ns_ = 0, stuck_since_ns_ = 0;
  // For room that others need and nothing makes.
  static constexpr std::uint64_t stuck_max_ns = 100'000'000, stuck_longest_ns = 10'000'000'000;
  std::uint64_t stuck_for_ns_ = stuck_max_ns;  ///< more after attempts in vain
  std::uint64_t grown_activity_ = 0;           ///< when the stage last grew for it
  std::uint64_t held_up_since_ns_ = 0, held_up_steps_ = 0;
  bool left_to_others_ = false;
  bool told_end_ = false;  ///< this node can do no more, unless what has failed can be written after all
  std::uint64_t last_chance_ns_ = 0;

  bool survives_power_ = false;          ///< of the stage: segments wait until what was in them is durable
  bool power_lost_ = false;              ///< and that has happened to what is taken up here
  std::set<std::string> lost_journals_;  ///< those of before, of which only what is whole on the disk counts
  bool verify_ = false;                  ///< records may have been through a crash: look at every byte
  std::unique_ptr<SegmentPool> pool_;
  std::unique_ptr<ControlSocket> socket_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> draining_{false};
  std::atomic<bool> leaving_{false};  ///< draining, but what is not written when nobody writes any more stays
  bool left_ = false;

  // The ledger. Only the loop (`run`) touches it.
  std::map<std::string, std::unique_ptr<Journal>> journals_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::shared_ptr<Dataset>> taken_up_;  ///< by journal uid and number
  std::vector<std::shared_ptr<Dataset>> datasets_;
  std::vector<std::shared_ptr<Dataset>> wholes_;  ///< of tiles, in the order in which they were begun
  std::set<std::string> split_;                   ///< names of wholes whose tiles stay files of their own
  std::vector<std::string> errors_;
  std::uint64_t backlog_peak_ = 0;
  std::uint64_t commits_ = 0;  ///< of all datasets, and their ends
  std::uint64_t last_look_ns_ = 0, last_writer_ns_ = 0;
  bool any_writer_ = false;
  std::uint32_t burst_work_ = 0;
  std::uint64_t burst_moved_ns_ = 0, burst_began_ns_ = 0;
  std::uint64_t allocated_peak_ = 0;
  std::uint64_t memory_peak_ = 0;

  bool not_durable_ = false;
  bool stage_gone_ = false;
  bool page_damaged_ = false;
  /// Of datasets that are over: a hard link that could not be removed. Their pages stay, so that the next server,
  /// too, knows of it.
  struct LeftBehind {
    std::shared_ptr<Dataset> dataset;
    std::uint64_t journal = 0;  ///< of its page
    std::uint32_t number = 0;
  };
  std::vector<LeftBehind> left_behind_;

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

}  // namespace advectio
