#include "sources/grib/messages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

namespace advectio::grib {
namespace {

constexpr std::string_view magic = "GRIB", ending = "7777";
constexpr std::uint64_t window_bytes = 64 << 10U;
constexpr std::uint64_t indicator_bytes_1 = 8, indicator_bytes_2 = 16;
// Of the section of values: parameters of the packing come before the values in edition 1.
constexpr std::uint64_t packing_bytes_max = 256;

std::uint64_t number_at(const std::byte* at, int bytes) {
  std::uint64_t out = 0;
  for (int i = 0; i < bytes; ++i) out = out << 8U | static_cast<std::uint8_t>(at[i]);
  return out;
}

bool is_text(const std::byte* at, std::string_view text) {
  return std::memcmp(at, text.data(), text.size()) == 0;
}

Error corrupt(const FieldPlace& place, const std::string& what) {
  return Error{Code::corrupt, text_of(place) + " " + what, 0};
}

struct Section {
  unsigned number = 0;
  std::uint64_t at = 0, bytes = 0;  ///< `at` counts from the message's first byte
};

/// Sections of edition 2 behind the indicator, in their order.
Result<std::vector<Section>> sections_2(File& file, const FieldPlace& place) {
  std::vector<Section> out;
  const auto end = place.bytes - ending.size();
  std::array<std::byte, 5> head{};
  for (auto at = indicator_bytes_2; at < end;) {
    if (at + head.size() > end) return corrupt(place, "has sections that are longer than itself");
    ADVECTIO_TRY(file.read(place.offset + at, head));
    const auto bytes = number_at(head.data(), 4);
    const auto number = static_cast<unsigned>(head[4]);
    if (bytes < head.size() || bytes > end - at || number < 1 || number > 7)
      return corrupt(place, "has a section " + std::to_string(number) + " of " + std::to_string(bytes) +
                                " bytes, which cannot be");
    out.push_back({number, at, bytes});
    at += bytes;
  }
  return out;
}

/// Where the section of values begins in a message of edition 1.
Result<std::uint64_t> values_at_1(File& file, const FieldPlace& place) {
  std::array<std::byte, 8> head{};
  ADVECTIO_TRY(file.read(place.offset + indicator_bytes_1, head));
  auto at = indicator_bytes_1 + number_at(head.data(), 3);
  const auto flags = static_cast<unsigned>(head[7]);
  for (const unsigned flag : {0x80U, 0x40U}) {
    if ((flags & flag) == 0) continue;
    if (at + head.size() > place.bytes) return corrupt(place, "has sections that are longer than itself");
    ADVECTIO_TRY(file.read(place.offset + at, head));
    at += number_at(head.data(), 3);
  }
  if (at + 3 > place.bytes) return corrupt(place, "has sections that are longer than itself");
  return at;
}

/// Length of a message of edition 1. One of 8 MiB and more says it in units of 120 bytes, less what its
/// section of values says.
Result<std::uint64_t> length_1(File& file, FieldPlace place, std::uint64_t said) {
  constexpr std::uint64_t large = 0x800000;
  if ((said & large) == 0) return said;
  place.bytes = UINT64_MAX;
  auto at = values_at_1(file, place);
  if (!at) return std::move(at).error();
  std::array<std::byte, 3> head{};
  ADVECTIO_TRY(file.read(place.offset + *at, head));
  const auto values = number_at(head.data(), 3);
  return values < 120 ? (said & ~large) * 120 - values + 4 : said;
}

/// The four bytes behind "GRIB" are text: it is a word of a bulletin's header. In a message the last one is the
/// edition; a damaged one alone makes no word of it. Or they are blanks and SOH, 1, with which the next bulletin
/// begins.
bool is_word(const std::byte* at) {
  const auto blank = [](std::byte b) {
    const auto c = static_cast<unsigned>(b);
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
  };
  const auto letter = [&](std::byte b) { return blank(b) || (b > std::byte{' '} && b <= std::byte{'~'}); };
  return std::all_of(at + 4, at + 8, letter) || (at[7] == std::byte{1} && std::all_of(at + 4, at + 7, blank));
}

/// The first place from `from` on where a message begins; none: there is no more.
Result<std::optional<std::uint64_t>> next_message(File& file, std::uint64_t from, std::uint64_t size) {
  Bytes window;
  for (auto bytes = std::uint64_t{16}; from + indicator_bytes_1 <= size; bytes = window_bytes) {
    window.resize(std::min(bytes, size - from));
    ADVECTIO_TRY(file.read(from, window));
    const std::string_view text(reinterpret_cast<const char*>(window.data()), window.size());
    std::uint64_t beyond = 0;  // of this window: all before is no message
    for (auto found = text.find(magic); found != std::string_view::npos; found = text.find(magic, beyond)) {
      if (size - from - found < indicator_bytes_1) return std::optional(from + found);  // it is cut off
      if (found + indicator_bytes_1 > text.size()) {
        beyond = found;  // the next window has it whole
        break;
      }
      if (!is_word(window.data() + found)) return std::optional(from + found);
      beyond = found + magic.size();
    }
    if (beyond != 0) {
      from += beyond;
      continue;
    }
    from += window.size() < magic.size() ? window.size() : window.size() - magic.size() + 1;
  }
  return std::optional<std::uint64_t>();
}

Result<void> add_message(File& file, FieldPlace place, std::uint64_t size, std::vector<FieldPlace>& to) {
  std::array<std::byte, indicator_bytes_2> head{};
  const auto there = std::min<std::uint64_t>(head.size(), size - place.offset);
  if (there < head.size()) return corrupt(place, "is cut off: the file ends within it");
  ADVECTIO_TRY(file.read(place.offset, head));
  const auto edition = static_cast<unsigned>(head[7]);
  if (edition == 1) {
    auto length = length_1(file, place, number_at(head.data() + 4, 3));
    if (!length)
      return length.error().code == Code::corrupt ? std::move(length).error()
                                                  : corrupt(place, "is cut off: the file ends within it");
    place.bytes = *length;
  } else if (edition == 2) {
    place.bytes = number_at(head.data() + 8, 8);
  } else {
    return Error{Code::unsupported,
                 text_of(place) + " is GRIB of edition " + std::to_string(edition) + "; 1 and 2 are read", 0};
  }
  const auto least = edition == 1 ? indicator_bytes_1 + 28 : indicator_bytes_2;
  if (place.bytes < least + ending.size()) return corrupt(place, "says that it is shorter than its header");
  if (place.bytes > size - place.offset)
    return corrupt(place, "is cut off: it has " + std::to_string(place.bytes) + " bytes, and the file ends after " +
                              std::to_string(size - place.offset));
  std::array<std::byte, 4> last{};
  ADVECTIO_TRY(file.read(place.offset + place.bytes - last.size(), last));
  if (!is_text(last.data(), ending)) return corrupt(place, "does not end with 7777: it is damaged");
  place.field = 1;
  if (edition == 1) {
    to.push_back(place);
    return {};
  }
  auto sections = sections_2(file, place);
  if (!sections) return std::move(sections).error();
  const auto fields = std::count_if(sections->begin(), sections->end(), [](const auto& s) { return s.number == 7; });
  if (fields == 0 || sections->back().number != 7) return corrupt(place, "has no values");
  place.alone = fields == 1;
  for (long i = 0; i < fields; ++i, ++place.field) to.push_back(place);
  return {};
}

/// A message of edition 2 of those sections that belong to one field.
Result<Bytes> taken_apart(File& file, const FieldPlace& place) {
  auto sections = sections_2(file, place);
  if (!sections) return std::move(sections).error();
  std::map<unsigned, Section> latest;
  std::optional<Section> bitmap;
  std::uint32_t fields = 0;
  for (const auto& s : *sections) {
    latest[s.number] = s;
    if (s.number == 6 && s.bytes > 6) bitmap = s;
    if (s.number == 7 && ++fields == place.field) break;
  }
  // A bitmap may be that of a field before.
  if (const auto six = latest.find(6); six != latest.end() && six->second.bytes == 6) {
    std::byte kind{};
    ADVECTIO_TRY(file.read(place.offset + six->second.at + 5, std::span(&kind, 1)));
    if (kind == std::byte{254} && !bitmap) return corrupt(place, "refers to a bitmap that it does not have");
    if (kind == std::byte{254}) six->second = *bitmap;
  }
  Bytes out(indicator_bytes_2);
  ADVECTIO_TRY(file.read(place.offset, out));
  for (const auto& [number, s] : latest) {
    out.resize(out.size() + s.bytes);
    ADVECTIO_TRY(file.read(place.offset + s.at, std::span(out).last(s.bytes)));
  }
  for (const char c : ending) out.push_back(static_cast<std::byte>(c));
  for (int i = 0; i < 8; ++i) out[8 + i] = static_cast<std::byte>(out.size() >> (8U * (7 - i)) & 0xffU);
  return out;
}

}  // namespace

std::string text_of(const FieldPlace& place) {
  auto text = "message " + std::to_string(place.message) + " (byte " + std::to_string(place.offset) + " of the file)";
  if (!place.alone) text = "field " + std::to_string(place.field) + " of " + text;
  return text;
}

Result<std::vector<FieldPlace>> find_fields(File& file) {
  auto size = file.size();
  if (!size) return std::move(size).error();
  std::vector<FieldPlace> out;
  FieldPlace place;
  for (std::uint64_t at = 0;; at = place.offset + out.back().bytes) {
    auto begin = next_message(file, at, *size);
    if (!begin) return std::move(begin).error();
    if (!*begin) break;
    place.offset = **begin;
    ++place.message;
    ADVECTIO_TRY(add_message(file, place, *size, out));
  }
  if (out.empty()) return Error{Code::unsupported, "holds no GRIB message", 0};
  return out;
}

Result<Bytes> field_bytes(File& file, const FieldPlace& place, bool header_only) {
  if (!place.alone) return taken_apart(file, place);
  Bytes out(place.bytes);
  if (!header_only) {
    ADVECTIO_TRY(file.read(place.offset, out));
    return out;
  }
  std::array<std::byte, indicator_bytes_1> head{};
  ADVECTIO_TRY(file.read(place.offset, head));
  std::uint64_t values = 0;
  if (static_cast<unsigned>(head[7]) == 1) {
    auto at = values_at_1(file, place);
    if (!at) return std::move(at).error();
    values = *at;
  } else {
    auto sections = sections_2(file, place);
    if (!sections) return std::move(sections).error();
    values = sections->back().at;
  }
  const auto known = std::min(place.bytes, values + packing_bytes_max);
  ADVECTIO_TRY(file.read(place.offset, std::span(out).first(known)));
  const auto last = std::min<std::uint64_t>(ending.size(), place.bytes - known);
  ADVECTIO_TRY(file.read(place.offset + place.bytes - last, std::span(out).last(last)));
  return out;
}

Bytes grid_section(const Bytes& message) {
  const auto* const data = message.data();
  const auto section = [&](std::uint64_t at, std::uint64_t bytes) {
    bytes = at > message.size() ? 0 : std::min(bytes, message.size() - at);
    return Bytes(data + at, data + at + bytes);
  };
  if (message.size() < 32) return {};
  if (static_cast<unsigned>(data[7]) == 2) {
    for (auto at = indicator_bytes_2; at + 5 <= message.size();) {
      const auto bytes = number_at(data + at, 4);
      if (static_cast<unsigned>(data[at + 4]) == 3) return section(at, bytes);
      if (bytes < 5) break;
      at += bytes;
    }
    return {};
  }
  if ((static_cast<unsigned>(data[indicator_bytes_1 + 7]) & 0x80U) == 0) {
    // A grid of a catalogue: its number.
    return section(indicator_bytes_1 + 6, 1);
  }
  const auto at = indicator_bytes_1 + number_at(data + indicator_bytes_1, 3);
  if (at + 6 > message.size()) return {};
  auto grid = section(at, number_at(data + at, 3));
  // Its length, and the coefficients of vertical coordinates, are not the grid's.
  const auto coefficients = number_at(data + at + 3, 1), begin = number_at(data + at + 4, 1);
  if (coefficients > 0 && begin > 0 && begin - 1 + 4 * coefficients <= grid.size()) {
    const auto from = grid.begin() + static_cast<std::ptrdiff_t>(begin - 1);
    grid.erase(from, from + static_cast<std::ptrdiff_t>(4 * coefficients));
  }
  grid.erase(grid.begin(), grid.begin() + std::min<std::ptrdiff_t>(5, static_cast<std::ptrdiff_t>(grid.size())));
  return grid;
}

bool begins_with_message(const Bytes& first_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first_bytes.data()), first_bytes.size());
  if (text.starts_with("CDF")) return false;  // netCDF, in which GRIB may be a name
  for (auto found = text.find(magic); found != std::string_view::npos; found = text.find(magic, found + magic.size())) {
    if (found + indicator_bytes_1 > text.size()) return false;
    // Before it: control characters and text.
    if (std::any_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(found),
                    [](char c) { return static_cast<unsigned char>(c) > '~'; }))
      return false;
    if (is_word(first_bytes.data() + found)) continue;
    const auto edition = static_cast<unsigned>(first_bytes[found + 7]);
    return found == 0 || edition == 1 || edition == 2;
  }
  return false;
}

}  // namespace advectio::grib
