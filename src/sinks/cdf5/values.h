// Values on their way between memory and a classic file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace advectio {

/// Bytes that are swapped or filled, and written, at once. They stay in the core's cache.
constexpr std::uint64_t write_bytes = 256U << 10U;

/// Bytes to write next, of `left` at offset `at`: whole elements, up to the next multiple of write_bytes.
inline std::uint64_t next_piece(std::uint64_t at, std::uint64_t left, std::uint64_t element) noexcept {
  auto n = write_bytes - at % write_bytes;
  n -= n % element;
  return std::min(left, n == 0 ? write_bytes : n);
}

template <typename T>
void swap_as(std::byte* to, const std::byte* from, std::size_t elements) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    T x;
    std::memcpy(&x, from + i * sizeof x, sizeof x);
    if constexpr (sizeof x == 2) x = __builtin_bswap16(x);
    if constexpr (sizeof x == 4) x = __builtin_bswap32(x);
    if constexpr (sizeof x == 8) x = __builtin_bswap64(x);
    std::memcpy(to + i * sizeof x, &x, sizeof x);
  }
}

/// Between our byte order and the file's.
inline void swap_to(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t element) noexcept {
  switch (element) {
    case 2: return swap_as<std::uint16_t>(to, from, bytes / 2);
    case 4: return swap_as<std::uint32_t>(to, from, bytes / 4);
    case 8: return swap_as<std::uint64_t>(to, from, bytes / 8);
    default: std::memcpy(to, from, bytes);
  }
}

}  // namespace advectio
