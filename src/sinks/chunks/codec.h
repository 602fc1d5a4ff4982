// The filters of HDF5 and the codecs of Zarr, on any thread: bytes of a chunk in, bytes of the file out.
// HDF5's have the formats registered with The HDF Group, so that every reader that has the filter can read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/result.h"
#include "core/types.h"

namespace advectio {

/// Who makes deflate streams. Both make ordinary ones.
enum class DeflateMaker : std::uint8_t {
  isal,        ///< fast: about zlib level 1 in size at seven times its speed
  libdeflate,  ///< small: levels 0 … 12
};

/// Codecs of Zarr, beyond the numbers that HDF5 gives to filters.
namespace zarr_codec {
inline constexpr std::uint32_t gzip = 0x10001,  ///< parameters: level, as deflate has it
    crc32c = 0x10002,                           ///< four bytes at the end, little-endian
    blosc =
        0x10003;  ///< a Blosc frame of one block; parameters: compressor (4 zlib, 5 zstd, 1 lz4), level, shuffle 0 or 1
}  // namespace zarr_codec

/// One filter as a data set carries it: parameters after HDF5 has completed them (set_local).
struct EncodeStage {
  std::uint32_t id = 0;
  bool optional = false;  ///< a chunk that the filter cannot shorten is kept as it is, and its mask says so
  std::vector<std::uint32_t> parameters;
};

struct EncodePipeline {
  std::vector<EncodeStage> stages;
  std::size_t element = 1;  ///< bytes
  DeflateMaker deflate = DeflateMaker::isal;
  std::optional<int> level;  ///< instead of the asked one, on the codec's own scale (isal 0 … 3)
};

/// True for the filters that `encode` knows.
bool can_encode(std::uint32_t filter) noexcept;

struct Encoded {
  std::size_t bytes = 0;   ///< in `out`
  std::uint32_t mask = 0;  ///< bit i: stage i was left out
};

/// Run all stages over `in`. The result is in `out`; `spare` is used on the way. `in` is not changed.
Result<Encoded> encode(const EncodePipeline& pipeline, std::span<const std::byte> in, Buffer& out, Buffer& spare);

/// Most bytes `encode` can make of `bytes`, for accounting.
std::size_t encoded_bytes_max(const EncodePipeline& pipeline, std::size_t bytes) noexcept;

/// One stage alone. nullopt: the filter cannot do it (szip that would grow, for example).
std::optional<std::size_t> encode_stage(const EncodeStage& stage, const EncodePipeline& pipeline,
                                        std::span<const std::byte> in, Buffer& out);
/// The way back of blosc, lz4, bitshuffle, zstd and Zarr's codecs (HDF5 has the others). Never trusts `in`.
/// `bytes_hint`: what the caller expects to come out, where the format does not say.
std::optional<std::size_t> decode_stage(const EncodeStage& stage, std::span<const std::byte> in, Buffer& out,
                                        std::size_t bytes_hint);

/// The way back through all stages, to exactly `to.size()` bytes. False: `in` is not what `encode` makes of so many.
bool decode(const EncodePipeline& pipeline, std::span<const std::byte> in, std::span<std::byte> to);

/// CRC-32C as files have it (Castagnoli, inverted).
std::uint32_t crc32c_of(std::span<const std::byte> data) noexcept;

/// All first bytes of the elements, then all second ones, …
void byte_shuffle(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out) noexcept;

/// Rows of bits instead of bytes: bit k of byte b of all elements lie together. `elements` is a multiple of 8.
void bit_shuffle(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out, Buffer& spare);
void bit_unshuffle(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out, Buffer& spare);

void swap_bytes(std::byte* data, std::size_t elements, std::size_t element) noexcept;

}  // namespace advectio
