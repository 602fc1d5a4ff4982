// Attributes as this source makes them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "core/schema.h"

namespace advectio::grib {

inline Attribute attribute(std::string name, const std::string& text) {
  Attribute a{std::move(name), DataType::text, text.size(), Bytes(text.size()), {}};
  std::memcpy(a.values.data(), text.data(), text.size());
  return a;
}

template <typename T>
Attribute numbers_attribute(std::string name, DataType type, const std::vector<T>& values) {
  Attribute a{std::move(name), type, values.size(), Bytes(values.size() * sizeof(T)), {}};
  std::memcpy(a.values.data(), values.data(), a.values.size());
  return a;
}

inline Attribute attribute(std::string name, std::int32_t value) {
  return numbers_attribute<std::int32_t>(std::move(name), DataType::int32, {value});
}

inline Attribute attribute(std::string name, double value) {
  return numbers_attribute<double>(std::move(name), DataType::float64, {value});
}

}  // namespace advectio::grib
