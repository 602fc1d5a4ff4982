#include "readers/base64.h"

#include <algorithm>

namespace advectio::readers {

namespace {
constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}

std::string to_base64(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < n ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? letters[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

Result<Bytes> from_base64(std::string_view text) {
  const Error bad{Code::corrupt, "this is no base64", 0};
  if (text.size() % 4 != 0) return bad;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  Bytes out;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pad = i + padding >= text.size();
    const auto value = pad ? 0 : letters.find(text[i]);
    if (value == std::string_view::npos) return bad;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 == 3)
      for (int shift = 16; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(bits >> shift & 255));
  }
  out.resize(out.size() - padding);
  return out;
}

}  // namespace advectio::readers
