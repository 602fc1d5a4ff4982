// One output of a dataset, as the ledger knows it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "assembly/collective_sequencer.h"
#include "assembly/tile_sequencer.h"
#include "cluster/relay.h"
#include "config/config.h"
#include "core/field.h"
#include "journal/stage.h"
#include "operators/operator.h"
#include "sinks/sink.h"

namespace advectio {

using journal::EndAsked;
using journal::MappedState;
using journal::SharedState;
using journal::WriterSlot;

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
  [[nodiscard]] nlohmann::json to_json() const {
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

/// Of an output.
///
///     open ──► closed ──► ending ──► finished        failed ──► open   (tried again)
///       └────────┴──────────┴──► failed, dropped     failed ──► finished, dropped   (given up)
enum class State : std::uint8_t {
  open,      ///< its records are read
  closed,    ///< the program has closed it
  ending,    ///< the file is complete; it is made durable, as was promised
  finished,  ///< nothing is left to do
  failed,    ///< the sink met an error; what is staged is kept and tried again
  dropped,   ///< nothing of it had been synced, or its file was removed
};

inline bool may_become(State from, State to) noexcept {
  switch (from) {
    case State::open: return to != State::ending;
    case State::closed: return to != State::open;
    case State::ending: return to == State::finished || to == State::failed || to == State::dropped;
    case State::failed: return to != State::closed && to != State::ending;
    case State::finished: return to == State::dropped;  // it turns out that somebody has removed the file
    case State::dropped: return false;
  }
  return false;
}

/// As the status has it.
inline const char* name_of(State s) noexcept {
  switch (s) {
    case State::open: return "open";
    case State::closed:
    case State::ending: return "closed";
    case State::finished: return "finished";
    case State::failed: return "failed";
    case State::dropped: return "dropped";
  }
  return "?";
}

/// One output of a dataset: the file that the program asked for, or a further one. Finished ones stay, for the summary;
/// what they no longer need is let go.
struct Output : std::enable_shared_from_this<Output> {
  std::string path, link, state_name, writer;
  std::uint32_t number = 0;
  FileFormat format = FileFormat::netcdf4;
  State state = State::open;
  MappedState<SharedState> shared_state;
  DatasetPolicy policy;
  bool resume = false;           ///< the file may hold commits of an earlier life
  std::optional<Schema> asked;   ///< by the program, the latest
  std::optional<Schema> schema;  ///< the same as it is written
  std::vector<int> numbers;      ///< of the program's variables in it, see select_variables
  std::shared_ptr<const Operators> operators;
  bool declared = false;  ///< the sink knows `schema`
  std::unique_ptr<Sink> sink;
  std::uint64_t sink_used = 0;  ///< the latest is the greatest, of all outputs
  Frame frame;                  ///< under way; the sink may hold fields of it until the next commit
  bool begun = false;           ///< the sink knows of the frame
  std::optional<std::pair<std::uint64_t, std::uint64_t>>
      records;  ///< of the frame under way: the first one, and the end
  /// The frame has live readers: they get it first. What its sink has not been told of yet.
  bool holds_back = false;
  std::vector<std::pair<std::shared_ptr<const Field>, Part>> held_back;
  std::uint64_t seen = 0;            ///< sequence of the last record handled
  std::uint64_t visible = 0;         ///< everything up to here is committed
  std::uint64_t durable = 0;         ///< everything up to here is durable in the file, or has nothing to do with it
  mode_t lent_permission = 0;        ///< the owner's permissions that the server has added while it writes the file
  std::atomic<bool> refused{false};  ///< the disk has refused what was written through the present sink
  bool names_durable = false;        ///< asked for: its directory entries survive a loss of power
  bool power_lost = false;           ///< nobody has opened the file since the power was lost
  bool uncommitted = false;          ///< blocks or a schema have gone to the sink since
  bool partial = false;              ///< committed in the midst of a frame, to make room
  bool frame_in_parts = false;       ///< `frame` may not hold all of the frame: some of it has been committed before
  std::uint64_t failed_at_ns = 0;
  Error error;

  std::uint64_t frames_synced = 0, frames_visible = 0, frames_durable = 0;
  /// Frames that have ended before what is handled now, in the order of its records: the next block is of the frame
  /// after them. Behind a failure or a death it is `frames_visible` again.
  std::uint64_t frames_ended = 0;
  /// Small frames that wait to be committed with the next one: when each was synced (OutputWriter::may_wait).
  std::vector<std::uint64_t> waiting;
  std::uint64_t waiting_bytes = 0, waiting_since_ns = 0;
  bool commits_each = false;         ///< none waits
  std::uint64_t frames_dropped = 0;  ///< once its shared state is gone
  std::uint64_t bytes_put = 0, bytes_written = 0, encode_ns = 0;
  std::uint64_t charged = 0;  ///< of what its sink has written, so much has been counted against `server.drain_max`
  std::uint64_t busy_ns = 0;  ///< time this server has spent on it
  Samples stall, to_visible, to_durable;
  std::optional<double> last_stall;  ///< of the latest frame: closing the dataset still adds to it
  void count_stall() {
    if (last_stall) stall.add(*last_stall);
    last_stall.reset();
  }

  /// A store (`is_store` of its format) takes the place of the file. The program's file stays empty,
  /// and says which dataset that is until the store is complete.
  [[nodiscard]] bool is_store() const { return policy.format && advectio::is_store(*policy.format); }
  /// What readers open: the file, or the store in its place.
  [[nodiscard]] std::string destination() const;

  [[nodiscard]] bool over() const { return state == State::finished || state == State::dropped; }
  void become(State next) {
    assert(next == state || may_become(state, next));
    state = next;
  }
  void clear_frame() {
    frame.clear();
    held_back.clear();
    records.reset();
    waiting.clear();
    waiting_bytes = 0;
  }
  [[nodiscard]] bool promises_durable() const { return policy.promise == Promise::durable; }

  // Where it is a further output (the config's `outputs`): it reads the same records, at its own pace.
  std::uint32_t output = 0;               ///< its number, from 1; 0: the file that the program asked for
  std::string source;                     ///< path of that
  MappedState<WriterSlot> program_slots;  ///< the slots of that: what its writers say

  // Where a server of another node may have to do with it.
  DatasetId id;
  bool spread = false;
  std::optional<unsigned> owner;  ///< the other node that writes it; what is here of it is only sent there
  bool announced = false;
  std::set<std::uint64_t> introduced;  ///< of several writers those whose slot has been told, by journal

  // Where several processes write it together; `seen` and `visible` above are not used then.
  struct Share {
    std::uint64_t journal = 0;  ///< 0: has not entered yet
    std::uint64_t visible = 0;  ///< its records up to here are committed
    bool over = false;          ///< it has closed or aborted the dataset, or died
    bool closed = false, aborted = false;
    /// A writer that has closed or aborted the dataset has no more records of it.
    void note(journal::RecordType type) {
      closed = closed || type == journal::RecordType::close;
      aborted = aborted || type == journal::RecordType::abort;
      over = over || closed || aborted;
    }
  };
  std::vector<Share> shares;  ///< by number of the writer
  MappedState<WriterSlot> slots;
  std::unique_ptr<CollectiveSequencer> sequencer;

  // Where it is a tile of another, which is written in its stead.
  Output* whole = nullptr;
  std::size_t tile = 0;  ///< its number there
  bool joined = false;   ///< it is never told of: the whole is
  std::vector<TileSequencer::Entry>
      returned;  ///< what it was given back, when it was to be a file of its own after all
  // Where others are tiles of it.
  std::unique_ptr<TileSequencer> tile_sequencer;
  std::vector<std::shared_ptr<Output>> tiles;  ///< by number
  std::uint64_t tiles_count = 0;               ///< also when all is over

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
  explicit Busy(std::uint64_t& sum) : sum_(sum), from_(journal::monotonic_ns()) {}
  ~Busy() { sum_ += journal::monotonic_ns() - from_; }
  std::uint64_t& sum_;
  std::uint64_t from_;
};

}  // namespace advectio
