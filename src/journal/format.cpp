#include "journal/format.h"

#include <isa-l.h>

#include <algorithm>
#include <cstring>

#include "platform/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace advectio::journal {

const char* name_of(RecordType type) noexcept {
  switch (type) {
    case RecordType::create: return "create";
    case RecordType::schema: return "schema";
    case RecordType::put: return "put";
    case RecordType::sync: return "sync";
    case RecordType::close: return "close";
    case RecordType::abort: return "abort";
    case RecordType::enter: return "enter";
    case RecordType::settle: return "settle";
  }
  return "?";
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t seed) noexcept {
  // ISA-L takes int lengths and neither inverts before nor after.
  auto* p = static_cast<unsigned char*>(const_cast<void*>(data));
  std::uint32_t crc = ~seed;
  while (bytes > 0) {
    const auto n = std::min<std::size_t>(bytes, 1U << 30);
    crc = crc32_iscsi(p, static_cast<int>(n), crc);
    p += n;
    bytes -= n;
  }
  clean_vector_registers();
  return ~crc;
}

namespace {

#if defined(__x86_64__)
/// Copy around the caches: the journal's lines are not read before they are written, and the model's own data stay
/// where they are. Meanwhile what comes after is fetched, so that its checksum finds it in the first-level cache. `to`
/// is aligned to 32 bytes, `bytes` a multiple of 128.
__attribute__((target("avx"))) void stream(std::byte* to, const std::byte* from, std::size_t bytes,
                                           std::size_t after) noexcept {
  for (std::size_t i = 0; i < bytes; i += 128) {
    _mm_prefetch(from + i + after, _MM_HINT_T0);
    _mm_prefetch(from + i + after + 64, _MM_HINT_T0);
    const auto* in = reinterpret_cast<const __m256i*>(from + i);
    auto* out = reinterpret_cast<__m256i*>(to + i);
    const auto a = _mm256_loadu_si256(in), b = _mm256_loadu_si256(in + 1);
    const auto c = _mm256_loadu_si256(in + 2), d = _mm256_loadu_si256(in + 3);
    _mm256_stream_si256(out, a);
    _mm256_stream_si256(out + 1, b);
    _mm256_stream_si256(out + 2, c);
    _mm256_stream_si256(out + 3, d);
  }
}

bool can_stream() noexcept {
  static const bool can = __builtin_cpu_supports("avx");
  return can;
}
#endif

std::uint32_t checksum(const std::byte* data, std::size_t bytes, std::uint32_t crc) noexcept {
  return crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data)), static_cast<int>(bytes), crc);
}

}  // namespace

std::uint32_t copy_crc32c(void* to, const void* from, std::size_t bytes, std::uint32_t seed) noexcept {
  // Pieces that stay in the first-level cache, so that memory is read once.
  constexpr std::size_t piece = 16 * 1024;
  auto* src = static_cast<const std::byte*>(from);
  auto* dst = static_cast<std::byte*>(to);
  std::uint32_t crc = ~seed;
#if defined(__x86_64__)
  // Small blocks are better left in the cache, where the server finds them.
  if (bytes >= streamed_min && reinterpret_cast<std::uintptr_t>(to) % 32 == 0 && can_stream()) {
    for (; bytes >= piece; bytes -= piece, src += piece, dst += piece) {
      crc = checksum(src, piece, crc);
      stream(dst, src, piece, bytes >= 2 * piece ? piece : 0);
    }
    _mm_sfence();
  }
#endif
  while (bytes > 0) {
    const auto n = std::min(bytes, piece);
    crc = checksum(src, n, crc);
    std::memcpy(dst, src, n);
    src += n;
    dst += n;
    bytes -= n;
  }
  clean_vector_registers();
  return ~crc;
}

namespace {

Error bad(const char* what) {
  return Error{Code::corrupt, std::string("the bytes are not a ") + what + " record", 0};
}

void put_numbers(Encoder& e, const std::vector<std::uint64_t>& v) {
  e.number(static_cast<std::uint32_t>(v.size()));
  for (const auto n : v) e.number(n);
}

std::vector<std::uint64_t> get_numbers(Decoder& d) {
  std::vector<std::uint64_t> v(d.count(8));
  for (auto& n : v) n = d.number<std::uint64_t>();
  return v;
}

}  // namespace

namespace {

/// A number in as many bytes as it needs, seven bits in each, the lowest first.
void put_varint(Bytes& out, std::uint64_t n) {
  for (; n >= 0x80; n >>= 7U) out.push_back(static_cast<std::byte>(n | 0x80));
  out.push_back(static_cast<std::byte>(n));
}

/// Numbers that grow by steps: each step, and how often it comes.
class StepsPacked {
 public:
  explicit StepsPacked(Bytes& out) : out_(out) {}
  void add(std::uint64_t number) {
    const auto step = number - last_;
    last_ = number;
    if (times_ > 0 && step == step_) {
      ++times_;
      return;
    }
    end();
    step_ = step;
    times_ = 1;
  }
  void end() {
    if (times_ == 0) return;
    put_varint(out_, times_);
    // Small steps down are small numbers, too.
    put_varint(out_, step_ << 1U ^ (0 - (step_ >> 63U)));
    times_ = 0;
  }

 private:
  Bytes& out_;
  std::uint64_t last_ = 0, step_ = 0, times_ = 0;
};

/// The other way round.
class StepsUnpacked {
 public:
  explicit StepsUnpacked(std::span<const std::byte> in) : in_(in) {}
  /// `visit(number)` so many times. False: they are not there.
  template <typename Visit>
  bool take(std::uint64_t numbers, Visit visit) {
    std::uint64_t number = 0;
    while (numbers > 0) {
      std::uint64_t times = 0, step = 0;
      if (!varint(times) || !varint(step) || times == 0 || times > numbers) return false;
      step = step >> 1U ^ (0 - (step & 1U));
      for (numbers -= times; times > 0; --times) visit(number += step);
    }
    return true;
  }
  [[nodiscard]] bool at_end() const noexcept { return at_ == in_.size(); }

 private:
  bool varint(std::uint64_t& n) {
    n = 0;
    for (unsigned shift = 0; shift < 64 && at_ < in_.size(); shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(in_[at_++]);
      n |= (byte & 0x7F) << shift;
      if (byte < 0x80) return shift < 63 || byte < 2;
    }
    return false;
  }

  std::span<const std::byte> in_;
  std::size_t at_ = 0;
};

}  // namespace

Bytes pack(const BoxList& boxes, std::size_t first, std::size_t last, std::span<const std::uint64_t> origin) {
  Bytes out;
  for (std::size_t d = 0; d < boxes.rank(); ++d) {
    StepsPacked steps(out);
    for (auto i = first; i < last; ++i) steps.add(boxes.start(i)[d] - origin[d]);
    steps.end();
  }
  for (std::size_t d = 0; d < boxes.rank(); ++d) {
    StepsPacked steps(out);
    for (auto i = first; i < last; ++i) steps.add(boxes.count(i)[d]);
    steps.end();
  }
  return out;
}

Result<BoxList> unpack(const Put& put, std::uint64_t elements) {
  const auto rank = put.box.rank();
  // None is empty.
  if (put.boxes > elements) return bad("put");
  std::vector<std::vector<std::uint64_t>> along(2 * rank);
  StepsUnpacked steps(put.packed);
  for (auto& numbers : along) {
    numbers.reserve(put.boxes);
    if (!steps.take(put.boxes, [&numbers](std::uint64_t n) { numbers.push_back(n); })) return bad("put");
  }
  if (!steps.at_end()) return bad("put");
  BoxList out(rank);
  out.reserve(put.boxes);
  std::vector<std::uint64_t> start(rank), count(rank);
  for (std::size_t i = 0; i < put.boxes; ++i) {
    for (std::size_t d = 0; d < rank; ++d) {
      start[d] = along[d][i];
      count[d] = along[rank + d][i];
    }
    out.add(start, count);
  }
  return out;
}

Bytes encode(const Create& create) {
  Bytes out;
  Encoder e(out);
  e.number(static_cast<std::int32_t>(create.format));
  e.text(create.path);
  e.text(create.link);
  e.text(create.shared_state);
  e.number(create.writers);
  return out;
}

Bytes encode(const Enter& enter) {
  Bytes out;
  Encoder e(out);
  e.text(enter.shared_state);
  e.number(enter.writer);
  return out;
}

Bytes encode(const Put& put) {
  Bytes out;
  out.reserve(16 + 16 * put.box.rank());
  Encoder e(out);
  e.number(put.variable);
  put_numbers(e, put.box.start);
  put_numbers(e, put.box.count);
  put_numbers(e, put.stride);
  if (put.boxes > 0) {
    e.number(put.boxes);
    e.blob(put.packed);
  }
  return out;
}

Bytes encode(const Sync& sync) {
  Bytes out;
  Encoder e(out);
  e.number(sync.frame);
  e.number(sync.stall_ns);
  e.number(sync.bytes);
  e.number(number(sync.sync_index));
  return out;
}

Bytes encode(const Settle& settle) {
  Bytes out;
  Encoder e(out);
  put_numbers(e, settle.written);
  put_numbers(e, settle.dropped);
  return out;
}

namespace {
bool names_a_state(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name[0] != '.';
}
}  // namespace

Result<Create> decode_create(std::span<const std::byte> meta) {
  Decoder d(meta);
  Create c;
  c.format = static_cast<FileFormat>(d.number<std::int32_t>());
  c.path = d.text();
  c.link = d.text();
  c.shared_state = d.text();
  if (d.ok() && !d.at_end()) c.writers = d.number<std::uint32_t>();  // since version 2
  if (!d.ok() || c.format < FileFormat::classic || c.format > FileFormat::cdf5) return bad("create");
  if (!names_a_state(c.shared_state)) return bad("create");
  return c;
}

Result<Enter> decode_enter(std::span<const std::byte> meta) {
  Decoder d(meta);
  Enter j;
  j.shared_state = d.text();
  j.writer = d.number<std::uint32_t>();
  if (!d.ok() || !names_a_state(j.shared_state)) return bad("enter");
  return j;
}

Result<Put> decode_put(std::span<const std::byte> meta) {
  Decoder d(meta);
  Put p;
  p.variable = d.number<std::uint32_t>();
  p.box.start = get_numbers(d);
  p.box.count = get_numbers(d);
  p.stride = get_numbers(d);
  if (d.ok() && !d.at_end()) {  // since version 5
    p.boxes = d.number<std::uint32_t>();
    const auto bytes = d.count(1);
    p.packed = d.ok() ? meta.subspan(d.position(), bytes) : p.packed;
    if (!d.ok() || p.boxes == 0 || !p.stride.empty()) return bad("put");
  }
  if (!d.ok() || p.box.start.size() != p.box.count.size()) return bad("put");
  if (!p.stride.empty() && p.stride.size() != p.box.start.size()) return bad("put");
  return p;
}

Result<Sync> decode_sync(std::span<const std::byte> meta) {
  Decoder d(meta);
  Sync s;
  s.frame = d.number<std::uint64_t>();
  s.stall_ns = d.number<std::uint64_t>();
  s.bytes = d.number<std::uint64_t>();
  if (d.ok() && !d.at_end()) s.sync_index = SyncIndex{d.number<std::uint64_t>()};  // since version 2
  if (!d.ok()) return bad("sync");
  return s;
}

Result<Settle> decode_settle(std::span<const std::byte> meta) {
  Decoder d(meta);
  Settle s;
  s.written = get_numbers(d);
  s.dropped = get_numbers(d);
  if (!d.ok()) return bad("settle");
  return s;
}

Bytes encode(const std::vector<RecordEnd>& ends) {
  Bytes out;
  Encoder e(out);
  e.number(static_cast<std::uint32_t>(ends.size()));
  for (const auto& end : ends) {
    e.number(end.sequence);
    e.number(end.collective_index);
    e.number(end.time_ns);
  }
  e.number(crc32c(out.data(), out.size()));
  return out;
}

Result<std::vector<RecordEnd>> decode_ends(std::span<const std::byte> file) {
  Decoder d(file);
  std::vector<RecordEnd> ends(d.count(3 * sizeof(std::uint64_t)));
  for (auto& end : ends) {
    end.sequence = d.number<std::uint64_t>();
    end.collective_index = d.number<std::uint64_t>();
    end.time_ns = d.number<std::uint64_t>();
  }
  const auto crc = crc32c(file.data(), d.position());
  if (d.number<std::uint32_t>() != crc || !d.ok() || !d.at_end())
    return Error{Code::corrupt, "the ends of records are damaged (CRC)", 0};
  return ends;
}

}  // namespace advectio::journal
