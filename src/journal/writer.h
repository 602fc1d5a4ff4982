// The writing end of one process's journal.
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
#include <thread>
#include <unordered_map>
#include <vector>

#include "journal/stage.h"

namespace advectio::journal {

/// Who writes: for the names users see, and for the server to know when the process has gone.
struct WriterIdentity {
  std::int64_t rank = -1;
  std::uint32_t pid = 0;
  std::string host;
  std::string command;
};

/// A journal's directory, complete and locked.
struct MadeJournal {
  MappedState<WriterState> shared_state;
  ProcessLock lock;
};
/// `fill` writes the shared state; magic and version are there already.
Result<MadeJournal> make_journal(const Stage& stage, const std::string& name,
                                 const std::function<void(WriterState&)>& fill);
/// The file name of a segment as that number of a chain.
std::string chain_name(std::uint64_t index, const std::string& segment);
/// Write the header of a segment that has been taken; nothing is published in it yet.
void begin_segment(std::byte* segment, std::uint64_t bytes, std::uint64_t journal, std::uint64_t index,
                   std::uint64_t first_sequence) noexcept;

/// Appends records. One caller at a time. A record is published (seen by the server) when `append` returns.
class Writer {
 public:
  /// Decides, while no segment is free, whether to go on waiting: returns an Error to give up.
  using WhileWaiting = std::function<Result<void>()>;

  static Result<std::unique_ptr<Writer>> open(const Stage& stage, const WriterIdentity& identity);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Bytes of payload that one record of a usual segment can carry at the most, next to `meta` bytes of meta.
  [[nodiscard]] std::uint64_t payload_max(std::uint64_t meta) const noexcept;
  /// Bytes of payload that still fit the segment under way, next to `meta` bytes of meta; 0 when none do.
  [[nodiscard]] std::uint64_t payload_now(std::uint64_t meta) const noexcept;

  /// Write one record whose payload is filled in by `fill(to)`, which returns its CRC-32C. Returns its sequence.
  /// One that is longer than a segment gets a segment of its own. Blocks while the stage is full; see `WhileWaiting`.
  /// Errors: what `while_waiting` gave; Code::invalid for a record that is longer than the stage.
  Result<std::uint64_t> append(RecordType type, std::uint16_t flags, std::uint32_t dataset,
                               std::span<const std::byte> meta, std::uint64_t payload_bytes,
                               const std::function<std::uint32_t(std::byte*)>& fill, const WhileWaiting& while_waiting,
                               std::uint32_t collective_index = 0);

  /// Whether the records that follow may go on in segments on a disk when the stage is full (spill.h).
  void spills(bool may) noexcept { spills_ = may; }

  /// Free segments of the stage, those held ready here among them, and those that can still be made.
  [[nodiscard]] std::uint64_t room_segments();

  /// End the segment under way, so that the server can recycle it once it is drained; the next record begins another.
  void seal() noexcept;
  /// What has been written to the segment under way.
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return current_.data != nullptr ? at_ : 0; }

  /// How many segments to hold ready (mapped, in the page tables) beside the one under way.
  void keep_ahead(std::uint64_t segments) noexcept;
  /// Whether it holds as many, or no thread could be made that takes them: it takes no more by itself then.
  [[nodiscard]] bool is_far_enough_ahead() noexcept;

  [[nodiscard]] std::uint64_t journal() const noexcept { return uid_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return next_sequence_ - 1; }
  /// Segments begun so far.
  [[nodiscard]] std::uint64_t segments_used() const noexcept { return next_index_; }
  /// Bytes of records so far.
  [[nodiscard]] std::uint64_t appended() const noexcept { return appended_; }
  /// How many segments `bytes` more will take at least, beside the one under way.
  [[nodiscard]] std::uint64_t segments_for(std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::uint64_t segment_bytes() const noexcept { return segment_bytes_; }

  /// What has been appended since the last call and is to be forced to the disk: segments, by their paths, and whether
  /// the journal's directory has other names since.
  struct Unsynced {
    std::vector<std::string> segments;
    bool names = false, first = false;
  };
  [[nodiscard]] Unsynced take_unsynced();
  /// Force that to the disk. Blocks. A segment that the server has given back meanwhile is in its files, durably. After
  /// an error nobody knows what is on the disk: the system tells it once.
  [[nodiscard]] Result<void> make_durable(const Unsynced& unsynced) const;

  /// The process has come to its end: from here on it only waits.
  void note_end() const noexcept;

  /// Take the journal's lock again where the program has closed its descriptor. Costs one system call.
  void keep_lock();

  /// In a forked child: forget everything without touching the parent's files or thread. The object is then only good
  /// for being leaked (its thread does not exist here).
  void forget_in_child() noexcept;

 private:
  Writer(Stage stage, std::string directory, std::string name, std::uint64_t uid, MappedState<WriterState> shared_state,
         ProcessLock lock);

  struct Segment {
    std::string name;  ///< of the file in the pool
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  struct Mapped {
    Mapping mapping;
    std::uint64_t used = 0;  ///< the latest use has the highest number
  };

  Result<void> next_segment(std::uint64_t record, const WhileWaiting& while_waiting);
  enum class When : std::uint8_t { now, ahead };
  bool take_ahead(Segment& out);
  bool take_from_pool(const std::string& as_prefix, char letter, Segment& out, When when);
  bool take_new(std::uint64_t record, Segment& out);
  std::string next_free(std::vector<std::string>& listed, char letter, When when);
  void note_lack(Error error, When when);
  void ask_for_room();
  void let_go(const Segment& segment);
  void note_unsynced();
  std::byte* mapped(const std::string& segment, const std::string& path, bool touched, When when);
  void unmap_one_too_many();
  void stay_ahead();

  Stage stage_;
  std::string directory_;
  std::string name_;
  std::uint64_t uid_ = 0;
  MappedState<WriterState> shared_state_;
  ProcessLock lock_;
  std::uint64_t segment_bytes_ = 0;
  bool on_disk_ = false;  ///< the stage

  bool spills_ = false;
  Segment current_;
  std::uint64_t at_ = 0;         ///< offset of the next record in `current_`
  std::uint64_t synced_at_ = 0;  ///< the same when `take_unsynced` was last asked
  Unsynced unsynced_{{}, true, true};
  std::uint64_t next_sequence_ = 1;
  std::uint64_t appended_ = 0;
  std::uint64_t next_index_ = 0;
  std::optional<Error> lack_;  ///< of address space or descriptors: why the last try has found no segment

  std::array<std::vector<std::string>, 2> listed_;  ///< of the pool, by When: each is one thread's, the next one last

  // Shared with the thread that takes and maps segments ahead of need.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::unordered_map<std::string, Mapped> mappings_;  ///< of segments that may come back
  std::uint64_t uses_ = 0;
  std::string current_name_;
  std::deque<Segment> ahead_;
  std::uint64_t ahead_wanted_ = 0, ahead_most_ = 0;  ///< `ahead_most_`: the most that was ever wanted
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace advectio::journal
