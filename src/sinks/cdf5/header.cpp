#include "sinks/cdf5/header.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

namespace advectio {

namespace {

/// The format is big-endian, and all its pieces have a multiple of 4 bytes.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  void wide(bool w) noexcept { number_bytes_ = w ? 8 : 4; }

  std::uint64_t bytes(std::size_t n) {
    std::uint64_t out = 0;
    if (n > in_.size() - at_) {
      ok_ = false;
      at_ = in_.size();
      return 0;
    }
    for (std::size_t i = 0; i < n; ++i) out = out << 8U | std::to_integer<std::uint64_t>(in_[at_++]);
    return out;
  }
  /// A number that is never negative: of 8 bytes from version 5 on.
  std::uint64_t number() { return bytes(number_bytes_); }
  void skip(std::uint64_t n) {
    if (n > in_.size() - at_) {
      ok_ = false;
      at_ = in_.size();
    } else {
      at_ += n;
    }
  }
  void name() { skip(padded(number())); }
  /// How many follow in a list.
  std::uint64_t list() {
    (void)bytes(4);  // tag
    return number();
  }
  void attributes() {
    for (auto n = list(); n > 0 && ok_; --n) {
      name();
      const auto type = static_cast<DataType>(bytes(4));
      const auto count = number();
      if (count > in_.size()) ok_ = false;
      skip(padded(count * size_of(type)));
    }
  }
  static std::uint64_t padded(std::uint64_t n) noexcept { return (n + 3) / 4 * 4; }

 private:
  std::span<const std::byte> in_;
  std::size_t at_ = 0;
  std::size_t number_bytes_ = 4;
  bool ok_ = true;
};

/// False: there has to be more of it.
bool parse(std::span<const std::byte> bytes, ClassicLayout& out) {
  Reader in(bytes);
  if (in.bytes(3) != 0x434446) return false;  // "CDF"
  out.version = static_cast<unsigned>(in.bytes(1));
  in.wide(out.version == 5);
  out.records = in.number();
  std::vector<std::uint64_t> dimensions;
  for (auto n = in.list(); n > 0 && in.ok(); --n) {
    in.name();
    dimensions.push_back(in.number());
  }
  in.attributes();
  std::uint64_t last_bytes = 0;  // without padding
  for (auto n = in.list(); n > 0 && in.ok(); --n) {
    ClassicVariable v;
    in.name();
    for (auto rank = in.number(); rank > 0 && in.ok(); --rank) {
      const auto d = in.number();
      if (d >= dimensions.size()) return false;
      v.lengths.push_back(dimensions[d]);
    }
    in.attributes();
    v.type = static_cast<DataType>(in.bytes(4));
    // The older versions cannot always hold this number of bytes. It is computed below.
    (void)in.number();
    v.begin = in.bytes(out.version == 1 ? 4 : 8);
    v.has_records = !v.lengths.empty() && v.lengths[0] == 0;
    std::uint64_t exactly = size_of(v.type);
    for (std::size_t i = v.has_records ? 1 : 0; i < v.lengths.size(); ++i) exactly *= v.lengths[i];
    v.bytes = Reader::padded(exactly);
    out.variables.push_back(std::move(v));
    if (!out.variables.back().has_records) continue;
    ++out.record_variables;
    out.record_bytes += out.variables.back().bytes;
    last_bytes = exactly;
  }
  // One alone is not padded.
  if (out.record_variables == 1) out.record_bytes = last_bytes;
  out.header_bytes = in.at();
  return in.ok();
}

}  // namespace

Result<ClassicLayout> read_classic_layout(File& file) {
  auto size = file.size();
  if (!size) return std::move(size).error();
  std::vector<std::byte> bytes;
  for (std::uint64_t n = 64U << 10U;; n *= 4) {
    bytes.resize(std::min(n, *size));
    ADVECTIO_TRY(file.read(0, bytes));
    ClassicLayout out;
    if (parse(bytes, out)) return out;
    if (n >= *size) return Error{Code::corrupt, "no whole header of a classic file", 0};
  }
}

}  // namespace advectio
