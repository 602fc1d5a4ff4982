#include "sinks/chunks/codec.h"

#include <blosc.h>
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <libdeflate.h>
#include <lz4.h>
#include <zstd.h>
extern "C" {  // libaec 1.0 forgets it
#include <szlib.h>
}

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/schema.h"
#include "platform/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace advectio {

namespace {

unsigned parameter(const EncodeStage& s, std::size_t i, unsigned otherwise) {
  return i < s.parameters.size() ? s.parameters[i] : otherwise;
}

template <typename T>
void put_big(std::byte* to, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<std::byte>(value >> (8 * (sizeof value - 1 - i)));
}

template <typename T>
T get_big(const std::byte* from) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) value = static_cast<T>(value << 8 | std::to_integer<T>(from[i]));
  return value;
}

// ---- shuffle ----

template <std::size_t element>
void shuffle_fixed(const std::byte* in, std::size_t elements, std::byte* out) noexcept {
  for (std::size_t b = 0; b < element; ++b) {
    auto* to = out + b * elements;
    for (std::size_t i = 0; i < elements; ++i) to[i] = in[i * element + b];
  }
}

void shuffle_plain(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out) noexcept {
  // In pieces that stay in the first-level cache, because the input is passed over once per byte of the element.
  constexpr std::size_t piece = 2048;
  for (std::size_t at = 0; at < elements; at += piece) {
    const auto n = std::min(piece, elements - at);
    for (std::size_t b = 0; b < element; ++b) {
      const auto* from = in + at * element + b;
      auto* to = out + b * elements + at;
      for (std::size_t i = 0; i < n; ++i) to[i] = from[i * element];
    }
  }
}

#if defined(__x86_64__)
// 32 elements of 4 bytes at a time: bytes of like significance are brought together within 16 bytes, then 4-byte groups
// across.
__attribute__((target("avx2"))) void shuffle4_avx2(const std::byte* in, std::size_t elements, std::byte* out) noexcept {
  const __m256i within = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9,
                                          13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::size_t i = 0;
  for (; i + 32 <= elements; i += 32) {
    __m256i v[4];
    for (int k = 0; k < 4; ++k) {
      const auto x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 4 * i) + k);
      // 8 elements: plane p in the quadword p
      v[k] = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(x, within), order);
    }
    const auto a = _mm256_unpacklo_epi64(v[0], v[1]),
               b = _mm256_unpackhi_epi64(v[0], v[1]);  // planes 0,2 and 1,3 of v0 v1
    const auto c = _mm256_unpacklo_epi64(v[2], v[3]), d = _mm256_unpackhi_epi64(v[2], v[3]);
    const __m256i planes[4] = {_mm256_permute2x128_si256(a, c, 0x20), _mm256_permute2x128_si256(b, d, 0x20),
                               _mm256_permute2x128_si256(a, c, 0x31), _mm256_permute2x128_si256(b, d, 0x31)};
    for (std::size_t p = 0; p < 4; ++p)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + p * elements + i), planes[p]);
  }
  for (; i < elements; ++i)
    for (std::size_t b = 0; b < 4; ++b) out[b * elements + i] = in[4 * i + b];
}

bool has_avx2() noexcept {
  static const bool yes = __builtin_cpu_supports("avx2") != 0;
  return yes;
}
#endif

// ---- bit shuffle ----

std::uint64_t transpose8x8(std::uint64_t x) noexcept {
  std::uint64_t t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAULL;
  x ^= t ^ (t << 7);
  t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCULL;
  x ^= t ^ (t << 14);
  t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ULL;
  return x ^ t ^ (t << 28);
}

/// One plane of `n` bytes (a multiple of 8) to eight rows of n/8 bytes.
void bits_of_plane(const std::byte* in, std::size_t n, std::byte* out) noexcept {
  const auto row = n / 8;
  std::size_t i = 0;
#if defined(__x86_64__)
  for (; i + 16 <= n; i += 16) {
    auto v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    for (int k = 7; k >= 0; --k) {
      const auto m = static_cast<std::uint16_t>(_mm_movemask_epi8(v));
      std::memcpy(out + static_cast<std::size_t>(k) * row + i / 8, &m, sizeof m);
      v = _mm_add_epi8(v, v);
    }
  }
#endif
  for (; i < n; i += 8) {
    std::uint64_t x = 0;
    std::memcpy(&x, in + i, sizeof x);
    x = transpose8x8(x);
    for (std::size_t k = 0; k < 8; ++k) out[k * row + i / 8] = static_cast<std::byte>(x >> (8 * k));
  }
}

void plane_of_bits(const std::byte* in, std::size_t n, std::byte* out) noexcept {
  const auto row = n / 8;
  for (std::size_t i = 0; i < n; i += 8) {
    std::uint64_t x = 0;
    for (std::size_t k = 0; k < 8; ++k) x |= std::to_integer<std::uint64_t>(in[k * row + i / 8]) << (8 * k);
    x = transpose8x8(x);
    std::memcpy(out + i, &x, sizeof x);
  }
}

// ---- deflate ----

int isal_level(unsigned asked, const std::optional<int>& own) {
  if (own) return std::clamp(*own, 0, 3);
  // zlib's levels beyond 5 are asked by who wants small files; ISA-L's third level is its best.
  return asked <= 5 ? 1 : asked <= 7 ? 2 : 3;
}

/// What a deflate stream has around it.
enum class Wrapper : std::uint8_t { zlib, gzip };

std::optional<std::size_t> deflate_libdeflate(int level, std::span<const std::byte> in, Buffer& out, Wrapper wrapper) {
  struct Free {
    void operator()(libdeflate_compressor* c) const noexcept { libdeflate_free_compressor(c); }
  };
  thread_local std::array<std::unique_ptr<libdeflate_compressor, Free>, 13> compressors;
  auto& c = compressors[static_cast<std::size_t>(level)];
  if (!c) c.reset(libdeflate_alloc_compressor(level));
  if (!c) throw std::bad_alloc();
  const bool zlib = wrapper == Wrapper::zlib;
  out.reserve((zlib ? libdeflate_zlib_compress_bound : libdeflate_gzip_compress_bound)(c.get(), in.size()));
  const auto n = (zlib ? libdeflate_zlib_compress : libdeflate_gzip_compress)(c.get(), in.data(), in.size(), out.data(),
                                                                              out.capacity());
  if (n == 0) return std::nullopt;
  return n;
}

std::optional<std::size_t> deflate_isal(int level, std::span<const std::byte> in, Buffer& out, Wrapper wrapper) {
  static constexpr std::array<std::uint32_t, 4> work = {0, ISAL_DEF_LVL1_LARGE, ISAL_DEF_LVL2_LARGE,
                                                        ISAL_DEF_LVL3_LARGE};
  thread_local Buffer level_buffer;
  if (in.size() > UINT32_MAX) return std::nullopt;
  level_buffer.reserve(work[static_cast<std::size_t>(level)]);
  out.reserve(in.size() + in.size() / 1000 + 4096);
  isal_zstream s;
  isal_deflate_stateless_init(&s);
  s.level = static_cast<std::uint32_t>(level);
  s.level_buf = level > 0 ? reinterpret_cast<std::uint8_t*>(level_buffer.data()) : nullptr;
  s.level_buf_size = work[static_cast<std::size_t>(level)];
  s.gzip_flag = wrapper == Wrapper::zlib ? IGZIP_ZLIB : IGZIP_GZIP;
  s.flush = NO_FLUSH;
  s.end_of_stream = 1;
  s.next_in = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(in.data()));
  s.avail_in = static_cast<std::uint32_t>(in.size());
  s.next_out = reinterpret_cast<std::uint8_t*>(out.data());
  s.avail_out = static_cast<std::uint32_t>(std::min<std::size_t>(out.capacity(), UINT32_MAX));
  const int code = isal_deflate_stateless(&s);
  clean_vector_registers();
  if (code != COMP_OK || s.avail_in != 0) return std::nullopt;
  return s.total_out;
}

std::optional<std::size_t> encode_deflate(const EncodeStage& stage, const EncodePipeline& p,
                                          std::span<const std::byte> in, Buffer& out, Wrapper wrapper = Wrapper::zlib) {
  const auto asked = parameter(stage, 0, 6);
  if (p.deflate == DeflateMaker::libdeflate)
    return deflate_libdeflate(std::clamp(p.level.value_or(static_cast<int>(asked)), 0, 12), in, out, wrapper);
  // Asked to be stored, not to be compressed.
  if (asked == 0 && !p.level) return deflate_libdeflate(0, in, out, wrapper);
  return deflate_isal(isal_level(asked, p.level), in, out, wrapper);
}

// ---- zstd ----

struct FreeZstd {
  void operator()(ZSTD_CCtx* c) const noexcept { ZSTD_freeCCtx(c); }
};

ZSTD_CCtx* zstd_context() {
  thread_local std::unique_ptr<ZSTD_CCtx, FreeZstd> context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  return context.get();
}

std::optional<std::size_t> encode_zstd(int level, std::span<const std::byte> in, Buffer& out) {
  out.reserve(ZSTD_compressBound(in.size()));
  const auto n = ZSTD_compressCCtx(zstd_context(), out.data(), out.capacity(), in.data(), in.size(), level);
  if (ZSTD_isError(n) != 0) return std::nullopt;
  return n;
}

int zstd_level(const EncodeStage& s, std::size_t at, const std::optional<int>& own) {
  return std::clamp(own.value_or(static_cast<int>(parameter(s, at, 3))), ZSTD_minCLevel(), ZSTD_maxCLevel());
}

// ---- LZ4: u64 bytes, u32 bytes of a block, then blocks of u32 length and data; big-endian; a block that
// would grow is kept as it is ----

std::optional<std::size_t> encode_lz4(const EncodeStage& stage, std::span<const std::byte> in, Buffer& out) {
  std::size_t block = parameter(stage, 0, 0);
  if (block == 0 || block > LZ4_MAX_INPUT_SIZE) block = 1 << 30;
  block = std::min(block, std::max<std::size_t>(in.size(), 1));
  const auto blocks = (in.size() + block - 1) / block;
  const auto room = static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(block)));
  out.reserve(12 + blocks * (4 + room));
  put_big(out.data(), static_cast<std::uint64_t>(in.size()));
  put_big(out.data() + 8, static_cast<std::uint32_t>(block));
  std::size_t at = 12;
  for (std::size_t from = 0; from < in.size(); from += block) {
    const auto n = std::min(block, in.size() - from);
    auto m =
        LZ4_compress_default(reinterpret_cast<const char*>(in.data() + from),
                             reinterpret_cast<char*>(out.data() + at + 4), static_cast<int>(n), static_cast<int>(room));
    if (m <= 0 || static_cast<std::size_t>(m) >= n) {
      std::memcpy(out.data() + at + 4, in.data() + from, n);
      m = static_cast<int>(n);
    }
    put_big(out.data() + at, static_cast<std::uint32_t>(m));
    at += 4 + static_cast<std::size_t>(m);
  }
  return at;
}

// More than bytes can shrink, so that a few of them cannot ask for all memory. zstd makes 128 KiB of a block of four
// bytes.
constexpr std::uint64_t lz4_shrinks_max = 256, zstd_shrinks_max = 128 << 10;

std::optional<std::size_t> decode_lz4(std::span<const std::byte> in, Buffer& out) {
  if (in.size() < 12) return std::nullopt;
  const auto total = get_big<std::uint64_t>(in.data());
  const std::uint64_t block = get_big<std::uint32_t>(in.data() + 8);
  if (total / lz4_shrinks_max > in.size() || (block == 0 && total > 0)) return std::nullopt;
  out.reserve(total);
  std::size_t at = 12;
  for (std::uint64_t done = 0; done < total;) {
    const auto n = std::min<std::uint64_t>(block, total - done);
    if (in.size() - at < 4) return std::nullopt;
    const std::size_t m = get_big<std::uint32_t>(in.data() + at);
    at += 4;
    if (m > in.size() - at || n > LZ4_MAX_INPUT_SIZE || m > LZ4_MAX_INPUT_SIZE) return std::nullopt;
    if (m == n) {
      std::memcpy(out.data() + done, in.data() + at, n);
    } else if (LZ4_decompress_safe(reinterpret_cast<const char*>(in.data() + at),
                                   reinterpret_cast<char*>(out.data() + done), static_cast<int>(m),
                                   static_cast<int>(n)) != static_cast<int>(n)) {
      return std::nullopt;
    }
    at += m;
    done += n;
  }
  return total;
}

// ---- Blosc: parameters revision, format, element, chunk bytes, level, shuffle, compressor ----

std::optional<std::size_t> encode_blosc(const EncodeStage& stage, const EncodePipeline& p,
                                        std::span<const std::byte> in, Buffer& out) {
  const char* name = nullptr;
  if (blosc_compcode_to_compname(static_cast<int>(parameter(stage, 6, BLOSC_BLOSCLZ)), &name) < 0) return std::nullopt;
  const auto level = std::clamp(p.level.value_or(static_cast<int>(parameter(stage, 4, 5))), 0, 9);
  const auto element = std::max<std::size_t>(parameter(stage, 2, static_cast<unsigned>(p.element)), 1);
  if (in.size() > BLOSC_MAX_BUFFERSIZE) return std::nullopt;
  out.reserve(in.size() + BLOSC_MAX_OVERHEAD);
  const auto n = blosc_compress_ctx(level, static_cast<int>(parameter(stage, 5, 1)), element, in.size(), in.data(),
                                    out.data(), in.size() + BLOSC_MAX_OVERHEAD, name, 0, 1);
  if (n <= 0) return std::nullopt;
  return static_cast<std::size_t>(n);
}

std::optional<std::size_t> decode_blosc(std::span<const std::byte> in, Buffer& out) {
  std::size_t bytes = 0;
  if (in.size() < BLOSC_MIN_HEADER_LENGTH || blosc_cbuffer_validate(in.data(), in.size(), &bytes) < 0 ||
      bytes / zstd_shrinks_max > in.size())
    return std::nullopt;
  out.reserve(std::max<std::size_t>(bytes, 1));
  const auto n = blosc_decompress_ctx(in.data(), out.data(), bytes, 1);
  if (n < 0 || static_cast<std::size_t>(n) != bytes) return std::nullopt;
  return bytes;
}

// ---- bitshuffle: parameters major, minor, element, elements of a block (0: default), codec (0, 2: LZ4, 3: zstd),
// level ----

struct BitshuffleShape {
  std::size_t element, block, elements, tail;  // block in elements; tail bytes are kept as they are
};

std::optional<BitshuffleShape> bitshuffle_shape(const EncodeStage& stage, std::size_t bytes) {
  BitshuffleShape s{};
  s.element = parameter(stage, 2, 0);
  s.block = parameter(stage, 3, 0);
  if (s.element == 0 || s.block % 8 != 0) return std::nullopt;
  if (s.block == 0) s.block = std::max<std::size_t>(8192 / s.element / 8 * 8, 128);
  if (s.block * s.element > LZ4_MAX_INPUT_SIZE) return std::nullopt;
  s.elements = bytes / s.element / 8 * 8;
  s.tail = bytes - s.elements * s.element;
  return s;
}

std::optional<std::size_t> encode_bitshuffle(const EncodeStage& stage, const EncodePipeline& p,
                                             std::span<const std::byte> in, Buffer& out) {
  thread_local Buffer rows, spare;
  const auto s = bitshuffle_shape(stage, in.size());
  if (!s) return std::nullopt;
  const auto codec = parameter(stage, 4, 0);
  if (codec == 0) {
    out.reserve(in.size());
    for (std::size_t at = 0; at < s->elements; at += s->block)
      bit_shuffle(in.data() + at * s->element, std::min(s->block, s->elements - at), s->element,
                  out.data() + at * s->element, spare);
    std::memcpy(out.data() + in.size() - s->tail, in.data() + in.size() - s->tail, s->tail);
    return in.size();
  }
  if (codec != 2 && codec != 3) return std::nullopt;
  const auto block_bytes = s->block * s->element;
  const auto room = codec == 2 ? static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(block_bytes)))
                               : ZSTD_compressBound(block_bytes);
  out.reserve(12 + (s->elements / s->block + 1) * (4 + room) + s->tail);
  rows.reserve(block_bytes);
  put_big(out.data(), static_cast<std::uint64_t>(in.size()));
  put_big(out.data() + 8, static_cast<std::uint32_t>(block_bytes));
  std::size_t to = 12;
  for (std::size_t at = 0; at < s->elements; at += s->block) {
    const auto n = std::min(s->block, s->elements - at);
    bit_shuffle(in.data() + at * s->element, n, s->element, rows.data(), spare);
    std::size_t m = 0;
    if (codec == 2) {
      m = static_cast<std::size_t>(LZ4_compress_default(reinterpret_cast<const char*>(rows.data()),
                                                        reinterpret_cast<char*>(out.data() + to + 4),
                                                        static_cast<int>(n * s->element), static_cast<int>(room)));
    } else {
      m = ZSTD_compressCCtx(zstd_context(), out.data() + to + 4, room, rows.data(), n * s->element,
                            zstd_level(stage, 5, p.level));
      if (ZSTD_isError(m) != 0) return std::nullopt;
    }
    if (m == 0) return std::nullopt;
    put_big(out.data() + to, static_cast<std::uint32_t>(m));
    to += 4 + m;
  }
  std::memcpy(out.data() + to, in.data() + in.size() - s->tail, s->tail);
  return to + s->tail;
}

std::optional<std::size_t> decode_bitshuffle(const EncodeStage& stage, std::span<const std::byte> in, Buffer& out) {
  thread_local Buffer rows, spare;
  const auto codec = parameter(stage, 4, 0);
  if (codec == 0) {
    const auto s = bitshuffle_shape(stage, in.size());
    if (!s) return std::nullopt;
    out.reserve(in.size());
    for (std::size_t at = 0; at < s->elements; at += s->block)
      bit_unshuffle(in.data() + at * s->element, std::min(s->block, s->elements - at), s->element,
                    out.data() + at * s->element, spare);
    std::memcpy(out.data() + in.size() - s->tail, in.data() + in.size() - s->tail, s->tail);
    return in.size();
  }
  if ((codec != 2 && codec != 3) || in.size() < 12) return std::nullopt;
  const auto total = get_big<std::uint64_t>(in.data());
  const std::size_t block_bytes = get_big<std::uint32_t>(in.data() + 8);
  auto shaped = stage;
  if (shaped.parameters.size() < 4 || shaped.parameters[2] == 0) return std::nullopt;
  shaped.parameters[3] = static_cast<std::uint32_t>(block_bytes / shaped.parameters[2]);
  if (total > std::uint64_t{1} << 32 || total / (codec == 2 ? lz4_shrinks_max : zstd_shrinks_max) > in.size() ||
      shaped.parameters[3] == 0)
    return std::nullopt;
  const auto s = bitshuffle_shape(shaped, total);
  if (!s || s->block * s->element != block_bytes) return std::nullopt;
  out.reserve(std::max<std::size_t>(total, 1));
  rows.reserve(std::min<std::size_t>(block_bytes, total));
  std::size_t from = 12;
  for (std::size_t at = 0; at < s->elements; at += s->block) {
    const auto n = std::min(s->block, s->elements - at), bytes = n * s->element;
    if (in.size() - from < 4) return std::nullopt;
    const std::size_t m = get_big<std::uint32_t>(in.data() + from);
    from += 4;
    if (m > in.size() - from) return std::nullopt;
    const bool whole = codec == 2 ? LZ4_decompress_safe(reinterpret_cast<const char*>(in.data() + from),
                                                        reinterpret_cast<char*>(rows.data()), static_cast<int>(m),
                                                        static_cast<int>(bytes)) == static_cast<int>(bytes)
                                  : ZSTD_decompress(rows.data(), bytes, in.data() + from, m) == bytes;
    if (!whole) return std::nullopt;
    bit_unshuffle(rows.data(), n, s->element, out.data() + at * s->element, spare);
    from += m;
  }
  if (in.size() - from < s->tail) return std::nullopt;
  std::memcpy(out.data() + total - s->tail, in.data() + from, s->tail);
  return total;
}

// ---- szip: u32 bytes, little-endian, then what the library makes; parameters mask, pixels per block, bits per pixel,
// per scanline ----

std::optional<std::size_t> encode_szip(const EncodeStage& stage, std::span<const std::byte> in, Buffer& out) {
  if (stage.parameters.size() < 4) return std::nullopt;
  SZ_com_t how{};
  how.options_mask = static_cast<int>(stage.parameters[0]);
  how.pixels_per_block = static_cast<int>(stage.parameters[1]);
  how.bits_per_pixel = static_cast<int>(stage.parameters[2]);
  how.pixels_per_scanline = static_cast<int>(stage.parameters[3]);
  out.reserve(in.size() + 4);
  // HDF5 gives it no more room than the chunk has, and leaves the filter out where that is not enough.
  std::size_t n = in.size();
  const auto bytes = static_cast<std::uint32_t>(in.size());
  for (std::size_t i = 0; i < 4; ++i) out.data()[i] = static_cast<std::byte>(bytes >> (8 * i));
  if (SZ_BufftoBuffCompress(out.data() + 4, &n, in.data(), in.size(), &how) != SZ_OK) return std::nullopt;
  return n + 4;
}

// ---- Zarr's codecs ----

std::optional<std::size_t> encode_crc32c(std::span<const std::byte> in, Buffer& out) {
  const auto sum = crc32c_of(in);
  out.reserve(in.size() + sizeof sum);
  std::memcpy(out.data(), in.data(), in.size());
  std::memcpy(out.data() + in.size(), &sum, sizeof sum);
  return in.size() + sizeof sum;
}

std::optional<std::size_t> decode_crc32c(std::span<const std::byte> in, Buffer& out) {
  std::uint32_t sum = 0;
  if (in.size() < sizeof sum) return std::nullopt;
  const auto data = in.first(in.size() - sizeof sum);
  std::memcpy(&sum, in.data() + data.size(), sizeof sum);
  if (sum != crc32c_of(data)) return std::nullopt;
  out.reserve(in.size());
  std::memcpy(out.data(), data.data(), data.size());
  return data.size();
}

std::optional<std::size_t> decode_gzip(std::span<const std::byte> in, Buffer& out, std::size_t bytes) {
  struct Free {
    void operator()(libdeflate_decompressor* d) const noexcept { libdeflate_free_decompressor(d); }
  };
  thread_local std::unique_ptr<libdeflate_decompressor, Free> decompressor(libdeflate_alloc_decompressor());
  if (!decompressor) throw std::bad_alloc();
  out.reserve(std::max<std::size_t>(bytes, 1));
  std::size_t n = 0;
  if (libdeflate_gzip_decompress(decompressor.get(), in.data(), in.size(), out.data(), bytes, &n) != LIBDEFLATE_SUCCESS)
    return std::nullopt;
  return n;
}

/// Blosc's own frame around one block that our faster compressors make. Its first bytes: version of the format, of the
/// compressor's format, flags, size of an element; then the bytes of the data, of a block and of the frame; then where
/// each block begins. A block is its length and what the compressor made of its shuffled bytes.
std::optional<std::size_t> encode_blosc_frame(const EncodeStage& stage, const EncodePipeline& p,
                                              std::span<const std::byte> in, Buffer& out) {
  constexpr std::size_t header = 16, before = header + 8;
  constexpr std::uint32_t one_block = 0x10, as_it_is = 0x02, shuffled = 0x01;
  thread_local Buffer shuffle, packed;
  if (in.size() > BLOSC_MAX_BUFFERSIZE) return std::nullopt;
  const auto compressor = parameter(stage, 0, BLOSC_ZLIB), asked = parameter(stage, 1, 1);
  const bool shuffles = parameter(stage, 2, 1) != 0 && p.element > 1 && in.size() >= p.element;
  auto from = in;
  if (shuffles) {
    shuffle.reserve(in.size());
    const auto elements = in.size() / p.element;
    byte_shuffle(in.data(), elements, p.element, shuffle.data());
    const auto tail = elements * p.element;
    std::memcpy(shuffle.data() + tail, in.data() + tail, in.size() - tail);
    from = shuffle.first(in.size());
  }
  std::optional<std::size_t> n;
  std::uint32_t format = 0;
  switch (compressor) {
    case BLOSC_ZLIB:
      format = 3;
      if (asked > 0 || p.level) n = encode_deflate({filter_id::deflate, false, {asked}}, p, from, packed);
      break;
    case BLOSC_ZSTD:
      format = 4;
      n = encode_zstd(std::clamp(p.level.value_or(static_cast<int>(asked)), ZSTD_minCLevel(), ZSTD_maxCLevel()), from,
                      packed);
      break;
    case BLOSC_LZ4: {
      format = 1;
      packed.reserve(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(from.size()))));
      const auto made = LZ4_compress_default(reinterpret_cast<const char*>(from.data()),
                                             reinterpret_cast<char*>(packed.data()), static_cast<int>(from.size()),
                                             static_cast<int>(std::min<std::size_t>(packed.capacity(), INT32_MAX)));
      if (made > 0) n = static_cast<std::size_t>(made);
      break;
    }
    default: return std::nullopt;
  }
  const bool shorter = n && *n + 8 < in.size();
  const auto bytes = static_cast<std::uint32_t>(in.size());
  const auto whole = static_cast<std::uint32_t>(shorter ? before + *n : header + in.size());
  out.reserve(whole);
  auto* to = out.data();
  to[0] = std::byte{2};
  to[1] = std::byte{1};
  to[2] = static_cast<std::byte>(format << 5 | one_block | (shorter ? 0 : as_it_is) | (shuffles ? shuffled : 0));
  to[3] = static_cast<std::byte>(p.element);
  std::memcpy(to + 4, &bytes, 4);
  std::memcpy(to + 8, &bytes, 4);
  std::memcpy(to + 12, &whole, 4);
  if (!shorter) {
    std::memcpy(to + header, in.data(), in.size());
    return whole;
  }
  const auto begins = static_cast<std::uint32_t>(header + 4), length = static_cast<std::uint32_t>(*n);
  std::memcpy(to + header, &begins, 4);
  std::memcpy(to + header + 4, &length, 4);
  std::memcpy(to + before, packed.data(), *n);
  return whole;
}

}  // namespace

std::uint32_t crc32c_of(std::span<const std::byte> data) noexcept {
  std::uint32_t sum = ~0U;
  while (!data.empty()) {
    const auto n = std::min<std::size_t>(data.size(), 1U << 30);
    // Never changed, whatever its declaration says.
    sum =
        ::crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data())), static_cast<int>(n), sum);
    data = data.subspan(n);
  }
  clean_vector_registers();
  return ~sum;
}

bool decode(const EncodePipeline& pipeline, std::span<const std::byte> in, std::span<std::byte> to) {
  thread_local Buffer a, b;
  auto current = in;
  auto* next = &a;
  for (auto stage = pipeline.stages.rbegin(); stage != pipeline.stages.rend(); ++stage) {
    const auto n = decode_stage(*stage, current, *next, to.size());
    if (!n) return false;
    current = next->first(*n);
    next = next == &a ? &b : &a;
  }
  if (current.size() != to.size()) return false;
  std::memcpy(to.data(), current.data(), to.size());
  return true;
}

bool can_encode(std::uint32_t filter) noexcept {
  switch (filter) {
    case zarr_codec::gzip:
    case zarr_codec::crc32c:
    case zarr_codec::blosc:
    case filter_id::deflate:
    case filter_id::shuffle:
    case filter_id::szip:
    case filter_id::blosc:
    case filter_id::lz4:
    case filter_id::bitshuffle:
    case filter_id::zstd: return true;
    default: return false;
  }
}

void byte_shuffle(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out) noexcept {
  if (elements == 0) return;
  switch (element) {
    case 1: std::memcpy(out, in, elements); return;
    case 2: shuffle_fixed<2>(in, elements, out); return;
    case 4:
#if defined(__x86_64__)
      if (has_avx2()) return shuffle4_avx2(in, elements, out);
#endif
      break;
    default: break;
  }
  shuffle_plain(in, elements, element, out);
}

void bit_shuffle(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out, Buffer& spare) {
  spare.reserve(elements * element);
  byte_shuffle(in, elements, element, spare.data());
  for (std::size_t b = 0; b < element; ++b) bits_of_plane(spare.data() + b * elements, elements, out + b * elements);
}

void bit_unshuffle(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out, Buffer& spare) {
  spare.reserve(elements * element);
  for (std::size_t b = 0; b < element; ++b) plane_of_bits(in + b * elements, elements, spare.data() + b * elements);
  for (std::size_t b = 0; b < element; ++b)
    for (std::size_t i = 0; i < elements; ++i) out[i * element + b] = spare.data()[b * elements + i];
}

void swap_bytes(std::byte* data, std::size_t elements, std::size_t element) noexcept {
  const auto all = [&]<typename T>(T) {
    for (std::size_t i = 0; i < elements; ++i) {
      T x{};
      std::memcpy(&x, data + i * sizeof x, sizeof x);
      if constexpr (sizeof x == 2) x = __builtin_bswap16(x);
      if constexpr (sizeof x == 4) x = __builtin_bswap32(x);
      if constexpr (sizeof x == 8) x = __builtin_bswap64(x);
      std::memcpy(data + i * sizeof x, &x, sizeof x);
    }
  };
  switch (element) {
    case 2: all(std::uint16_t{}); break;
    case 4: all(std::uint32_t{}); break;
    case 8: all(std::uint64_t{}); break;
    default: break;
  }
}

std::optional<std::size_t> encode_stage(const EncodeStage& stage, const EncodePipeline& pipeline,
                                        std::span<const std::byte> in, Buffer& out) {
  switch (stage.id) {
    case filter_id::shuffle: {
      const std::size_t element = std::max(parameter(stage, 0, static_cast<unsigned>(pipeline.element)), 1U);
      const auto elements = in.size() / element;
      out.reserve(in.size());
      byte_shuffle(in.data(), elements, element, out.data());
      const auto tail = in.size() - elements * element;
      std::memcpy(out.data() + in.size() - tail, in.data() + in.size() - tail, tail);
      return in.size();
    }
    case filter_id::deflate: return encode_deflate(stage, pipeline, in, out);
    case filter_id::zstd: return encode_zstd(zstd_level(stage, 0, pipeline.level), in, out);
    case filter_id::lz4: return encode_lz4(stage, in, out);
    case filter_id::blosc: return encode_blosc(stage, pipeline, in, out);
    case filter_id::bitshuffle: return encode_bitshuffle(stage, pipeline, in, out);
    case filter_id::szip: return encode_szip(stage, in, out);
    case zarr_codec::gzip: return encode_deflate(stage, pipeline, in, out, Wrapper::gzip);
    case zarr_codec::crc32c: return encode_crc32c(in, out);
    case zarr_codec::blosc: return encode_blosc_frame(stage, pipeline, in, out);
    default: return std::nullopt;
  }
}

std::optional<std::size_t> decode_stage(const EncodeStage& stage, std::span<const std::byte> in, Buffer& out,
                                        std::size_t bytes_hint) {
  if (in.empty()) return std::nullopt;
  switch (stage.id) {
    case filter_id::zstd: {
      const auto said = ZSTD_getFrameContentSize(in.data(), in.size());
      if (said == ZSTD_CONTENTSIZE_ERROR) return std::nullopt;
      const auto bytes = said == ZSTD_CONTENTSIZE_UNKNOWN ? bytes_hint : static_cast<std::size_t>(said);
      if (bytes > std::uint64_t{1} << 32 || bytes / zstd_shrinks_max > in.size())
        return std::nullopt;  // no chunk is larger
      out.reserve(std::max<std::size_t>(bytes, 1));
      const auto n = ZSTD_decompress(out.data(), bytes, in.data(), in.size());
      if (ZSTD_isError(n) != 0) return std::nullopt;
      return n;
    }
    case filter_id::lz4: return decode_lz4(in, out);
    case filter_id::blosc: return decode_blosc(in, out);
    case filter_id::bitshuffle: return decode_bitshuffle(stage, in, out);
    case zarr_codec::gzip: return decode_gzip(in, out, bytes_hint);
    case zarr_codec::crc32c: return decode_crc32c(in, out);
    case zarr_codec::blosc: return decode_blosc(in, out);
    default: return std::nullopt;
  }
}

Result<Encoded> encode(const EncodePipeline& pipeline, std::span<const std::byte> in, Buffer& out, Buffer& spare) {
  Encoded result;
  auto current = in;
  bool in_out = false;  // `current` lies in `out`
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    Buffer& to = in_out ? spare : out;
    const auto n = encode_stage(pipeline.stages[i], pipeline, current, to);
    if (!n) {
      if (!pipeline.stages[i].optional)
        return Error{Code::io,
                     "filter " + std::to_string(pipeline.stages[i].id) + " failed on a chunk of " +
                         std::to_string(in.size()) + " bytes",
                     0};
      result.mask |= 1U << i;
      continue;
    }
    current = to.first(*n);
    in_out = &to == &out;
  }
  if (current.data() == in.data()) {
    out.reserve(in.size());
    std::memcpy(out.data(), in.data(), in.size());
  } else if (!in_out) {
    std::swap(out, spare);
  }
  result.bytes = current.size();
  return result;
}

std::size_t encoded_bytes_max(const EncodePipeline& pipeline, std::size_t bytes) noexcept {
  return pipeline.stages.empty() ? bytes : bytes + bytes / 64 + 8192;
}

}  // namespace advectio
