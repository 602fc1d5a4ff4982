#include "sinks/zarr/metadata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

namespace advectio::zarr {

namespace {

/// Bytes of a shard before compression, and chunks in it. An index of 255 chunks fits into one
/// page, which changes in one piece. More are taken only where one record has more.
constexpr std::uint64_t shard_bytes_max = std::uint64_t{1} << 30, chunks_max = 255, chunks_of_record_max = 4096;
/// Bytes of a chunk, where the program names none. As default_chunks (server/stored_schema.h) has it.
constexpr std::uint64_t chunk_bytes_max = std::uint64_t{4} << 20;
/// What one Blosc frame can hold.
constexpr std::uint64_t blosc_bytes_max = INT32_MAX - 16;

Error cannot(const Variable& v, const std::string& why) {
  return Error{Code::unsupported, "variable " + v.name + " " + why, 0};
}

Json type_of(DataType type) {
  switch (type) {
    case DataType::int8: return "int8";
    case DataType::int16: return "int16";
    case DataType::int32: return "int32";
    case DataType::int64: return "int64";
    case DataType::uint8: return "uint8";
    case DataType::uint16: return "uint16";
    case DataType::uint32: return "uint32";
    case DataType::uint64: return "uint64";
    case DataType::float32: return "float32";
    case DataType::float64: return "float64";
    case DataType::text: return {{"name", "null_terminated_bytes"}, {"configuration", {{"length_bytes", 1}}}};
    case DataType::string:
    case DataType::none: break;
  }
  return "string";
}

template <typename T>
T value_at(const Bytes& bytes, std::size_t i) {
  T value{};
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

std::string base64(std::span<const std::byte> bytes) {
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < n ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? digits[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

/// JSON has no such numbers; Zarr has names for them, and hexadecimal digits for a NaN that is not
/// the usual one.
Json not_finite(double value, std::uint64_t bits, std::uint64_t usual, int digits) {
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (bits == usual) return "NaN";
  std::string hex(static_cast<std::size_t>(digits), '0');
  for (auto c = hex.rbegin(); c != hex.rend(); ++c, bits >>= 4) *c = "0123456789abcdef"[bits & 15];
  return "0x" + hex;
}

/// One value of `bytes`, as Zarr has it for a fill value.
Json number_at(DataType type, const Bytes& bytes, std::size_t i) {
  switch (type) {
    case DataType::int8: return value_at<std::int8_t>(bytes, i);
    case DataType::int16: return value_at<std::int16_t>(bytes, i);
    case DataType::int32: return value_at<std::int32_t>(bytes, i);
    case DataType::int64: return value_at<std::int64_t>(bytes, i);
    case DataType::uint8: return value_at<std::uint8_t>(bytes, i);
    case DataType::uint16: return value_at<std::uint16_t>(bytes, i);
    case DataType::uint32: return value_at<std::uint32_t>(bytes, i);
    case DataType::uint64: return value_at<std::uint64_t>(bytes, i);
    case DataType::float32: {
      const auto x = value_at<float>(bytes, i);
      if (std::isfinite(x)) return static_cast<double>(x);
      return not_finite(x, std::bit_cast<std::uint32_t>(x), 0x7fc00000, 8);
    }
    case DataType::float64: {
      const auto x = value_at<double>(bytes, i);
      if (std::isfinite(x)) return x;
      return not_finite(x, std::bit_cast<std::uint64_t>(x), 0x7ff8000000000000, 16);
    }
    case DataType::text:
    case DataType::string:
    case DataType::none: break;
  }
  return nullptr;
}

Json fill_of(const Variable& v) {
  if (v.type == DataType::string) return v.fill_text.value_or("");
  const auto fill = v.fill.empty() || v.no_fill ? default_fill(v.type) : v.fill;
  if (v.type != DataType::text) return number_at(v.type, fill, 0);
  return fill[0] == std::byte{0} ? "" : base64(fill);
}

/// `_FillValue` as xarray writes and reads it in Zarr: floating-point numbers and characters in
/// base64.
Json fill_attribute(const Attribute& a) {
  if (a.type == DataType::text) return base64(a.values);
  if (a.type != DataType::float32 && a.type != DataType::float64) return number_at(a.type, a.values, 0);
  const double x =
      a.type == DataType::float32 ? static_cast<double>(value_at<float>(a.values, 0)) : value_at<double>(a.values, 0);
  return base64(std::as_bytes(std::span(&x, 1)));
}

Json attribute_of(const Attribute& a) {
  if (a.type == DataType::text) {
    std::string text(reinterpret_cast<const char*>(a.values.data()), a.values.size());
    // A C program may count the terminator. netCDF's readers leave it out.
    text.erase(text.find_last_not_of('\0') + 1);
    return text;
  }
  Json all = Json::array();
  if (a.type == DataType::string)
    for (const auto& s : a.strings) all.push_back(s.value_or(""));
  else
    for (std::size_t i = 0; i < a.count; ++i) all.push_back(number_at(a.type, a.values, i));
  return all.size() == 1 ? all[0] : all;
}

// ---- chunks and shards ----

std::vector<std::uint64_t> chunk_of(const Schema& schema, const Variable& v) {
  if (!v.chunks.empty()) return v.chunks;
  std::vector<std::uint64_t> chunk;
  for (const auto d : v.dimensions) {
    const auto& dim = schema.dimensions[d];
    chunk.push_back(dim.unlimited ? 1 : std::max<std::uint64_t>(1, dim.length));
  }
  if (chunk.size() == 1 && schema.dimensions[v.dimensions[0]].unlimited) chunk[0] = 1024;
  const auto bytes = [&] {
    std::uint64_t n = std::max<std::uint64_t>(size_of(v.type), 1);
    for (const auto c : chunk)
      if (__builtin_mul_overflow(n, c, &n)) return std::numeric_limits<std::uint64_t>::max();
    return n;
  };
  for (std::size_t i = 0; i < chunk.size(); ++i)
    while (chunk[i] > 1 && bytes() > chunk_bytes_max) chunk[i] = (chunk[i] + 1) / 2;
  return chunk;
}

/// All of a record, and as many records as fit along the first unlimited dimension.
std::vector<std::uint64_t> shard_of(const Schema& schema, const Variable& v, const std::vector<std::uint64_t>& chunk) {
  std::vector<std::uint64_t> shard;
  std::optional<std::size_t> records;
  std::uint64_t bytes = std::max<std::uint64_t>(size_of(v.type), 1);
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const auto& dim = schema.dimensions[v.dimensions[i]];
    if (dim.unlimited && !records) records = i;
    shard.push_back(dim.unlimited ? 1 : (std::max<std::uint64_t>(1, dim.length) - 1) / chunk[i] + 1);
    if (__builtin_mul_overflow(bytes, chunk[i], &bytes)) bytes = std::numeric_limits<std::uint64_t>::max();
  }
  const auto fit = std::max<std::uint64_t>(1, shard_bytes_max / bytes);
  const auto count = [&] {
    std::uint64_t n = 1;
    for (const auto s : shard)
      if (__builtin_mul_overflow(n, s, &n)) return std::numeric_limits<std::uint64_t>::max();
    return n;
  };
  for (auto& s : shard)
    while (s > 1 && count() > std::min(fit, chunks_of_record_max)) s = (s + 1) / 2;
  if (records) shard[*records] = std::max<std::uint64_t>(1, std::min(fit, chunks_max) / count());
  return shard;
}

// ---- codecs ----

struct Compressor {
  const char* name;
  std::uint32_t number;  ///< Blosc's
};
constexpr std::array compressors = {Compressor{"blosclz", 0}, Compressor{"lz4", 1}, Compressor{"lz4hc", 2},
                                    Compressor{"zlib", 4}, Compressor{"zstd", 5}};

Json blosc_codec(const char* compressor, std::uint32_t level, const char* shuffle, std::size_t element) {
  return {{"name", "blosc"},
          {"configuration",
           {{"typesize", element},
            {"cname", compressor},
            {"clevel", std::min<std::uint32_t>(level, 9)},
            {"shuffle", shuffle},
            {"blocksize", 0}}}};
}

/// What the filters of HDF5 become: nothing but codecs that zarr-python reads by itself.
Result<Json> codecs_of(const Variable& v, std::uint64_t chunk_bytes) {
  Json codecs = Json::array();
  const auto element = size_of(v.type);
  Json bytes = {{"name", "bytes"}};
  if (element > 1) bytes["configuration"] = {{"endian", v.endian == Endian::big ? "big" : "little"}};
  codecs.push_back(std::move(bytes));

  const char* shuffle = "noshuffle";
  const Filter* compressor = nullptr;
  bool checksum = false;
  for (const auto& f : v.filters) {
    switch (f.id) {
      case filter_id::shuffle: shuffle = "shuffle"; break;
      case filter_id::bitshuffle: shuffle = "bitshuffle"; break;
      case filter_id::fletcher32: checksum = true; break;
      case filter_id::deflate:
      case filter_id::zstd:
      case filter_id::lz4:
      case filter_id::blosc:
        if (compressor != nullptr) return cannot(v, "is compressed twice, for which Zarr has no codec");
        compressor = &f;
        break;
      default:
        return cannot(v, "has the HDF5 filter " + std::to_string(f.id) + (f.id == filter_id::szip ? " (szip)" : "") +
                             ", for which Zarr has no codec; name another one in the rule (codec: …)");
    }
  }
  if (element < 2) shuffle = "noshuffle";
  const bool shuffles = std::string_view(shuffle) != "noshuffle";
  const auto parameter = [&](std::size_t i, std::uint32_t otherwise) {
    return i < compressor->parameters.size() ? compressor->parameters[i] : otherwise;
  };
  if (compressor != nullptr && (shuffles || compressor->id == filter_id::lz4 || compressor->id == filter_id::blosc) &&
      chunk_bytes > blosc_bytes_max)
    return cannot(v, "has chunks of " + std::to_string(chunk_bytes) + " bytes, and Blosc takes " +
                         std::to_string(blosc_bytes_max));
  switch (compressor != nullptr ? compressor->id : 0) {
    case 0: break;
    case filter_id::deflate:
      if (shuffles)
        codecs.push_back(blosc_codec("zlib", parameter(0, 6), shuffle, element));
      else
        codecs.push_back({{"name", "gzip"}, {"configuration", {{"level", std::min(parameter(0, 6), 9U)}}}});
      break;
    case filter_id::zstd:
      if (shuffles)
        codecs.push_back(blosc_codec("zstd", parameter(0, 3), shuffle, element));
      else
        codecs.push_back(
            {{"name", "zstd"}, {"configuration", {{"level", static_cast<int>(parameter(0, 3))}, {"checksum", false}}}});
      break;
    case filter_id::lz4: codecs.push_back(blosc_codec("lz4", 5, shuffle, element)); break;
    default: {
      const auto* const named = std::find_if(compressors.begin(), compressors.end(),
                                             [&](const auto& c) { return c.number == parameter(6, 0); });
      if (named == compressors.end())
        return cannot(v, "has Blosc with compressor " + std::to_string(parameter(6, 0)) +
                             ", which readers of Zarr do not have; name another one in the rule (codec: …)");
      const auto how = parameter(5, 1);
      codecs.push_back(blosc_codec(named->name, parameter(4, 5),
                                   element < 2 || how == 0 ? "noshuffle"
                                   : how == 2              ? "bitshuffle"
                                                           : "shuffle",
                                   element));
    }
  }
  if (checksum) codecs.push_back({{"name", "crc32c"}});
  return codecs;
}

/// The way back: what encodes these codecs. False: they are none of ours.
bool stage_of(const Json& codec, std::size_t element, EncodePipeline& pipeline) {
  const auto& name = codec.at("name").get_ref<const std::string&>();
  if (name == "crc32c") {
    pipeline.stages.push_back({zarr_codec::crc32c, false, {}});
    return true;
  }
  const auto& how = codec.at("configuration");
  if (name == "gzip" || name == "zstd") {
    pipeline.stages.push_back({name == "gzip" ? zarr_codec::gzip : filter_id::zstd,
                               false,
                               {static_cast<std::uint32_t>(how.at("level").get<int>())}});
    return true;
  }
  if (name != "blosc") return false;
  const auto& shuffle = how.at("shuffle").get_ref<const std::string&>();
  const auto* const found = std::find_if(compressors.begin(), compressors.end(), [&](const auto& c) {
    return how.at("cname").get_ref<const std::string&>() == c.name;
  });
  if (found == compressors.end()) return false;
  const auto level = how.at("clevel").get<std::uint32_t>();
  const bool one_block = shuffle != "bitshuffle" && (found->number == 1 || found->number >= 4);
  if (one_block)
    pipeline.stages.push_back({zarr_codec::blosc, false, {found->number, level, shuffle == "shuffle" ? 1U : 0U}});
  else
    pipeline.stages.push_back({filter_id::blosc,
                               false,
                               {2, 2, static_cast<std::uint32_t>(element), 0, level,
                                shuffle == "bitshuffle" ? 2U
                                : shuffle == "shuffle"  ? 1U
                                                        : 0U,
                                found->number}});
  return true;
}

}  // namespace

Json attributes_of(const std::vector<Attribute>& attributes, DataType type) {
  Json out = Json::object();
  for (const auto& a : attributes) {
    // xarray cannot read such an attribute of strings. The array's own fill value says the same.
    if (type == DataType::string && a.name == "_FillValue") continue;
    const bool fill = type != DataType::none && a.name == "_FillValue" && a.type == type && a.count == 1;
    out[a.name] = fill ? fill_attribute(a) : attribute_of(a);
  }
  return out;
}

Result<Json> new_array(const Schema& schema, const Variable& v) {
  if (v.name.empty() || v.name[0] == '.' || v.name.starts_with("__") || v.name == "zarr.json" ||
      v.name.find('/') != std::string::npos)
    return cannot(v, "has a name that Zarr keeps for itself");
  if (v.dimensions.size() > ChunkAssembly::rank_max)
    return cannot(v, "has " + std::to_string(v.dimensions.size()) + " dimensions, and Zarr files are written with " +
                         std::to_string(ChunkAssembly::rank_max) + " at most");
  const auto chunk = chunk_of(schema, v);
  std::uint64_t bytes = std::max<std::uint64_t>(size_of(v.type), 1);
  for (const auto c : chunk)
    if (__builtin_mul_overflow(bytes, c, &bytes)) return cannot(v, "has chunks too large to be counted");
  Json codecs = Json::array({{{"name", "vlen-utf8"}}});
  if (v.type != DataType::string) {
    auto made = codecs_of(v, bytes);
    if (!made) return std::move(made).error();
    codecs = std::move(made).value();
  }
  auto grid = chunk;
  if (!chunk.empty()) {
    const auto shard = shard_of(schema, v, chunk);
    for (std::size_t i = 0; i < grid.size(); ++i) grid[i] *= shard[i];
    Json index = Json::array({{{"name", "bytes"}, {"configuration", {{"endian", "little"}}}}, {{"name", "crc32c"}}});
    codecs = Json::array({{{"name", "sharding_indexed"},
                           {"configuration",
                            {{"chunk_shape", chunk},
                             {"codecs", std::move(codecs)},
                             {"index_codecs", std::move(index)},
                             {"index_location", "start"}}}}});
  }
  return Json{{"zarr_format", 3},
              {"node_type", "array"},
              {"shape", Json::array()},
              {"data_type", type_of(v.type)},
              {"chunk_grid", {{"name", "regular"}, {"configuration", {{"chunk_shape", grid}}}}},
              {"chunk_key_encoding", {{"name", "default"}, {"configuration", {{"separator", "."}}}}},
              {"fill_value", fill_of(v)},
              {"codecs", std::move(codecs)},
              {"attributes", Json::object()},
              {"dimension_names", Json::array()},
              {"storage_transformers", Json::array()}};
}

void describe(Json& array, const Schema& schema, const Variable& v, const std::vector<std::uint64_t>& shape) {
  array["shape"] = shape;
  array["attributes"] = attributes_of(v.attributes, v.type);
  auto names = Json::array();
  for (const auto d : v.dimensions) names.push_back(schema.dimensions[d].name);
  array["dimension_names"] = std::move(names);
}

Result<Form> form_of(const Json& array, DataType type) {
  const auto corrupt = [](const std::string& what) { return Error{Code::corrupt, what, 0}; };
  try {
    Form form;
    if (array.at("data_type") != type_of(type)) return corrupt("another data type");
    const auto* codecs = &array.at("codecs");
    const auto grid = array.at("chunk_grid").at("configuration").at("chunk_shape").get<std::vector<std::uint64_t>>();
    if (!grid.empty()) {
      if (codecs->size() != 1 || codecs->at(0).at("name") != "sharding_indexed") return corrupt("no shards");
      const auto& sharding = codecs->at(0).at("configuration");
      if (sharding.at("index_location") != "start") return corrupt("shards with their index elsewhere");
      form.chunk = sharding.at("chunk_shape").get<std::vector<std::uint64_t>>();
      if (form.chunk.size() != grid.size()) return corrupt("chunks that do not fit the shards");
      for (std::size_t i = 0; i < grid.size(); ++i) {
        if (form.chunk[i] == 0 || grid[i] == 0 || grid[i] % form.chunk[i] != 0)
          return corrupt("chunks that do not fit the shards");
        form.shard.push_back(grid[i] / form.chunk[i]);
      }
      codecs = &sharding.at("codecs");
    }
    const auto element = std::max<std::size_t>(size_of(type), 1);
    form.pipeline.element = element;
    form.text = type == DataType::string;
    if (codecs->at(0).at("name") != (form.text ? "vlen-utf8" : "bytes")) return corrupt("other codecs");
    if (element > 1)
      form.swap =
          (codecs->at(0).at("configuration").at("endian") == "big") != (std::endian::native == std::endian::big);
    for (std::size_t i = 1; i < codecs->size(); ++i)
      if (!stage_of(codecs->at(i), element, form.pipeline)) return corrupt("other codecs");
    return form;
  } catch (const nlohmann::json::exception& e) {
    return corrupt(e.what());
  }
}

DataType attribute_type(const Json& value) {
  if (value.is_string()) return DataType::text;
  if (value.is_number_float()) return DataType::float64;
  if (value.is_number_integer()) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      return DataType::uint64;
    return std::in_range<std::int32_t>(value.get<std::int64_t>()) ? DataType::int32 : DataType::int64;
  }
  if (!value.is_array() || value.empty()) return DataType::none;
  auto type = DataType::none;
  for (const auto& x : value) {
    auto its = x.is_string() ? DataType::string : x.is_number() ? attribute_type(x) : DataType::none;
    if (its == DataType::none) return DataType::none;
    if (type == DataType::none || type == its) {
      type = its;
    } else if (type == DataType::string || its == DataType::string) {
      return DataType::none;
    } else if (type == DataType::float64 || its == DataType::float64) {
      type = DataType::float64;
    } else {
      type = type == DataType::uint64 || its == DataType::uint64 ? DataType::uint64 : DataType::int64;
    }
  }
  return type;
}

namespace {

Json types_of(const std::vector<Attribute>& attributes, DataType variable) {
  Json types = Json::object();
  for (const auto& a : attributes) {
    if (variable != DataType::none && a.name == "_FillValue") continue;
    if (attribute_type(attribute_of(a)) != a.type) types[a.name] = name_of(a.type);
    if (a.type != DataType::text) continue;
    const auto end = std::find_if(a.values.rbegin(), a.values.rend(), [](std::byte b) { return b != std::byte{0}; });
    if (end != a.values.rbegin()) types[a.name] = "char+" + std::to_string(end - a.values.rbegin());
  }
  return types;
}

}  // namespace

Json root_of(const Schema& schema, const std::vector<std::uint64_t>& lengths, Json arrays, const std::string& owner) {
  auto unlimited = Json::array();
  auto dimensions = Json::object(), types = Json::object();
  for (std::size_t d = 0; d < schema.dimensions.size(); ++d) dimensions[schema.dimensions[d].name] = lengths[d];
  if (auto global = types_of(schema.attributes, DataType::none); !global.empty()) types[""] = std::move(global);
  for (const auto& v : schema.variables)
    if (auto its = types_of(v.attributes, v.type); !its.empty()) types[v.name] = std::move(its);
  for (const auto& d : schema.dimensions)
    if (d.unlimited) unlimited.push_back(d.name);
  return {{"zarr_format", 3},
          {"node_type", "group"},
          {"attributes", attributes_of(schema.attributes, DataType::none)},
          {"consolidated_metadata",
           {{"kind", "inline"},
            {"must_understand", false},
            {"dimensions", std::move(dimensions)},
            {"unlimited_dimensions", std::move(unlimited)},
            {"attribute_types", std::move(types)},
            {"dataset", owner},
            {"metadata", std::move(arrays)}}}};
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace advectio::zarr
