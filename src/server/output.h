// One output of a dataset, as the ledger knows it.
#pragma once

#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assembly/tile_sequencer.h"
#include "cluster/peers.h"
#include "config/config.h"
#include "journal/reader.h"
#include "journal/stage.h"
#include "server/events_said.h"
#include "server/figures.h"
#include "server/file_on_disk.h"
#include "server/frame_under_way.h"
#include "server/ownership.h"
#include "server/progress.h"
#include "server/shared_writers.h"
#include "server/sink_in_use.h"
#include "server/stored_schema.h"

namespace advectio {

using journal::DatasetState;
using journal::EndAsked;
using journal::MappedState;
using journal::SharedState;
using journal::WriterSlot;

/// Of an output.
///
///     open ──► closed ──► ending ──► finished        failed ──► open   (tried again)
///       └────────┴──────────┴──► failed, dropped     failed ──► finished, dropped   (given up)
///
/// Each of them may turn out to be removed.
enum class State : std::uint8_t {
  open,      ///< its records are read
  closed,    ///< the program has closed it
  ending,    ///< the file is complete; it is made durable, as was promised
  finished,  ///< nothing is left to do
  failed,    ///< the sink met an error; what is staged is kept and tried again
  dropped,   ///< nothing of it had been synced
  removed,   ///< somebody has removed its file before it was complete
};

inline bool may_become(State from, State to) noexcept {
  switch (from) {
    case State::open: return to != State::ending;
    case State::closed: return to != State::open;
    case State::ending: return to != State::open && to != State::closed;
    case State::failed: return to != State::closed && to != State::ending;
    case State::finished:
    case State::dropped: return to == State::removed;
    case State::removed: return false;
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
    case State::removed: return "removed";
  }
  return "?";
}

/// How an output has ended, as its shared state says. Nothing: it has not.
inline std::optional<State> end_of(const SharedState& shared_state) noexcept {
  const auto state = static_cast<DatasetState>(shared_state.state.load());
  if (state == DatasetState::finished) return State::finished;
  if (state == DatasetState::dropped) return State::dropped;
  return std::nullopt;
}

/// To those who write it, and to a later server.
inline void tell_state(SharedState& shared_state, DatasetState state) noexcept {
  shared_state.state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

/// Where an output is a further one (the config's `outputs`): it reads the same records, at its own pace.
struct FurtherOutput {
  std::uint32_t number = 0;               ///< from 1; 0: it is the file that the program asked for
  std::string source;                     ///< path of that
  MappedState<WriterSlot> program_slots;  ///< the slots of that: what its writers say
};

struct Output;

/// A commit of an output. It is under way until all bytes are in the file.
struct Commit {
  std::uint64_t sequence = 0;               ///< up to this record, or common sync
  std::uint64_t synced_ns = 0;              ///< when the frame that ends here was synced; 0: none does
  bool in_midst = false;                    ///< the frame goes on
  std::uint64_t record = 0;                 ///< the sync of writer 0 that ends the frame as a record; 0: all sync
  std::function<Result<void>()> then = {};  ///< called when it has succeeded
  std::uint64_t waits_since_ns = 0;         ///< when it began to wait for its sink
};

/// Where an output is a tile of another, which is written in its stead.
struct TileOf {
  Output* whole = nullptr;
  std::size_t number = 0;  ///< there
};

/// Where others are tiles of an output.
struct Join {
  std::unique_ptr<TileSequencer> sequencer;
  std::vector<std::shared_ptr<Output>> tiles;  ///< by number
  std::uint64_t tiles_count = 0;               ///< also when all is over
};

/// What has kept an output from being written; it stays until a retry has brought it on.
struct Trouble {
  Error error;
  std::uint64_t failed_at_ns = 0;

  [[nodiscard]] bool any() const { return !error.message.empty(); }
};

/// One output of a dataset: the file that the program asked for, or a further one. Finished ones stay, for the summary;
/// what they no longer need is let go.
struct Output : std::enable_shared_from_this<Output> {
  std::string path, state_name, writer;
  std::uint32_t number = 0;
  DatasetId id;
  FileFormat format = FileFormat::netcdf4;
  DatasetPolicy policy;
  State state = State::open;
  MappedState<SharedState> shared_state;
  bool whole = false;  ///< all that write it have closed it, and it has all that they have put
  /// The one under way. The sink gets nothing else meanwhile.
  std::optional<Commit> commit;
  /// Its records are read, and wait in the stage: for that, or for more urgent ones (Records).
  bool postponed = false;
  journal::Reader::Cursor cursor;  ///< where it goes on in its journal
  bool continued = false;          ///< see continues_file; once the shared state has gone
  bool hidden = false;             ///< nobody is told of it: its whole is in its stead, or nobody has heard of it

  StoredSchema schema;
  FileOnDisk file;
  SinkInUse sink;
  FrameUnderWay frame;
  WaitingFrames waiting;
  Progress progress;
  Figures figures;
  Trouble trouble;
  EventsSaid said;

  FurtherOutput further;
  Ownership ownership;    ///< where servers of other nodes may have to do with it
  SharedWriters writers;  ///< `seen` and `visible` of its progress are not used then
  TileOf tile;
  Join join;

  /// A store (`is_store` of its format) takes the place of the file. The program's file stays empty,
  /// and says which dataset that is until the store is complete.
  [[nodiscard]] bool is_store() const { return policy.format && advectio::is_store(*policy.format); }
  /// What readers open: the file, or the store in its place.
  [[nodiscard]] std::string destination() const;
  [[nodiscard]] bool is_further() const { return further.number > 0; }
  /// Its file was there before it (docs/decisions/0029).
  [[nodiscard]] bool continues_file() const { return continued || (shared_state && shared_state->continues != 0); }
  /// Advectio has not made that file in this run. The program waits for the server's answer: can it go on with it?
  [[nodiscard]] bool waits_for_answer() const {
    return shared_state && journal::continues_file_of_others(*shared_state) &&
           journal::answer_of(*shared_state) != journal::TakenUp::yes;
  }
  [[nodiscard]] bool is_elsewhere() const { return ownership.is_elsewhere(); }
  [[nodiscard]] bool is_tile() const { return tile.whole != nullptr; }
  [[nodiscard]] bool promises_durable() const { return policy.promise == Promise::durable; }
  [[nodiscard]] bool shared() const { return !writers.shares.empty(); }
  [[nodiscard]] std::uint64_t visible_of(std::uint64_t journal) const {
    return shared() ? writers.shares[writers.number_of(journal)].visible : progress.visible;
  }

  /// It has ended, and leaves no file.
  [[nodiscard]] bool has_no_file() const { return state == State::dropped || state == State::removed; }
  [[nodiscard]] bool over() const { return state == State::finished || has_no_file(); }
  void become(State next) {
    assert(next == state || may_become(state, next));
    state = next;
  }
  void clear_frame() {
    frame.clear();
    waiting.clear();
    commit.reset();
  }
  /// It has ended. Of a run's many files only the summary stays.
  void let_go() {
    clear_frame();
    frame = {};
    schema = {};
  }
};

}  // namespace advectio
