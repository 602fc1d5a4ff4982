#include "sources/zarr/zarr_source.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "platform/files.h"
#include "sinks/zarr/metadata.h"
#include "sources/zarr/array.h"

namespace advectio {

namespace {

using zarr::Array;
using zarr::Json;

constexpr const char* metadata_name = "zarr.json";

Error corrupt(const std::string& what) {
  return Error{Code::corrupt, what, 0};
}

// Python writes numbers that JSON has not: NaN, Infinity, -Infinity. They are parsed as strings with this in front.
constexpr char bare = '\x01';
constexpr std::string_view bare_names[] = {"NaN", "Infinity", "-Infinity"};

/// The same text as JSON.
std::string with_bare_names_as_strings(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto* name = std::ranges::find_if(
        bare_names, [&](std::string_view n) { return !in_string && text.substr(i, n.size()) == n; });
    if (name != std::end(bare_names)) {
      out.append("\"\\u0001").append(*name).append("\"");
      i += name->size() - 1;
      continue;
    }
    out += text[i];
    if (in_string && text[i] == '\\' && i + 1 < text.size())
      out += text[++i];
    else if (text[i] == '"')
      in_string = !in_string;
  }
  return out;
}

void set_bare_names(Json& json) {
  if (json.is_structured())
    for (auto& inner : json) set_bare_names(inner);
  if (!json.is_string()) return;
  const auto& text = json.get_ref<const std::string&>();
  if (text.empty() || text.front() != bare) return;
  const auto number = zarr::value_of(Json(text.substr(1)), DataType::float64);
  if (!number) return;
  double x = 0;
  std::memcpy(&x, number->data(), sizeof x);
  json = x;
}

Result<Json> json_at(const std::string& path) {
  auto bytes = read_file(system_files(), path);
  if (!bytes) return std::move(bytes).error();
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    json = Json::parse(with_bare_names_as_strings(text), nullptr, false);
    set_bare_names(json);
  }
  if (!json.is_object()) return corrupt(path + " is not JSON");
  return json;
}

Attribute text_attribute(const std::string& name, const std::string& text) {
  Attribute a{name, DataType::text, text.size(), Bytes(text.size()), {}};
  std::memcpy(a.values.data(), text.data(), text.size());
  return a;
}

/// `_FillValue` of numbers and characters: as xarray writes it, or as a plain value.
std::optional<Bytes> fill_of(const Json& value, DataType type) {
  if (auto plain = zarr::value_of(value, type)) return plain;
  if (!value.is_string()) return std::nullopt;
  auto bytes = zarr::from_base64(value.get<std::string>());
  if (!bytes) return std::nullopt;
  if (type == DataType::text) {
    bytes->resize(1);
    return bytes;
  }
  double x = 0;
  if (bytes->size() != sizeof x) return std::nullopt;
  std::memcpy(&x, bytes->data(), sizeof x);
  return zarr::value_of(Json(x), type).value_or(*zarr::value_of(Json("NaN"), type));
}

/// Of the type that netCDF had, where the store tells it (`types`); else of one that holds the value.
Attribute attribute_of(const std::string& name, const Json& value, const Json& types) {
  auto type = zarr::attribute_type(value);
  const std::string told = types.contains(name) && types[name].is_string() ? types[name].get<std::string>() : "";
  for (int t = 1; t <= static_cast<int>(DataType::string); ++t)
    if (told == name_of(static_cast<DataType>(t))) type = static_cast<DataType>(t);
  if (const auto plus = told.find('+'); plus != std::string::npos && value.is_string()) {
    std::size_t zeros = 0;
    std::from_chars(told.data() + plus + 1, told.data() + told.size(), zeros);
    return text_attribute(name, value.get<std::string>() + std::string(std::min<std::size_t>(zeros, 65536), '\0'));
  }
  const Json all = value.is_array() ? value : Json::array({value});
  if (type == DataType::none) return text_attribute(name, value.dump());
  if (type == DataType::text && all.empty()) return text_attribute(name, "");
  if (type == DataType::text) return text_attribute(name, value.is_string() ? value.get<std::string>() : value.dump());
  Attribute a{name, type, all.size(), {}, {}};
  for (const auto& x : all) {
    if (type == DataType::string) {
      a.strings.emplace_back(x.is_string() ? x.get<std::string>() : x.dump());
      continue;
    }
    const auto bytes = zarr::value_of(x, type);
    if (!bytes) return text_attribute(name, value.dump());  // not what it is said to be
    a.values.insert(a.values.end(), bytes->begin(), bytes->end());
  }
  return a;
}

class ZarrSource final : public Source {
 public:
  explicit ZarrSource(std::string path) : path_(std::move(path)) {}

  Result<void> open();

  [[nodiscard]] Result<SourceHead> head() const override { return head_; }
  Result<void> read(std::uint32_t variable, const Box& box, std::byte* to) const override;
  [[nodiscard]] Result<Bytes> read_strings(std::uint32_t variable, const Box& box) const override;

 private:
  Result<std::vector<std::pair<std::string, Json>>> arrays_of(const Json& root) const;
  Result<void> add(const std::string& name, const Json& metadata);
  Result<std::uint32_t> dimension(const std::string& name, std::uint64_t length);
  [[nodiscard]] Error of_array(std::uint32_t variable, Error error) const {
    return std::move(error).with(path_ + ": array " + head_.schema.variables[variable].name);
  }

  std::string path_;
  SourceHead head_;
  bool ours_ = false;            ///< written by our sink
  Json types_ = Json::object();  ///< of attributes: by array ("" the group), by name
  mutable std::vector<Array> arrays_;
};

Result<std::uint32_t> ZarrSource::dimension(const std::string& name, std::uint64_t length) {
  auto& all = head_.schema.dimensions;
  for (std::size_t d = 0; d < all.size(); ++d) {
    if (all[d].name != name) continue;
    if (head_.lengths[d] == length) return static_cast<std::uint32_t>(d);
    return Error{Code::unsupported,
                 "dimension " + name + " has length " + std::to_string(length) + ", and in other arrays " +
                     std::to_string(head_.lengths[d]) + ", which netCDF cannot have",
                 0};
  }
  all.push_back({name, length, false});
  head_.lengths.push_back(length);
  return static_cast<std::uint32_t>(all.size() - 1);
}

Result<void> ZarrSource::add(const std::string& name, const Json& metadata) {
  if (metadata.value("node_type", "") == std::string("group"))
    return Error{Code::unsupported, "it is a group within the store; only stores without nested groups are read", 0};
  auto parsed = Array::parse(metadata, path_ + '/' + name);
  if (!parsed) return std::move(parsed).error();
  const auto& array = *parsed;
  const auto& element = array.element();
  Variable v;
  v.name = name;
  v.type = element.type;
  const Json names = metadata.contains("dimension_names") ? metadata["dimension_names"] : Json();
  bool grows = false;
  for (std::size_t i = 0; i < array.shape().size(); ++i) {
    const auto length = array.shape()[i];
    const bool named = names.is_array() && i < names.size() && names[i].is_string();
    auto d = dimension(named ? names[i].get<std::string>() : "dim_" + std::to_string(length), length);
    if (!d) return std::move(d).error();
    v.dimensions.push_back(*d);
    const auto& dim = head_.schema.dimensions[*d];
    grows = grows || dim.unlimited;
    v.chunks.push_back(dim.unlimited ? array.chunk()[i]
                                     : std::min(array.chunk()[i], std::max<std::uint64_t>(1, length)));
  }
  if (element.type == DataType::text && element.bytes > 1) {
    auto d = dimension("string" + std::to_string(element.bytes), element.bytes);
    if (!d) return std::move(d).error();
    v.dimensions.push_back(*d);
    v.chunks.push_back(element.bytes);
  }
  v.filters = array.chain().filters;
  if (array.chain().big_endian && element.word > 1) v.endian = Endian::big;
  const bool one_chunk = std::equal(array.chunk().begin(), array.chunk().end(), array.shape().begin(),
                                    [](auto chunk, auto length) { return chunk >= length; });
  v.contiguous = v.chunks.empty() || (!grows && one_chunk && v.filters.empty());
  if (v.contiguous) {
    v.chunks.clear();
    v.filters.clear();
  }
  if (v.type == DataType::string) v.filters.clear();
  const Json types = types_.contains(name) ? types_[name] : Json::object();
  if (metadata.contains("attributes"))
    for (const auto& [key, value] : metadata["attributes"].items()) {
      if (key == "_FillValue" && v.type != DataType::string) {
        auto fill = fill_of(value, v.type);
        if (!fill) continue;
        v.has_fill = true;
        v.fill = *fill;
        v.attributes.push_back({key, v.type, 1, std::move(*fill), {}});
        continue;
      }
      v.attributes.push_back(attribute_of(key, value, types));
    }
  if (element.is_bool && !(metadata.contains("attributes") && metadata["attributes"].contains("dtype")))
    v.attributes.push_back(text_attribute("dtype", "bool"));
  // Our sink keeps what is in force, which a program may have set to something else than the attribute.
  if (ours_ && v.has_fill && v.type != DataType::text && array.fill() != default_fill(v.type)) v.fill = array.fill();
  if (v.has_fill && v.fill == default_fill(v.type)) v.fill.clear();
  head_.schema.variables.push_back(std::move(v));
  arrays_.push_back(std::move(parsed).value());
  return {};
}

/// By the consolidated metadata, which are what readers go by; else by what is in the directory.
Result<std::vector<std::pair<std::string, Json>>> ZarrSource::arrays_of(const Json& root) const {
  std::vector<std::pair<std::string, Json>> arrays;
  if (root.contains("consolidated_metadata") && root["consolidated_metadata"].is_object()) {
    const auto& all = root["consolidated_metadata"];
    if (all.contains("metadata"))
      for (const auto& [name, metadata] : all["metadata"].items()) arrays.emplace_back(name, metadata);
    return arrays;
  }
  auto names = system_files().list(path_);
  if (!names) return std::move(names).error();
  for (const auto& name : *names) {
    const auto file = path_ + '/' + name + '/' + metadata_name;
    if (name.starts_with('.') || !system_files().exists(file)) continue;
    auto json = json_at(file);
    if (!json) return std::move(json).error();
    arrays.emplace_back(name, std::move(json).value());
  }
  return arrays;
}

Result<void> ZarrSource::open() {
  const auto there = [&](const char* name) { return system_files().exists(path_ + '/' + name); };
  if (!there(metadata_name)) {
    if (there(".zgroup") || there(".zarray") || there(".zmetadata"))
      return Error{Code::unsupported,
                   path_ +
                       " is a Zarr store of version 2, and only version 3 is read (in Python: "
                       "xarray.open_zarr(\"" +
                       path_ + "\").to_zarr(\"new.zarr\", zarr_format=3))",
                   0};
    return Error{Code::unsupported, path_ + " is a directory, and no Zarr store", 0};
  }
  if (there(".advectio-redo"))
    return Error{Code::invalid,
                 path_ +
                     " is in the midst of a commit: whoever writes it has died, or is about to finish; "
                     "see `advectio recover`",
                 0};
  auto root = json_at(path_ + '/' + metadata_name);
  if (!root) return std::move(root).error();
  try {
    if (root->at("zarr_format") != 3) return Error{Code::unsupported, path_ + " is not a Zarr store of version 3", 0};
    if (root->at("node_type") != "group")
      return Error{Code::unsupported, path_ + " is a single Zarr array, and only groups of arrays are read", 0};
    auto& schema = head_.schema;
    schema.format = FileFormat::zarr;
    if (root->contains("consolidated_metadata") && root->at("consolidated_metadata").is_object()) {
      // What our sink says beside the arrays.
      const auto& beside = root->at("consolidated_metadata");
      ours_ = beside.contains("attribute_types");
      if (ours_) types_ = beside["attribute_types"];
      const auto unlimited = beside.value("unlimited_dimensions", Json::array());
      if (beside.contains("dimensions"))
        for (const auto& [name, length] : beside["dimensions"].items()) {
          const bool grows = std::find(unlimited.begin(), unlimited.end(), name) != unlimited.end();
          schema.dimensions.push_back({name, grows ? 0 : length.get<std::uint64_t>(), grows});
          head_.lengths.push_back(length.get<std::uint64_t>());
        }
    }
    const Json types = types_.contains("") ? types_[""] : Json::object();
    if (root->contains("attributes"))
      for (const auto& [key, value] : root->at("attributes").items())
        schema.attributes.push_back(attribute_of(key, value, types));
    auto arrays = arrays_of(*root);
    if (!arrays) return std::move(arrays).error();
    for (const auto& [name, metadata] : *arrays) ADVECTIO_TRY_WITH(add(name, metadata), path_ + ": array " + name);
  } catch (const nlohmann::json::exception& e) {
    return corrupt(path_ + '/' + metadata_name + " is not what a Zarr store has: " + e.what());
  }
  return {};
}

Result<void> ZarrSource::read(std::uint32_t variable, const Box& box, std::byte* to) const {
  if (box.empty()) return {};
  auto& array = arrays_[variable];
  const auto& element = array.element();
  if (element.type != DataType::text || element.bytes == 1) {
    auto done = array.read(box, to);
    return done ? std::move(done) : of_array(variable, std::move(done).error());
  }
  // Whole texts are the array's elements; the box may cut them.
  auto texts = box;
  texts.start.pop_back();
  texts.count.pop_back();
  Bytes whole(texts.volume() * element.bytes);
  if (auto done = array.read(texts, whole.data()); !done) return of_array(variable, std::move(done).error());
  for (std::uint64_t i = 0; i < texts.volume(); ++i)
    std::memcpy(to + i * box.count.back(), whole.data() + i * element.bytes + box.start.back(), box.count.back());
  return {};
}

Result<Bytes> ZarrSource::read_strings(std::uint32_t variable, const Box& box) const {
  auto texts = arrays_[variable].read_texts(box);
  if (!texts) return of_array(variable, std::move(texts).error());
  Bytes out;
  Encoder e(out);
  for (const auto& t : *texts) e.text(t);
  return out;
}

}  // namespace

bool is_zarr(const std::string& path) {
  for (const char* name : {metadata_name, ".zgroup", ".zarray", ".zmetadata"})
    if (system_files().exists(path + '/' + name)) return true;
  return false;
}

Result<std::unique_ptr<Source>> open_zarr_source(const std::string& path) {
  auto source = std::make_unique<ZarrSource>(path);
  ADVECTIO_TRY(source->open());
  return std::unique_ptr<Source>(std::move(source));
}

}  // namespace advectio
