#include "sinks/zarr_reader.h"

#include <blosc.h>
#include <libdeflate.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace advectio::testing {

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what);
}

Bytes file_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path + " is not there");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

Json json_of(const std::string& path) {
  const auto bytes = file_of(path);
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  return Json::parse(begin, begin + bytes.size());
}

std::uint32_t crc32c(std::span<const std::byte> data) {
  std::uint32_t sum = ~0U;
  for (const auto b : data) {
    sum ^= std::to_integer<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) sum = sum >> 1 ^ (sum & 1 ? 0x82F63B78U : 0U);
  }
  return ~sum;
}

/// Without the checksum at its end, which must be right.
std::span<const std::byte> checked(std::span<const std::byte> data, const std::string& what) {
  std::uint32_t sum = 0;
  if (data.size() < sizeof sum) fail(what + " has no checksum");
  const auto content = data.first(data.size() - sizeof sum);
  std::memcpy(&sum, data.data() + content.size(), sizeof sum);
  if (sum != crc32c(content)) fail(what + " has a wrong checksum");
  return content;
}

DataType type_of(const Json& type) {
  static const std::array<std::pair<const char*, DataType>, 11> names = {{{"int8", DataType::int8},
                                                                          {"int16", DataType::int16},
                                                                          {"int32", DataType::int32},
                                                                          {"int64", DataType::int64},
                                                                          {"uint8", DataType::uint8},
                                                                          {"uint16", DataType::uint16},
                                                                          {"uint32", DataType::uint32},
                                                                          {"uint64", DataType::uint64},
                                                                          {"float32", DataType::float32},
                                                                          {"float64", DataType::float64},
                                                                          {"string", DataType::string}}};
  if (type == Json{{"name", "null_terminated_bytes"}, {"configuration", {{"length_bytes", 1}}}}) return DataType::text;
  for (const auto& [name, t] : names)
    if (type == name) return t;
  fail("data type " + type.dump());
}

Bytes from_base64(const std::string& text) {
  static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Bytes out;
  std::uint32_t word = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    word = word << 6 | static_cast<std::uint32_t>(digits.find(c));
    if ((bits += 6) >= 8) out.push_back(static_cast<std::byte>(word >> (bits -= 8)));
  }
  return out;
}

template <typename T>
Bytes bytes_of(T value) {
  Bytes out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

double number_of(const Json& j) {
  if (j == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (j == "Infinity") return std::numeric_limits<double>::infinity();
  if (j == "-Infinity") return -std::numeric_limits<double>::infinity();
  return j.get<double>();
}

Bytes value_of(DataType type, const Json& j) {
  switch (type) {
    case DataType::int8: return bytes_of(j.get<std::int8_t>());
    case DataType::int16: return bytes_of(j.get<std::int16_t>());
    case DataType::int32: return bytes_of(j.get<std::int32_t>());
    case DataType::int64: return bytes_of(j.get<std::int64_t>());
    case DataType::uint8: return bytes_of(j.get<std::uint8_t>());
    case DataType::uint16: return bytes_of(j.get<std::uint16_t>());
    case DataType::uint32: return bytes_of(j.get<std::uint32_t>());
    case DataType::uint64: return bytes_of(j.get<std::uint64_t>());
    case DataType::float32: return bytes_of(static_cast<float>(number_of(j)));
    case DataType::float64: return bytes_of(number_of(j));
    case DataType::text: {
      auto bytes = from_base64(j.get<std::string>());
      bytes.resize(1);
      return bytes;
    }
    case DataType::string:
    case DataType::none: break;
  }
  return {};
}

Attribute text_attribute(const std::string& name, const std::string& text) {
  Attribute a{name, DataType::text, text.size(), Bytes(text.size()), {}};
  if (!text.empty()) std::memcpy(a.values.data(), text.data(), text.size());
  return a;
}

/// `type`: of the variable, for its `_FillValue`.
Attribute attribute_of(const std::string& name, const Json& j, DataType type) {
  if (name == "_FillValue" && type != DataType::none && type != DataType::string) {
    Attribute a{name, type, 1, {}, {}};
    if (type == DataType::float32 || type == DataType::float64) {
      double x = 0;
      const auto bytes = from_base64(j.get<std::string>());
      if (bytes.size() != sizeof x) fail("_FillValue " + j.dump());
      std::memcpy(&x, bytes.data(), sizeof x);
      a.values = type == DataType::float64 ? bytes : bytes_of(static_cast<float>(x));
    } else {
      a.values = value_of(type, j);
    }
    return a;
  }
  if (j.is_string()) return text_attribute(name, j.get<std::string>());
  const auto all = j.is_array() ? j : Json::array({j});
  Attribute a{name, DataType::none, all.size(), {}, {}};
  for (const auto& x : all) {
    if (x.is_string()) {
      a.type = DataType::string;
      a.strings.emplace_back(x.get<std::string>());
      continue;
    }
    a.type = x.is_number_float() ? DataType::float64 : DataType::int64;
    const auto bytes = x.is_number_float() ? bytes_of(x.get<double>()) : bytes_of(x.get<std::int64_t>());
    a.values.insert(a.values.end(), bytes.begin(), bytes.end());
  }
  return a;
}

std::vector<Attribute> attributes_of(const Json& j, DataType type) {
  std::vector<Attribute> out;
  for (const auto& [name, value] : j.items()) out.push_back(attribute_of(name, value, type));
  return out;
}

Bytes decompress(const Json& codec, std::span<const std::byte> in, std::size_t bytes_max) {
  const auto name = codec.at("name").get<std::string>();
  if (name == "crc32c") {
    const auto content = checked(in, "a chunk");
    return {content.begin(), content.end()};
  }
  Bytes out(bytes_max);
  std::size_t n = 0;
  if (name == "gzip") {
    auto* d = libdeflate_alloc_decompressor();
    const auto done = libdeflate_gzip_decompress(d, in.data(), in.size(), out.data(), out.size(), &n);
    libdeflate_free_decompressor(d);
    if (done != LIBDEFLATE_SUCCESS) fail("gzip");
  } else if (name == "zstd") {
    n = ZSTD_decompress(out.data(), out.size(), in.data(), in.size());
    if (ZSTD_isError(n) != 0) fail("zstd");
  } else if (name == "blosc") {
    std::size_t frame = 0;
    if (blosc_cbuffer_validate(in.data(), in.size(), &frame) < 0) fail("blosc");
    const auto got = blosc_decompress_ctx(in.data(), out.data(), out.size(), 1);
    if (got < 0) fail("blosc");
    n = static_cast<std::size_t>(got);
    // What the metadata say of the frame is true.
    std::size_t element = 0;
    int flags = 0;
    blosc_cbuffer_metainfo(in.data(), &element, &flags);
    const auto& how = codec.at("configuration");
    if (how.at("typesize") != element) fail("blosc: typesize");
    if ((flags & BLOSC_MEMCPYED) == 0 && ((flags & BLOSC_DOSHUFFLE) != 0) != (how.at("shuffle") == "shuffle"))
      fail("blosc: shuffle");
    const std::string library = blosc_cbuffer_complib(in.data());
    const auto cname = how.at("cname").get<std::string>();
    if (library != (cname == "zlib" ? "Zlib" : cname == "zstd" ? "Zstd" : cname == "blosclz" ? "BloscLZ" : "LZ4"))
      fail("blosc: " + library + " is not " + cname);
  } else {
    fail("codec " + codec.dump());
  }
  out.resize(n);
  return out;
}

/// Of one chunk to its place in the variable.
struct Array {
  Contents& contents;
  std::size_t number;
  DataType type;
  std::vector<std::uint64_t> shape, grid, chunk;
  Json codecs;

  std::uint64_t volume(const std::vector<std::uint64_t>& lengths) const {
    std::uint64_t n = 1;
    for (const auto l : lengths) n *= l;
    return n;
  }

  void take_chunk(const std::vector<std::uint64_t>& start, std::span<const std::byte> data) {
    const auto element = size_of(type);
    const auto n = volume(chunk);
    Bytes bytes(data.begin(), data.end());
    for (std::size_t i = codecs.size(); i-- > 1;)
      bytes = decompress(codecs[i], bytes, n * std::max<std::size_t>(element, 1) + 64);
    std::vector<String> texts;
    if (type == DataType::string) {
      if (codecs[0].at("name") != "vlen-utf8") fail("codec " + codecs[0].dump());
      Decoder in(bytes);
      const auto count = in.number<std::uint32_t>();
      for (std::uint32_t i = 0; i < count; ++i) texts.emplace_back(in.text());
      if (!in.ok() || !in.at_end() || count != n) fail("vlen-utf8");
    } else {
      if (codecs[0].at("name") != "bytes" || bytes.size() != n * element) fail("a chunk of another size");
      if (element > 1 && codecs[0].at("configuration").at("endian") == "big")
        for (std::size_t k = 0; k < n; ++k)
          std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(k * element),
                       bytes.begin() + static_cast<std::ptrdiff_t>((k + 1) * element));
    }
    std::vector<std::uint64_t> at(chunk.size(), 0);
    for (std::uint64_t k = 0; k < n; ++k) {
      std::uint64_t index = 0;
      bool inside = true;
      for (std::size_t i = 0; i < at.size(); ++i) {
        inside = inside && start[i] + at[i] < shape[i];
        index = index * shape[i] + start[i] + at[i];
      }
      if (inside && type == DataType::string) contents.strings[number][index] = texts[k];
      if (inside && type != DataType::string)
        std::memcpy(&contents.values[number][index * element], &bytes[k * element], element);
      for (std::size_t i = at.size(); i-- > 0;) {
        if (++at[i] < chunk[i]) break;
        at[i] = 0;
      }
    }
  }

  /// `place` counts shards.
  void take_shard(const std::string& path, const std::vector<std::uint64_t>& place) {
    const auto bytes = file_of(path);
    if (grid.empty()) return take_chunk({}, bytes);
    std::vector<std::uint64_t> chunks;
    for (std::size_t i = 0; i < grid.size(); ++i) chunks.push_back(grid[i] / chunk[i]);
    const auto n = volume(chunks);
    if (bytes.size() < 16 * n + 4) fail(path + " is too short");
    const auto index = checked(std::span(bytes).first(16 * n + 4), path);
    std::vector<std::uint64_t> at(grid.size(), 0);
    for (std::uint64_t k = 0; k < n; ++k) {
      std::array<std::uint64_t, 2> entry{};
      std::memcpy(entry.data(), &index[16 * k], sizeof entry);
      if (entry != std::array<std::uint64_t, 2>{UINT64_MAX, UINT64_MAX}) {
        if (entry[0] < 16 * n + 4 || entry[1] > bytes.size() || entry[0] > bytes.size() - entry[1])
          fail(path + " names a chunk beyond its end");
        std::vector<std::uint64_t> start;
        for (std::size_t i = 0; i < at.size(); ++i) start.push_back(place[i] * grid[i] + at[i] * chunk[i]);
        take_chunk(start, std::span(bytes).subspan(entry[0], entry[1]));
      }
      for (std::size_t i = at.size(); i-- > 0;) {
        if (++at[i] < chunks[i]) break;
        at[i] = 0;
      }
    }
  }
};

void read_array(const std::string& path, const std::string& name, const Json& j, Contents& out) {
  if (j.at("zarr_format") != 3 || j.at("node_type") != "array") fail(name + " is no array");
  if (j.at("chunk_key_encoding") != Json{{"name", "default"}, {"configuration", {{"separator", "."}}}})
    fail(name + ": chunk keys");
  Variable v;
  v.name = name;
  v.type = type_of(j.at("data_type"));
  v.attributes = attributes_of(j.at("attributes"), v.type);
  Array a{out,
          out.schema.variables.size(),
          v.type,
          j.at("shape"),
          j.at("chunk_grid").at("configuration").at("chunk_shape"),
          {},
          j.at("codecs")};
  const auto& names = j.at("dimension_names");
  if (names.size() != a.shape.size() || a.grid.size() != a.shape.size()) fail(name + ": dimensions");
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    auto& all = out.schema.dimensions;
    const auto it = std::find_if(all.begin(), all.end(), [&](const auto& d) { return names[i] == d.name; });
    if (it == all.end())
      all.push_back({names[i].get<std::string>(), a.shape[i], false});
    else if (it->length != a.shape[i])
      fail(name + ": another length of dimension " + it->name);
    const auto number = std::find_if(all.begin(), all.end(), [&](const auto& d) { return names[i] == d.name; });
    v.dimensions.push_back(static_cast<std::uint32_t>(number - all.begin()));
  }
  if (!a.grid.empty()) {
    const auto sharding = a.codecs.at(0).at("configuration");
    if (a.codecs.size() != 1 || a.codecs[0].at("name") != "sharding_indexed" ||
        sharding.at("index_location") != "start" ||
        sharding.at("index_codecs") !=
            Json::array({Json{{"name", "bytes"}, {"configuration", {{"endian", "little"}}}}, Json{{"name", "crc32c"}}}))
      fail(name + ": sharding");
    a.chunk = sharding.at("chunk_shape").get<std::vector<std::uint64_t>>();
    a.codecs = Json(sharding.at("codecs"));
  }
  const auto n = a.volume(a.shape);
  if (v.type == DataType::string) {
    out.strings.emplace_back(n, j.at("fill_value").get<std::string>());
    out.values.emplace_back();
  } else {
    const auto fill = value_of(v.type, j.at("fill_value"));
    auto& values = out.values.emplace_back();
    for (std::uint64_t k = 0; k < n; ++k) values.insert(values.end(), fill.begin(), fill.end());
    out.strings.emplace_back();
  }
  out.schema.variables.push_back(v);
  for (const auto& e : std::filesystem::directory_iterator(path + '/' + name)) {
    const auto file = e.path().filename().string();
    if (file == "zarr.json" || file.ends_with(".part")) continue;
    if (file[0] != 'c') fail(e.path().string() + " is not of a Zarr store");
    std::vector<std::uint64_t> place;
    for (std::size_t at = 1; at < file.size();
         at = file.find('.', at + 1) == std::string::npos ? file.size() : file.find('.', at + 1))
      place.push_back(std::stoull(file.substr(at + 1)));
    if (place.size() != a.grid.size()) fail(e.path().string() + " has a key of another rank");
    a.take_shard(e.path(), place);
  }
}

Attribute as_json_keeps(const Attribute& a, DataType variable) {
  if (a.name == "_FillValue" && variable != DataType::none && variable != DataType::string) return a;
  if (a.type == DataType::text) return a;
  Attribute out{a.name, DataType::none, a.count, {}, {}};
  if (a.type == DataType::string) {
    if (a.count == 1) return text_attribute(a.name, a.strings[0].value_or(""));
    out.type = DataType::string;
    for (const auto& s : a.strings) out.strings.emplace_back(s.value_or(""));
    if (a.count == 0) out.type = DataType::none;
    return out;
  }
  for (std::size_t i = 0; i < a.count; ++i) {
    const auto put = [&](auto value) {
      std::memcpy(&value, a.values.data() + i * sizeof value, sizeof value);
      out.type = std::is_floating_point_v<decltype(value)> ? DataType::float64 : DataType::int64;
      const auto bytes = std::is_floating_point_v<decltype(value)> ? bytes_of(static_cast<double>(value))
                                                                   : bytes_of(static_cast<std::int64_t>(value));
      out.values.insert(out.values.end(), bytes.begin(), bytes.end());
    };
    switch (a.type) {
      case DataType::int8: put(std::int8_t{}); break;
      case DataType::int16: put(std::int16_t{}); break;
      case DataType::int32: put(std::int32_t{}); break;
      case DataType::int64: put(std::int64_t{}); break;
      case DataType::uint8: put(std::uint8_t{}); break;
      case DataType::uint16: put(std::uint16_t{}); break;
      case DataType::uint32: put(std::uint32_t{}); break;
      case DataType::uint64: put(std::uint64_t{}); break;
      case DataType::float32: put(float{}); break;
      case DataType::float64: put(double{}); break;
      default: break;
    }
  }
  return out;
}

}  // namespace

Contents read_zarr(const std::string& path) {
  const auto root = json_of(path + "/zarr.json");
  if (root.at("zarr_format") != 3 || root.at("node_type") != "group") fail(path + " is no group");
  Contents out;
  out.schema.format = FileFormat::zarr;
  out.schema.attributes = attributes_of(root.at("attributes"), DataType::none);
  const auto& consolidated = root.at("consolidated_metadata");
  if (consolidated.at("kind") != "inline") fail(path + ": consolidated metadata");
  for (const auto& [name, array] : consolidated.at("metadata").items()) {
    read_array(path, name, array, out);
    // Its own metadata differ in nothing but how far it has grown.
    auto own = json_of(path + '/' + name + "/zarr.json");
    own["shape"] = array.at("shape");
    if (own != array) fail(name + "/zarr.json says something else than the root");
  }
  const auto& unlimited = consolidated.at("unlimited_dimensions");
  for (auto& d : out.schema.dimensions)
    d.unlimited = std::find(unlimited.begin(), unlimited.end(), d.name) != unlimited.end();
  return out;
}

Contents as_zarr_keeps(const Contents& netcdf) {
  Contents out = netcdf;
  out.schema.format = FileFormat::zarr;
  out.schema.dimensions.clear();
  for (auto& a : out.schema.attributes) a = as_json_keeps(a, DataType::none);
  std::vector<std::uint32_t> numbers(netcdf.schema.dimensions.size(), UINT32_MAX);
  for (auto& v : out.schema.variables) {
    if (v.type == DataType::string) std::erase_if(v.attributes, [](const auto& a) { return a.name == "_FillValue"; });
    for (auto& a : v.attributes) a = as_json_keeps(a, v.type);
    for (auto& d : v.dimensions) {
      if (numbers[d] == UINT32_MAX) {
        numbers[d] = static_cast<std::uint32_t>(out.schema.dimensions.size());
        out.schema.dimensions.push_back(netcdf.schema.dimensions[d]);
      }
      d = numbers[d];
    }
  }
  for (auto& strings : out.strings)
    for (auto& s : strings) s = s.value_or("");
  return out;
}

}  // namespace advectio::testing
