#include "capture/netcdf/shadow_schema.h"

#include <algorithm>

#include "capture/shadow/metadata.h"

namespace advectio::netcdf {
namespace {

/// See shadow/metadata.h.
struct Calls {
  const RealLibrary& lib;
  int ncid;

  int dimension(int id, char* name, std::uint64_t& length) const {
    std::size_t n = 0;
    const int code = lib.nc_inq_dim(ncid, id, name, &n);
    length = n;
    return code;
  }
  int variable(int id, char* name, int& type, std::vector<std::uint32_t>& dimensions) const {
    int rank = 0;
    int ids[NC_MAX_VAR_DIMS];
    const int code = lib.nc_inq_var(ncid, id, name, &type, &rank, ids, nullptr);
    if (code == NC_NOERR) dimensions.assign(ids, ids + rank);
    return code;
  }
  int attribute_count(int variable, int& count) const {
    return variable == NC_GLOBAL ? lib.nc_inq(ncid, nullptr, nullptr, &count, nullptr)
                                 : lib.nc_inq_varnatts(ncid, variable, &count);
  }
  int attribute_name(int variable, int number, char* name) const {
    return lib.nc_inq_attname(ncid, variable, number, name);
  }
  int attribute(int variable, const char* name, int& type, std::uint64_t& count) const {
    std::size_t n = 0;
    const int code = lib.nc_inq_att(ncid, variable, name, &type, &n);
    count = n;
    return code;
  }
  int attribute_values(int variable, const char* name, void* values) const {
    return lib.nc_get_att(ncid, variable, name, values);
  }
  int attribute_strings(int variable, const char* name, std::uint64_t count, std::vector<String>& to) const {
    std::vector<char*> strings(count, nullptr);
    if (count == 0) return NC_NOERR;
    if (const int code = lib.nc_get_att_string(ncid, variable, name, strings.data()); code != NC_NOERR) return code;
    for (const char* s : strings) to.push_back(s != nullptr ? String(s) : std::nullopt);
    lib.nc_free_string(count, strings.data());
    return NC_NOERR;
  }
};
static_assert(NC_MAX_NAME == shadow::name_max && NC_EBADTYPE == shadow::bad_type);

int read_layout(const RealLibrary& lib, int ncid, int variable, std::size_t rank, Variable& to) {
  if (lib.nc_inq_var_chunking == nullptr) return NC_NOERR;
  int storage = NC_CONTIGUOUS;
  std::vector<std::size_t> chunks(rank, 0);
  if (const int code = lib.nc_inq_var_chunking(ncid, variable, &storage, chunks.data()); code != NC_NOERR) return code;
  to.contiguous = storage != NC_CHUNKED || rank == 0;
  to.compact = storage == NC_COMPACT;
  if (!to.contiguous) to.chunks.assign(chunks.begin(), chunks.end());
  return NC_NOERR;
}

/// In the order in which the library gives them to HDF5, which is the order in which it lists them.
int read_filters(const RealLibrary& lib, int ncid, int variable, Variable& to) {
  if (lib.nc_inq_var_filter_ids != nullptr && lib.nc_inq_var_filter_info != nullptr) {
    std::size_t count = 0;
    if (const int code = lib.nc_inq_var_filter_ids(ncid, variable, &count, nullptr); code != NC_NOERR) return code;
    std::vector<unsigned> ids(count);
    if (count != 0) lib.nc_inq_var_filter_ids(ncid, variable, &count, ids.data());
    for (const unsigned id : ids) {
      Filter filter{id, {}};
      std::size_t n = 0;
      if (const int code = lib.nc_inq_var_filter_info(ncid, variable, id, &n, nullptr); code != NC_NOERR) return code;
      filter.parameters.resize(n);
      if (n != 0) lib.nc_inq_var_filter_info(ncid, variable, id, &n, filter.parameters.data());
      to.filters.push_back(std::move(filter));
    }
    return NC_NOERR;
  }
  int shuffle = 0, deflate = 0, level = 0, fletcher32 = 0;
  if (lib.nc_inq_var_fletcher32 != nullptr) lib.nc_inq_var_fletcher32(ncid, variable, &fletcher32);
  if (lib.nc_inq_var_deflate != nullptr) lib.nc_inq_var_deflate(ncid, variable, &shuffle, &deflate, &level);
  if (shuffle != 0) to.filters.push_back({filter_id::shuffle, {}});
  if (deflate != 0) to.filters.push_back({filter_id::deflate, {static_cast<std::uint32_t>(level)}});
  if (fletcher32 != 0) to.filters.push_back({filter_id::fletcher32, {}});
  return NC_NOERR;
}

void read_fill(const RealLibrary& lib, int ncid, int variable, Variable& to) {
  int no_fill = 0;
  if (lib.nc_inq_var_fill != nullptr) lib.nc_inq_var_fill(ncid, variable, &no_fill, nullptr);
  to.no_fill = no_fill != 0;
  const auto* set = shadow::fill_attribute(to);
  to.has_fill = set != nullptr;
  if (to.type == DataType::string) {
    if (to.has_fill) to.fill_text = set->strings.front();
    return;
  }
  // The attribute may differ from the value that fills. An attribute that was renamed to
  // `_FillValue`, or put when the variable was in its file already (NCO does that), has no effect
  // in netCDF-4. The library knows the value.
  Bytes fill(size_of(to.type));
  if (lib.nc_inq_var_fill == nullptr || no_fill != 0 ||
      lib.nc_inq_var_fill(ncid, variable, &no_fill, fill.data()) != NC_NOERR) {
    if (!to.has_fill) return;
    fill = set->values;
  }
  if (fill != default_fill(to.type)) to.fill = std::move(fill);
}

int define_attributes(const RealLibrary& lib, int ncid, int variable, const std::vector<Attribute>& attributes,
                      const char* but = "") {
  for (const auto& a : attributes) {
    if (a.name == but) continue;
    int code = NC_NOERR;
    if (a.type == DataType::string) {
      std::vector<const char*> strings;
      for (const auto& s : a.strings) strings.push_back(s ? s->c_str() : nullptr);
      code = lib.nc_put_att_string(ncid, variable, a.name.c_str(), a.count, strings.data());
    } else {
      code = lib.nc_put_att(ncid, variable, a.name.c_str(), static_cast<nc_type>(a.type), a.count, a.values.data());
    }
    if (code != NC_NOERR) return code;
  }
  return NC_NOERR;
}

int define_filter(const RealLibrary& lib, int ncid, int variable, const Filter& filter) {
  switch (filter.id) {
    // nc_def_var_deflate sets both; a second call without shuffle keeps what the first has set.
    case filter_id::shuffle: return lib.nc_def_var_deflate(ncid, variable, 1, 0, 0);
    case filter_id::fletcher32: return lib.nc_def_var_fletcher32(ncid, variable, NC_FLETCHER32);
    default: break;
  }
  if (lib.nc_def_var_filter == nullptr) {
    if (filter.id != filter_id::deflate || filter.parameters.empty()) return NC_EFILTER;
    return lib.nc_def_var_deflate(ncid, variable, 0, 1, static_cast<int>(filter.parameters[0]));
  }
  return lib.nc_def_var_filter(ncid, variable, filter.id, filter.parameters.size(), filter.parameters.data());
}

int define_variable(const RealLibrary& lib, int ncid, const Variable& v, bool hdf5) {
  const std::vector<int> dimensions(v.dimensions.begin(), v.dimensions.end());
  int id = -1;
  int code = lib.nc_def_var(ncid, v.name.c_str(), static_cast<nc_type>(v.type), static_cast<int>(dimensions.size()),
                            dimensions.data(), &id);
  if (code == NC_NOERR && hdf5 && (v.compact || !dimensions.empty())) {
    const std::vector<std::size_t> chunks(v.chunks.begin(), v.chunks.end());
    const int storage = v.compact ? NC_COMPACT : v.contiguous ? NC_CONTIGUOUS : NC_CHUNKED;
    // A layout that the library has chosen by itself may still change with filters that are set
    // later.
    Variable chosen;
    code = read_layout(lib, ncid, id, dimensions.size(), chosen);
    const bool same = chosen.compact == v.compact && chosen.contiguous == v.contiguous && chosen.chunks == v.chunks;
    if (code == NC_NOERR && !same)
      code = lib.nc_def_var_chunking(ncid, id, storage, chunks.empty() ? nullptr : chunks.data());
  }
  if (hdf5) {
    for (const auto& filter : v.filters)
      if (code == NC_NOERR) code = define_filter(lib, ncid, id, filter);
    if (code == NC_NOERR && v.endian != Endian::native)
      code = lib.nc_def_var_endian(ncid, id, v.endian == Endian::big ? NC_ENDIAN_BIG : NC_ENDIAN_LITTLE);
    if (code == NC_NOERR && v.round_bits != 0)
      code = lib.nc_def_var_quantize != nullptr
                 ? lib.nc_def_var_quantize(ncid, id, NC_QUANTIZE_BITROUND, static_cast<int>(v.round_bits))
                 : NC_ENOTBUILT;
  }
  // Before the attributes: of netCDF-4 it removes `_FillValue`.
  if (code == NC_NOERR && v.no_fill) code = lib.nc_def_var_fill(ncid, id, 1, nullptr);
  // The library marks what it rounds by itself.
  if (code == NC_NOERR) code = define_attributes(lib, ncid, id, v.attributes, v.round_bits != 0 ? rounding_mark : "");
  return code;
}

}  // namespace

int read_dimensions(const RealLibrary& lib, int ncid, std::vector<Dimension>& dimensions) {
  int count = 0;
  if (const int code = lib.nc_inq(ncid, &count, nullptr, nullptr, nullptr); code != NC_NOERR) return code;
  std::vector<int> unlimited;
  int n = 0;
  if (lib.nc_inq_unlimdims != nullptr) {
    if (const int code = lib.nc_inq_unlimdims(ncid, &n, nullptr); code != NC_NOERR) return code;
    unlimited.resize(static_cast<std::size_t>(n));
    if (n > 0) lib.nc_inq_unlimdims(ncid, &n, unlimited.data());
  } else if (lib.nc_inq_unlimdim(ncid, &n) == NC_NOERR && n >= 0) {
    unlimited.push_back(n);
  }
  dimensions.assign(static_cast<std::size_t>(count), {});
  for (int i = 0; i < count; ++i) {
    auto& d = dimensions[static_cast<std::size_t>(i)];
    const bool is_unlimited = std::find(unlimited.begin(), unlimited.end(), i) != unlimited.end();
    if (const int code = shadow::read_dimension(Calls{lib, ncid}, i, is_unlimited, d); code != NC_NOERR) return code;
  }
  return NC_NOERR;
}

int read_attributes(const RealLibrary& lib, int ncid, int variable, std::vector<Attribute>& attributes) {
  return shadow::read_attributes(Calls{lib, ncid}, variable, attributes);
}

int read_variable(const RealLibrary& lib, int ncid, int variable, bool hdf5, const std::vector<Attribute>* attributes,
                  Variable& to) {
  to = {};
  int code = shadow::read_shape(Calls{lib, ncid}, variable, to);
  if (code != NC_NOERR) return code;
  if (attributes != nullptr) {
    to.attributes = *attributes;
  } else {
    code = read_attributes(lib, ncid, variable, to.attributes);
  }
  if (code != NC_NOERR) return code;
  // A fill value that the library has refused for its type may still be there, empty. No file can
  // hold it.
  if (hdf5) {
    std::erase_if(to.attributes,
                  [&](const Attribute& a) { return a.name == "_FillValue" && (a.type != to.type || a.count != 1); });
  }
  read_fill(lib, ncid, variable, to);
  if (!hdf5) return NC_NOERR;

  code = read_layout(lib, ncid, variable, to.dimensions.size(), to);
  // A scalar has no chunks, and so none of the filters that the library may list for it.
  if (code == NC_NOERR && !to.dimensions.empty()) code = read_filters(lib, ncid, variable, to);
  int endian = NC_ENDIAN_NATIVE;
  if (code == NC_NOERR && to.type != DataType::text && to.type != DataType::string &&
      lib.nc_inq_var_endian != nullptr && lib.nc_inq_var_endian(ncid, variable, &endian) == NC_NOERR)
    to.endian = endian == NC_ENDIAN_BIG ? Endian::big : endian == NC_ENDIAN_LITTLE ? Endian::little : Endian::native;
  int mode = NC_NOQUANTIZE, digits = 0;
  if (code == NC_NOERR && lib.nc_inq_var_quantize != nullptr &&
      lib.nc_inq_var_quantize(ncid, variable, &mode, &digits) == NC_NOERR && mode == NC_QUANTIZE_BITROUND)
    to.round_bits = static_cast<std::uint32_t>(digits);
  return code;
}

int define(const RealLibrary& lib, int ncid, const Schema& schema) {
  return define(lib, ncid, schema, {}, {schema.dimensions.size(), schema.variables.size()});
}

int define(const RealLibrary& lib, int ncid, const Schema& schema, const DefinitionCount& from,
           const DefinitionCount& to) {
  for (auto i = from.dimensions; i < to.dimensions; ++i) {
    const auto& d = schema.dimensions[i];
    const int code = lib.nc_def_dim(ncid, d.name.c_str(), d.unlimited ? NC_UNLIMITED : d.length, nullptr);
    if (code != NC_NOERR) return code;
  }
  if (from.dimensions == 0 && from.variables == 0)
    if (const int code = define_attributes(lib, ncid, NC_GLOBAL, schema.attributes); code != NC_NOERR) return code;
  for (auto i = from.variables; i < to.variables; ++i)
    if (const int code = define_variable(lib, ncid, schema.variables[i], is_hdf5(schema.format)); code != NC_NOERR)
      return code;
  return NC_NOERR;
}

}  // namespace advectio::netcdf
