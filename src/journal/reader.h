// The reading end of one process's journal: what the server follows, and what recovery walks through.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/block.h"
#include "journal/stage.h"

namespace advectio::journal {

/// One record. The spans point into the mapped segment; they are good as long as `lease` is held.
struct Record {
  RecordType type = RecordType::put;
  std::uint16_t flags = 0;
  std::uint32_t dataset = 0;
  std::uint32_t collective_index = 0;
  std::uint64_t sequence = 0;
  std::uint64_t time_ns = 0;
  std::span<const std::byte> meta;
  std::span<const std::byte> payload;
  std::uint32_t payload_crc = 0;
  std::span<const std::byte> whole;  ///< all of the above as it is in the segment
  Lease lease;
};

/// Code::corrupt when the payload is not what was written.
Result<void> verify_payload(const Record& record);

/// How far to trust what the segments say of themselves.
enum class Trust : std::uint8_t {
  published,  ///< read what the writer has published (`committed`): the writer, or the page cache, is alive
  scan,       ///< read as far as records are whole, whatever `committed` says: after a loss of power, or for inspection
};

/// Reads records in order. Not thread-safe; any number of readers may follow one journal.
class Reader {
 public:
  /// `directory`: journals/<writer>. Begins with the oldest segment that is there.
  static Result<std::unique_ptr<Reader>> open(Files& files, const std::string& directory, Trust trust);

  /// The next record; nothing when there is none yet (or, when scanning, no more).
  /// Errors: Code::corrupt with segment, offset and reason; the journal can be read no further then.
  Result<std::optional<Record>> next();

  /// Where somebody is who reads records again: behind all up to this one.
  struct Cursor {
    std::uint64_t segment = 0, at = 0, sequence = 0;
  };
  /// Once more the records behind `sequence` that `next` has given, as far as their segments are held: in the same
  /// memory, with the same leases. Until `take` returns false. `cursor` follows, so that the next call finds its place;
  /// a new one may be used for any `sequence`, any other for what is not before it.
  void again(std::uint64_t sequence, Cursor& cursor, const std::function<bool(const Record&)>& take) const;

  [[nodiscard]] const WriterState& writer() const noexcept { return *shared_state_; }
  [[nodiscard]] std::uint64_t journal() const noexcept { return shared_state_->journal; }
  /// True while the process that writes lives.
  [[nodiscard]] bool writer_alive() const noexcept;
  /// The writer is gone, and nothing changes any more. A record that is whole counts even where it was not published:
  /// a damaged segment header loses none. (`committed` within a record is told as damage.)
  /// Of a mirror only what is published counts: it has all that was sent, and behind it may be records that an earlier
  /// mirror of the same journal has left, whose sequence would do.
  void set_writer_gone() noexcept { writer_gone_ = shared_state_->mirror == 0; }
  /// Sequence of the last record `next` gave.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }

  /// Where it stands: the segment under way and the byte in it at which the next record begins, or the damage is.
  struct Place {
    std::string file;  ///< name in the journal's directory; empty: no segment has been opened
    std::uint64_t byte = 0;
  };
  [[nodiscard]] Place place() const {
    return held_.empty() || held_.back().done ? Place{} : Place{held_.back().file, at_};
  }

  /// Bytes published and not yet given by `next` in the segment under way (a lower bound of what waits).
  [[nodiscard]] std::uint64_t bytes_ahead() const noexcept;

  /// One segment of the chain that the reader holds, oldest first.
  struct Held {
    std::uint64_t index = 0;
    std::string file;     ///< name in the journal's directory
    std::string segment;  ///< name it has in the pool
    std::shared_ptr<const Mapping> mapping;
    std::uint64_t last_sequence = 0;  ///< of the last record read in it, or before it
    std::uint64_t end = 0;            ///< the byte behind that record; behind it may be records of an earlier use
    bool done = false;                ///< read to its seal
    /// Somebody holds a lease on it.
    [[nodiscard]] bool is_leased() const noexcept;
  };
  [[nodiscard]] const std::deque<Held>& held() const noexcept { return held_; }
  /// Let go of the oldest held segment: its mapping ends, and its file goes back to the pool (`recycle`) or is left as
  /// it is. It must be `done`, unless no more records will come. Where it goes back nobody may hold a lease on it.
  Result<void> release_oldest(const Stage& stage, bool recycle);
  /// A segment that has left the chain, and that somebody still reads.
  struct Parked {
    std::string path, segment;
    std::shared_ptr<const Mapping> mapping;
    [[nodiscard]] bool is_leased() const noexcept;
  };
  /// The same of a segment on which there are leases: its memory is not used again while they last.
  /// Nothing: it is of a kind that is removed, not used again, and has been.
  Result<std::optional<Parked>> park_oldest(const Stage& stage);

 private:
  Reader(Files& files, std::string directory, Trust trust, MappedState<WriterState> shared_state)
      : files_(files), directory_(std::move(directory)), trust_(trust), shared_state_(std::move(shared_state)) {}
  Result<std::string> segment_file(std::uint64_t index);
  Result<bool> open_segment(std::uint64_t index);
  /// The header of a record at `at`, where there is a whole one of this journal.
  [[nodiscard]] std::optional<RecordHeader> header_at(const Mapping& segment, std::uint64_t at,
                                                      std::uint64_t limit) const noexcept;
  static Record record_at(const std::shared_ptr<const Mapping>& segment, std::uint64_t at, const RecordHeader& header);
  /// A mirror leaves out what is not for this node.
  [[nodiscard]] bool follows(std::uint64_t sequence) const noexcept {
    return shared_state_->mirror != 0 ? sequence > sequence_ : sequence == sequence_ + 1;
  }

  Files& files_;
  std::string directory_;
  Trust trust_;
  MappedState<WriterState> shared_state_;
  std::deque<Held> held_;
  std::map<std::uint64_t, std::string> listed_;  ///< files of segments that come, as they were when last listed
  bool begun_ = false;
  bool writer_gone_ = false;
  std::uint64_t next_index_ = 0;
  std::uint64_t at_ = 0;
  std::uint64_t sequence_ = 0;
};

/// The index that a file name of a journal's directory stands for ("00000012-s0007" → 12, "s0007").
std::optional<std::pair<std::uint64_t, std::string>> parse_chain_name(const std::string& file);

}  // namespace advectio::journal
