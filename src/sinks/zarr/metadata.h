// What a Zarr store says of itself, in JSON: variables as arrays, attributes, codecs.
//
// All that says how an array's bytes lie (`data_type`, `chunk_grid`, `chunk_key_encoding`,
// `codecs`, `fill_value`) is chosen when the array is created and never changes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "sinks/chunks/chunk_assembly.h"

namespace advectio::zarr {

/// Keeps the order of its keys: the arrays of a store stand in the order of the schema's variables.
using Json = nlohmann::ordered_json;

/// How the bytes of one array lie.
struct Form {
  std::vector<std::uint64_t> chunk;  ///< lengths of an inner chunk, in elements
  /// Lengths of a shard, in chunks. Empty: the array has no dimensions and no shards.
  std::vector<std::uint64_t> shard;
  bool text = false;  ///< strings (vlen-utf8)
  bool swap = false;  ///< the file's byte order is not ours
  EncodePipeline pipeline;

  /// Inner chunks of a shard.
  [[nodiscard]] std::uint64_t chunks() const noexcept {
    std::uint64_t n = 1;
    for (const auto s : shard) n *= s;
    return n;
  }
};

/// An array's metadata for a variable that is new. Errors: Code::unsupported where the variable has
/// more dimensions than a chunk assembly takes, a name that the store needs itself, or a filter
/// that Zarr has no codec for.
Result<Json> new_array(const Schema& schema, const Variable& variable);

/// `array` with the names and attributes that the schema has now, and this shape.
void describe(Json& array, const Schema& schema, const Variable& variable, const std::vector<std::uint64_t>& shape);

/// What `new_array` has made of a variable, read back. Errors: Code::corrupt where it is not that.
Result<Form> form_of(const Json& array, DataType type);

/// Attributes as readers of Zarr and xarray expect them. `type`: of the variable; none: global
/// ones.
Json attributes_of(const std::vector<Attribute>& attributes, DataType type);

/// The type of an attribute that JSON has as this: text, int32, int64, float64, string; none: JSON of
/// another kind. What netCDF had may have been another one.
DataType attribute_type(const Json& value);

/// The store's root: a group with the metadata of all its arrays. Beside the arrays it has words that
/// only we know: which dataset it is of (`dataset`), and what Zarr does not keep of netCDF. These are
/// all dimensions (`dimensions`, with their `lengths`), those that may grow (`unlimited_dimensions`),
/// and types of attributes that are not what `attribute_type` says (`attribute_types`: by array, by
/// name; the array "" is the group; "char+2" is a text with two NULs at its end).
Json root_of(const Schema& schema, const std::vector<std::uint64_t>& lengths, Json arrays, const std::string& owner);

/// As it goes into a file. Bytes of texts that are not UTF-8 are replaced (U+FFFD).
std::string text_of(const Json& json);

}  // namespace advectio::zarr
