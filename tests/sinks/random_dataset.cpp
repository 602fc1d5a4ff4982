#include "sinks/random_dataset.h"

#include <algorithm>
#include <cstring>

#include "operators/bit_round.h"

namespace advectio::testing {

namespace {

std::uint64_t below(Random& r, std::uint64_t n) {
  return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(r);
}
bool chance(Random& r, unsigned percent) {
  return below(r, 100) < percent;
}

std::string random_text(Random& r) {
  std::string s(below(r, 9), ' ');
  for (auto& c : s) c = static_cast<char>('a' + below(r, 26));
  return s;
}

String random_string(Random& r) {
  return chance(r, 15) ? std::nullopt : String(random_text(r));
}

Attribute random_attribute(Random& r, const Ability& can, const std::string& name) {
  Attribute a;
  a.name = name;
  if (can.strings && chance(r, 20)) {
    a.type = DataType::string;
    a.count = 1 + below(r, 3);
    for (std::uint64_t i = 0; i < a.count; ++i) a.strings.push_back(random_string(r));
    return a;
  }
  a.type = can.types[below(r, can.types.size())];
  a.count = chance(r, 10) ? 0 : 1 + below(r, 5);
  a.values = a.type == DataType::text ? Bytes(a.count, std::byte{'x'}) : random_values(r, a.type, a.count);
  return a;
}

void cut(Random& r, const Box& box, std::vector<Box>& out, int depth) {
  std::vector<std::size_t> long_ones;
  for (std::size_t i = 0; i < box.rank(); ++i)
    if (box.count[i] > 1) long_ones.push_back(i);
  if (long_ones.empty() || depth == 0 || chance(r, 30)) {
    out.push_back(box);
    return;
  }
  const auto i = long_ones[below(r, long_ones.size())];
  const auto at = 1 + below(r, box.count[i] - 1);
  auto a = box, b = box;
  a.count[i] = at;
  b.start[i] += at;
  b.count[i] -= at;
  cut(r, a, out, depth - 1);
  cut(r, b, out, depth - 1);
}

}  // namespace

Ability ability_of(const Abilities& abilities) {
  Ability out;
  out.strings = out.many_unlimited = false;
  out.storage = abilities.keeps_layout;
  for (const auto& form : abilities.forms) {
    out.formats.push_back(form.format);
    out.many_unlimited = out.many_unlimited || form.unlimited_max > 1;
    for (const auto type : form.types) {
      if (type == DataType::string)
        out.strings = true;
      else if (std::find(out.types.begin(), out.types.end(), type) == out.types.end())
        out.types.push_back(type);
    }
  }
  return out;
}

std::shared_ptr<Operators> rounding(unsigned bits) {
  std::vector<std::unique_ptr<Operator>> all;
  all.push_back(std::make_unique<BitRound>([bits](const std::string&) { return bits; }));
  return std::make_shared<Operators>(std::move(all));
}

Bytes random_values(Random& r, DataType type, std::uint64_t count) {
  if (type == DataType::string) {
    Bytes out;
    Encoder e(out);
    for (std::uint64_t i = 0; i < count; ++i) e.string(random_string(r));
    return out;
  }
  Bytes out(count * size_of(type));
  for (std::uint64_t i = 0; i < count; ++i) {
    auto* to = out.data() + i * size_of(type);
    if (type == DataType::float32) {
      const auto x = static_cast<float>(below(r, 100000)) / 16.0F;
      std::memcpy(to, &x, sizeof x);
    } else if (type == DataType::float64) {
      const auto x = static_cast<double>(below(r, 100000)) / 16.0;
      std::memcpy(to, &x, sizeof x);
    } else {
      for (std::size_t k = 0; k < size_of(type); ++k) to[k] = static_cast<std::byte>(k < 2 ? below(r, 100) + 1 : 0);
    }
  }
  return out;
}

Schema random_schema(Random& r, const Ability& can) {
  Schema s;
  s.format = can.formats[below(r, can.formats.size())];
  const bool classic_model = s.format != FileFormat::netcdf4 && s.format != FileFormat::zarr;
  const auto dims = 1 + below(r, 5);
  for (std::uint64_t d = 0; d < dims; ++d) {
    const bool unlimited = d == 0 ? chance(r, 70) : can.many_unlimited && !classic_model && chance(r, 25);
    s.dimensions.push_back({"d" + std::to_string(d), unlimited ? 0 : 1 + below(r, 9), unlimited});
  }
  std::vector<DataType> types = can.types;
  if (s.format == FileFormat::netcdf4_classic || s.format == FileFormat::classic || s.format == FileFormat::offset64)
    types = {DataType::int8, DataType::text, DataType::int16, DataType::int32, DataType::float32, DataType::float64};
  Ability attributes = can;
  attributes.types = types;
  attributes.strings = can.strings && !classic_model;
  const auto vars = 1 + below(r, 6);
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < vars; ++i) {
    Variable v;
    v.name = "v" + std::to_string(i);
    if (chance(r, 25)) v.name = s.dimensions[below(r, dims)].name;
    if (std::find(names.begin(), names.end(), v.name) != names.end()) v.name = "v" + std::to_string(i);
    names.push_back(v.name);
    v.type = attributes.strings && chance(r, 12) ? DataType::string : types[below(r, types.size())];
    const auto rank = below(r, 5);
    for (std::uint64_t k = 0; k < rank; ++k) {
      // The classic model has the unlimited dimension first or not at all.
      auto d = below(r, dims);
      // Of strings too: HDF5 1.10 cannot read a chunk of strings that was never written, whoever made the file.
      if ((classic_model || v.type == DataType::string) && k > 0)
        while (dims > 1 && s.dimensions[d].unlimited) d = below(r, dims);
      if ((classic_model || v.type == DataType::string) && k > 0 && s.dimensions[d].unlimited) break;
      v.dimensions.push_back(static_cast<std::uint32_t>(d));
    }
    const bool open =
        std::any_of(v.dimensions.begin(), v.dimensions.end(), [&](auto d) { return s.dimensions[d].unlimited; });
    if (can.storage && !v.dimensions.empty() && (open || chance(r, 70))) {
      v.contiguous = false;
      for (const auto d : v.dimensions)
        v.chunks.push_back(
            1 + below(r, s.dimensions[d].unlimited ? 4 : std::min<std::uint64_t>(s.dimensions[d].length, 5)));
      if (v.type != DataType::string && chance(r, 75)) v.filters = can.pipelines[below(r, can.pipelines.size())];
    } else if (can.storage && chance(r, 20)) {
      v.compact = true;
    }
    if (can.storage && size_of(v.type) > 1 && chance(r, 25)) v.endian = chance(r, 60) ? Endian::big : Endian::little;
    if (chance(r, 25) && v.type != DataType::string && can.no_fill) {
      v.no_fill = true;
    } else if (chance(r, 30)) {
      v.has_fill = true;
      Attribute fill{"_FillValue", v.type, 1, {}, {}};
      if (v.type == DataType::string) {
        v.fill_text = chance(r, 30) ? std::nullopt : String("none");
        fill.strings = {v.fill_text};
      } else {
        v.fill = fill.values = random_values(r, v.type, 1);
      }
      v.attributes.push_back(fill);
    }
    for (std::uint64_t a = below(r, 4); a > 0; --a)
      v.attributes.push_back(random_attribute(r, attributes, "a" + std::to_string(a)));
    s.variables.push_back(std::move(v));
  }
  for (std::uint64_t a = below(r, 5); a > 0; --a)
    s.attributes.push_back(random_attribute(r, attributes, "g" + std::to_string(a)));
  return s;
}

std::vector<OwnedBlock> random_frame(Random& r, const Schema& s, std::uint64_t frame) {
  std::vector<OwnedBlock> out;
  const bool appends = s.format == FileFormat::bp5;
  for (std::uint32_t i = 0; i < s.variables.size(); ++i) {
    const auto& v = s.variables[i];
    const bool missing = v.type != DataType::string;
    const bool needed = appends && frame == 0;
    if (missing && !needed && chance(r, 10)) continue;
    Box whole;
    std::vector<std::uint32_t> seen;
    bool open = false;
    for (const auto d : v.dimensions) {
      const auto& dim = s.dimensions[d];
      whole.start.push_back(dim.unlimited ? (appends ? 2 * frame : frame) : 0);
      whole.count.push_back(dim.unlimited ? 1 + below(r, 2) : dim.length);
      open |= dim.unlimited;
    }
    if (!open && frame > 0 && (appends || !chance(r, 25))) continue;
    std::vector<Box> boxes;
    cut(r, whole, boxes, 6);
    if (chance(r, 20)) cut(r, whole, boxes, 2);
    std::shuffle(boxes.begin(), boxes.end(), r);
    for (auto& box : boxes) {
      if (missing && !(needed && &box == boxes.data()) && chance(r, 4)) continue;
      std::vector<std::uint64_t> stride;
      if (missing && chance(r, 6) && box.rank() > 0) {
        for (auto& c : box.count) {
          stride.push_back(c > 2 ? 2 : 1);
          if (c > 2) c = (c + 1) / 2;
        }
      }
      const auto n = box.volume();
      out.emplace_back(i, std::move(box), random_values(r, v.type, n), std::move(stride));
    }
  }
  // Ranks come in any order; of one variable's overlapping blocks the later wins, which the model knows too.
  std::shuffle(out.begin(), out.end(), r);
  return out;
}

}  // namespace advectio::testing
