// The bytes of a journal, as SPEC.md beside this file describes them. A change here is a change there.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/box_layout.h"
#include "core/bytes.h"
#include "core/result.h"
#include "core/types.h"

namespace advectio::journal {

inline constexpr std::uint64_t segment_magic = 0x314C4E524A564441;  // "ADVJRNL1"
inline constexpr std::uint32_t record_magic = 0x52564441;           // "ADVR"
inline constexpr std::uint32_t format_version = 5;
inline constexpr std::uint32_t oldest_version = 1;         ///< still read
inline constexpr std::uint32_t shared_making_version = 4;  ///< from here on writers make segments of the stage, too
inline constexpr std::uint32_t boxes_version = 5;          ///< from here on a put may have many boxes
inline constexpr std::uint64_t segment_header_bytes = 4096;
inline constexpr std::uint64_t alignment = 64;

constexpr bool is_read(std::uint32_t version) noexcept {
  return version >= oldest_version && version <= format_version;
}

/// First bytes of a segment. The first cache line is written once per use of the segment, before `committed` moves.
struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved0;
  std::uint64_t segment_bytes;
  std::uint64_t journal;         ///< uid of the journal that uses the segment now
  std::uint64_t index;           ///< place of the segment in the journal's chain, from 0
  std::uint64_t first_sequence;  ///< sequence of the first record in it
  std::uint32_t crc;             ///< CRC-32C of the 48 bytes before
  std::uint32_t reserved1;
  std::uint64_t reserved2;
  std::atomic<std::uint64_t> committed;  ///< offset up to which records are published; stored with release
  std::atomic<std::uint64_t> sealed;     ///< 1: no more records come here, the chain goes on in segment index+1
};
static_assert(offsetof(SegmentHeader, crc) == 48);
static_assert(offsetof(SegmentHeader, committed) == 64);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

enum class RecordType : std::uint16_t {
  create = 1,  ///< a dataset begins
  schema = 2,  ///< the whole schema, whenever it has changed
  put = 3,     ///< one block
  sync = 4,    ///< end of a frame
  close = 5,   ///< the program is done with the dataset
  abort = 6,   ///< everything since the last sync is void
  enter = 7,   ///< this process, too, writes a dataset that another one has created
  settle = 8,  ///< what becomes of pending blocks
};
const char* name_of(RecordType type) noexcept;

struct RecordHeader {
  std::uint32_t magic;
  std::uint16_t type;
  std::uint16_t flags;
  std::uint64_t journal;
  std::uint64_t sequence;  ///< 1, 2, 3, … without gaps through the whole journal
  std::uint32_t dataset;   ///< number of the dataset in this journal, from 1
  std::uint32_t meta_bytes;
  std::uint64_t payload_bytes;
  std::uint32_t meta_crc;
  std::uint32_t payload_crc;
  std::uint64_t time_ns;           ///< CLOCK_REALTIME
  std::uint32_t collective_index;  ///< collective calls of the dataset so far; 0 in a dataset of one process
  std::uint32_t crc;               ///< CRC-32C of the 60 bytes before
};
static_assert(sizeof(RecordHeader) == 64);

inline constexpr std::uint16_t flag_implicit = 1;    ///< sync: asked for by a reader, not by the program
inline constexpr std::uint16_t flag_pending = 2;     ///< put: counts only once a settle record names it
inline constexpr std::uint16_t flag_record = 4;      ///< sync of writer 0 alone: its next record begins
inline constexpr std::uint16_t flag_collective = 8;  ///< put, settle: within a collective call of the program

constexpr std::uint64_t padded(std::uint64_t n) noexcept {
  return (n + alignment - 1) / alignment * alignment;
}
constexpr std::uint64_t record_bytes(std::uint64_t meta, std::uint64_t payload) noexcept {
  return sizeof(RecordHeader) + padded(meta) + padded(payload);
}

/// CRC-32C (Castagnoli; RFC 3720 B.4), `seed` 0 to begin.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed = 0) noexcept;
/// memcpy and crc32c of the bytes in one pass. Blocks from `streamed_min` bytes go around the caches where `to` is
/// aligned to 32.
constexpr std::size_t streamed_min = 256 * 1024;
std::uint32_t copy_crc32c(void* to, const void* from, std::size_t bytes, std::uint32_t seed = 0) noexcept;

// ---- what the records say (the `meta` part) ----

/// k of the k-th sync of all writers of a dataset, or of all tiles of a file: from 1; 0 is none. A type of its own,
/// as a record's sequence is a number too.
enum class SyncIndex : std::uint64_t {};
constexpr std::uint64_t number(SyncIndex index) noexcept {
  return static_cast<std::uint64_t>(index);
}
constexpr SyncIndex after(SyncIndex index) noexcept {
  return SyncIndex{number(index) + 1};
}

struct Create {
  FileFormat format = FileFormat::netcdf4;
  std::string path;           ///< absolute path as the program named it
  std::string link;           ///< hard link of the same inode, by which the server writes
  std::string shared_state;   ///< name of the dataset's shared state in the stage
  std::uint32_t writers = 0;  ///< processes that write it together, this one being number 0; 0: this one alone
};
struct Enter {
  std::string shared_state;
  std::uint32_t writer = 0;  ///< 1, 2, …
};
struct Put {
  std::uint32_t variable = 0;
  Box box;
  std::vector<std::uint64_t> stride;  ///< empty: all 1
  /// 0: one box, `box`. Else so many boxes within `box`, as `pack` writes them. `packed` is borrowed.
  std::uint32_t boxes = 0;
  std::span<const std::byte> packed;
};
struct Sync {
  std::uint64_t frame = 0;  ///< 1, 2, …; 0: nothing was put since the last one
  std::uint64_t stall_ns =
      0;  ///< time the program has spent in our code since the last such record, this call not included
  std::uint64_t bytes = 0;  ///< of the blocks of this frame
  SyncIndex sync_index{};   ///< 1, 2, …; 0 in a dataset of one process, or where the sync is implicit
};
/// Sequences of pending blocks of this journal.
struct Settle {
  std::vector<std::uint64_t> written;
  std::vector<std::uint64_t> dropped;
};

/// A `sync` of writer 0 that ends a record.
struct RecordEnd {
  std::uint64_t sequence = 0, collective_index = 0, time_ns = 0;
  bool operator==(const RecordEnd&) const = default;
};

/// The boxes from `first` to before `last`, as numbers from `origin` on.
Bytes pack(const BoxList& boxes, std::size_t first, std::size_t last, std::span<const std::uint64_t> origin);
/// The boxes of a put whose payload has so many elements. Code::corrupt where these cannot be as many boxes.
Result<BoxList> unpack(const Put& put, std::uint64_t elements);

Bytes encode(const Create& create);
Bytes encode(const Put& put);
Bytes encode(const Sync& sync);
Bytes encode(const Enter& enter);
Bytes encode(const Settle& settle);
Result<Create> decode_create(std::span<const std::byte> meta);
Result<Put> decode_put(std::span<const std::byte> meta);
Result<Sync> decode_sync(std::span<const std::byte> meta);
Result<Enter> decode_enter(std::span<const std::byte> meta);
Result<Settle> decode_settle(std::span<const std::byte> meta);
/// The file of a dataset's ends of records (`ends_suffix` in stage.h).
Bytes encode(const std::vector<RecordEnd>& ends);
Result<std::vector<RecordEnd>> decode_ends(std::span<const std::byte> file);

}  // namespace advectio::journal
