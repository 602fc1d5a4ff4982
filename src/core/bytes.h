// Plain little-endian encoding of small structures, for the journal and the ledger. Decoding never trusts a length:
// a read beyond the end makes the decoder bad and returns zeros, and `Decoder::ok()` tells.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace advectio {

static_assert(std::endian::native == std::endian::little, "the journal is written in native little-endian order");

using Bytes = std::vector<std::byte>;

/// A string of NC_STRING. None: a null pointer, which netCDF keeps apart from the empty string.
using String = std::optional<std::string>;
/// Stands where its length would.
inline constexpr std::uint32_t null_string = UINT32_MAX;

class Encoder {
 public:
  explicit Encoder(Bytes& out) : out_(out) {}

  template <typename T>
  requires std::is_arithmetic_v<T>
  void number(T value) { raw(&value, sizeof value); }
  /// Length (u32), then the bytes.
  void text(std::string_view s) {
    number(static_cast<std::uint32_t>(s.size()));
    raw(s.data(), s.size());
  }
  /// The same, or `null_string`.
  void string(const char* s) {
    if (s != nullptr)
      text(s);
    else
      number(null_string);
  }
  void string(const String& s) {
    if (s)
      text(*s);
    else
      number(null_string);
  }
  /// Length (u32), then the bytes.
  void blob(std::span<const std::byte> s) {
    number(static_cast<std::uint32_t>(s.size()));
    raw(s.data(), s.size());
  }
  void raw(const void* data, std::size_t n) {
    if (n == 0) return;
    // Not `insert`: gcc 12 warns of its copy of what an empty vector has.
    const auto at = out_.size();
    out_.resize(at + n);
    std::memcpy(out_.data() + at, data, n);
  }

 private:
  Bytes& out_;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> in) : in_(in) {}

  template <typename T>
  requires std::is_arithmetic_v<T> T number() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, in_.data() + at_ - sizeof value, sizeof value);
    return value;
  }
  std::string text() {
    const auto n = number<std::uint32_t>();
    if (!take(n)) return {};
    return {reinterpret_cast<const char*>(in_.data() + at_ - n), n};
  }
  String string() {
    const auto n = number<std::uint32_t>();
    if (!ok_ || n == null_string) return std::nullopt;
    at_ -= sizeof n;
    return text();
  }
  Bytes blob() {
    const auto n = number<std::uint32_t>();
    if (!take(n)) return {};
    return {in_.begin() + static_cast<std::ptrdiff_t>(at_ - n), in_.begin() + static_cast<std::ptrdiff_t>(at_)};
  }
  /// A count of things of at least `least` bytes each; makes the decoder bad when that many cannot follow.
  std::uint32_t count(std::size_t least) {
    const auto n = number<std::uint32_t>();
    if (ok_ && static_cast<std::uint64_t>(n) * least > in_.size() - at_) ok_ = false;
    return ok_ ? n : 0;
  }

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] bool at_end() const noexcept { return at_ == in_.size(); }
  [[nodiscard]] std::size_t position() const noexcept { return at_; }

 private:
  bool take(std::size_t n) {
    if (!ok_ || n > in_.size() - at_) {
      ok_ = false;
      return false;
    }
    at_ += n;
    return true;
  }

  std::span<const std::byte> in_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace advectio
