#include "capture/shadow/conversion.h"

#include <cfloat>
#include <cstdint>

namespace advectio::shadow {
namespace {

template <typename To, typename From>
void copy_as(const void* from, void* to, std::size_t n) {
  const auto* in = static_cast<const From*>(from);
  auto* out = static_cast<To*>(to);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<To>(in[i]);
}

/// False where some value lies outside float's range: builds differ in what they store then.
bool narrow(const void* from, void* to, std::size_t n) {
  const auto* in = static_cast<const double*>(from);
  auto* out = static_cast<float*>(to);
  bool outside = false;
  for (std::size_t i = 0; i < n; ++i) {
    outside |= in[i] > static_cast<double>(FLT_MAX) || in[i] < -static_cast<double>(FLT_MAX);
    out[i] = static_cast<float>(in[i]);
  }
  return !outside;
}

constexpr int pair(DataType memory, DataType type) {
  return static_cast<int>(memory) * 256 + static_cast<int>(type);
}

}  // namespace

bool convert_exactly(const void* from, DataType memory, void* to, DataType type, std::size_t n) {
  switch (pair(memory, type)) {
    case pair(DataType::float64, DataType::float32): return narrow(from, to, n);
    case pair(DataType::float32, DataType::float64): copy_as<double, float>(from, to, n); return true;
    case pair(DataType::int8, DataType::int16): copy_as<std::int16_t, std::int8_t>(from, to, n); return true;
    case pair(DataType::int8, DataType::int32): copy_as<std::int32_t, std::int8_t>(from, to, n); return true;
    case pair(DataType::int8, DataType::int64): copy_as<std::int64_t, std::int8_t>(from, to, n); return true;
    case pair(DataType::uint8, DataType::int16): copy_as<std::int16_t, std::uint8_t>(from, to, n); return true;
    case pair(DataType::uint8, DataType::uint16): copy_as<std::uint16_t, std::uint8_t>(from, to, n); return true;
    case pair(DataType::uint8, DataType::int32): copy_as<std::int32_t, std::uint8_t>(from, to, n); return true;
    case pair(DataType::uint8, DataType::uint32): copy_as<std::uint32_t, std::uint8_t>(from, to, n); return true;
    case pair(DataType::uint8, DataType::int64): copy_as<std::int64_t, std::uint8_t>(from, to, n); return true;
    case pair(DataType::uint8, DataType::uint64): copy_as<std::uint64_t, std::uint8_t>(from, to, n); return true;
    case pair(DataType::int16, DataType::int32): copy_as<std::int32_t, std::int16_t>(from, to, n); return true;
    case pair(DataType::int16, DataType::int64): copy_as<std::int64_t, std::int16_t>(from, to, n); return true;
    case pair(DataType::uint16, DataType::int32): copy_as<std::int32_t, std::uint16_t>(from, to, n); return true;
    case pair(DataType::uint16, DataType::uint32): copy_as<std::uint32_t, std::uint16_t>(from, to, n); return true;
    case pair(DataType::uint16, DataType::int64): copy_as<std::int64_t, std::uint16_t>(from, to, n); return true;
    case pair(DataType::uint16, DataType::uint64): copy_as<std::uint64_t, std::uint16_t>(from, to, n); return true;
    case pair(DataType::int32, DataType::int64): copy_as<std::int64_t, std::int32_t>(from, to, n); return true;
    case pair(DataType::uint32, DataType::int64): copy_as<std::int64_t, std::uint32_t>(from, to, n); return true;
    case pair(DataType::uint32, DataType::uint64): copy_as<std::uint64_t, std::uint32_t>(from, to, n); return true;
    default: return false;
  }
}

}  // namespace advectio::shadow
