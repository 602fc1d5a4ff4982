// A journal of one or two segments, read as a server and as `recover` read it, down to what every record says.
//
// Input: a byte of flags, the first 80 bytes of a segment's header, then records. Flag 1 puts right whatever a random
// change breaks at once (magic numbers, checksums, sequences), so that lengths and contents are reached; flag 2 makes a
// second segment of the second half of the records.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/schema.h"
#include "fuzz/fuzz.h"
#include "journal/reader.h"

using namespace advectio;
using namespace advectio::journal;

namespace {

constexpr std::uint64_t journal_uid = 0x1234567890ABCDEF;
constexpr std::size_t header_given = 80;

/// One directory for all inputs: its files are written over.
class Directory {
 public:
  Directory() {
    std::string name =
        std::filesystem::exists("/dev/shm") ? "/dev/shm/advectio-fuzz-XXXXXX" : "/tmp/advectio-fuzz-XXXXXX";
    path_ = ::mkdtemp(name.data());
    alignas(WriterState) std::array<std::byte, writer_bytes> shared_state{};
    auto& writer = *reinterpret_cast<WriterState*>(shared_state.data());
    writer.magic = writer_magic;
    writer.version = format_version;
    writer.journal = journal_uid;
    put("writer", {shared_state.begin(), shared_state.end()});
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  void put(const std::string& name, const std::vector<std::byte>& bytes) const {
    std::ofstream out(path_ + "/" + name, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void remove(const std::string& name) const { ::unlink((path_ + "/" + name).c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::byte> segment(std::span<const std::byte> header, std::span<const std::byte> records) {
  std::vector<std::byte> out(segment_header_bytes + records.size());
  std::copy(header.begin(), header.end(), out.begin());
  std::copy(records.begin(), records.end(), out.begin() + segment_header_bytes);
  return out;
}

/// Right in all that the reader compares, so that what it then believes is the input's own. Returns the next sequence.
std::uint64_t put_right(std::vector<std::byte>& bytes, std::uint64_t index, std::uint64_t sequence) {
  auto& h = *reinterpret_cast<SegmentHeader*>(bytes.data());
  h.magic = segment_magic;
  h.version = oldest_version + h.version % (format_version - oldest_version + 1);
  h.segment_bytes = bytes.size();
  h.journal = journal_uid;
  h.index = index;
  h.first_sequence = sequence;
  h.crc = crc32c(&h, offsetof(SegmentHeader, crc));
  std::size_t at = segment_header_bytes;
  while (bytes.size() - at >= sizeof(RecordHeader)) {
    RecordHeader r{};
    std::memcpy(&r, bytes.data() + at, sizeof r);
    r.magic = record_magic;
    r.type = static_cast<std::uint16_t>(1 + r.type % 8);
    r.journal = journal_uid;
    r.sequence = sequence++;
    const auto room = bytes.size() - at - sizeof r;
    const bool fits = padded(r.meta_bytes) <= room && r.payload_bytes <= room &&
                      padded(r.payload_bytes) <= room - padded(r.meta_bytes);
    if (fits) {
      const auto* meta = bytes.data() + at + sizeof r;
      r.meta_crc = crc32c(meta, r.meta_bytes);
      r.payload_crc = crc32c(meta + padded(r.meta_bytes), r.payload_bytes);
    }
    r.crc = crc32c(&r, offsetof(RecordHeader, crc));
    std::memcpy(bytes.data() + at, &r, sizeof r);
    if (!fits) break;
    at += record_bytes(r.meta_bytes, r.payload_bytes);
  }
  // All of it is published, unless the input says less.
  const auto committed = h.committed.load();
  h.committed = committed >= segment_header_bytes && committed <= bytes.size() ? committed : at;
  return sequence;
}

void understand(const Record& r) {
  (void)verify_payload(r);
  switch (r.type) {
    case RecordType::create: (void)decode_create(r.meta); break;
    case RecordType::schema: (void)decode_schema(r.payload); break;
    case RecordType::put: (void)decode_put(r.meta); break;
    case RecordType::sync:
    case RecordType::close: (void)decode_sync(r.meta); break;
    case RecordType::enter: (void)decode_enter(r.meta); break;
    case RecordType::settle: (void)decode_settle(r.meta); break;
    default: (void)name_of(r.type); break;
  }
}

void read(const std::string& directory, Trust trust, std::size_t bytes) {
  auto reader = Reader::open(system_files(), directory, trust);
  fuzz::hold(reader.ok(), "the writer's page is right");
  std::uint64_t last = 0;
  for (std::size_t n = 0;; ++n) {
    auto next = (*reader)->next();
    if (!next || !next->has_value()) break;
    const auto& r = **next;
    fuzz::hold(n < bytes / sizeof(RecordHeader), "there are no more records than bytes");
    fuzz::hold(n == 0 || r.sequence == last + 1, "records come in order");
    last = r.sequence;
    const auto& mapping = *(*reader)->held().back().mapping;
    const auto* end = mapping.data() + mapping.bytes();
    fuzz::hold(r.meta.data() + r.meta.size() <= end && r.payload.data() + r.payload.size() <= end,
               "a record lies in its segment");
    understand(r);
  }
  (void)(*reader)->bytes_ahead();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Directory directory;
  if (size < 1 + header_given) return 0;
  const auto all = fuzz::bytes_of(data + 1, size - 1);
  const auto header = all.first(header_given), records = all.subspan(header_given);
  const bool right = (data[0] & 1) != 0, two = (data[0] & 2) != 0;
  const auto half = two ? records.size() / 2 / alignment * alignment : records.size();
  auto first = segment(header, records.first(half));
  auto second = segment(header, records.subspan(half));
  if (right) {
    const auto sequence = put_right(first, 0, 1);
    reinterpret_cast<SegmentHeader*>(first.data())->sealed = two ? 1 : 0;
    put_right(second, 1, sequence);
  }
  directory.put("00000000-s000000", first);
  if (two)
    directory.put("00000001-s000001", second);
  else
    directory.remove("00000001-s000001");
  for (const auto trust : {Trust::published, Trust::scan}) read(directory.path(), trust, first.size() + second.size());
  return 0;
}
