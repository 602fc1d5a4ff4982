#include "core/schema.h"

#include <algorithm>
#include <cstring>

namespace advectio {

namespace {

constexpr std::uint32_t schema_version = 1;

void put_attributes(Encoder& e, const std::vector<Attribute>& attributes) {
  e.number(static_cast<std::uint32_t>(attributes.size()));
  for (const auto& a : attributes) {
    e.text(a.name);
    e.number(static_cast<std::int32_t>(a.type));
    e.number(a.count);
    e.blob(a.values);
    e.number(static_cast<std::uint32_t>(a.strings.size()));
    for (const auto& s : a.strings) e.string(s);
  }
}

bool get_attributes(Decoder& d, std::vector<Attribute>& out) {
  const auto n = d.count(24);
  out.reserve(n);
  for (std::uint32_t i = 0; i < n && d.ok(); ++i) {
    Attribute a;
    a.name = d.text();
    a.type = static_cast<DataType>(d.number<std::int32_t>());
    a.count = d.number<std::uint64_t>();
    a.values = d.blob();
    const auto m = d.count(4);
    for (std::uint32_t k = 0; k < m && d.ok(); ++k) a.strings.push_back(d.string());
    if (!d.ok() || !is_known(a.type)) return false;
    const bool fits = a.type == DataType::string ? a.strings.size() == a.count && a.values.empty()
                                                 : a.count <= a.values.size() && a.strings.empty() &&
                                                       a.values.size() == a.count * size_of(a.type);
    if (!fits) return false;
    out.push_back(std::move(a));
  }
  return d.ok();
}

template <typename T>
Bytes bytes_of(T value) {
  Bytes out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

}  // namespace

Bytes encode(const Schema& schema) {
  Bytes out;
  Encoder e(out);
  e.number(schema_version);
  e.number(static_cast<std::int32_t>(schema.format));
  e.number(schema.header_pad);
  e.number(schema.data_align);
  e.number(schema.data_pad);
  e.number(schema.record_align);
  e.number(static_cast<std::uint32_t>(schema.dimensions.size()));
  for (const auto& d : schema.dimensions) {
    e.text(d.name);
    e.number(d.length);
    e.number(static_cast<std::uint8_t>(d.unlimited));
  }
  put_attributes(e, schema.attributes);
  e.number(static_cast<std::uint32_t>(schema.variables.size()));
  for (const auto& v : schema.variables) {
    e.text(v.name);
    e.number(static_cast<std::int32_t>(v.type));
    e.number(static_cast<std::uint32_t>(v.dimensions.size()));
    for (const auto d : v.dimensions) e.number(d);
    put_attributes(e, v.attributes);
    e.number(static_cast<std::uint8_t>(v.contiguous));
    e.number(static_cast<std::uint8_t>(v.compact));
    e.number(static_cast<std::uint32_t>(v.chunks.size()));
    for (const auto c : v.chunks) e.number(c);
    e.number(static_cast<std::uint32_t>(v.filters.size()));
    for (const auto& f : v.filters) {
      e.number(f.id);
      e.number(static_cast<std::uint32_t>(f.parameters.size()));
      for (const auto p : f.parameters) e.number(p);
    }
    e.number(static_cast<std::uint8_t>(v.endian));
    e.number(static_cast<std::uint8_t>(v.no_fill));
    e.number(static_cast<std::uint8_t>(v.has_fill));
    e.blob(v.fill);
    e.string(v.fill_text);
    e.number(v.round_bits);
  }
  return out;
}

Result<Schema> decode_schema(std::span<const std::byte> bytes) {
  const auto bad = [] { return Error{Code::corrupt, "the bytes are not a schema", 0}; };
  Decoder d(bytes);
  if (const auto version = d.number<std::uint32_t>(); version != schema_version)
    return Error{Code::corrupt,
                 "schema version " + std::to_string(version) + ", this program reads " + std::to_string(schema_version),
                 0};
  Schema s;
  s.format = static_cast<FileFormat>(d.number<std::int32_t>());
  if (s.format < FileFormat::classic || s.format > FileFormat::cdf5) return bad();
  s.header_pad = d.number<std::uint64_t>();
  s.data_align = d.number<std::uint64_t>();
  s.data_pad = d.number<std::uint64_t>();
  s.record_align = d.number<std::uint64_t>();
  const auto dims = d.count(13);
  for (std::uint32_t i = 0; i < dims && d.ok(); ++i) {
    Dimension dim;
    dim.name = d.text();
    dim.length = d.number<std::uint64_t>();
    dim.unlimited = d.number<std::uint8_t>() != 0;
    s.dimensions.push_back(std::move(dim));
  }
  if (!get_attributes(d, s.attributes)) return bad();
  const auto vars = d.count(40);
  for (std::uint32_t i = 0; i < vars && d.ok(); ++i) {
    Variable v;
    v.name = d.text();
    v.type = static_cast<DataType>(d.number<std::int32_t>());
    const auto rank = d.count(4);
    for (std::uint32_t k = 0; k < rank; ++k) {
      v.dimensions.push_back(d.number<std::uint32_t>());
      if (v.dimensions.back() >= s.dimensions.size()) return bad();
    }
    if (!get_attributes(d, v.attributes)) return bad();
    v.contiguous = d.number<std::uint8_t>() != 0;
    v.compact = d.number<std::uint8_t>() != 0;
    const auto chunks = d.count(8);
    for (std::uint32_t k = 0; k < chunks; ++k) {
      v.chunks.push_back(d.number<std::uint64_t>());
      if (v.chunks.back() == 0) return bad();
    }
    const auto filters = d.count(8);
    for (std::uint32_t k = 0; k < filters; ++k) {
      Filter f;
      f.id = d.number<std::uint32_t>();
      const auto n = d.count(4);
      for (std::uint32_t p = 0; p < n; ++p) f.parameters.push_back(d.number<std::uint32_t>());
      v.filters.push_back(std::move(f));
    }
    v.endian = static_cast<Endian>(d.number<std::uint8_t>());
    v.no_fill = d.number<std::uint8_t>() != 0;
    v.has_fill = d.number<std::uint8_t>() != 0;
    v.fill = d.blob();
    v.fill_text = d.string();
    v.round_bits = d.number<std::uint32_t>();
    if (!d.ok() || !is_known(v.type) || v.endian > Endian::big) return bad();
    if (!v.chunks.empty() && v.chunks.size() != v.dimensions.size()) return bad();
    if (!v.contiguous && v.chunks.empty()) return bad();
    if (!v.fill.empty() && v.fill.size() != size_of(v.type)) return bad();
    s.variables.push_back(std::move(v));
  }
  if (!d.ok() || !d.at_end()) return bad();
  return s;
}

bool stored_alike(const Variable& a, const Variable& b) noexcept {
  return !a.contiguous && !b.contiguous && a.type == b.type && a.type != DataType::string && a.chunks == b.chunks &&
         a.endian == b.endian && a.filters == b.filters &&
         std::none_of(a.filters.begin(), a.filters.end(), [](const Filter& f) { return f.id == filter_id::szip; });
}

std::uint64_t frame_bytes(const Schema& schema) noexcept {
  std::uint64_t total = 0;
  for (const auto& v : schema.variables) {
    std::uint64_t n = v.type == DataType::string ? 16 : size_of(v.type);
    for (const auto d : v.dimensions) {
      const auto& dim = schema.dimensions[d];
      if (!dim.unlimited) n *= dim.length;
    }
    total += n;
  }
  return total;
}

Bytes default_fill(DataType type) {
  switch (type) {
    case DataType::int8: return bytes_of<std::int8_t>(-127);
    case DataType::text: return bytes_of<char>(0);
    case DataType::int16: return bytes_of<std::int16_t>(-32767);
    case DataType::int32: return bytes_of<std::int32_t>(-2147483647);
    case DataType::float32: return bytes_of<float>(9.9692099683868690e+36F);
    case DataType::float64: return bytes_of<double>(9.9692099683868690e+36);
    case DataType::uint8: return bytes_of<std::uint8_t>(255);
    case DataType::uint16: return bytes_of<std::uint16_t>(65535);
    case DataType::uint32: return bytes_of<std::uint32_t>(4294967295U);
    case DataType::int64: return bytes_of<std::int64_t>(-9223372036854775806LL);
    case DataType::uint64: return bytes_of<std::uint64_t>(18446744073709551614ULL);
    case DataType::string:
    case DataType::none: return {};
  }
  return {};
}

}  // namespace advectio
