#include "sinks/netcdf_reference.h"

#include <netcdf.h>
#include <netcdf_filter.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "sinks/library_lock.h"

namespace advectio::testing {

namespace {

void check(int status, const std::string& what) {
  if (status != NC_NOERR) throw std::runtime_error(what + ": " + nc_strerror(status));
}

std::vector<String> strings_in(const Bytes& data) {
  std::vector<String> out;
  Decoder d(data);
  while (!d.at_end() && d.ok()) out.push_back(d.string());
  return out;
}

void put_attribute(int nc, int id, const Attribute& a) {
  if (a.type == DataType::string) {
    std::vector<const char*> p;
    for (const auto& s : a.strings) p.push_back(s ? s->c_str() : nullptr);
    check(nc_put_att_string(nc, id, a.name.c_str(), p.size(), p.data()), a.name);
  } else {
    check(nc_put_att(nc, id, a.name.c_str(), static_cast<nc_type>(a.type), a.count, a.values.data()), a.name);
  }
}

std::vector<Attribute> get_attributes(int nc, int id, int n) {
  std::vector<Attribute> out;
  for (int i = 0; i < n; ++i) {
    std::array<char, NC_MAX_NAME + 1> name{};
    check(nc_inq_attname(nc, id, i, name.data()), "attribute name");
    Attribute a;
    a.name = name.data();
    nc_type type = NC_NAT;
    std::size_t count = 0;
    check(nc_inq_att(nc, id, name.data(), &type, &count), a.name);
    a.type = static_cast<DataType>(type);
    a.count = count;
    if (a.type == DataType::string) {
      std::vector<char*> p(count);
      check(nc_get_att_string(nc, id, name.data(), p.data()), a.name);
      for (const auto* s : p) a.strings.push_back(s != nullptr ? String(s) : std::nullopt);
      check(nc_free_string(count, p.data()), a.name);
    } else {
      a.values.resize(count * size_of(a.type));
      if (count > 0) check(nc_get_att(nc, id, name.data(), a.values.data()), a.name);
    }
    out.push_back(std::move(a));
  }
  return out;
}

Variable get_variable(int nc, int id, bool hdf5) {
  Variable v;
  std::array<char, NC_MAX_NAME + 1> name{};
  nc_type type = NC_NAT;
  int rank = 0, atts = 0;
  std::array<int, NC_MAX_VAR_DIMS> dims{};
  check(nc_inq_var(nc, id, name.data(), &type, &rank, dims.data(), &atts), "variable");
  v.name = name.data();
  v.type = static_cast<DataType>(type);
  v.dimensions.assign(dims.begin(), dims.begin() + rank);
  v.attributes = get_attributes(nc, id, atts);
  if (!hdf5) return v;
  int storage = 0;
  std::vector<std::size_t> chunks(static_cast<std::size_t>(rank));
  check(nc_inq_var_chunking(nc, id, &storage, chunks.data()), "chunking of " + v.name);
  v.contiguous = storage == NC_CONTIGUOUS;
  v.compact = storage == NC_COMPACT;
  if (storage == NC_CHUNKED) v.chunks.assign(chunks.begin(), chunks.end());
  std::size_t filters = 0;
  if (nc_inq_var_filter_ids(nc, id, &filters, nullptr) == NC_NOERR && filters > 0) {
    std::vector<unsigned> ids(filters);
    check(nc_inq_var_filter_ids(nc, id, &filters, ids.data()), "filters of " + v.name);
    for (const auto f : ids) {
      std::size_t n = 0;
      check(nc_inq_var_filter_info(nc, id, f, &n, nullptr), "filter of " + v.name);
      Filter filter{f, std::vector<std::uint32_t>(n)};
      check(nc_inq_var_filter_info(nc, id, f, &n, filter.parameters.data()), "filter of " + v.name);
      v.filters.push_back(std::move(filter));
    }
  }
  int endian = 0;
  if (v.type != DataType::string && v.type != DataType::text) {
    check(nc_inq_var_endian(nc, id, &endian), "endian of " + v.name);
    v.endian = endian == NC_ENDIAN_BIG ? Endian::big : Endian::little;
  }
  int no_fill = 0;
  if (v.type == DataType::string) {
    char* text = nullptr;
    check(nc_inq_var_fill(nc, id, &no_fill, &text), "fill of " + v.name);
    v.fill_text = text != nullptr ? String(text) : std::nullopt;
    if (text != nullptr) nc_free_string(1, &text);
  } else {
    v.fill.resize(size_of(v.type));
    check(nc_inq_var_fill(nc, id, &no_fill, v.fill.data()), "fill of " + v.name);
  }
  v.no_fill = no_fill != 0;
  return v;
}

std::string describe(const std::vector<Attribute>& attributes) {
  std::string s;
  for (const auto& a : attributes) {
    s += " " + a.name + ":" + std::string(name_of(a.type)) + "[" + std::to_string(a.count) + "]=";
    for (std::size_t i = 0; i < std::min<std::size_t>(a.values.size(), 16); ++i)
      s += std::to_string(std::to_integer<int>(a.values[i])) + ",";
    for (const auto& t : a.strings) s += t ? "\"" + *t + "\"" : "NULL";
  }
  return s;
}

template <typename T>
std::string list(const T& v) {
  std::string s;
  for (const auto& x : v) s += std::to_string(x) + ",";
  return s;
}

std::string describe(const Variable& v) {
  std::string s = v.name + " " + std::string(name_of(v.type)) + "(" + list(v.dimensions) + ") " +
                  (v.compact      ? "compact"
                   : v.contiguous ? "contiguous"
                                  : "chunks " + list(v.chunks)) +
                  " filters";
  for (const auto& f : v.filters) s += " " + std::to_string(f.id) + "[" + list(f.parameters) + "]";
  s += " endian " + std::to_string(static_cast<int>(v.endian)) + (v.no_fill ? " nofill" : " fill ");
  if (!v.no_fill)
    for (const auto b : v.fill) s += std::to_string(std::to_integer<int>(b)) + ",";
  return s + v.fill_text.value_or("NULL") + " attributes" + describe(v.attributes);
}

std::uint64_t step_of(const Block& b, std::size_t i) {
  return b.stride.empty() ? 1 : b.stride[i];
}

}  // namespace

OwnedBlock::OwnedBlock(std::uint32_t variable, Box box, Bytes bytes, std::vector<std::uint64_t> stride)
    : block{variable, std::move(box), std::move(stride), nullptr, bytes.size()}, data(std::move(bytes)) {
  block.data = data.data();
}
OwnedBlock::OwnedBlock(const OwnedBlock& other) : block(other.block), data(other.data) {
  block.data = data.data();
}
OwnedBlock& OwnedBlock::operator=(const OwnedBlock& other) {
  block = other.block;
  data = other.data;
  block.data = data.data();
  return *this;
}

void write_by_netcdf(const std::string& path, const Schema& s, const std::vector<OwnedBlock>& blocks) {
  const std::lock_guard lock(library_mutex());
  int mode = NC_CLOBBER;
  switch (s.format) {
    case FileFormat::classic: break;
    case FileFormat::offset64: mode |= NC_64BIT_OFFSET; break;
    case FileFormat::cdf5: mode |= NC_64BIT_DATA; break;
    case FileFormat::netcdf4: mode |= NC_NETCDF4; break;
    case FileFormat::netcdf4_classic: mode |= NC_NETCDF4 | NC_CLASSIC_MODEL; break;
    case FileFormat::zarr:
    case FileFormat::bp5:
    case FileFormat::sst: mode |= NC_NETCDF4; break;
  }
  int nc = -1;
  check(nc_create(path.c_str(), mode, &nc), path);
  for (const auto& d : s.dimensions) {
    int id = 0;
    check(nc_def_dim(nc, d.name.c_str(), d.unlimited ? NC_UNLIMITED : d.length, &id), d.name);
  }
  for (const auto& v : s.variables) {
    int id = 0;
    const std::vector<int> dims(v.dimensions.begin(), v.dimensions.end());
    check(nc_def_var(nc, v.name.c_str(), static_cast<nc_type>(v.type), static_cast<int>(dims.size()), dims.data(), &id),
          v.name);
    if (!is_classic(s.format)) {
      const std::vector<std::size_t> chunks(v.chunks.begin(), v.chunks.end());
      if (v.compact)
        check(nc_def_var_chunking(nc, id, NC_COMPACT, nullptr), v.name);
      else if (!v.contiguous)
        check(nc_def_var_chunking(nc, id, NC_CHUNKED, chunks.data()), v.name);
      if (v.endian != Endian::native)
        check(nc_def_var_endian(nc, id, v.endian == Endian::big ? NC_ENDIAN_BIG : NC_ENDIAN_LITTLE), v.name);
      // Not every netCDF library has the codecs of Zarr, and values are the same without.
      for (const auto& f : is_store(s.format) ? std::vector<Filter>() : v.filters) {
        if (f.id == filter_id::shuffle)
          check(nc_def_var_deflate(nc, id, 1, 0, 0), v.name);
        else if (f.id == filter_id::fletcher32)
          check(nc_def_var_fletcher32(nc, id, NC_FLETCHER32), v.name);
        else
          check(nc_def_var_filter(nc, id, f.id, f.parameters.size(), f.parameters.data()), v.name);
      }
    }
    if (v.no_fill) {
      check(nc_def_var_fill(nc, id, NC_NOFILL, nullptr), v.name);
    } else if (v.has_fill) {
      const char* text = v.fill_text ? v.fill_text->c_str() : nullptr;
      check(nc_def_var_fill(nc, id, NC_FILL,
                            v.type == DataType::string ? static_cast<const void*>(&text) : v.fill.data()),
            v.name);
    }
    for (const auto& a : v.attributes)
      if (a.name != "_FillValue") put_attribute(nc, id, a);
  }
  for (const auto& a : s.attributes) put_attribute(nc, NC_GLOBAL, a);
  check(nc_enddef(nc), path);
  // Variables without records are filled now. Records are not to be, which nc_def_var_fill of each
  // variable would not say.
  int before = 0;
  if (is_classic(s.format) && std::all_of(s.variables.begin(), s.variables.end(), [&s](const Variable& v) {
        return v.no_fill || v.dimensions.empty() || !s.dimensions[v.dimensions[0]].unlimited;
      }))
    check(nc_set_fill(nc, NC_NOFILL, &before), path);
  for (const auto& o : blocks) {
    const auto& b = o.block;
    const std::vector<std::size_t> start(b.box.start.begin(), b.box.start.end()),
        count(b.box.count.begin(), b.box.count.end());
    std::vector<std::ptrdiff_t> stride;
    for (std::size_t i = 0; i < start.size(); ++i) stride.push_back(static_cast<std::ptrdiff_t>(step_of(b, i)));
    const auto texts = s.variables[b.variable].type == DataType::string ? strings_in(o.data) : std::vector<String>();
    std::vector<const char*> p;
    for (const auto& t : texts) p.push_back(t ? t->c_str() : nullptr);
    check(nc_put_vars(nc, static_cast<int>(b.variable), start.data(), count.data(), stride.data(),
                      p.empty() ? static_cast<const void*>(b.data) : p.data()),
          s.variables[b.variable].name);
  }
  check(nc_close(nc), path);
}

Contents read_by_netcdf(const std::string& path) {
  const std::lock_guard lock(library_mutex());
  Contents c;
  int nc = -1;
  check(nc_open(path.c_str(), NC_NOWRITE, &nc), path);
  struct Close {
    int nc;
    ~Close() { nc_close(nc); }
  } close{nc};
  int format = 0, extended = 0, dims = 0, vars = 0, atts = 0, unlimited = 0;
  check(nc_inq_format(nc, &format), path);
  check(nc_inq_format_extended(nc, &extended, nullptr), path);
  c.schema.format = format == NC_FORMAT_CLASSIC        ? FileFormat::classic
                    : format == NC_FORMAT_64BIT_OFFSET ? FileFormat::offset64
                    : format == NC_FORMAT_CDF5         ? FileFormat::cdf5
                    : format == NC_FORMAT_NETCDF4      ? FileFormat::netcdf4
                                                       : FileFormat::netcdf4_classic;
  const bool hdf5 = is_hdf5(c.schema.format);
  check(nc_inq(nc, &dims, &vars, &atts, &unlimited), path);
  check(nc_inq_unlimdims(nc, &unlimited, nullptr), path);
  std::vector<int> open(static_cast<std::size_t>(unlimited));
  if (unlimited > 0) check(nc_inq_unlimdims(nc, &unlimited, open.data()), path);
  for (int d = 0; d < dims; ++d) {
    std::array<char, NC_MAX_NAME + 1> name{};
    std::size_t length = 0;
    check(nc_inq_dim(nc, d, name.data(), &length), path);
    c.schema.dimensions.push_back({name.data(), length, std::find(open.begin(), open.end(), d) != open.end()});
  }
  c.schema.attributes = get_attributes(nc, NC_GLOBAL, atts);
  for (int i = 0; i < vars; ++i) {
    const auto v = get_variable(nc, i, hdf5);
    std::vector<std::size_t> start(v.dimensions.size(), 0), count;
    std::size_t n = 1;
    for (const auto d : v.dimensions) {
      count.push_back(c.schema.dimensions[d].length);
      n *= count.back();
    }
    Bytes bytes(n * size_of(v.type));
    std::vector<String> texts;
    if (v.type == DataType::string) {
      std::vector<char*> p(n);
      if (n > 0) check(nc_get_vara(nc, i, start.data(), count.data(), p.data()), path + ": read " + v.name);
      for (const auto* t : p) texts.push_back(t != nullptr ? String(t) : std::nullopt);
      if (n > 0) check(nc_free_string(n, p.data()), v.name);
    } else if (n > 0) {
      check(nc_get_vara(nc, i, start.data(), count.data(), bytes.data()), path + ": read " + v.name);
    }
    c.values.push_back(std::move(bytes));
    c.strings.push_back(std::move(texts));
    c.schema.variables.push_back(v);
  }
  return c;
}

std::string difference(const Contents& a, const Contents& b, const std::vector<std::vector<bool>>& written,
                       bool values_of_simple) {
  if (a.schema.format != b.schema.format) return "formats";
  const auto& x = a.schema;
  const auto& y = b.schema;
  if (x.dimensions.size() != y.dimensions.size()) return "number of dimensions";
  for (std::size_t d = 0; d < x.dimensions.size(); ++d)
    if (!(x.dimensions[d] == y.dimensions[d]))
      return "dimension " + std::to_string(d) + ": " + x.dimensions[d].name + " " +
             std::to_string(x.dimensions[d].length) + (x.dimensions[d].unlimited ? " unlimited" : "") + " against " +
             y.dimensions[d].name + " " + std::to_string(y.dimensions[d].length) +
             (y.dimensions[d].unlimited ? " unlimited" : "");
  if (x.attributes != y.attributes)
    return "global attributes:" + describe(x.attributes) + "\n against" + describe(y.attributes);
  if (x.variables.size() != y.variables.size()) return "number of variables";
  for (std::size_t i = 0; i < x.variables.size(); ++i) {
    const auto &v = x.variables[i], &w = y.variables[i];
    const bool storage = is_hdf5(x.format);
    if (v.name != w.name || v.type != w.type || v.dimensions != w.dimensions || v.attributes != w.attributes ||
        (storage && describe(v) != describe(w)))
      return "variable: " + describe(v) + "\n against " + describe(w);
    const bool simple = std::none_of(v.dimensions.begin() + (v.dimensions.empty() ? 0 : 1), v.dimensions.end(),
                                     [&](auto d) { return x.dimensions[d].unlimited; });
    if (values_of_simple && !simple) continue;
    if (a.strings[i] != b.strings[i]) return "strings of " + v.name;
    if (a.values[i].size() != b.values[i].size()) return "size of " + v.name;
    const auto element = size_of(v.type);
    for (std::size_t k = 0; element > 0 && k < a.values[i].size() / element; ++k) {
      if (i < written.size() && !written[i].empty() && !written[i][k]) continue;
      if (std::memcmp(&a.values[i][k * element], &b.values[i][k * element], element) != 0) {
        std::string s = "element " + std::to_string(k) + " of " + describe(v) + ":";
        for (std::size_t j = 0; j < element; ++j)
          s += " " + std::to_string(std::to_integer<int>(a.values[i][k * element + j]));
        s += " against";
        for (std::size_t j = 0; j < element; ++j)
          s += " " + std::to_string(std::to_integer<int>(b.values[i][k * element + j]));
        return s;
      }
    }
  }
  return {};
}

Model model_of(const Schema& schema, const std::vector<OwnedBlock>& blocks) {
  Model m;
  auto& s = m.contents.schema = schema;
  for (const auto& o : blocks) {
    const auto& b = o.block;
    for (std::size_t i = 0; i < b.box.rank(); ++i) {
      auto& d = s.dimensions[s.variables[b.variable].dimensions[i]];
      if (d.unlimited && !b.box.empty())
        d.length = std::max(d.length, b.box.start[i] + (b.box.count[i] - 1) * step_of(b, i) + 1);
    }
  }
  for (auto& v : s.variables) {
    std::uint64_t n = 1;
    for (const auto d : v.dimensions) n *= s.dimensions[d].length;
    m.written.emplace_back(v.no_fill ? n : 0, false);
    if (v.type == DataType::string) {
      m.contents.values.emplace_back();
      m.contents.strings.emplace_back(n, v.no_fill ? String("") : v.fill_text);
      continue;
    }
    const auto fill = v.fill.empty() ? default_fill(v.type) : v.fill;
    Bytes all;
    all.reserve(n * fill.size());
    for (std::uint64_t k = 0; k < n; ++k) all.insert(all.end(), fill.begin(), fill.end());
    m.contents.values.push_back(std::move(all));
    m.contents.strings.emplace_back();
    v.fill = fill;
    if (v.endian == Endian::native && v.type != DataType::text) v.endian = Endian::little;
  }
  for (const auto& o : blocks) {
    const auto& b = o.block;
    const auto& v = s.variables[b.variable];
    const auto texts = v.type == DataType::string ? strings_in(o.data) : std::vector<String>();
    const auto element = size_of(v.type);
    std::vector<std::uint64_t> at(b.box.rank(), 0);
    for (std::uint64_t k = 0; k < b.box.volume(); ++k) {
      std::uint64_t index = 0;
      for (std::size_t i = 0; i < at.size(); ++i)
        index = index * s.dimensions[v.dimensions[i]].length + b.box.start[i] + at[i] * step_of(b, i);
      if (element == 0)
        m.contents.strings[b.variable][index] = texts[k];
      else
        std::memcpy(&m.contents.values[b.variable][index * element], &o.data[k * element], element);
      if (!m.written[b.variable].empty()) m.written[b.variable][index] = true;
      for (std::size_t i = at.size(); i-- > 0;) {
        if (++at[i] < b.box.count[i]) break;
        at[i] = 0;
      }
    }
  }
  return m;
}

}  // namespace advectio::testing
