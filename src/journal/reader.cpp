#include "journal/reader.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "journal/segments.h"
#include "journal/spill.h"
#include "platform/machine.h"

namespace advectio::journal {

namespace {

bool header_is_whole(const SegmentHeader& h, std::uint64_t journal, std::uint64_t index, std::uint64_t bytes) {
  return h.magic == segment_magic && is_read(h.version) && h.journal == journal && h.index == index &&
         h.segment_bytes == bytes && h.crc == crc32c(&h, offsetof(SegmentHeader, crc));
}

}  // namespace

std::optional<std::pair<std::uint64_t, std::string>> parse_chain_name(const std::string& file) {
  const auto dash = file.find('-');
  if (dash == std::string::npos || dash == 0 || dash > 18 || dash + 1 == file.size()) return std::nullopt;
  std::uint64_t index = 0;
  for (std::size_t i = 0; i < dash; ++i) {
    if (file[i] < '0' || file[i] > '9') return std::nullopt;
    index = index * 10 + static_cast<std::uint64_t>(file[i] - '0');
  }
  return std::pair{index, file.substr(dash + 1)};
}

Result<void> verify_payload(const Record& record) {
  if (crc32c(record.payload.data(), record.payload.size()) == record.payload_crc) return {};
  return Error{Code::corrupt,
               "the payload of " + std::string(name_of(record.type)) + " record " + std::to_string(record.sequence) +
                   " is not what was written (CRC)",
               0};
}

Result<std::unique_ptr<Reader>> Reader::open(Files& files, const std::string& directory, Trust trust) {
  auto file = files.open(directory + "/writer", OpenMode::read);
  if (!file) return std::move(file).error();
  auto size = (*file)->size();
  if (!size) return std::move(size).error();
  if (*size < writer_bytes) return Error{Code::corrupt, directory + "/writer is too short", 0};
  auto mapping = files.map(**file, writer_bytes, false);
  if (!mapping) return std::move(mapping).error();
  MappedState<WriterState> shared_state(std::move(mapping).value());
  if (shared_state->magic != writer_magic) return Error{Code::corrupt, directory + "/writer is not a writer's page", 0};
  if (!is_read(shared_state->version))
    return Error{Code::unsupported,
                 directory + " is of format version " + std::to_string(shared_state->version) +
                     ", this program reads " + std::to_string(format_version),
                 0};
  return std::unique_ptr<Reader>(new Reader(files, directory, trust, std::move(shared_state)));
}

bool Reader::writer_alive() const noexcept {
  const auto writer = directory_ + "/writer";
  if (ProcessLock::held(writer)) return true;
  // A process that closes descriptors that it does not know lives on without the lock. Its mapping goes with it, and
  // with exec(2).
  const auto pid = shared_state_->pid;
  return pid != static_cast<std::uint32_t>(::getpid()) && maps_to_write(pid, writer.substr(directory_.rfind('/') + 1));
}

/// The file of the segment `index`, or before anything was read that of the oldest. Empty: it is not there.
Result<std::string> Reader::segment_file(std::uint64_t index) {
  auto listed = begun_ ? listed_.find(index) : listed_.end();
  if (listed == listed_.end() || !files_.exists(directory_ + "/" + listed->second)) {
    auto names = files_.list(directory_);
    if (!names) return std::move(names).error();
    listed_.clear();
    for (auto& name : *names)
      if (const auto parsed = parse_chain_name(name)) listed_[parsed->first] = std::move(name);
    listed = begun_ ? listed_.find(index) : listed_.begin();
  }
  return listed == listed_.end() ? std::string() : listed->second;
}

Result<bool> Reader::open_segment(std::uint64_t index) {
  auto name = segment_file(index);
  if (!name) return std::move(name).error();
  if (name->empty()) return false;
  auto [at, segment] = *parse_chain_name(*name);
  Held held;
  held.index = at;
  held.file = std::move(name).value();
  held.segment = std::move(segment);

  const std::string path = directory_ + "/" + held.file;
  auto file = files_.open(path, OpenMode::read);
  if (!file) return std::move(file).error();
  auto size = (*file)->size();
  if (!size) return std::move(size).error();
  if (*size < segment_header_bytes) {
    if (trust_ == Trust::scan) return false;
    return Error{Code::corrupt, path + " is too short for a segment", 0};
  }
  auto mapping = files_.map(**file, *size, false);
  if (!mapping) return std::move(mapping).error();
  const auto& header = *reinterpret_cast<const SegmentHeader*>(mapping->data());
  const auto first = header_at(mapping.value(), segment_header_bytes, *size);
  const bool has_next = first && (!begun_ || follows(first->sequence));
  if (trust_ == Trust::published && !(writer_gone_ && has_next)) {
    // The writer renames the file first and writes the header then: until `committed` says so there is nothing to see.
    if (header.committed.load(std::memory_order_acquire) < segment_header_bytes ||
        header.journal != shared_state_->in_segments() || header.index != held.index)
      return false;
    if (!header_is_whole(header, shared_state_->in_segments(), held.index, *size))
      return Error{Code::corrupt, path + ": the segment header is damaged", 0};
  }
  if (!begun_) {
    // Where a damaged header cannot be believed, the first record tells where the journal goes on.
    if (header_is_whole(header, shared_state_->in_segments(), held.index, *size)) {
      sequence_ = header.first_sequence - 1;
    } else if (*size >= segment_header_bytes + sizeof(RecordHeader)) {
      // Whole, and of an earlier use: of the present one nothing has reached the disk for certain.
      if (trust_ == Trust::scan && header_is_whole(header, header.journal, header.index, *size)) return false;
      if (!first) return false;
      sequence_ = first->sequence - 1;
    }
    begun_ = true;
  }
  held.mapping = std::make_shared<const Mapping>(std::move(mapping).value());
  held.last_sequence = sequence_;
  held.end = segment_header_bytes;
  next_index_ = held.index + 1;
  listed_.erase(listed_.begin(), listed_.lower_bound(next_index_));
  held_.push_back(std::move(held));
  at_ = segment_header_bytes;
  return true;
}

std::optional<RecordHeader> Reader::header_at(const Mapping& segment, std::uint64_t at,
                                              std::uint64_t limit) const noexcept {
  RecordHeader r{};
  if (limit < at || limit - at < sizeof r) return std::nullopt;
  std::memcpy(&r, segment.data() + at, sizeof r);
  if (r.magic != record_magic || r.crc != crc32c(&r, offsetof(RecordHeader, crc)) ||
      r.journal != shared_state_->journal)
    return std::nullopt;
  return r;
}

/// The record of that header, which begins at `at`.
Record Reader::record_at(const std::shared_ptr<const Mapping>& segment, std::uint64_t at, const RecordHeader& header) {
  const auto* meta = segment->data() + at + sizeof header;
  Record record;
  record.type = static_cast<RecordType>(header.type);
  record.flags = header.flags;
  record.dataset = header.dataset;
  record.collective_index = header.collective_index;
  record.sequence = header.sequence;
  record.time_ns = header.time_ns;
  record.meta = {meta, header.meta_bytes};
  record.payload = {meta + padded(header.meta_bytes), header.payload_bytes};
  record.payload_crc = header.payload_crc;
  record.whole = {segment->data() + at, record_bytes(header.meta_bytes, header.payload_bytes)};
  record.lease = segment;
  return record;
}

void Reader::again(std::uint64_t sequence, Cursor& cursor, const std::function<bool(const Record&)>& take) const {
  struct Part {
    std::uint64_t index;
    std::shared_ptr<const Mapping> segment;
    std::uint64_t end;
  };
  std::vector<Part> parts;  // as it is now: `take` may let segments go
  for (const auto& h : held_)
    if (h.last_sequence > sequence) parts.push_back({h.index, h.mapping, h.end});
  for (const auto& part : parts) {
    const bool is_there = cursor.segment == part.index && cursor.at > 0 && cursor.sequence <= sequence;
    for (auto at = is_there ? cursor.at : segment_header_bytes; at < part.end;) {
      const auto header = header_at(*part.segment, at, part.end);
      if (!header) break;
      const auto record = record_at(part.segment, at, *header);
      if (record.sequence > sequence && !take(record)) return;
      at += record.whole.size();
      cursor = {part.index, at, record.sequence};
    }
  }
}

Result<std::optional<Record>> Reader::next() {
  for (;;) {
    if (held_.empty() || held_.back().done) {
      auto opened = open_segment(next_index_);
      if (!opened) return std::move(opened).error();
      if (!*opened) return std::optional<Record>();
      const auto& opened_header = *reinterpret_cast<const SegmentHeader*>(held_.back().mapping->data());
      const auto first = header_at(*held_.back().mapping, at_, held_.back().mapping->bytes());
      const bool has_next = writer_gone_ && first && follows(first->sequence);
      if (trust_ == Trust::published && !has_next && !follows(opened_header.first_sequence))
        return Error{Code::corrupt, directory_ + "/" + held_.back().file + ": records are missing before it", 0};
    }
    Held& h = held_.back();
    const auto& header = *reinterpret_cast<const SegmentHeader*>(h.mapping->data());
    // Sealed is stored after the last `committed`: read it first, or a record could slip in between.
    const bool sealed = header.sealed.load(std::memory_order_acquire) != 0;
    const std::uint64_t size = h.mapping->bytes();
    std::uint64_t limit = size;
    if (trust_ == Trust::published) {
      limit = header.committed.load(std::memory_order_acquire);
      if (limit > size && writer_gone_) limit = 0;
      if (limit > size || (limit < at_ && !writer_gone_))
        return Error{
            Code::corrupt,
            directory_ + "/" + h.file + ": published up to byte " + std::to_string(limit) + ", which cannot be", 0};
    }
    const bool unpublished = trust_ == Trust::published && writer_gone_ && at_ >= limit;
    if (unpublished) limit = size;
    const auto broken = [&](const char* what) -> Result<std::optional<Record>> {
      if (trust_ == Trust::scan || unpublished) return std::optional<Record>();
      return Error{Code::corrupt, directory_ + "/" + h.file + " at byte " + std::to_string(at_) + ": " + what, 0};
    };

    const auto there = header_at(*h.mapping, at_, limit);
    if (!there || !follows(there->sequence)) {
      if (trust_ == Trust::published && !unpublished && at_ < limit) return broken("the record header is damaged");
      // The end of this segment, for now or for good. When scanning, the chain itself tells: go on where the
      // next segment begins with the very next record.
      if (trust_ == Trust::published && !sealed && !writer_gone_) return std::optional<Record>();
      h.done = true;
      continue;
    }
    const RecordHeader& r = *there;
    const auto room = limit - at_ - sizeof r;
    if (padded(r.meta_bytes) > room || r.payload_bytes > room - padded(r.meta_bytes) ||
        padded(r.payload_bytes) > room - padded(r.meta_bytes))
      return broken("the record is longer than what is published");
    const auto* meta = h.mapping->data() + at_ + sizeof r;
    if (crc32c(meta, r.meta_bytes) != r.meta_crc) return broken("the record's description is damaged");

    auto record = record_at(h.mapping, at_, r);
    if ((trust_ == Trust::scan || unpublished) && !verify_payload(record)) return std::optional<Record>();
    at_ += record.whole.size();
    sequence_ = r.sequence;
    h.last_sequence = sequence_;
    h.end = at_;
    return std::optional<Record>(record);
  }
}

std::uint64_t Reader::bytes_ahead() const noexcept {
  if (held_.empty()) return 0;
  const auto& header = *reinterpret_cast<const SegmentHeader*>(held_.back().mapping->data());
  const auto committed = header.committed.load(std::memory_order_acquire);
  return committed > at_ && committed <= held_.back().mapping->bytes() ? committed - at_ : 0;
}

namespace {
bool has_leases(const std::shared_ptr<const Mapping>& mapping) noexcept {
  const bool leased = mapping.use_count() > 1;
  // What the last one has read of it was read before this.
  std::atomic_thread_fence(std::memory_order_acquire);
  return leased;
}
}  // namespace

bool Reader::Held::is_leased() const noexcept {
  return has_leases(mapping);
}

bool Reader::Parked::is_leased() const noexcept {
  return has_leases(mapping);
}

Result<std::optional<Reader::Parked>> Reader::park_oldest(const Stage& stage) {
  Held h = std::move(held_.front());
  held_.pop_front();
  const auto path = directory_ + "/" + h.file;
  if (is_spilled(h.segment) || is_long(h.segment)) {
    ADVECTIO_TRY(give_back(stage, path, h.segment));
    return std::optional<Parked>();
  }
  // A hidden name: a server that takes over removes it.
  Parked out{stage.pool() + "/." + h.segment, h.segment, std::move(h.mapping)};
  ADVECTIO_TRY(files_.rename(path, out.path));
  // The old name is off the disk before anybody uses the segment again (as in give_back).
  if (stage.survives_power()) ADVECTIO_TRY(make_durable(files_, directory_));
  return std::optional(std::move(out));
}

Result<void> Reader::release_oldest(const Stage& stage, bool recycle) {
  Held h = std::move(held_.front());
  held_.pop_front();
  h.mapping.reset();
  if (!recycle) return {};
  return give_back(stage, directory_ + "/" + h.file, h.segment);
}

}  // namespace advectio::journal
