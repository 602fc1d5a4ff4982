// One array of a Zarr store: what its metadata say of the bytes, and the bytes themselves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/buffer.h"
#include "core/bytes.h"
#include "core/result.h"
#include "core/schema.h"
#include "core/types.h"
#include "platform/files.h"
#include "sinks/chunks/codec.h"

namespace advectio::zarr {

/// Keeps the order of its keys.
using Json = nlohmann::ordered_json;

/// From an array's elements to a chunk's bytes.
struct Chain {
  bool big_endian = false;
  bool texts = false;               ///< vlen-utf8
  std::vector<EncodeStage> stages;  ///< in the order in which they were applied
  std::vector<Filter> filters;      ///< the same for the schema, as HDF5 would have it
};

/// How one data type lies in memory.
struct Element {
  DataType type = DataType::none;
  std::size_t bytes = 0;  ///< of one element in a chunk; 0: of variable length
  bool letters = false;   ///< fixed_length_utf32
  bool is_bool = false;
  /// Bytes of one number or character; what byte order is about.
  std::size_t word = 1;
};

class Array {
 public:
  /// `directory`: where its chunks are. Errors: Code::unsupported, corrupt; without the array's name.
  static Result<Array> parse(const Json& metadata, std::string directory);

  [[nodiscard]] const Element& element() const noexcept { return element_; }
  [[nodiscard]] const std::vector<std::uint64_t>& shape() const noexcept { return shape_; }
  /// Lengths of the chunks that are decoded at once.
  [[nodiscard]] const std::vector<std::uint64_t>& chunk() const noexcept { return chunk_; }
  [[nodiscard]] const Chain& chain() const noexcept { return chain_; }
  /// One element of the fill value, as it lies in a chunk.
  [[nodiscard]] const Bytes& fill() const noexcept { return fill_; }
  [[nodiscard]] const std::string& fill_text() const noexcept { return fill_text_; }

  /// The elements of a box that lies within the shape, dense, in native byte order. Not of variable length.
  Result<void> read(const Box& box, std::byte* to);
  /// The same of texts, in any of the two ways to have them.
  Result<std::vector<std::string>> read_texts(const Box& box);

 private:
  struct Shard {
    std::unique_ptr<File> file;  ///< null: it is not there
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> index;  ///< offset and length of each chunk
  };

  [[nodiscard]] std::string path_of(std::span<const std::uint64_t> place) const;
  Result<Shard*> shard_at(const std::vector<std::uint64_t>& place);
  /// What the file has of the chunk, to `raw_`. False: nobody has written it.
  Result<bool> fetch(const std::vector<std::uint64_t>& start);
  /// The chunk's elements; empty: nobody has written it.
  Result<std::span<const std::byte>> decoded(const std::vector<std::uint64_t>& start);
  /// Calls `take` with the box of each chunk that `box` meets.
  template <typename Take>
  Result<void> for_each_chunk(const Box& box, const Take& take) const;

  std::string directory_;
  Element element_;
  std::vector<std::uint64_t> shape_, grid_, chunk_;
  Chain chain_;
  bool v2_keys_ = false;
  char separator_ = '/';
  // Of a sharded array:
  bool sharded_ = false, index_at_end_ = true, index_checked_ = true;
  Bytes fill_;
  std::string fill_text_;
  std::map<std::vector<std::uint64_t>, Shard> shards_;  ///< those used last
  Bytes raw_;                                           ///< a chunk as it is in the file
  Buffer one_, other_;                                  ///< on its way through the codecs
};

/// A value of JSON as an element of this type; nullopt: it is none. Floating-point numbers that are not finite have
/// names, or their bits in hexadecimal digits.
std::optional<Bytes> value_of(const Json& value, DataType type);

std::optional<Bytes> from_base64(const std::string& text);

}  // namespace advectio::zarr
