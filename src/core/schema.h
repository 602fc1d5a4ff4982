// What a dataset is made of: dimensions, variables, attributes, and how they are to be stored. The whole schema
// travels in one journal record whenever it has changed; it only ever grows or has attributes changed and names
// renamed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/result.h"
#include "core/types.h"

namespace advectio {

struct Dimension {
  std::string name;
  std::uint64_t length = 0;  ///< fixed length; 0 for an unlimited dimension, whose length follows from the blocks
  bool unlimited = false;
  bool operator==(const Dimension&) const = default;
};

/// One attribute. Numbers and text are kept as native bytes in `values`; strings in `strings`.
struct Attribute {
  std::string name;
  DataType type = DataType::none;
  std::uint64_t count = 0;      ///< elements: characters for text, strings for string
  Bytes values;                 ///< count × size_of(type) bytes; empty for string
  std::vector<String> strings;  ///< only for DataType::string
  bool operator==(const Attribute&) const = default;
};

/// One HDF5 filter of the pipeline the program asked for, in order; ids as registered with The HDF Group.
struct Filter {
  std::uint32_t id = 0;
  std::vector<std::uint32_t> parameters;
  bool operator==(const Filter&) const = default;
};

namespace filter_id {
inline constexpr std::uint32_t deflate = 1, shuffle = 2, fletcher32 = 3, szip = 4, blosc = 32001, lz4 = 32004,
                               bitshuffle = 32008, zstd = 32015;
}

enum class Endian : std::uint8_t { native = 0, little = 1, big = 2 };

struct Variable {
  std::string name;
  DataType type = DataType::none;
  std::vector<std::uint32_t> dimensions;  ///< indices into Schema::dimensions, slowest first
  std::vector<Attribute> attributes;      ///< in the order of their numbers; `_FillValue` included where it was set
  bool contiguous = true;                 ///< HDF5 layout; chunked otherwise
  bool compact = false;                   ///< HDF5 compact layout (implies not chunked)
  std::vector<std::uint64_t> chunks;      ///< one per dimension where chunked
  std::vector<Filter> filters;            ///< applied in this order when writing
  Endian endian = Endian::native;
  bool no_fill = false;  ///< unwritten elements are left undefined
  Bytes fill;            ///< the fill value's bytes where one is in force and is not netCDF's default; else empty
  String fill_text = std::string();  ///< the same for DataType::string
  bool has_fill = false;  ///< `fill`/`fill_text` was set by the program (then `_FillValue` stands among the attributes)
  std::uint32_t round_bits = 0;  ///< significant bits of mantissa to keep (BitRound); 0: lossless
  bool operator==(const Variable&) const = default;
};

/// A chunk as a file stores it: what the filters have made of it.
struct StoredChunk {
  std::uint64_t bytes = 0;
  std::uint32_t mask = 0;  ///< bit i: filter i was left out
  bool operator==(const StoredChunk&) const = default;
};

/// True when files with these variables, both of an HDF5 format, store the same values in the same bytes: their chunks
/// can be copied as they are. Never with szip: HDF5 leaves it out of some variables.
bool stored_alike(const Variable& a, const Variable& b) noexcept;

struct Schema {
  FileFormat format = FileFormat::netcdf4;
  std::vector<Dimension> dimensions;
  std::vector<Variable> variables;
  std::vector<Attribute> attributes;  ///< global
  /// Classic formats: alignment and padding as given to nc__enddef (0: library default).
  std::uint64_t header_pad = 0, data_align = 0, data_pad = 0, record_align = 0;
  bool operator==(const Schema&) const = default;
};

Bytes encode(const Schema& schema);
/// Errors: Code::corrupt when the bytes are not a whole, consistent schema (dimension indices in range,
/// chunk and attribute lengths that fit).
Result<Schema> decode_schema(std::span<const std::byte> bytes);

/// Bytes of one frame: one step along each unlimited dimension of every variable (strings count 16 bytes each).
std::uint64_t frame_bytes(const Schema& schema) noexcept;

/// netCDF's default fill value of a type (netcdf.h, NC_FILL_*), as native bytes; empty for string.
Bytes default_fill(DataType type);

}  // namespace advectio
