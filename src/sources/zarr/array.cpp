#include "sources/zarr/array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

namespace advectio::zarr {

namespace {

// Shards whose index is kept.
constexpr std::size_t shards_max = 16;
// No chunk, and no index, is larger.
constexpr std::uint64_t bytes_max = std::uint64_t{1} << 32;

Error cannot(const std::string& what) {
  return Error{Code::unsupported, what, 0};
}
Error corrupt(const std::string& what) {
  return Error{Code::corrupt, what, 0};
}

std::optional<std::uint64_t> product(const std::vector<std::uint64_t>& lengths, std::uint64_t n) {
  for (const auto l : lengths)
    if (__builtin_mul_overflow(n, l, &n)) return std::nullopt;
  return n;
}

std::string name_of(const Json& part) {
  return part.is_string() ? part.get<std::string>() : part.value("name", part.dump());
}

Json configuration_of(const Json& part) {
  return part.is_object() && part.contains("configuration") ? part["configuration"] : Json::object();
}

Result<Element> element_of(const Json& type) {
  static const std::map<std::string, DataType, std::less<>> numbers = {
      {"int8", DataType::int8},       {"int16", DataType::int16},   {"int32", DataType::int32},
      {"int64", DataType::int64},     {"uint8", DataType::uint8},   {"uint16", DataType::uint16},
      {"uint32", DataType::uint32},   {"uint64", DataType::uint64}, {"float32", DataType::float32},
      {"float64", DataType::float64}, {"bool", DataType::int8}};
  const auto name = name_of(type);
  Element e;
  if (const auto it = numbers.find(name); it != numbers.end() && type.is_string()) {
    e.type = it->second;
    e.bytes = e.word = size_of(e.type);
    e.is_bool = name == "bool";
  } else if (name == "string") {
    e.type = DataType::string;
  } else if (name == "null_terminated_bytes" || name == "fixed_length_utf32") {
    e.letters = name == "fixed_length_utf32";
    e.type = e.letters ? DataType::string : DataType::text;
    e.word = e.letters ? 4 : 1;
    e.bytes = configuration_of(type).at("length_bytes").get<std::size_t>();
    if (e.bytes == 0 || e.bytes % e.word != 0) return cannot("the data type " + type.dump());
  } else {
    return cannot("the data type " + (type.is_string() ? name : type.dump()));
  }
  return e;
}

constexpr std::array<std::pair<const char*, std::uint32_t>, 5> blosc_compressors = {
    {{"blosclz", 0}, {"lz4", 1}, {"lz4hc", 2}, {"zlib", 4}, {"zstd", 5}}};

Result<void> add_blosc(const Json& how, const Element& element, Chain& chain) {
  const auto cname = how.at("cname").get<std::string>();
  const auto* const found =
      std::find_if(blosc_compressors.begin(), blosc_compressors.end(), [&](const auto& c) { return cname == c.first; });
  if (found == blosc_compressors.end()) return cannot("the codec blosc with " + cname);
  const auto level = how.at("clevel").get<std::uint32_t>();
  const auto shuffle_name = how.at("shuffle").get<std::string>();
  const std::uint32_t shuffle = shuffle_name == "shuffle" ? 1 : shuffle_name == "bitshuffle" ? 2 : 0;
  chain.stages.push_back({filter_id::blosc, false, {}});
  const auto typesize = static_cast<std::uint32_t>(std::max<std::size_t>(element.bytes, 1));
  if (found->second != 4 && found->second != 5) {
    chain.filters.push_back({filter_id::blosc, {2, 2, typesize, 0, level, shuffle, found->second}});
    return {};
  }
  if (shuffle == 1 && element.word > 1) chain.filters.push_back({filter_id::shuffle, {}});
  if (shuffle == 2 && element.word > 1) chain.filters.push_back({filter_id::bitshuffle, {0, 3, typesize, 0, 0}});
  chain.filters.push_back({found->second == 4 ? filter_id::deflate : filter_id::zstd, {level}});
  return {};
}

Result<Chain> chain_of(const Json& codecs, const Element& element) {
  Chain chain;
  if (!codecs.is_array() || codecs.empty()) return corrupt("it has no codecs");
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    const auto name = name_of(codecs[i]);
    const auto how = configuration_of(codecs[i]);
    if (i == 0) {
      chain.texts = name == "vlen-utf8";
      if (name != "bytes" && !chain.texts) return cannot("the codec " + name);
      if (chain.texts != (element.type == DataType::string && !element.letters))
        return corrupt("its data type has not the codec " + name);
      chain.big_endian = how.value("endian", "little") == std::string("big");
    } else if (name == "gzip") {
      chain.stages.push_back({zarr_codec::gzip, false, {}});
      chain.filters.push_back({filter_id::deflate, {how.value("level", 5U)}});
    } else if (name == "zstd") {
      chain.stages.push_back({filter_id::zstd, false, {}});
      // Level 0 is the library's default.
      const auto level = how.value("level", 0);
      chain.filters.push_back({filter_id::zstd, {static_cast<std::uint32_t>(level == 0 ? 3 : level)}});
    } else if (name == "crc32c") {
      chain.stages.push_back({zarr_codec::crc32c, false, {}});
      chain.filters.push_back({filter_id::fletcher32, {}});
    } else if (name == "blosc") {
      ADVECTIO_TRY(add_blosc(how, element, chain));
    } else {
      return cannot("the codec " + name);
    }
  }
  return chain;
}

double named_number(const std::string& text, bool& ok) {
  ok = true;
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  ok = false;
  return 0;
}

template <typename T>
Bytes bytes_of(T value) {
  Bytes out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

template <typename Float, typename Bits>
std::optional<Bytes> float_of(const Json& value) {
  if (value.is_number()) return bytes_of(value.get<Float>());
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  bool ok = false;
  if (const auto x = named_number(text, ok); ok) return bytes_of(static_cast<Float>(x));
  Bits bits = 0;
  if (!text.starts_with("0x")) return std::nullopt;
  const auto [end, ec] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return bytes_of(bits);
}

template <typename T>
std::optional<Bytes> integer_of(const Json& value) {
  if (value.is_boolean()) return bytes_of(static_cast<T>(value.get<bool>()));
  if (!value.is_number_integer()) return std::nullopt;
  const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                               : std::in_range<T>(value.get<std::int64_t>());
  return fits ? std::optional(bytes_of(value.get<T>())) : std::nullopt;
}

void append_utf8(std::string& out, std::uint32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

/// Zeros at the end belong to no text.
std::string text_of(std::span<const std::byte> letters) {
  std::vector<std::uint32_t> points(letters.size() / 4);
  std::memcpy(points.data(), letters.data(), points.size() * 4);
  while (!points.empty() && points.back() == 0) points.pop_back();
  std::string out;
  for (const auto p : points) append_utf8(out, p);
  return out;
}

void swap_words(std::byte* data, std::uint64_t bytes, std::size_t word) noexcept {
  if (word > 1) swap_bytes(data, bytes / word, word);
}

}  // namespace

std::optional<Bytes> from_base64(const std::string& text) {
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Bytes out;
  std::uint32_t word = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    word = word << 6 | static_cast<std::uint32_t>(digit);
    if ((bits += 6) >= 8) out.push_back(static_cast<std::byte>(word >> (bits -= 8)));
  }
  return out;
}

std::optional<Bytes> value_of(const Json& value, DataType type) {
  switch (type) {
    case DataType::int8: return integer_of<std::int8_t>(value);
    case DataType::int16: return integer_of<std::int16_t>(value);
    case DataType::int32: return integer_of<std::int32_t>(value);
    case DataType::int64: return integer_of<std::int64_t>(value);
    case DataType::uint8: return integer_of<std::uint8_t>(value);
    case DataType::uint16: return integer_of<std::uint16_t>(value);
    case DataType::uint32: return integer_of<std::uint32_t>(value);
    case DataType::uint64: return integer_of<std::uint64_t>(value);
    case DataType::float32: return float_of<float, std::uint32_t>(value);
    case DataType::float64: return float_of<double, std::uint64_t>(value);
    case DataType::text:
    case DataType::string:
    case DataType::none: break;
  }
  return std::nullopt;
}

Result<Array> Array::parse(const Json& metadata, std::string directory) {
  Array a;
  a.directory_ = std::move(directory);
  try {
    auto element = element_of(metadata.at("data_type"));
    if (!element) return std::move(element).error();
    a.element_ = *element;
    a.shape_ = metadata.at("shape").get<std::vector<std::uint64_t>>();
    if (const auto grid = name_of(metadata.at("chunk_grid")); grid != "regular")
      return cannot("the chunk grid " + grid);
    a.grid_ = metadata["chunk_grid"].at("configuration").at("chunk_shape").get<std::vector<std::uint64_t>>();
    const auto keys = name_of(metadata.at("chunk_key_encoding"));
    if (keys != "default" && keys != "v2") return cannot("the chunk key encoding " + keys);
    a.v2_keys_ = keys == "v2";
    a.separator_ =
        configuration_of(metadata["chunk_key_encoding"]).value("separator", std::string(a.v2_keys_ ? "." : "/")).at(0);
    if (metadata.contains("storage_transformers") && !metadata["storage_transformers"].empty())
      return cannot("a storage transformer");
    const auto* codecs = &metadata.at("codecs");
    a.chunk_ = a.grid_;
    if (codecs->is_array() && !codecs->empty() && name_of(codecs->at(0)) == "sharding_indexed") {
      if (codecs->size() > 1) return cannot("the codec " + name_of(codecs->at(1)) + " of whole shards");
      const auto& how = codecs->at(0).at("configuration");
      a.sharded_ = true;
      a.chunk_ = how.at("chunk_shape").get<std::vector<std::uint64_t>>();
      a.index_at_end_ = how.value("index_location", "end") == std::string("end");
      const auto& index = how.at("index_codecs");
      a.index_checked_ = index.size() == 2 && name_of(index.at(1)) == "crc32c";
      if (index.empty() || name_of(index.at(0)) != "bytes" || (index.size() > 1 && !a.index_checked_) ||
          configuration_of(index.at(0)).value("endian", "little") != std::string("little"))
        return cannot("an index of shards with codecs " + index.dump());
      codecs = &how.at("codecs");
    }
    auto chain = chain_of(*codecs, a.element_);
    if (!chain) return std::move(chain).error();
    a.chain_ = std::move(chain).value();
    if (a.grid_.size() != a.shape_.size() || a.chunk_.size() != a.shape_.size())
      return corrupt("its chunks have another number of dimensions than its shape");
    for (std::size_t i = 0; i < a.chunk_.size(); ++i)
      if (a.chunk_[i] == 0 || a.grid_[i] % a.chunk_[i] != 0) return corrupt("its chunks do not fit its shards");
    const auto bytes = product(a.chunk_, std::max<std::size_t>(a.element_.bytes, 1));
    if (!bytes || *bytes > bytes_max) return cannot("chunks of more than 4 GiB");
    const Json fill = metadata.contains("fill_value") ? metadata["fill_value"] : Json();
    if (a.element_.type == DataType::string) {
      a.fill_text_ = fill.is_string() ? fill.get<std::string>() : "";
    } else if (a.element_.type == DataType::text) {
      a.fill_ = from_base64(fill.is_string() ? fill.get<std::string>() : "").value_or(Bytes());
      a.fill_.resize(a.element_.bytes);
    } else if (auto value = value_of(fill, a.element_.type)) {
      a.fill_ = std::move(*value);
    } else {
      return corrupt("its fill value is " + fill.dump());
    }
  } catch (const nlohmann::json::exception& e) {
    return corrupt(e.what());
  } catch (const std::out_of_range&) {
    return corrupt("its chunk keys have no separator");
  }
  return a;
}

std::string Array::path_of(std::span<const std::uint64_t> place) const {
  std::string key = v2_keys_ ? "" : "c";
  for (std::size_t i = 0; i < place.size(); ++i) {
    if (!v2_keys_ || i > 0) key += separator_;
    key += std::to_string(place[i]);
  }
  return directory_ + '/' + (key.empty() ? "0" : key);
}

Result<Array::Shard*> Array::shard_at(const std::vector<std::uint64_t>& place) {
  if (const auto it = shards_.find(place); it != shards_.end()) return &it->second;
  if (shards_.size() >= shards_max) shards_.clear();
  Shard shard;
  const auto path = path_of(place);
  auto file = system_files().open(path, OpenMode::read);
  if (!file && file.error().code != Code::not_found) return std::move(file).error();
  if (file) {
    shard.file = std::move(file).value();
    auto size = shard.file->size();
    if (!size) return std::move(size).error();
    shard.bytes = *size;
    std::uint64_t chunks = 1;
    for (std::size_t i = 0; i < grid_.size(); ++i) chunks *= grid_[i] / chunk_[i];
    const auto index_bytes = chunks * 16, all = index_bytes + (index_checked_ ? 4 : 0);
    if (chunks > bytes_max / 16 || all > shard.bytes) return corrupt(path + " is too short for its index");
    Bytes index(all);
    ADVECTIO_TRY(shard.file->read(index_at_end_ ? shard.bytes - all : 0, index));
    if (index_checked_) {
      std::uint32_t sum = 0;
      std::memcpy(&sum, index.data() + index_bytes, sizeof sum);
      if (sum != crc32c_of(std::span(index).first(index_bytes)))
        return corrupt(path + ": the checksum of its index is wrong");
    }
    shard.index.resize(2 * chunks);
    std::memcpy(shard.index.data(), index.data(), index_bytes);
  }
  return &shards_.emplace(place, std::move(shard)).first->second;
}

Result<bool> Array::fetch(const std::vector<std::uint64_t>& start) {
  std::vector<std::uint64_t> place;
  for (std::size_t i = 0; i < start.size(); ++i) place.push_back(start[i] / grid_[i]);
  if (!sharded_) {
    auto file = system_files().open(path_of(place), OpenMode::read);
    if (!file && file.error().code == Code::not_found) return false;
    if (!file) return std::move(file).error();
    auto size = (*file)->size();
    if (!size) return std::move(size).error();
    if (*size > bytes_max) return corrupt(path_of(place) + " is too long for a chunk");
    raw_.resize(*size);
    ADVECTIO_TRY((*file)->read(0, raw_));
    return true;
  }
  auto found = shard_at(place);
  if (!found) return std::move(found).error();
  auto& shard = **found;
  if (!shard.file) return false;
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < start.size(); ++i)
    number = number * (grid_[i] / chunk_[i]) + start[i] % grid_[i] / chunk_[i];
  const auto offset = shard.index[2 * number], bytes = shard.index[2 * number + 1];
  constexpr auto nothing = std::numeric_limits<std::uint64_t>::max();
  if (offset == nothing && bytes == nothing) return false;
  if (bytes > shard.bytes || offset > shard.bytes - bytes)
    return corrupt(path_of(place) + " names a chunk beyond its end");
  raw_.resize(bytes);
  ADVECTIO_TRY(shard.file->read(offset, raw_));
  return true;
}

Result<std::span<const std::byte>> Array::decoded(const std::vector<std::uint64_t>& start) {
  auto there = fetch(start);
  if (!there) return std::move(there).error();
  if (!*there) return std::span<const std::byte>();
  const auto elements = *product(chunk_, 1);
  const auto whole = elements * element_.bytes;
  const auto damaged = [&] { return corrupt("a chunk in " + directory_ + " is damaged"); };
  std::span<const std::byte> now(raw_);
  auto *to = &one_, *next = &other_;
  for (auto stage = chain_.stages.rbegin(); stage != chain_.stages.rend(); ++stage) {
    // Only gzip does not say in time how long it is; its last four bytes do.
    std::size_t expected = whole;
    if (chain_.texts || stage + 1 != chain_.stages.rend()) {
      std::uint32_t told = 0;
      if (now.size() >= 4) std::memcpy(&told, now.data() + now.size() - 4, 4);
      expected = stage->id == zarr_codec::gzip ? told : std::max<std::size_t>(2 * whole, 1 << 20);
      if (expected / 1100 > now.size() && stage->id == zarr_codec::gzip) return damaged();
    }
    const auto n = decode_stage(*stage, now, *to, expected);
    if (!n) return damaged();
    now = to->first(*n);
    std::swap(to, next);
  }
  if (chain_.texts) return now;
  if (now.size() != whole) return damaged();
  if (chain_.big_endian == (std::endian::native == std::endian::big) || element_.word == 1) return now;
  to->reserve(whole);
  std::memcpy(to->data(), now.data(), whole);
  swap_words(to->data(), whole, element_.word);
  return to->first(whole);
}

template <typename Take>
Result<void> Array::for_each_chunk(const Box& box, const Take& take) const {
  if (box.empty()) return {};
  Box one;
  for (std::size_t i = 0; i < chunk_.size(); ++i) one.start.push_back(box.start[i] / chunk_[i] * chunk_[i]);
  one.count = chunk_;
  for (;;) {
    ADVECTIO_TRY(take(one));
    auto i = chunk_.size();
    for (; i > 0; --i) {
      if ((one.start[i - 1] += chunk_[i - 1]) < box.start[i - 1] + box.count[i - 1]) break;
      one.start[i - 1] = box.start[i - 1] / chunk_[i - 1] * chunk_[i - 1];
    }
    if (i == 0) return {};
  }
}

Result<void> Array::read(const Box& box, std::byte* to) {
  const auto element = element_.bytes;
  Bytes filled;
  return for_each_chunk(box, [&](const Box& chunk) -> Result<void> {
    auto values = decoded(chunk.start);
    if (!values) return std::move(values).error();
    const auto part = intersect(box, chunk);
    if (!values->empty()) {
      copy_part(part, values->data(), chunk, to, box, element);
      return {};
    }
    if (filled.empty()) {
      filled.resize(*product(chunk_, element));
      for (std::size_t at = 0; at < filled.size(); at += element)
        std::memcpy(filled.data() + at, fill_.data(), element);
    }
    copy_part(part, filled.data(), chunk, to, box, element);
    return {};
  });
}

Result<std::vector<std::string>> Array::read_texts(const Box& box) {
  std::vector<std::string> out(box.volume(), fill_text_);
  const auto volume = *product(chunk_, 1);
  ADVECTIO_TRY(for_each_chunk(box, [&](const Box& chunk) -> Result<void> {
    auto data = decoded(chunk.start);
    if (!data) return std::move(data).error();
    if (data->empty()) return {};
    std::vector<std::string> texts(volume);
    if (element_.letters) {
      for (std::uint64_t i = 0; i < volume; ++i) texts[i] = text_of(data->subspan(i * element_.bytes, element_.bytes));
    } else {
      Decoder in(*data);
      if (in.number<std::uint32_t>() != volume) return corrupt("a chunk in " + directory_ + " is damaged");
      for (auto& t : texts) t = in.text();
      if (!in.ok()) return corrupt("a chunk in " + directory_ + " is damaged");
    }
    const auto part = intersect(box, chunk);
    std::vector<std::uint64_t> at = part.start;
    for (;;) {
      std::uint64_t from = 0, to = 0;
      for (std::size_t i = 0; i < at.size(); ++i) {
        from = from * chunk.count[i] + at[i] - chunk.start[i];
        to = to * box.count[i] + at[i] - box.start[i];
      }
      out[to] = texts[from];
      auto i = at.size();
      for (; i > 0; --i) {
        if (++at[i - 1] < part.start[i - 1] + part.count[i - 1]) break;
        at[i - 1] = part.start[i - 1];
      }
      if (i == 0) return {};
    }
  }));
  return out;
}

}  // namespace advectio::zarr
