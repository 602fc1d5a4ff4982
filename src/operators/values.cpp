#include "operators/values.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

namespace advectio {
namespace {

/// Calls `with` with a value of the element type; not of text and strings.
template <typename With>
void of_type(DataType type, With with) {
  switch (type) {
    case DataType::int8: return with(std::int8_t{});
    case DataType::int16: return with(std::int16_t{});
    case DataType::int32: return with(std::int32_t{});
    case DataType::int64: return with(std::int64_t{});
    case DataType::uint8: return with(std::uint8_t{});
    case DataType::uint16: return with(std::uint16_t{});
    case DataType::uint32: return with(std::uint32_t{});
    case DataType::uint64: return with(std::uint64_t{});
    case DataType::float32: return with(float{});
    case DataType::float64: return with(double{});
    case DataType::none:
    case DataType::text:
    case DataType::string: return;
  }
}

double as_double(DataType type, const std::byte* value) {
  double out = 0;
  of_type(type, [&](auto t) {
    std::memcpy(&t, value, sizeof t);
    out = static_cast<double>(t);
  });
  return out;
}

/// `_Unsigned` of netCDF says that the integers of a signed type are unsigned ones ("true"), or the other way round.
DataType type_of_values(const Variable& v) {
  static constexpr std::pair<DataType, DataType> both[] = {{DataType::int8, DataType::uint8},
                                                           {DataType::int16, DataType::uint16},
                                                           {DataType::int32, DataType::uint32},
                                                           {DataType::int64, DataType::uint64}};
  const auto said = text_of(v.attributes, "_Unsigned");
  for (const auto& [with_sign, without] : both) {
    if (v.type == with_sign && (said == "true" || said == "True")) return without;
    if (v.type == without && (said == "false" || said == "False")) return with_sign;
  }
  return v.type;
}

}  // namespace

const Attribute* find_attribute(const std::vector<Attribute>& attributes, std::string_view name) {
  const auto it =
      std::find_if(attributes.begin(), attributes.end(), [&](const Attribute& a) { return a.name == name; });
  return it == attributes.end() ? nullptr : &*it;
}

std::string text_of(const std::vector<Attribute>& attributes, std::string_view name) {
  const auto* const a = find_attribute(attributes, name);
  if (a == nullptr) return {};
  if (a->type == DataType::string) return a->strings.empty() ? "" : a->strings.front().value_or("");
  if (a->type != DataType::text) return {};
  std::string text(reinterpret_cast<const char*>(a->values.data()), a->values.size());
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

namespace {
/// Attributes of the type `stored` hold values of the type `meant`.
std::vector<double> numbers_of(const std::vector<Attribute>& attributes, std::string_view name, DataType stored,
                               DataType meant) {
  std::vector<double> out;
  const auto* const a = find_attribute(attributes, name);
  if (a == nullptr || !is_numeric(a->type)) return out;
  const auto type = a->type == stored ? meant : a->type;
  for (std::size_t i = 0; i < a->count; ++i) out.push_back(as_double(type, a->values.data() + i * size_of(type)));
  return out;
}
}  // namespace

std::vector<double> numbers_of(const std::vector<Attribute>& attributes, std::string_view name) {
  return numbers_of(attributes, name, DataType::none, DataType::none);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

void set_text(std::vector<Attribute>& attributes, const std::string& name, const std::string& text) {
  Attribute a;
  a.name = name;
  a.type = DataType::text;
  a.count = text.size();
  const auto bytes = std::as_bytes(std::span(text));
  a.values.assign(bytes.begin(), bytes.end());
  for (auto& other : attributes)
    if (other.name == name) {
      other = std::move(a);
      return;
    }
  attributes.push_back(std::move(a));
}

void remove_attribute(std::vector<Attribute>& attributes, std::string_view name) {
  std::erase_if(attributes, [&](const Attribute& a) { return a.name == name; });
}

bool is_numeric(DataType type) noexcept {
  return type != DataType::none && type != DataType::text && type != DataType::string;
}

Packing packing_of(const Variable& v) {
  Packing p;
  p.stored = v.type;
  p.type = type_of_values(v);
  const auto scale = numbers_of(v.attributes, "scale_factor"), offset = numbers_of(v.attributes, "add_offset");
  if (!scale.empty()) p.scale = scale.front();
  if (!offset.empty()) p.offset = offset.front();
  for (const char* name : {"_FillValue", "missing_value"})
    for (const auto value : numbers_of(v.attributes, name, v.type, p.type))
      if (std::find(p.missing.begin(), p.missing.end(), value) == p.missing.end()) p.missing.push_back(value);
  if (find_attribute(v.attributes, "_FillValue") == nullptr && !v.no_fill && size_of(v.type) > 1)
    p.missing.push_back(as_double(p.type, default_fill(v.type).data()));
  const auto* const packed_as = find_attribute(v.attributes, scale.empty() ? "add_offset" : "scale_factor");
  const bool single =
      packed_as != nullptr && p.packed() ? packed_as->type == DataType::float32 : v.type == DataType::float32;
  p.unpacked = single ? DataType::float32 : DataType::float64;
  return p;
}

void unpack(const Packing& p, const std::byte* raw, std::span<double> out) noexcept {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto n = out.size();
  double* const to = out.data();
  // Nearly always there are at most two.
  const double first = p.missing.empty() ? nan : p.missing[0], second = p.missing.size() < 2 ? first : p.missing[1];
  const double scale = p.scale, offset = p.offset;
  of_type(p.type, [&](auto t) {
    using T = decltype(t);
    for (std::size_t i = 0; i < n; ++i) {
      T value;
      std::memcpy(&value, raw + i * sizeof(T), sizeof(T));
      const auto v = static_cast<double>(value);
      to[i] = v == first || v == second ? nan : v;
    }
    // Apart: -0 * 1 + 0 would be 0.
    for (std::size_t i = 0; p.packed() && i < n; ++i) to[i] = to[i] * scale + offset;
    for (std::size_t m = 2; m < p.missing.size(); ++m)
      for (std::size_t i = 0; i < n; ++i) {
        T value;
        std::memcpy(&value, raw + i * sizeof(T), sizeof(T));
        if (static_cast<double>(value) == p.missing[m]) to[i] = nan;
      }
  });
}

void widen(DataType type, const std::byte* raw, std::span<double> out) noexcept {
  const auto n = out.size();
  double* const to = out.data();
  of_type(type, [&](auto t) {
    using T = decltype(t);
    for (std::size_t i = 0; i < n; ++i) {
      T value;
      std::memcpy(&value, raw + i * sizeof(T), sizeof(T));
      to[i] = static_cast<double>(value);
    }
  });
}

void narrow(DataType type, double fill, std::span<const double> values, std::byte* out) noexcept {
  const auto n = values.size();
  const double* const from = values.data();
  of_type(type, [&](auto t) {
    using T = decltype(t);
    for (std::size_t i = 0; i < n; ++i) {
      T value;
      if constexpr (std::is_floating_point_v<T>)
        value = static_cast<T>(from[i] == from[i] ? from[i] : fill);
      else
        value = static_cast<T>(from[i]);
      std::memcpy(out + i * sizeof(T), &value, sizeof(T));
    }
  });
}

}  // namespace advectio
