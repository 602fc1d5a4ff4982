// Fields in, finished chunks out (ChunkAssembly). A chunk is read from its field, shuffled and
// compressed on the executor's threads, straight from the memory of the stage; the sink's own thread
// hands the result to the sink's ChunkStore as it is.
//
//  * A chunk that is covered is started as soon as there is memory for it. Any other waits for `seal`;
//    what is missing is taken from what the store holds already, or from the fill value.
//  * When a part comes after its chunk was started, the chunk is made again; of two results the
//    later started one counts.
//  * A chunk for which no thread here is free may be compressed by another node (core/helpers.h). Where there
//    is none the sink's own thread makes a few small ones: they would wait for chunks that take long.
//  * Memory of chunks under way is bounded by a budget; one chunk of each assembly may always be under way.
//  * `seal` and `advance` wait for no thread, nor does `add` where somebody is to be woken (`wake`): parts wait for
//    memory then.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/executor.h"
#include "core/field.h"
#include "core/helpers.h"
#include "core/result.h"
#include "core/schema.h"
#include "sinks/chunks/codec.h"
#include "sinks/memory_budget.h"

namespace advectio {

/// CPU time of the calling thread.
std::uint64_t thread_cpu_ns() noexcept;

/// What is to be known of a variable to make its chunks.
struct ChunkedVariable {
  std::string name;
  DataType type = DataType::none;
  std::size_t element = 0;
  bool swap = false;                 ///< the file's byte order is not ours
  Bytes fill;                        ///< one element
  std::vector<std::uint64_t> chunk;  ///< lengths
  std::vector<std::uint64_t> limit;  ///< lengths of dimensions; of unlimited ones UINT64_MAX
  EncodePipeline pipeline;

  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    std::size_t n = element;
    for (const auto c : chunk) n *= c;
    return n;
  }
};

/// Where chunks are kept: a format's side of the assembly. Called on the sink's own thread only.
class ChunkStore {
 public:
  virtual ~ChunkStore() = default;

  /// Chunks wait for the disk. A caller that may wait puts no more until `wake` is called.
  [[nodiscard]] virtual bool is_behind() const { return false; }

  /// Keep this chunk, in place of what the store holds of it. `variable` is an index into
  /// Schema::variables; `start` has the chunk's first element, one number per dimension. `data` is
  /// borrowed until return. Bit i of `mask`: stage i of the pipeline was left out.
  virtual Result<void> put(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                           std::uint32_t mask, std::span<const std::byte> data) = 0;

  /// What the store holds of the chunk, decoded and in our byte order, to `to`, which has
  /// `how.chunk_bytes()` bytes of fill value. What the store does not hold, and what lies beyond
  /// `extent` (the variable's lengths), may stay as it is.
  virtual Result<void> get(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                           const std::vector<std::uint64_t>& extent, std::byte* to) = 0;
};

class ChunkAssembly {
 public:
  static constexpr std::size_t rank_max = 8;
  /// Remembered between two flushes; more make one happen.
  static constexpr std::size_t chunks_max = 1 << 18;

  /// `store` outlives this. `helpers`: null, or longer here than this. `wake` is called on any thread when there may
  /// be something for `advance`; empty: `add` waits until there is memory.
  ChunkAssembly(ChunkStore& store, Executor& executor, std::shared_ptr<MemoryBudget> budget, Helpers* helpers,
                std::function<void()> wake = {});
  ~ChunkAssembly();
  ChunkAssembly(const ChunkAssembly&) = delete;
  ChunkAssembly& operator=(const ChunkAssembly&) = delete;

  /// `box` of the field has been put; with `dense` false only some of its elements. It lies within
  /// `extent`, the variable's lengths.
  Result<void> add(const std::shared_ptr<const Field>& field, const std::shared_ptr<const ChunkedVariable>& variable,
                   const std::vector<std::uint64_t>& extent, const Box& box, bool dense = true);

  /// Nothing is added before all is handed to the store.
  void seal();

  /// Hands to the store what is made, and starts what there is memory for, for a few milliseconds. True: nothing is
  /// under way. After `seal` all is handed to the store then, and the fields are let go.
  Result<bool> advance();

  /// Everything added is handed to the store, and the fields are let go. Waits for threads.
  Result<void> flush();

  /// Wait for the threads that read fields, and forget everything.
  void abandon() noexcept;

  [[nodiscard]] std::uint64_t encode_ns() const noexcept;

 private:
  struct Key {
    std::uint32_t variable = 0;
    std::array<std::uint64_t, rank_max> start{};
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& k) const noexcept;
  };
  struct Entry {
    std::shared_ptr<const ChunkedVariable> variable;
    std::shared_ptr<const Field> field;
    std::uint64_t touched = 0;  // elements, counted twice where parts overlap
    std::uint64_t try_at = 0;   // touched so much, they may cover the chunk
    std::uint64_t version = 0;  // of the job started last
    bool started = false;       // or waits for memory, or for `seal`
    bool covered = false;       // the field has all of it
    bool dirty = false;         // there are parts that no job has seen
    bool waiting = false;       // is in `waiting_`
  };
  struct Done {
    Key key;
    std::uint64_t version = 0;
    std::shared_ptr<const ChunkedVariable> variable;
    std::uint64_t reserved = 0;
    Buffer data;
    Encoded encoded;
    std::optional<Error> error;
  };
  struct Job;
  struct Shared;  // what jobs reach, which may outlive an abandoned call

  void want(const Key& key, Entry& entry);
  Result<bool> start_next();
  Result<bool> start(const Key& key, Entry& entry);
  Result<bool> advance(std::uint64_t until_ns);
  static void make(const std::shared_ptr<Job>& job);
  static void make_here(const Job& job, Buffer gathered, const std::byte* source, Done& done);
  static void make_elsewhere(const std::shared_ptr<Job>& job, unsigned place, std::shared_ptr<const Message> request);
  bool reserve(std::uint64_t bytes);
  void await_news();
  Result<void> hand_over(Done done);
  Result<bool> hand_over_next();
  Result<void> read_base(const Key& key, const Entry& entry, const std::vector<std::uint64_t>& extent, Buffer& base);

  ChunkStore& store_;
  Executor& executor_;
  Helpers* helpers_;
  std::shared_ptr<MemoryBudget> budget_;
  std::shared_ptr<Shared> shared_;
  std::unordered_map<Key, Entry, KeyHash> entries_;
  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> extents_;
  std::deque<Key> waiting_;  ///< to be started
  bool sealed_ = false;
  std::uint64_t made_here_bytes_ = 0;  ///< by this thread, since the last flush
};

}  // namespace advectio
