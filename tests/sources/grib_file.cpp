#include "sources/grib_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "sources/grib/grib_source.h"

namespace advectio::testing {
namespace {

constexpr double noon_2026_01_31_s = 1769860800;

class Writer {
 public:
  Writer& number(std::uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i)
      out_.push_back(static_cast<std::byte>(value >> (8U * static_cast<unsigned>(i)) & 0xffU));
    return *this;
  }
  Writer& text(const char* s) {
    for (; *s != '\0'; ++s) out_.push_back(static_cast<std::byte>(*s));
    return *this;
  }
  Writer& all(const Bytes& bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  [[nodiscard]] const Bytes& bytes() const { return out_; }

 private:
  Bytes out_;
};

/// A section of edition 1: its length of three bytes, then what is in it, of an even length.
Bytes section(Bytes contents) {
  if (contents.size() % 2 == 0) contents.push_back(std::byte{0});
  return Writer().number(contents.size() + 3, 3).all(contents).bytes();
}

template <typename T>
Bytes raw(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

}  // namespace

Bytes encoded(const GribMessage& m) {
  Writer product;
  product.number(128, 1).number(98, 1).number(1, 1).number(255, 1).number(m.has_bitmap ? 0xc0 : 0x80, 1);
  product.number(130, 1).number(100, 1).number(m.level, 2);
  product.number(26, 1).number(1, 1).number(31, 1).number(12, 1).number(0, 1);  // year of the century, to the minute
  product.number(1, 1).number(m.step, 1).number(0, 5).number(21, 1).number(0, 3);
  const auto north = (m.rows - 1) * 1000, east = (m.columns - 1) * 1000;
  Writer grid;
  grid.number(0, 1).number(255, 1).number(0, 1).number(m.columns, 2).number(m.rows, 2);
  grid.number(north, 3).number(0, 3).number(0x80, 1).number(0, 3).number(east, 3);
  grid.number(1000, 2).number(1000, 2).number(0, 1).number(0, 4);
  Writer bitmap, values;
  std::vector<unsigned> bits;
  // The last 8 bits are padding; no scale, reference 0.
  values.number(8, 1).number(0, 2).number(0, 4).number(16, 1);
  for (const auto v : m.values) {
    bits.push_back(m.has_bitmap && v == m.missing ? 0 : 1);
    if (bits.back() != 0) values.number(v, 2);
  }
  const auto unused = (16 - bits.size() % 16) % 16;
  bitmap.number(unused, 1).number(0, 2);
  bits.resize(bits.size() + unused, 0);
  for (std::size_t i = 0; i < bits.size(); i += 8) {
    unsigned byte = 0;
    for (std::size_t b = 0; b < 8; ++b) byte = byte << 1U | bits[i + b];
    bitmap.number(byte, 1);
  }
  Writer body;
  // 28 and 32 bytes: an even length, whatever is in them.
  body.number(28, 3).all(product.bytes()).number(32, 3).all(grid.bytes());
  if (m.has_bitmap) body.all(section(bitmap.bytes()));
  body.all(section(values.bytes()));
  return Writer()
      .text("GRIB")
      .number(8 + body.bytes().size() + 4, 3)
      .number(1, 1)
      .all(body.bytes())
      .text("7777")
      .bytes();
}

Contents make_grib(Random& random, const std::string& path) {
  const auto any = [&](unsigned from, unsigned to) {
    return std::uniform_int_distribution<unsigned>(from, to)(random);
  };
  const std::uint64_t rows = any(2, 7), columns = any(2, 9);
  std::set<unsigned> steps, levels;
  for (unsigned i = any(1, 4); i > 0; --i) steps.insert(any(0, 100));
  while (levels.size() < 2 || any(0, 1) != 0) levels.insert(any(1, 1000));
  std::vector<GribMessage> messages;
  for (const auto step : steps)
    for (const auto level : levels) {
      // The first of each is there, so that the cube is this one.
      if (step != *steps.begin() && level != *levels.begin() && any(0, 3) == 0) continue;
      GribMessage m{level, step, rows, columns, {}, any(0, 1) == 1, static_cast<std::uint16_t>(any(0, 3))};
      for (std::uint64_t i = 0; i < rows * columns; ++i)
        m.values.push_back(static_cast<std::uint16_t>(any(0, 1) == 0 ? any(0, 3) : any(0, 65535)));
      messages.push_back(std::move(m));
    }
  std::shuffle(messages.begin(), messages.end(), random);
  std::ofstream file(path, std::ios::binary);
  for (const auto& m : messages) {
    const auto bytes = encoded(m);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  file.close();

  float fill = 0;
  std::memcpy(&fill, default_fill(DataType::float32).data(), sizeof fill);
  std::vector<float> t(steps.size() * levels.size() * rows * columns, fill);
  for (const auto& m : messages) {
    const auto step = static_cast<std::size_t>(std::distance(steps.begin(), steps.find(m.step)));
    // Pressures from the ground up.
    const auto level = static_cast<std::size_t>(std::distance(levels.find(m.level), levels.end())) - 1;
    for (std::uint64_t i = 0; i < rows * columns; ++i)
      if (!m.has_bitmap || m.values[i] != m.missing)
        t[(step * levels.size() + level) * rows * columns + i] = static_cast<float>(m.values[i]);
  }
  std::map<std::string, std::vector<double>> coordinates;
  for (const auto s : steps) {
    coordinates["time"].push_back(noon_2026_01_31_s + s * 3600.0);
    coordinates["forecast_reference_time"].push_back(noon_2026_01_31_s);
    coordinates["step"].push_back(s);
  }
  coordinates["isobaricInhPa"].assign(levels.rbegin(), levels.rend());
  for (std::uint64_t i = 0; i < rows; ++i) coordinates["latitude"].push_back(static_cast<double>(rows - 1 - i));
  for (std::uint64_t i = 0; i < columns; ++i) coordinates["longitude"].push_back(static_cast<double>(i));

  Contents out;
  const auto source = open_grib_source(path);
  if (!source) return out;
  const auto head = (*source)->head();
  out.schema = head->schema;
  for (std::size_t d = 0; d < head->lengths.size(); ++d) out.schema.dimensions[d].length = head->lengths[d];
  for (auto& v : out.schema.variables) {
    if (v.fill.empty()) v.fill = default_fill(v.type);
    out.values.push_back(v.name == "t" ? raw(t) : raw(coordinates[v.name]));
  }
  out.strings.resize(out.values.size());
  return out;
}

}  // namespace advectio::testing
