// Blocks on their way from the program's memory into the journal.
#include <algorithm>
#include <cstring>

#include "capture/gather.h"
#include "capture/journalled_dataset.h"
#include "capture/session.h"
#include "journal/writer.h"

namespace advectio::capture {

using journal::RecordType;

namespace {

constexpr std::uint64_t gathered_max = 1U << 20U;  // bytes of scattered memory in one record

/// Bytes of an encoded Put, or a little more.
std::uint64_t meta_bytes(const Box& box) {
  return 16 + 24 * box.rank();
}

std::uint64_t step_of(const std::vector<std::uint64_t>& stride, std::size_t dimension) {
  return stride.empty() ? 1 : stride[dimension];
}

/// As payload: of each string its length, then its bytes.
std::uint64_t payload_bytes(std::span<const char* const> strings) {
  std::uint64_t bytes = 0;
  for (const char* s : strings) bytes += sizeof(std::uint32_t) + (s != nullptr ? std::strlen(s) : 0);
  return bytes;
}

std::uint32_t fill_payload(std::span<const char* const> strings, std::byte* to) {
  const std::byte* begin = to;
  for (const char* s : strings) {
    const auto length = s != nullptr ? static_cast<std::uint32_t>(std::strlen(s)) : null_string;
    std::memcpy(to, &length, sizeof length);
    to += sizeof length;
    if (s == nullptr) continue;
    std::memcpy(to, s, length);
    to += length;
  }
  return journal::crc32c(begin, static_cast<std::size_t>(to - begin));
}

}  // namespace

/// One record.
Result<void> JournalledDataset::put_whole(const journal::Put& put, std::uint64_t bytes, const FillPayload& fill) {
  const std::uint16_t flags = pending_ != nullptr   ? journal::flag_pending
                              : in_collective_call_ ? journal::flag_collective
                                                    : std::uint16_t{0};
  if (auto writer = session_.writer(); writer && under_way_.puts == 0) under_way_.began_at = (*writer)->appended();
  // A block whose number is lost would stay pending.
  if (pending_ != nullptr && pending_->size() == pending_->capacity())
    pending_->reserve(std::max<std::size_t>(8, 2 * pending_->size()));
  auto sequence = append(RecordType::put, flags, journal::encode(put), bytes, fill);
  if (!sequence) return std::move(sequence).error().with("journal a block");
  if (pending_ != nullptr) {
    pending_->push_back(*sequence);
    ++posted_;
  }
  under_way_.bytes += bytes;
  put_ever_ = true;
  if (under_way_.puts++ == 0) session_.stage().control().bursts.fetch_add(1, std::memory_order_relaxed);
  shared_state_->bytes_put.fetch_add(bytes, std::memory_order_relaxed);
  return {};
}

/// One record, or as many as the segments make necessary.
Result<void> JournalledDataset::put_dense(journal::Put& put, const std::byte* data, std::size_t element) {
  const auto bytes = put.box.volume() * element;
  auto writer = session_.writer();
  if (!writer) return std::move(writer).error();
  const auto meta = meta_bytes(put.box);
  const auto now = (*writer)->payload_now(meta);
  const auto max = (*writer)->payload_max(meta);
  // What may be left unused at the end of a segment.
  const auto unused_max = (*writer)->segment_bytes() / 16;
  if (bytes <= now || (bytes <= max && now <= unused_max))
    return put_whole(put, bytes, [&](std::byte* to) { return journal::copy_crc32c(to, data, bytes); });

  // Cut along the slowest dimension that can be cut: every piece is dense in the program's memory.
  std::size_t d = 0;
  while (d < put.box.rank() && put.box.count[d] <= 1) ++d;
  if (d == put.box.rank()) return Error{Code::bug, "one element does not fit a segment", 0};
  const auto rows = put.box.count[d];
  const auto row_bytes = bytes / rows;
  const auto start = put.box.start[d];
  const auto step = step_of(put.stride, d);
  for (std::uint64_t row = 0; row < rows;) {
    const auto room_now = (*writer)->payload_now(meta);
    const auto room = room_now >= row_bytes && room_now > unused_max ? room_now : max;
    const auto n = std::max<std::uint64_t>(1, std::min(rows - row, room / row_bytes));
    journal::Put piece = put;
    piece.box.start[d] = start + row * step;
    piece.box.count[d] = n;
    const auto* from = data + row * row_bytes;
    if (n * row_bytes <= max) {
      ADVECTIO_TRY(put_whole(piece, n * row_bytes,
                             [&](std::byte* to) { return journal::copy_crc32c(to, from, n * row_bytes); }));
    } else {
      ADVECTIO_TRY(put_dense(piece, from, element));
    }
    row += n;
  }
  return {};
}

Result<void> JournalledDataset::put(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride,
                                    const Memory& memory, std::size_t element) {
  const Timer timer(stall_ns_);
  if (box.empty()) return {};
  const std::lock_guard guard(session_.mutex());
  ADVECTIO_TRY(pay_syncs());
  ADVECTIO_TRY(end_record_before(variable, box));
  if (leaves_out(variable, box)) return {};
  record_frames_.note(variable, box, stride);
  journal::Put piece{variable, box, stride};
  const auto* data = static_cast<const std::byte*>(memory.data);
  if (memory.step.empty()) return put_dense(piece, data, element);

  // Gather the innermost dimensions that fit a megabyte, and walk through the others.
  std::size_t inner = box.rank();
  std::uint64_t inner_count = 1;
  while (inner > 0 && inner_count * box.count[inner - 1] * element <= gathered_max) inner_count *= box.count[--inner];
  const std::span<const std::uint64_t> count(box.count);
  const std::span<const std::ptrdiff_t> step(memory.step);
  std::vector<std::byte> gathered(inner_count * element);
  std::vector<std::uint64_t> at(inner, 0);
  for (std::size_t k = 0; k < inner; ++k) piece.box.count[k] = 1;
  do {
    std::ptrdiff_t offset = 0;
    for (std::size_t k = 0; k < inner; ++k) {
      offset += static_cast<std::ptrdiff_t>(at[k]) * step[k];
      piece.box.start[k] = box.start[k] + at[k] * step_of(stride, k);
    }
    gather(data + offset, count.subspan(inner), step.subspan(inner), element, gathered.data());
    ADVECTIO_TRY(put_dense(piece, gathered.data(), element));
  } while (next_index(at, count.first(inner)));
  return {};
}

/// A single box, as `put` has it.
Result<void> JournalledDataset::put_box(const journal::Put& put, const std::byte* data, std::size_t element) {
  if (leaves_out(put.variable, put.box)) return {};
  record_frames_.note(put.variable, put.box, put.stride);
  auto piece = put;
  return put_dense(piece, data, element);
}

Result<void> JournalledDataset::put_boxes(std::uint32_t variable, const BoxList& boxes, bool records, const void* data,
                                          std::size_t element) {
  const Timer timer(stall_ns_);
  if (boxes.size() == 0) return {};
  const std::lock_guard guard(session_.mutex());
  ADVECTIO_TRY(pay_syncs());
  auto writer = session_.writer();
  if (!writer) return std::move(writer).error();
  // Where a frame may be left out, each block is asked for. Tiles are cut box by box. An older server knows no put of
  // many boxes.
  const bool together = !rule_.drops_frames() && !rule_.joins_tiles() &&
                        session_.stage().control().version >= journal::boxes_version && boxes.rank() > 0;
  // The same call is cut alike each time, so that the server knows its layouts again.
  const auto bytes_max = (*writer)->segment_bytes() / 4;
  const auto* at = static_cast<const std::byte*>(data);
  for (std::size_t first = 0; first < boxes.size();) {
    auto last = first + 1;
    auto bytes = boxes.volume(first) * element;
    const bool one_record = !records || boxes.count(first)[0] == 1;
    for (; together && one_record && last < boxes.size() && bytes <= bytes_max; ++last) {
      if (records && (boxes.start(last)[0] != boxes.start(first)[0] || boxes.count(last)[0] != 1)) break;
      const auto more = boxes.volume(last) * element;
      if (bytes + more + (last - first) * boxes.rank() * 2 > bytes_max) break;
      bytes += more;
    }
    journal::Put put{variable, boxes.bounds(first, last), {}, 0, {}};
    ADVECTIO_TRY(end_record_before(variable, put.box));
    if (last == first + 1 || boxes.is_a_box(first, last, put.box)) {
      ADVECTIO_TRY(put_box(put, at, element));
    } else {
      const auto packed = journal::pack(boxes, first, last, put.box.start);
      put.boxes = static_cast<std::uint32_t>(last - first);
      put.packed = packed;
      record_frames_.note(variable, put.box, {});
      ADVECTIO_TRY(put_whole(put, bytes, [&](std::byte* to) { return journal::copy_crc32c(to, at, bytes); }));
    }
    at += bytes;
    first = last;
  }
  return {};
}

Result<void> JournalledDataset::put_strings(std::uint32_t variable, const Box& box,
                                            const std::vector<std::uint64_t>& stride, const char* const* strings) {
  const Timer timer(stall_ns_);
  if (box.empty()) return {};
  const std::lock_guard guard(session_.mutex());
  ADVECTIO_TRY(pay_syncs());
  ADVECTIO_TRY(end_record_before(variable, box));
  if (leaves_out(variable, box)) return {};
  record_frames_.note(variable, box, stride);
  auto writer = session_.writer();
  if (!writer) return std::move(writer).error();
  const auto put_some = [this](const journal::Put& put, std::span<const char* const> some) {
    return put_whole(put, payload_bytes(some), [some](std::byte* to) { return fill_payload(some, to); });
  };
  const std::span<const char* const> all(strings, box.volume());
  if (payload_bytes(all) <= (*writer)->payload_max(meta_bytes(box)))
    return put_some(journal::Put{variable, box, stride}, all);

  // One record for each string.
  std::vector<std::uint64_t> at(box.rank(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    journal::Put one{variable, box, stride};
    for (std::size_t k = 0; k < box.rank(); ++k) {
      one.box.start[k] = box.start[k] + at[k] * step_of(stride, k);
      one.box.count[k] = 1;
    }
    ADVECTIO_TRY(put_some(one, all.subspan(i, 1)));
    next_index(at, box.count);
  }
  return {};
}

/// Tiles count their syncs, to find those of one instant. Of several writers the first one says that a record ends,
/// where their collective calls order its word behind the blocks of that record.
bool JournalledDataset::may_end_record() const {
  if (!rule_.ends_frames_by_record() || rule_.joins_tiles() || !(put_since_sync_ || under_way_.puts > 0)) return false;
  if (!collective_calls_.shared()) return true;
  return collective_calls_.first() && posted_ == 0 && (in_collective_call_ || pending_ != nullptr);
}

/// The program goes on to its next record: the frame ends as by a sync, and nothing waits.
Result<void> JournalledDataset::end_record_before(std::uint32_t variable, const Box& box) {
  if (!may_end_record() || !record_frames_.ends_before(variable, box)) return {};
  const auto now = journal::monotonic_ns();
  const auto bytes = under_way_.bytes;
  // A frame that may be left out is one record.
  if (!rule_.drops_frames() && record_frames_.goes_on(bytes, now)) return {};
  ADVECTIO_TRY(sync_record(RecordType::sync, collective_calls_.shared() ? journal::flag_record : 0));
  record_frames_.note_end(bytes, now);
  return {};
}

/// Whether this block belongs to a frame that is left out, as the stage was full when it began.
bool JournalledDataset::leaves_out(std::uint32_t variable, const Box& box) {
  if (!rule_.drops_frames()) return false;
  return left_out_.leaves_out(variable, box, [&](std::uint64_t bytes) {
    auto writer = session_.writer();
    if (!writer) return true;
    // A frame larger than half of the stage begins when half of it is free. One segment more is
    // left for what is never left out: that a file is created, its schema, its end.
    auto& control = session_.stage().control();
    const auto needed = std::min(bytes / (*writer)->segment_bytes() + 1, control.segments_limit.load() / 2);
    if ((*writer)->room_segments() > needed) return true;
    shared_state_->frames_dropped.fetch_add(1, std::memory_order_relaxed);
    session_.say_once(std::string(shared_state_->path) + ": frame " + std::to_string(box.start[0] + 1) +
                      " is left out: the stage is full (full: drop-frame)");
    return false;
  });
}

}  // namespace advectio::capture
