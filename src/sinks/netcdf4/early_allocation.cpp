#include "sinks/netcdf4/early_allocation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sinks/netcdf4/hdf5.h"

namespace advectio {

namespace {

// ---- chunks ----

struct Shape {
  std::vector<hsize_t> extent, chunk;
  [[nodiscard]] hsize_t chunks() const {
    hsize_t n = 1;
    for (std::size_t i = 0; i < extent.size(); ++i) n *= (extent[i] + chunk[i] - 1) / chunk[i];
    return n;
  }
  [[nodiscard]] hsize_t chunk_elements() const {
    hsize_t n = 1;
    for (const auto c : chunk) n *= c;
    return n;
  }
  /// The next chunk in row-major order; false behind the last.
  [[nodiscard]] bool next(std::vector<hsize_t>& start) const {
    for (auto i = extent.size(); i > 0; --i) {
      start[i - 1] += chunk[i - 1];
      if (start[i - 1] < extent[i - 1]) return true;
      start[i - 1] = 0;
    }
    return false;
  }
};

/// A chunk of fill values, in the file's byte order. Zeros where the data set has none.
Result<std::vector<std::byte>> chunk_of_fill(hid_t creation, hid_t type, const Shape& shape) {
  const auto element = H5Tget_size(type), elements = static_cast<std::size_t>(shape.chunk_elements());
  std::vector<std::byte> chunk(element * elements);
  H5D_fill_value_t defined = H5D_FILL_VALUE_UNDEFINED;
  ADVECTIO_HDF5(H5Pfill_value_defined(creation, &defined), "look for the fill value");
  if (defined != H5D_FILL_VALUE_USER_DEFINED) return chunk;
  ADVECTIO_HDF5(H5Pget_fill_value(creation, type, chunk.data()), "read the fill value");
  for (std::size_t done = 1; done < elements;) {
    const auto more = std::min(done, elements - done);
    std::memcpy(chunk.data() + done * element, chunk.data(), more * element);
    done += more;
  }
  return chunk;
}

/// Goes down HDF5's tree once.
Result<bool> has_chunk(hid_t dataset, const std::vector<hsize_t>& start) {
  hsize_t bytes = 0;
  if (H5Dget_chunk_storage_size(dataset, start.data(), &bytes) >= 0) return bytes > 0;
  auto error = hdf5_error("look for a chunk");
  // HDF5 has no number of its own for this.
  if (error.message.find("chunk storage is not allocated") != std::string::npos) return false;
  return error;
}

Result<void> write_by_hdf5(hid_t dataset, hid_t type, const Shape& shape, const std::vector<hsize_t>& start,
                           const std::vector<std::byte>& chunk) {
  auto count = shape.chunk;
  for (std::size_t i = 0; i < count.size(); ++i) count[i] = std::min(count[i], shape.extent[i] - start[i]);
  const Hdf5Id memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), H5Sclose);
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
  ADVECTIO_HDF5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), "fill");
  ADVECTIO_HDF5(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, chunk.data()), "fill");
  return {};
}

// ---- the object header ----
// HDF5 File Format Specification, version 3.0: IV.A.1.b (object headers of version 2), IV.A.2.f (fill
// value message) and IV.A.2.q (continuation blocks). Numbers are little-endian. Addresses and lengths
// have 8 bytes in our files.

constexpr std::uint8_t message_fill = 0x05, message_continuation = 0x10, flag_shared = 0x02;
constexpr std::uint8_t allocate_early = 1;
constexpr std::uint64_t checksum_bytes = 4;

std::uint64_t number(std::span<const std::byte> from, std::size_t at, std::size_t bytes) {
  std::uint64_t n = 0;
  for (std::size_t i = bytes; i > 0; --i) n = n << 8U | std::to_integer<std::uint64_t>(from[at + i - 1]);
  return n;
}

/// HDF5's checksum of metadata: Bob Jenkins' lookup3.
std::uint32_t lookup3(std::span<const std::byte> key) {
  auto a = 0xdeadbeefU + static_cast<std::uint32_t>(key.size()), b = a, c = a;
  if (key.empty()) return c;
  const auto take = [&] {
    std::array<std::byte, 12> part{};
    std::copy_n(key.begin(), std::min(key.size(), part.size()), part.begin());
    a += static_cast<std::uint32_t>(number(part, 0, 4));
    b += static_cast<std::uint32_t>(number(part, 4, 4));
    c += static_cast<std::uint32_t>(number(part, 8, 4));
  };
  for (; key.size() > 12; key = key.subspan(12)) {
    take();
    a = (a - c) ^ std::rotl(c, 4), c += b;
    b = (b - a) ^ std::rotl(a, 6), a += c;
    c = (c - b) ^ std::rotl(b, 8), b += a;
    a = (a - c) ^ std::rotl(c, 16), c += b;
    b = (b - a) ^ std::rotl(a, 19), a += c;
    c = (c - b) ^ std::rotl(b, 4), b += a;
  }
  take();
  c = (c ^ b) - std::rotl(b, 14);
  a = (a ^ c) - std::rotl(c, 11);
  b = (b ^ a) - std::rotl(a, 25);
  c = (c ^ b) - std::rotl(b, 16);
  a = (a ^ c) - std::rotl(c, 4);
  b = (b ^ a) - std::rotl(a, 14);
  c = (c ^ b) - std::rotl(b, 24);
  return c;
}

Error not_understood(const std::string& what) {
  return Error{Code::corrupt, "HDF5 has made an object header that this sink does not understand: " + what, 0};
}

/// One block of messages, from its signature to its checksum.
struct HeaderBlock {
  std::uint64_t address = 0;
  std::vector<std::byte> bytes;
  std::size_t messages = 0;  // where they begin

  [[nodiscard]] std::size_t end() const { return bytes.size() - checksum_bytes; }
  Result<void> read(CrashSafeFile& file, std::uint64_t at, std::uint64_t length, std::string_view signature) {
    address = at;
    bytes.resize(length);
    ADVECTIO_TRY(file.read(at, bytes));
    if (length < messages + checksum_bytes || std::memcmp(bytes.data(), signature.data(), signature.size()) != 0)
      return not_understood("no " + std::string(signature));
    if (number(bytes, end(), checksum_bytes) != lookup3(std::span(bytes).first(end())))
      return not_understood("checksum");
    return {};
  }
  Result<void> write(CrashSafeFile& file) {
    const auto sum = lookup3(std::span(bytes).first(end()));
    for (std::size_t i = 0; i < checksum_bytes; ++i) bytes[end() + i] = static_cast<std::byte>(sum >> (8 * i));
    file.write(address, bytes, CrashSafeFile::Kind::metadata);
    return {};
  }
};

}  // namespace

Result<void> allocate_all_chunks(hid_t dataset, const std::string& name, const ChunkedVariable* how,
                                 CrashSafeFile& file) {
  const Hdf5Id creation(H5Dget_create_plist(dataset), H5Pclose), space(H5Dget_space(dataset), H5Sclose);
  const Hdf5Id type(H5Dget_type(dataset), H5Tclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  ADVECTIO_HDF5(rank, "look at " + name);
  // Parallel HDF5 cannot write strings at all.
  if (H5Pget_layout(creation) != H5D_CHUNKED || H5Tis_variable_str(type) > 0) return {};
  Shape shape;
  shape.extent.resize(static_cast<std::size_t>(rank));
  shape.chunk.resize(static_cast<std::size_t>(rank));
  ADVECTIO_HDF5(H5Sget_simple_extent_dims(space, shape.extent.data(), nullptr), "look at " + name);
  ADVECTIO_HDF5(H5Pget_chunk(creation, rank, shape.chunk.data()), "look at " + name);
  hsize_t there = 0;
  ADVECTIO_HDF5(H5Dget_num_chunks(dataset, space, &there), "count the chunks of " + name);
  auto missing = shape.chunks() - there;
  if (missing == 0) return {};

  auto filled = chunk_of_fill(creation, type, shape);
  if (!filled) return std::move(filled).error().with(name);
  Buffer encoded, spare;
  std::span<const std::byte> bytes = *filled;
  std::uint32_t mask = 0;
  if (how != nullptr && !how->pipeline.stages.empty()) {
    const auto made = encode(how->pipeline, *filled, encoded, spare);
    if (!made) return Error(made.error()).with(name);
    bytes = {encoded.data(), made->bytes};
    mask = made->mask;
  }
  H5D_fill_time_t when = H5D_FILL_TIME_IFSET;
  ADVECTIO_HDF5(H5Pget_fill_time(creation, &when), "look at " + name);
  // What is not to be filled need not be written.
  const CrashSafeFile::Holes holes(file, when == H5D_FILL_TIME_NEVER && H5Pget_nfilters(creation) == 0);
  std::vector<hsize_t> start(static_cast<std::size_t>(rank), 0);
  do {
    const auto has = has_chunk(dataset, start);
    if (!has) return Error(has.error()).with(name);
    if (*has) continue;
    if (how != nullptr)
      ADVECTIO_HDF5(H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, start.data(), bytes.size(), bytes.data()),
                    "fill a chunk of " + name);
    else
      ADVECTIO_TRY_WITH(write_by_hdf5(dataset, type, shape, start, *filled), name);
    --missing;
  } while (missing > 0 && shape.next(start));
  return {};
}

Result<std::uint64_t> header_address(hid_t object) {
#if H5_VERSION_GE(1, 12, 0)
  H5O_info1_t info{};
#else
  H5O_info_t info{};
#endif
  ADVECTIO_HDF5(H5Oget_info2(object, &info, H5O_INFO_BASIC), "find an object header");
  return info.addr;
}

Result<void> note_early_allocation(CrashSafeFile& file, std::uint64_t address) {
  // Signature, version, flags; then times and counts of attributes, if the flags say so; then the
  // length of the messages.
  std::array<std::byte, 34> prefix{};
  ADVECTIO_TRY(file.read(address, prefix));
  const auto flags = std::to_integer<unsigned>(prefix[5]);
  if (prefix[4] != std::byte{2}) return not_understood("version");
  const std::size_t length_at = 6 + ((flags & 0x20U) != 0 ? 16U : 0U) + ((flags & 0x10U) != 0 ? 4U : 0U);
  const std::size_t length_bytes = std::size_t{1} << (flags & 3U);
  const std::size_t message_prefix = (flags & 0x04U) != 0 ? 6 : 4;

  HeaderBlock block;
  block.messages = length_at + length_bytes;
  ADVECTIO_TRY(
      block.read(file, address, block.messages + number(prefix, length_at, length_bytes) + checksum_bytes, "OHDR"));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> more;  // where other blocks are, and their lengths
  for (;;) {
    for (auto at = block.messages; at + message_prefix <= block.end();) {
      const auto type = std::to_integer<std::uint8_t>(block.bytes[at]);
      const auto bytes = number(block.bytes, at + 1, 2);
      const auto data = at + message_prefix;
      if (data + bytes > block.end()) return not_understood("length of a message");
      if (type == message_continuation && bytes >= 16)
        more.emplace_back(number(block.bytes, data, 8), number(block.bytes, data + 8, 8));
      if (type == message_fill) {
        if (bytes < 2 || (block.bytes[at + 3] & std::byte{flag_shared}) != std::byte{0})
          return not_understood("fill value");
        auto& when = block.bytes[data + 1];
        // Version 2 has a byte for it, version 3 two bits of one.
        if (block.bytes[data] == std::byte{2})
          when = std::byte{allocate_early};
        else if (block.bytes[data] == std::byte{3})
          when = (when & ~std::byte{3}) | std::byte{allocate_early};
        else
          return not_understood("version of the fill value");
        return block.write(file);
      }
      at = data + bytes;
    }
    if (more.empty()) return not_understood("no fill value");
    const auto [next, length] = more.back();
    more.pop_back();
    block.messages = 4;
    ADVECTIO_TRY(block.read(file, next, length, "OCHK"));
  }
}

}  // namespace advectio
