// The contract of a destination of fields. Calls into one sink are serial; parallelism is inside.
//
// Life:  open (each sink has its own factory) → declare → ((begin → ready*)+ → [seal → advance*] → end)* → close
//
// A commit waits for threads that compress. A caller with other work calls `seal` first, and `advance`
// from time to time. When `advance` returns true, the commit has little more than metadata to write.
//
// Every sink promises this, and the conformance suite (tests/sinks/) checks it as far as the sink's
// abilities go:
//  * After `end` or `checkpoint` has returned ok, an ordinary reader can read what is at the
//    dataset's path. It finds every part that was `ready` before. This holds whatever happens to
//    this process from then on. It does not hold for the machine: for that there is `make_durable`.
//    Both calls are commits.
//  * When the process dies between two commits, `open` with `resume` brings the destination to the
//    state of a commit: the last one that returned ok, or the one under way. Giving the same parts
//    again is then right: parts name their place.
//  * After any error the sink is only good for `abandon` or destruction. Both leave the destination
//    in the state of the last commit, and a new sink opened with `resume` continues from there. One
//    exception: where a commit fails after it was decided, the file may be unreadable; `resume`
//    completes the commit.
//
// docs/sinks/writing-a-sink.md shows how a sink is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/field.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// What a sink can do. `declare` refuses a schema that is beyond it.
struct Abilities {
  /// What a destination can hold in one format.
  struct Form {
    FileFormat format = FileFormat::netcdf4;  ///< Schema::format
    std::vector<DataType> types;              ///< of variables and of attributes
    std::size_t unlimited_max = SIZE_MAX;     ///< unlimited dimensions of a schema
  };
  std::vector<Form> forms;
  bool rewrites = true;       ///< changes bytes that were committed; false: it only appends
  bool directory = false;     ///< the path is a directory; false: a file
  bool checkpoints = true;    ///< can commit in the midst of a frame
  bool keeps_layout = true;   ///< chunks, filters and byte order are kept as the schema has them
  bool takes_stored = false;  ///< `ready_stored`
  bool any_thread = true;     ///< may be called from different threads, one at a time, while other sinks are called
};

/// An error (Code::unsupported) that names the first thing in the schema that is beyond these
/// abilities.
Result<void> can_carry(const Abilities& abilities, const Schema& schema);

struct SinkCounters {
  std::uint64_t bytes_in = 0;   ///< of parts that were ready; strings count what they take
  std::uint64_t bytes_out = 0;  ///< given to the file system
  std::uint64_t encode_ns = 0;  ///< CPU time of gather, shuffle and compression, over all threads
  std::uint64_t write_ns = 0;   ///< time in file-system writes
};

class Sink {
 public:
  virtual ~Sink() = default;

  /// Constant over the sink's life.
  [[nodiscard]] virtual Abilities abilities() const = 0;

  /// Asked first where others have made the destination: does it hold `schema`, and can this sink go on with it?
  /// Changes nothing. Code::unsupported says what is in the way.
  virtual Result<void> holds(const Schema& /*schema*/) {
    return Error{Code::unsupported, "this format is not gone on with where others have made the file", 0};
  }

  /// The destination shall hold `schema`: the sink creates what is new, sets what has changed and
  /// renames what was renamed. Comes before any `begin`, and again whenever the schema has changed,
  /// also in the midst of a frame. The same schema again changes nothing.
  virtual Result<void> declare(const Schema& schema) = 0;

  /// The parts that follow belong to this frame, counted from 1 over the dataset's life: also where
  /// the destination begins with a later one. A frame that comes again has its old number: after a
  /// crash, or where a program ends a frame twice. Its parts are then added to the frame.
  virtual Result<void> begin(std::uint64_t frame) = 0;

  /// This part of the field has been put, and may be read from now on. Parts may overlap, and may
  /// come twice: then the sink must hold the values that the field has now. May return before they
  /// are in the file. Blocks while too much memory is in flight. A sink that was opened with a function
  /// `wake` does not block: its parts wait for `advance`. The sink may keep the field, and lets go of it
  /// before `end`, `checkpoint`, `close` or `abandon` returns. Of a part with a layout only
  /// the elements of its boxes have been put. Unlimited dimensions grow as parts ask for it.
  virtual Result<void> ready(const std::shared_ptr<const Field>& field, const Part& part) = 0;

  /// A chunk of `variable` as the destination stores it (`stored_alike`), filled up beyond the variable's end. `box`:
  /// its elements within the variable; it begins where the chunk does. In place of `ready` for all of them, and not
  /// beside it in one commit. `bytes` are borrowed until return. Only where `abilities().takes_stored`; else
  /// Code::unsupported.
  virtual Result<void> ready_stored(std::uint32_t variable, const Box& box, std::uint32_t mask,
                                    std::span<const std::byte> bytes) {
    static_cast<void>(variable), static_cast<void>(box), static_cast<void>(mask), static_cast<void>(bytes);
    return Error{Code::unsupported, "chunks of another file as they are", 0};
  }

  /// All parts of the commit have been given: no `declare` nor `ready` comes before it. Does not wait.
  virtual Result<void> seal() { return {}; }

  /// Does what can be done now, for a few milliseconds, also before `seal`. Waits for no thread. True: nothing that was
  /// given waits for one; after `seal` it stays so until the commit.
  virtual Result<bool> advance() { return true; }

  /// The frame is complete, and so are those begun before it that have not ended. All of it is readable on return (the
  /// promise `visible`). Also without a `begin`, where nothing but the schema has changed. Blocks.
  virtual Result<void> end() = 0;

  /// The same in the midst of a frame, which goes on. Only where `abilities().checkpoints`; else
  /// Code::unsupported.
  virtual Result<void> checkpoint() = 0;

  /// A function that makes all that is committed now survive a loss of power (fdatasync). It may be
  /// called on another thread while this sink goes on, and after `close`. It owns what it needs.
  virtual std::function<Result<void>()> make_durable() = 0;

  /// Commits, then lets go of the destination. Idempotent.
  virtual Result<void> close() = 0;

  /// Drops what was not committed and lets go of the destination. Never fails; never changes what
  /// was committed.
  virtual void abandon() noexcept = 0;

  [[nodiscard]] virtual SinkCounters counters() const = 0;
};

}  // namespace advectio
