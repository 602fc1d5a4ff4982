// The contract of a destination of blocks. Calls into one sink are serial; parallelism is inside.
//
// Life:  open (by each sink's own factory) → declare → (write* → commit)* → close
//
// What every sink promises, and the conformance suite (tests/sinks/) checks:
//  * After `commit` returned ok, the file at the dataset's path can be read by an ordinary reader and holds
//    every block written before it, whatever happens to this process from then on (not: to the machine; for that
//    see `make_durable`).
//  * If the process dies between two commits, `open` with `resume` brings the file to the state of a commit: the last
//    one that returned ok, or the one under way. Writing the same blocks again is then right: blocks name their place.
//  * After any error the sink is only good for `abandon` or destruction, which leave the file in the state of the last
//    commit; a new sink opened with `resume` goes on from there. One exception: a commit that was decided, but failed
//    or was killed while its last bytes were put in their places, may leave the file unreadable until that `resume` has
//    completed it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// The piece of one variable that one rank puts.
struct Block {
  std::uint32_t variable = 0;         ///< index into Schema::variables
  Box box;                            ///< in the variable's index space; `count` elements in each dimension
  std::vector<std::uint64_t> stride;  ///< distance of neighbours in each dimension; empty: all 1
  /// Dense, row-major, native byte order, of the variable's type. Borrowed until the next `commit` (or `abandon`)
  /// returns. Text and numbers: volume × size_of(type) bytes. Strings: each as length (u32) and bytes, or
  /// `null_string`.
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

struct SinkCounters {
  std::uint64_t bytes_in = 0;   ///< of blocks written
  std::uint64_t bytes_out = 0;  ///< given to the file system
  std::uint64_t encode_ns = 0;  ///< CPU time of gather, shuffle and compression, over all threads
  std::uint64_t write_ns = 0;   ///< time in file-system writes
};

class Sink {
 public:
  virtual ~Sink() = default;

  /// Make the file hold `schema`: create what is new, set what has changed, rename what was renamed. Before any
  /// `write`; again whenever the schema has changed. The same schema again changes nothing.
  virtual Result<void> declare(const Schema& schema) = 0;

  /// Take a block. May return before it is in the file; blocks while too much memory is in flight. Of two blocks that
  /// overlap the later one wins. Unlimited dimensions grow as blocks ask for it.
  virtual Result<void> write(const Block& block) = 0;

  /// Write everything so far and make it readable: the promise `visible` holds on return. Blocks.
  virtual Result<void> commit() = 0;

  /// A function that makes all that is committed now survive a loss of power (fdatasync); it may be called on another
  /// thread while this sink goes on, and after `close`. It owns what it needs.
  virtual std::function<Result<void>()> make_durable() = 0;

  /// commit, then let go of the file. Idempotent.
  virtual Result<void> close() = 0;

  /// Drop what was not committed and let go of the file. Never fails; never changes what was committed.
  virtual void abandon() noexcept = 0;

  [[nodiscard]] virtual SinkCounters counters() const = 0;
};

}  // namespace advectio
