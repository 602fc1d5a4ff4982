#include "sinks/netcdf4/layout.h"

#include <hdf5_hl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "sinks/chunks/codec.h"

#ifndef ADVECTIO_VERSION
#define ADVECTIO_VERSION "0"
#endif

namespace advectio {

namespace {

constexpr const char* dimension_only = "This is a netCDF dimension but not a netCDF variable.";
constexpr const char* not_coordinate = "_nc4_non_coord_";
constexpr const char* dimension_number = "_Netcdf4Dimid";
constexpr const char* variable_dimensions = "_Netcdf4Coordinates";
constexpr const char* strict = "_nc3_strict";
constexpr const char* properties = "_NCProperties";
constexpr const char* rounding = "_QuantizeBitRoundNumberOfSignificantBits";

/// Beyond this many creations of attributes in one object HDF5's counter (16 bits) is spared: see set_attributes.
constexpr std::uint64_t creations_spared_from = 32768;

bool is_hidden(const std::string& name) {
  static const std::set<std::string> names = {
      "CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", dimension_number, variable_dimensions, strict, properties};
  return names.contains(name);
}

Hdf5Id simple_space(const std::vector<hsize_t>& now, const std::vector<hsize_t>& most) {
  if (now.empty()) return {H5Screate(H5S_SCALAR), H5Sclose};
  return {H5Screate_simple(static_cast<int>(now.size()), now.data(), most.data()), H5Sclose};
}

Result<void> ordered_attributes(hid_t creation) {
  ADVECTIO_HDF5(H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
                "order attributes");
  // Times of access and change would make every write of a data set change its header.
  ADVECTIO_HDF5(H5Pset_obj_track_times(creation, false), "leave out times");
  return {};
}

/// Direct chunk writes and HDF5's own must see the same bytes, so nothing is cached.
Hdf5Id access_without_cache() {
  Hdf5Id access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  if (H5Pset_chunk_cache(access, 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT) < 0) access.reset();
  return access;
}

Result<void> delete_attribute(hid_t object, const char* name) {
  const htri_t there = H5Aexists(object, name);
  ADVECTIO_HDF5(there, "look for attribute " + std::string(name));
  if (there > 0) ADVECTIO_HDF5(H5Adelete(object, name), "delete attribute " + std::string(name));
  return {};
}

bool same_structure(const Variable& a, const Variable& b) {
  return a.contiguous == b.contiguous && a.compact == b.compact && a.chunks == b.chunks && a.filters == b.filters &&
         a.endian == b.endian && a.no_fill == b.no_fill && a.fill == b.fill && a.fill_text == b.fill_text;
}

/// HDF5 would refuse the whole variable where szip cannot work. When one codec is chosen for a whole dataset, it is
/// better left out there.
bool szip_can(const Variable& v, const Filter& f) {
  std::uint64_t elements = 1;
  for (const auto c : v.chunks) elements *= c;
  return v.type != DataType::text && (f.parameters.size() < 2 || elements >= f.parameters[1]);
}

/// The shape of an attribute in HDF5: it can be overwritten when this is the same.
bool same_shape(const Attribute& a, const Attribute& b) {
  return a.type == b.type && a.count == b.count;
}

Hdf5Id attribute_type(const Attribute& a) {
  auto type = hdf5_type(a.type, Endian::native);
  if (a.type == DataType::text && a.count > 1 && H5Tset_size(type, a.count) < 0) type.reset();
  return type;
}

Result<void> put_values(hid_t attribute, hid_t type, const Attribute& a) {
  if (a.count == 0) return {};
  if (a.type == DataType::string) {
    std::vector<const char*> pointers;
    pointers.reserve(a.strings.size());
    for (const auto& s : a.strings) pointers.push_back(s ? s->c_str() : nullptr);
    ADVECTIO_HDF5(H5Awrite(attribute, type, pointers.data()), "write attribute " + a.name);
    return {};
  }
  ADVECTIO_HDF5(H5Awrite(attribute, type, a.values.data()), "write attribute " + a.name);
  return {};
}

}  // namespace

Hdf5Id hdf5_type(DataType type, Endian order) {
  const auto pick = [&](hid_t native, hid_t little, hid_t big) {
    return Hdf5Id(H5Tcopy(order == Endian::native ? native : order == Endian::little ? little : big), H5Tclose);
  };
  switch (type) {
    case DataType::int8: return pick(H5T_NATIVE_SCHAR, H5T_STD_I8LE, H5T_STD_I8BE);
    case DataType::uint8: return pick(H5T_NATIVE_UCHAR, H5T_STD_U8LE, H5T_STD_U8BE);
    case DataType::int16: return pick(H5T_NATIVE_SHORT, H5T_STD_I16LE, H5T_STD_I16BE);
    case DataType::uint16: return pick(H5T_NATIVE_USHORT, H5T_STD_U16LE, H5T_STD_U16BE);
    case DataType::int32: return pick(H5T_NATIVE_INT, H5T_STD_I32LE, H5T_STD_I32BE);
    case DataType::uint32: return pick(H5T_NATIVE_UINT, H5T_STD_U32LE, H5T_STD_U32BE);
    case DataType::int64: return pick(H5T_NATIVE_LLONG, H5T_STD_I64LE, H5T_STD_I64BE);
    case DataType::uint64: return pick(H5T_NATIVE_ULLONG, H5T_STD_U64LE, H5T_STD_U64BE);
    case DataType::float32: return pick(H5T_NATIVE_FLOAT, H5T_IEEE_F32LE, H5T_IEEE_F32BE);
    case DataType::float64: return pick(H5T_NATIVE_DOUBLE, H5T_IEEE_F64LE, H5T_IEEE_F64BE);
    case DataType::text: {
      Hdf5Id t(H5Tcopy(H5T_C_S1), H5Tclose);
      if (H5Tset_strpad(t, H5T_STR_NULLTERM) < 0 || H5Tset_cset(t, H5T_CSET_ASCII) < 0) t.reset();
      return t;
    }
    case DataType::string: {
      Hdf5Id t(H5Tcopy(H5T_C_S1), H5Tclose);
      if (H5Tset_size(t, H5T_VARIABLE) < 0 || H5Tset_cset(t, H5T_CSET_UTF8) < 0) t.reset();
      return t;
    }
    case DataType::none: break;
  }
  return {};
}

std::vector<Attribute> attributes_in_file(const Variable& variable) {
  auto all = variable.attributes;
  const bool floats = variable.type == DataType::float32 || variable.type == DataType::float64;
  if (variable.round_bits > 0 && floats &&
      std::none_of(all.begin(), all.end(), [](const Attribute& a) { return a.name == rounding; })) {
    Attribute a{rounding, DataType::int32, 1, Bytes(sizeof(std::int32_t)), {}};
    std::memcpy(a.values.data(), &variable.round_bits, sizeof(std::int32_t));
    all.push_back(std::move(a));
  }
  return all;
}

// ---- attributes ----

Result<void> Layout::write_number(hid_t object, const char* name, int value) {
  ADVECTIO_TRY(delete_attribute(object, name));
  const Hdf5Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Id attribute(H5Acreate2(object, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  ADVECTIO_HDF5(attribute.get(), "create attribute " + std::string(name));
  ADVECTIO_HDF5(H5Awrite(attribute, H5T_NATIVE_INT, &value), "write attribute " + std::string(name));
  return {};
}

Result<void> Layout::write_attribute(hid_t object, const Attribute& a) {
  const auto type = attribute_type(a);
  const hsize_t count = a.count;
  // Text is one element as long as the text; everything else is one-dimensional; nothing is the null space.
  const Hdf5Id space(a.count == 0               ? H5Screate(H5S_NULL)
                     : a.type == DataType::text ? H5Screate(H5S_SCALAR)
                                                : H5Screate_simple(1, &count, nullptr),
                     H5Sclose);
  const Hdf5Id attribute(H5Acreate2(object, a.name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  ADVECTIO_HDF5(attribute.get(), "create attribute " + a.name);
  return put_values(attribute, type, a);
}

Result<void> Layout::overwrite_attribute(hid_t object, const Attribute& a) {
  const auto type = attribute_type(a);
  const Hdf5Id attribute(H5Aopen(object, a.name.c_str(), H5P_DEFAULT), H5Aclose);
  ADVECTIO_HDF5(attribute.get(), "open attribute " + a.name);
  return put_values(attribute, type, a);
}

Result<void> Layout::set_attributes(hid_t object, std::vector<Attribute>& current,
                                    const std::vector<Attribute>& wanted) {
  if (current == wanted) return {};
  // netCDF numbers attributes in the order in which they were created. What can stay in its place does.
  std::size_t same = 0;
  while (same < current.size() && same < wanted.size() && current[same].name == wanted[same].name &&
         same_shape(current[same], wanted[same])) {
    if (!(current[same] == wanted[same])) ADVECTIO_TRY(overwrite_attribute(object, wanted[same]));
    ++same;
  }
  bool keep_order = true;
  if (same < current.size()) {
    H5A_info_t info{};
    if (H5Aget_info_by_name(object, ".", current.back().name.c_str(), &info, H5P_DEFAULT) >= 0 && info.corder_valid)
      keep_order = info.corder < creations_spared_from;
  }
  if (keep_order) {
    for (auto i = same; i < current.size(); ++i) ADVECTIO_TRY(delete_attribute(object, current[i].name.c_str()));
    for (auto i = same; i < wanted.size(); ++i) ADVECTIO_TRY(write_attribute(object, wanted[i]));
  } else {
    // As netCDF-C does: what changes its shape moves to the end.
    std::map<std::string, const Attribute*> had;
    for (auto i = same; i < current.size(); ++i) had.emplace(current[i].name, &current[i]);
    for (auto i = same; i < wanted.size(); ++i) {
      const auto it = had.find(wanted[i].name);
      const auto* old = it == had.end() ? nullptr : it->second;
      if (it != had.end()) had.erase(it);
      if (old != nullptr && *old == wanted[i]) continue;
      if (old != nullptr && same_shape(*old, wanted[i])) {
        ADVECTIO_TRY(overwrite_attribute(object, wanted[i]));
        continue;
      }
      if (old != nullptr) ADVECTIO_TRY(delete_attribute(object, wanted[i].name.c_str()));
      ADVECTIO_TRY(write_attribute(object, wanted[i]));
    }
    for (const auto& [name, old] : had) ADVECTIO_TRY(delete_attribute(object, name.c_str()));
  }
  current = wanted;
  return {};
}

Result<std::vector<Attribute>> Layout::read_attributes(hid_t object) {
  std::vector<std::string> names;
  hsize_t at = 0;
  ADVECTIO_HDF5(H5Aiterate2(
                    object, H5_INDEX_CRT_ORDER, H5_ITER_INC, &at,
                    [](hid_t, const char* name, const H5A_info_t*, void* to) -> herr_t {
                      static_cast<std::vector<std::string>*>(to)->emplace_back(name);
                      return 0;
                    },
                    &names),
                "list attributes");
  std::vector<Attribute> out;
  for (const auto& name : names) {
    if (is_hidden(name)) continue;
    const Hdf5Id attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
    ADVECTIO_HDF5(attribute.get(), "open attribute " + name);
    const Hdf5Id type(H5Aget_type(attribute), H5Tclose), space(H5Aget_space(attribute), H5Sclose);
    Attribute a;
    a.name = name;
    const auto points = H5Sget_simple_extent_npoints(space);
    ADVECTIO_HDF5(points, "read attribute " + name);
    a.count = static_cast<std::uint64_t>(points);
    if (H5Tget_class(type) == H5T_STRING) {
      if (H5Tis_variable_str(type) > 0) {
        a.type = DataType::string;
        if (a.count > 0) {
          std::vector<char*> pointers(a.count);
          ADVECTIO_HDF5(H5Aread(attribute, type, pointers.data()), "read attribute " + name);
          for (const char* p : pointers) a.strings.push_back(p != nullptr ? String(p) : std::nullopt);
          (void)H5Dvlen_reclaim(type, space, H5P_DEFAULT, static_cast<void*>(pointers.data()));
        }
      } else {
        if (a.count > 0 && H5Sget_simple_extent_type(space) != H5S_SCALAR)
          return Error{Code::corrupt, "attribute " + name + " is an array of strings of one length", 0};
        a.type = DataType::text;
        a.count = a.count == 0 ? 0 : H5Tget_size(type);
        a.values.resize(a.count);
        if (a.count > 0) ADVECTIO_HDF5(H5Aread(attribute, type, a.values.data()), "read attribute " + name);
      }
    } else {
      for (auto t = static_cast<int>(DataType::int8); t < static_cast<int>(DataType::string); ++t) {
        const auto candidate = static_cast<DataType>(t);
        if (candidate == DataType::text) continue;
        if (H5Tequal(type, hdf5_type(candidate, Endian::native)) > 0) a.type = candidate;
      }
      if (a.type == DataType::none)
        return Error{Code::corrupt, "attribute " + name + " has a type that this sink does not write", 0};
      a.values.resize(a.count * size_of(a.type));
      if (a.count > 0) ADVECTIO_HDF5(H5Aread(attribute, type, a.values.data()), "read attribute " + name);
    }
    out.push_back(std::move(a));
  }
  return out;
}

// ---- reading back what is there ----

Result<void> Layout::create(hid_t file, FileFormat format) {
  file_ = file;
  root_ = Hdf5Id(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose);
  ADVECTIO_HDF5(root_.get(), "open the root group");
  if (format == FileFormat::netcdf4_classic) ADVECTIO_TRY(write_number(root_, strict, 1));
  return {};
}

Result<void> Layout::load(hid_t file) {
  file_ = file;
  root_ = Hdf5Id(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose);
  ADVECTIO_HDF5(root_.get(), "open the root group");
  auto attributes = read_attributes(root_);
  if (!attributes) return std::move(attributes).error();
  attributes_ = std::move(attributes).value();
  std::vector<std::string> links;
  hsize_t at = 0;
  ADVECTIO_HDF5(H5Literate(
                    root_, H5_INDEX_CRT_ORDER, H5_ITER_INC, &at,
                    [](hid_t, const char* name, const H5L_info_t* link, void* to) -> herr_t {
                      if (link->type != H5L_TYPE_HARD) return 1;
                      static_cast<std::vector<std::string>*>(to)->emplace_back(name);
                      return 0;
                    },
                    &links),
                "list the file");
  H5G_info_t root{};
  ADVECTIO_HDF5(H5Gget_info(root_, &root), "list the file");
  if (links.size() != root.nlinks) return Error{Code::corrupt, "a name in the file leads to another name", 0};
  loaded_ = true;
  for (const auto& link : links) ADVECTIO_TRY_WITH(load_dataset(link), link);
  for (std::size_t d = 0; d < dimensions_.size(); ++d)
    if (dimensions_[d].is.name.empty())
      return Error{Code::corrupt,
                   "the file has no dimension " + std::to_string(d) + ": it was not written by this sink", 0};
  return {};
}

KnownLayout Layout::known() const {
  return {{dimensions_.begin(), dimensions_.end()}, {variables_.begin(), variables_.end()}, attributes_, declared_};
}

Result<void> Layout::take_up(hid_t file, const KnownLayout& known) {
  file_ = file;
  root_ = Hdf5Id(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose);
  ADVECTIO_HDF5(root_.get(), "open the root group");
  for (const auto& d : known.dimensions) {
    auto& to = dimensions_.emplace_back(FileDimension{d, {}});
    if (d.coordinate >= 0) continue;
    to.scale = Hdf5Id(H5Dopen2(root_, d.is.name.c_str(), H5P_DEFAULT), H5Dclose);
    ADVECTIO_HDF5(to.scale.get(), "open dimension " + d.is.name);
  }
  const auto access = access_without_cache();
  for (const auto& v : known.variables) {
    auto& to = variables_.emplace_back(FileVariable{v, {}});
    to.dataset = Hdf5Id(H5Dopen2(root_, v.link.c_str(), access), H5Dclose);
    ADVECTIO_HDF5(to.dataset.get(), "open " + v.is.name);
  }
  attributes_ = known.attributes;
  declared_ = known.declared;
  any_declared_ = true;
  return {};
}

Result<void> Layout::load_dataset(const std::string& link) {
  Hdf5Id dataset(H5Dopen2(root_, link.c_str(), H5P_DEFAULT), H5Dclose);
  ADVECTIO_HDF5(dataset.get(), "open");
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose), type(H5Dget_type(dataset), H5Tclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  ADVECTIO_HDF5(rank, "read its shape");
  std::vector<hsize_t> now(static_cast<std::size_t>(rank)), most(static_cast<std::size_t>(rank));
  ADVECTIO_HDF5(H5Sget_simple_extent_dims(space, now.data(), most.data()), "read its shape");

  const bool scale = H5DSis_scale(dataset) > 0;
  if (scale) {
    const Hdf5Id attribute(H5Aopen(dataset, dimension_number, H5P_DEFAULT), H5Aclose);
    int value = -1;
    if (!attribute || H5Aread(attribute, H5T_NATIVE_INT, &value) < 0 || value < 0 || value > 65535)
      return Error{Code::corrupt, "its dimension has no number", 0};
    if (dimensions_.size() <= static_cast<std::size_t>(value)) dimensions_.resize(static_cast<std::size_t>(value) + 1);
    auto& d = dimensions_[static_cast<std::size_t>(value)];
    d.is.name = link;
    d.is.unlimited = rank > 0 && most[0] == H5S_UNLIMITED;
    d.is.length = d.is.unlimited || rank == 0 ? 0 : now[0];
    std::array<char, 128> name{};
    (void)H5DSget_scale_name(dataset, name.data(), name.size());
    if (std::string_view(name.data()).starts_with(dimension_only)) {
      d.scale = std::move(dataset);
      return {};
    }
    d.coordinate = static_cast<std::int64_t>(variables_.size());
  }

  FileVariable v;
  v.link = link;
  v.is.name = link.starts_with(not_coordinate) ? link.substr(std::strlen(not_coordinate)) : link;
  v.scale = scale;
  v.extent.assign(now.begin(), now.end());
  v.attached.assign(static_cast<std::size_t>(rank), !scale);
  if (H5Tget_class(type) == H5T_STRING) {
    v.is.type = H5Tis_variable_str(type) > 0 ? DataType::string : DataType::text;
  } else {
    for (auto t = static_cast<int>(DataType::int8); t < static_cast<int>(DataType::string); ++t)
      for (const auto order : {Endian::little, Endian::big})
        if (static_cast<DataType>(t) != DataType::text && v.is.type == DataType::none &&
            H5Tequal(type, hdf5_type(static_cast<DataType>(t), order)) > 0)
          v.is.type = static_cast<DataType>(t);
  }
  if (v.is.type == DataType::none) return Error{Code::corrupt, "its type is none that this sink writes", 0};
  if (rank > 0) {
    const Hdf5Id attribute(H5Aopen(dataset, variable_dimensions, H5P_DEFAULT), H5Aclose);
    std::vector<int> ids(static_cast<std::size_t>(rank));
    const Hdf5Id ids_space(attribute ? H5Aget_space(attribute) : H5I_INVALID_HID, H5Sclose);
    if (!attribute || H5Sget_simple_extent_npoints(ids_space) != rank ||
        H5Aread(attribute, H5T_NATIVE_INT, ids.data()) < 0)
      return Error{Code::corrupt, "its dimensions are not recorded", 0};
    for (const int id : ids) v.is.dimensions.push_back(static_cast<std::uint32_t>(id));
  }
  auto attributes = read_attributes(dataset);
  if (!attributes) return std::move(attributes).error();
  v.is.attributes = std::move(attributes).value();
  dataset.reset();
  v.dataset = Hdf5Id(H5Dopen2(root_, link.c_str(), access_without_cache()), H5Dclose);
  ADVECTIO_HDF5(v.dataset.get(), "open");
  variables_.push_back(std::move(v));
  return {};
}

// ---- what a schema wants ----

struct Layout::Wish {
  std::vector<Dimension> dimensions;  // those of the file beyond the schema included
  std::vector<std::string> names;     // of variables
  std::vector<std::vector<std::uint32_t>> shapes;
  std::vector<std::int64_t> coordinate;  // per dimension
  std::vector<std::string> links;        // per variable
};

Result<Layout::Wish> Layout::wish(const Schema& s) const {
  Wish w;
  w.dimensions = s.dimensions;
  for (auto d = w.dimensions.size(); d < dimensions_.size(); ++d) w.dimensions.push_back(dimensions_[d].is);
  for (std::size_t d = 0; d < dimensions_.size(); ++d) {
    const auto& is = dimensions_[d].is;
    const auto& to = w.dimensions[d];
    if (is.unlimited != to.unlimited || (!is.unlimited && is.length != to.length))
      return Error{Code::invalid, "dimension " + to.name + " has changed its length", 0};
  }
  for (const auto& v : s.variables) {
    w.names.push_back(v.name);
    w.shapes.push_back(v.dimensions);
  }
  for (auto v = w.names.size(); v < variables_.size(); ++v) {
    w.names.push_back(variables_[v].is.name);
    w.shapes.push_back(variables_[v].is.dimensions);
  }
  for (std::size_t v = 0; v < std::min(variables_.size(), s.variables.size()); ++v)
    if (variables_[v].is.type != s.variables[v].type || variables_[v].is.dimensions != s.variables[v].dimensions)
      return Error{Code::invalid, "variable " + s.variables[v].name + " has changed its type or its dimensions", 0};

  // A variable named as its first dimension is that dimension's coordinate variable and its scale. One that is only
  // named as some dimension must make way, because the scale has that name in HDF5.
  std::map<std::string, std::size_t> dimension_named;
  for (std::size_t d = 0; d < w.dimensions.size(); ++d) dimension_named.emplace(w.dimensions[d].name, d);
  w.coordinate.assign(w.dimensions.size(), -1);
  for (std::size_t v = 0; v < w.names.size(); ++v) {
    const auto it = dimension_named.find(w.names[v]);
    if (it == dimension_named.end()) {
      w.links.push_back(w.names[v]);
    } else if (!w.shapes[v].empty() && w.shapes[v][0] == it->second && w.coordinate[it->second] < 0) {
      w.coordinate[it->second] = static_cast<std::int64_t>(v);
      w.links.push_back(w.names[v]);
    } else {
      w.links.push_back(not_coordinate + w.names[v]);
    }
  }
  return w;
}

// ---- a file that netCDF-C has made ----

namespace {

Error differs(const std::string& what) {
  return {Code::unsupported, what + " in the file is not as Advectio would store it", 0};
}

/// HDF5 lets one data set have several names: two variables, each of which would change the other.
bool has_one_name(hid_t dataset) {
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t info{};
  return H5Oget_info3(dataset, &info, H5O_INFO_BASIC) >= 0 && info.rc == 1;
#else
  H5O_info_t info{};
  return H5Oget_info2(dataset, &info, H5O_INFO_BASIC) >= 0 && info.rc == 1;
#endif
}

/// They can be overwritten, then.
Result<void> are_attributes_typed_alike(hid_t object, const std::vector<Attribute>& attributes) {
  for (const auto& a : attributes) {
    const Hdf5Id attribute(H5Aopen(object, a.name.c_str(), H5P_DEFAULT), H5Aclose);
    ADVECTIO_HDF5(attribute.get(), "open attribute " + a.name);
    const Hdf5Id type(H5Aget_type(attribute), H5Tclose);
    if (H5Tequal(type, attribute_type(a)) <= 0) return differs("attribute " + a.name);
  }
  return {};
}

}  // namespace

Result<void> Layout::holds(const Schema& s) const {
  const Hdf5Id creation(H5Gget_create_plist(root_), H5Pclose);
  unsigned links = 0, attributes = 0;
  ADVECTIO_HDF5(H5Pget_link_creation_order(creation, &links), "look at the root group");
  ADVECTIO_HDF5(H5Pget_attr_creation_order(creation, &attributes), "look at the root group");
  if ((links & attributes & H5P_CRT_ORDER_TRACKED) == 0) return differs("the order of its names");
  const auto wished = wish(s);
  if (!wished) return wished.error();
  const Wish& w = *wished;
  if (s.dimensions.size() != dimensions_.size() || s.variables.size() != variables_.size())
    return differs("the number of dimensions or variables");
  for (std::size_t d = 0; d < dimensions_.size(); ++d)
    if (dimensions_[d].is.name != s.dimensions[d].name || dimensions_[d].coordinate != w.coordinate[d] ||
        (dimensions_[d].scale && !has_one_name(dimensions_[d].scale)))
      return differs("dimension " + s.dimensions[d].name);
  if (attributes_ != s.attributes) return differs("a global attribute");
  ADVECTIO_TRY(are_attributes_typed_alike(root_, attributes_));
  if ((H5Aexists(root_, strict) > 0) != (s.format == FileFormat::netcdf4_classic)) return differs("the data model");
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const auto& v = variables_[i];
    if (v.is.name != w.names[i] || v.link != w.links[i]) return differs("variable " + v.is.name);
    if (v.is.attributes != attributes_in_file(s.variables[i])) return differs("an attribute of " + v.is.name);
    ADVECTIO_TRY_WITH(are_attributes_typed_alike(v.dataset, v.is.attributes), "variable " + v.is.name);
    ADVECTIO_TRY_WITH(is_stored_as(v, s.variables[i]), "variable " + v.is.name);
  }
  return {};
}

namespace {

Result<bool> is_filled_as(hid_t creation, const Variable& variable) {
  H5D_fill_time_t time = H5D_FILL_TIME_ERROR;
  ADVECTIO_HDF5(H5Pget_fill_time(creation, &time), "read when it is filled");
  if (variable.no_fill || time == H5D_FILL_TIME_NEVER) return variable.no_fill && time == H5D_FILL_TIME_NEVER;
  H5D_fill_value_t defined = H5D_FILL_VALUE_ERROR;
  ADVECTIO_HDF5(H5Pfill_value_defined(creation, &defined), "read its fill value");
  if (defined != H5D_FILL_VALUE_USER_DEFINED) return false;
  const auto native = hdf5_type(variable.type, Endian::native);
  if (variable.type == DataType::string) {
    char* text = nullptr;
    ADVECTIO_HDF5(H5Pget_fill_value(creation, native, static_cast<void*>(&text)), "read its fill value");
    const String in_file = text != nullptr ? String(text) : std::nullopt;
    (void)H5free_memory(text);
    return in_file == variable.fill_text;
  }
  Bytes in_file(size_of(variable.type));
  ADVECTIO_HDF5(H5Pget_fill_value(creation, native, in_file.data()), "read its fill value");
  return in_file == (variable.fill.empty() ? default_fill(variable.type) : variable.fill);
}

bool can_be_applied(std::uint32_t filter) {
  unsigned can = 0;
  return can_encode(filter) || (H5Zget_filter_info(static_cast<H5Z_filter_t>(filter), &can) >= 0 &&
                                (can & H5Z_FILTER_CONFIG_ENCODE_ENABLED) != 0);
}

/// The filters of the file are those that the schema names.
Result<bool> has_filters(hid_t creation, const Variable& variable) {
  std::vector<Filter> wanted;
  for (const auto& f : variable.filters)
    if (f.id != filter_id::szip || szip_can(variable, f)) wanted.push_back(f);
  if (H5Pget_nfilters(creation) != static_cast<int>(wanted.size())) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::array<unsigned, 32> values{};
    std::size_t count = values.size();
    unsigned flags = 0;
    const auto id =
        H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &count, values.data(), 0, nullptr, nullptr);
    ADVECTIO_HDF5(id, "read its filters");
    if (static_cast<std::uint32_t>(id) != wanted[i].id || !can_be_applied(wanted[i].id)) return false;
    // HDF5 adds to the parameters of these.
    const bool has_more = wanted[i].id == filter_id::shuffle || wanted[i].id == filter_id::szip;
    const bool same =
        count == wanted[i].parameters.size() &&
        std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), wanted[i].parameters.begin());
    if (!has_more && !same) return false;
  }
  return true;
}

}  // namespace

Result<void> Layout::is_stored_as(const FileVariable& v, const Variable& variable) const {
  const Hdf5Id creation(H5Dget_create_plist(v.dataset), H5Pclose), type(H5Dget_type(v.dataset), H5Tclose),
      space(H5Dget_space(v.dataset), H5Sclose);
  ADVECTIO_HDF5(creation.get(), "look at it");
  if (!has_one_name(v.dataset)) return differs("the number of its names");
  if (H5Tequal(type, hdf5_type(variable.type, variable.endian)) <= 0) return differs("its type");
  const auto rank = variable.dimensions.size();
  std::vector<hsize_t> now(rank), most(rank);
  if (H5Sget_simple_extent_ndims(space) != static_cast<int>(rank)) return differs("its shape");
  ADVECTIO_HDF5(H5Sget_simple_extent_dims(space, now.data(), most.data()), "read its shape");
  for (std::size_t k = 0; k < rank; ++k) {
    const auto& d = dimensions_[variable.dimensions[k]].is;
    if (d.unlimited ? most[k] != H5S_UNLIMITED : now[k] != d.length || most[k] != d.length) return differs("its shape");
  }
  const auto wanted = variable.compact ? H5D_COMPACT : variable.contiguous || rank == 0 ? H5D_CONTIGUOUS : H5D_CHUNKED;
  if (H5Pget_layout(creation) != wanted || H5Pget_external_count(creation) != 0) return differs("its layout");
  if (wanted == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(rank);
    if (H5Pget_chunk(creation, static_cast<int>(rank), chunk.data()) != static_cast<int>(rank) ||
        !std::equal(chunk.begin(), chunk.end(), variable.chunks.begin(), variable.chunks.end()))
      return differs("its chunks");
  }
  auto filters = has_filters(creation, variable);
  if (!filters) return std::move(filters).error();
  if (!*filters) return differs("its compression");
  auto filled = is_filled_as(creation, variable);
  if (!filled) return std::move(filled).error();
  return *filled ? Result<void>{} : differs("its fill value");
}

std::uint64_t Layout::length_now(std::size_t dimension) const {
  std::uint64_t n = dimensions_[dimension].is.length;
  for (const auto& v : variables_)
    for (std::size_t i = 0; i < v.is.dimensions.size(); ++i)
      if (v.is.dimensions[i] == dimension) n = std::max(n, v.extent[i]);
  return n;
}

hid_t Layout::scale_of(std::size_t dimension) const {
  const auto& d = dimensions_[dimension];
  return d.coordinate >= 0 ? variables_[static_cast<std::size_t>(d.coordinate)].dataset.get() : d.scale.get();
}

Result<void> Layout::create_dimension(std::size_t i) {
  auto& d = dimensions_[i];
  const std::vector<hsize_t> now = {length_now(i)};
  const std::vector<hsize_t> most = {d.is.unlimited ? H5S_UNLIMITED : now[0]};
  const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  ADVECTIO_TRY(ordered_attributes(creation));
  const hsize_t one = 1;
  if (d.is.unlimited) ADVECTIO_HDF5(H5Pset_chunk(creation, 1, &one), "chunk a dimension");
  const auto space = simple_space(now, most);
  // The type is of no meaning; it is the one that netCDF-C has always used.
  d.scale =
      Hdf5Id(H5Dcreate2(root_, d.is.name.c_str(), H5T_IEEE_F32BE, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
  ADVECTIO_HDF5(d.scale.get(), "create dimension " + d.is.name);
  std::array<char, 128> name{};
  (void)std::snprintf(name.data(), name.size(), "%s%10d", dimension_only, static_cast<int>(now[0]));
  ADVECTIO_HDF5(H5DSset_scale(d.scale, name.data()), "make dimension " + d.is.name + " a scale");
  return write_number(d.scale, dimension_number, static_cast<int>(i));
}

Result<void> Layout::mark_scale(std::size_t i) {
  auto& v = variables_[i];
  ADVECTIO_HDF5(H5DSset_scale(v.dataset, v.is.name.c_str()), "make it a scale");
  // Always recorded: dimensions and their variables may be defined in any order, now or later.
  ADVECTIO_TRY(write_number(v.dataset, dimension_number, static_cast<int>(v.is.dimensions[0])));
  v.scale = true;
  dimensions_[v.is.dimensions[0]].coordinate = static_cast<std::int64_t>(i);
  return {};
}

Result<void> Layout::create_variable(std::size_t i, const Variable& variable, const std::string& link, bool scale) {
  const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose), access = access_without_cache();
  ADVECTIO_TRY(ordered_attributes(creation));
  const auto type = hdf5_type(variable.type, variable.endian);
  if (!type) return Error{Code::unsupported, "its type is none of netCDF's", 0};

  if (variable.no_fill) {
    ADVECTIO_HDF5(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "set no fill");
  } else if (variable.type == DataType::string) {
    const char* text = variable.fill_text ? variable.fill_text->c_str() : nullptr;
    ADVECTIO_HDF5(H5Pset_fill_value(creation, type, &text), "set the fill value");
  } else {
    const auto fill = variable.fill.empty() ? default_fill(variable.type) : variable.fill;
    ADVECTIO_HDF5(H5Pset_fill_value(creation, hdf5_type(variable.type, Endian::native), fill.data()),
                  "set the fill value");
  }

  for (const auto& f : variable.filters) {
    if (f.id == filter_id::szip && !szip_can(variable, f)) continue;
    const auto p = [&](std::size_t k) { return k < f.parameters.size() ? f.parameters[k] : 0U; };
    herr_t done = -1;
    switch (f.id) {
      case filter_id::shuffle: done = H5Pset_shuffle(creation); break;
      case filter_id::deflate: done = H5Pset_deflate(creation, p(0)); break;
      case filter_id::fletcher32: done = H5Pset_fletcher32(creation); break;
      case filter_id::szip: done = H5Pset_szip(creation, p(0), p(1)); break;
      default:
        if (H5Zfilter_avail(static_cast<H5Z_filter_t>(f.id)) <= 0)
          return Error{Code::unsupported, "HDF5 filter " + std::to_string(f.id) + " is not available here", 0};
        done = H5Pset_filter(creation, static_cast<H5Z_filter_t>(f.id), H5Z_FLAG_MANDATORY, f.parameters.size(),
                             f.parameters.data());
    }
    ADVECTIO_HDF5(done, "set HDF5 filter " + std::to_string(f.id));
  }

  std::vector<hsize_t> now, most;
  for (const auto d : variable.dimensions) {
    const auto& dim = dimensions_[d].is;
    now.push_back(dim.unlimited ? 0 : dim.length);
    most.push_back(dim.unlimited ? H5S_UNLIMITED : dim.length);
  }
  if (variable.compact) {
    ADVECTIO_HDF5(H5Pset_layout(creation, H5D_COMPACT), "set the layout");
  } else if (variable.contiguous || variable.dimensions.empty()) {
    ADVECTIO_HDF5(H5Pset_layout(creation, H5D_CONTIGUOUS), "set the layout");
  } else {
    const std::vector<hsize_t> chunks(variable.chunks.begin(), variable.chunks.end());
    if (chunks.size() != now.size()) return Error{Code::invalid, "it needs one chunk length for each dimension", 0};
    ADVECTIO_HDF5(H5Pset_chunk(creation, static_cast<int>(chunks.size()), chunks.data()), "set the chunks");
  }

  const auto space = simple_space(now, most);
  ADVECTIO_HDF5(space.get(), "make its shape");
  auto& v = variables_[i];
  v.dataset = Hdf5Id(H5Dcreate2(root_, link.c_str(), type, space, H5P_DEFAULT, creation, access), H5Dclose);
  ADVECTIO_HDF5(v.dataset.get(), "create");
  v.link = link;
  v.scale = false;
  v.structure_known = true;
  v.extent.assign(now.begin(), now.end());
  v.attached.assign(now.size(), false);
  v.is = variable;
  v.is.attributes.clear();

  if (!variable.dimensions.empty()) {
    const hsize_t rank = variable.dimensions.size();
    const std::vector<int> ids(variable.dimensions.begin(), variable.dimensions.end());
    const Hdf5Id ids_space(H5Screate_simple(1, &rank, nullptr), H5Sclose);
    const Hdf5Id attribute(
        H5Acreate2(v.dataset, variable_dimensions, H5T_NATIVE_INT, ids_space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    ADVECTIO_HDF5(attribute.get(), "record its dimensions");
    ADVECTIO_HDF5(H5Awrite(attribute, H5T_NATIVE_INT, ids.data()), "record its dimensions");
  }
  if (scale) ADVECTIO_TRY(mark_scale(i));
  return set_attributes(v.dataset, v.is.attributes, attributes_in_file(variable));
}

Result<void> Layout::attach(std::size_t i) {
  auto& v = variables_[i];
  // HDF5 does not let a scale have scales.
  if (v.scale) return {};
  for (std::size_t k = 0; k < v.attached.size(); ++k) {
    if (v.attached[k]) continue;
    ADVECTIO_HDF5(H5DSattach_scale(v.dataset, scale_of(v.is.dimensions[k]), static_cast<unsigned>(k)),
                  "attach dimension " + dimensions_[v.is.dimensions[k]].is.name);
    v.attached[k] = true;
  }
  return {};
}

/// The rare cases: something was renamed, or became or ceased to be a coordinate variable. All scales are taken off
/// and put on again, and links are made anew in order of the variables, whose numbers are their order of creation.
Result<void> Layout::restructure(const Wish& w) {
  for (auto& v : variables_) {
    for (const char* name : {"DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", dimension_number})
      ADVECTIO_TRY(delete_attribute(v.dataset, name));
    v.scale = false;
    v.attached.assign(v.attached.size(), false);
  }
  for (std::size_t d = 0; d < dimensions_.size(); ++d) {
    auto& dim = dimensions_[d];
    dim.coordinate = -1;
    if (!dim.scale) continue;
    ADVECTIO_TRY(delete_attribute(dim.scale, "REFERENCE_LIST"));
    if (w.coordinate[d] >= 0) {
      dim.scale.reset();
      ADVECTIO_HDF5(H5Ldelete(root_, dim.is.name.c_str(), H5P_DEFAULT),
                    "make way for coordinate variable " + dim.is.name);
    } else if (dim.is.name != w.dimensions[d].name) {
      ADVECTIO_HDF5(H5Lmove(root_, dim.is.name.c_str(), root_, ("_advectio_dimension_" + std::to_string(d)).c_str(),
                            H5P_DEFAULT, H5P_DEFAULT),
                    "rename dimension " + dim.is.name);
    }
  }
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    auto& v = variables_[i];
    const auto between = "_advectio_variable_" + std::to_string(i);
    ADVECTIO_HDF5(H5Lmove(root_, v.link.c_str(), root_, between.c_str(), H5P_DEFAULT, H5P_DEFAULT), "rename " + v.link);
    v.link = between;
  }
  for (std::size_t d = 0; d < dimensions_.size(); ++d) {
    auto& dim = dimensions_[d];
    if (dim.scale && dim.is.name != w.dimensions[d].name)
      ADVECTIO_HDF5(H5Lmove(root_, ("_advectio_dimension_" + std::to_string(d)).c_str(), root_,
                            w.dimensions[d].name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                    "rename dimension " + dim.is.name);
    dim.is.name = w.dimensions[d].name;
  }
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    auto& v = variables_[i];
    ADVECTIO_HDF5(H5Lmove(root_, v.link.c_str(), root_, w.links[i].c_str(), H5P_DEFAULT, H5P_DEFAULT),
                  "rename " + v.link);
    v.link = w.links[i];
    v.is.name = w.names[i];
  }
  for (std::size_t d = 0; d < dimensions_.size(); ++d)
    if (!dimensions_[d].scale && w.coordinate[d] < 0) ADVECTIO_TRY(create_dimension(d));
  for (std::size_t d = 0; d < dimensions_.size(); ++d)
    if (w.coordinate[d] >= 0 && static_cast<std::size_t>(w.coordinate[d]) < variables_.size())
      ADVECTIO_TRY(mark_scale(static_cast<std::size_t>(w.coordinate[d])));
  return {};
}

/// A fill value or a layout that changes after the data set was made: HDF5 fixes both, so it is made again and its data
/// copied.
Result<void> Layout::rebuild_variable(std::size_t i, const Variable& variable) {
  auto& v = variables_[i];
  const Hdf5Id old = std::move(v.dataset);
  const auto extent = v.extent;
  const auto link = v.link;
  // netCDF-4 takes another fill value only where nothing has been put.
  const bool unwritten = v.is.fill != variable.fill || v.is.fill_text != variable.fill_text;
  ADVECTIO_TRY(create_variable(i, variable, "_advectio_rebuilt_" + std::to_string(i), false));
  ADVECTIO_TRY(extend(i, extent));
  if (!unwritten && H5Dget_storage_size(old) > 0) {
    const auto type = hdf5_type(variable.type, Endian::native);
    const std::size_t element = H5Tget_size(type);
    // Plane by plane of the slowest dimension.
    const std::uint64_t planes = extent.empty() ? 1 : extent[0];
    std::uint64_t points = 1;
    for (std::size_t k = 1; k < extent.size(); ++k) points *= extent[k];
    std::vector<std::byte> plane(points * element);
    for (std::uint64_t p = 0; p < planes && points > 0; ++p) {
      std::vector<hsize_t> start(extent.size(), 0), count(extent.begin(), extent.end());
      Hdf5Id from(H5Dget_space(old), H5Sclose), memory(H5Screate(H5S_SCALAR), H5Sclose);
      if (!extent.empty()) {
        start[0] = p;
        count[0] = 1;
        ADVECTIO_HDF5(H5Sselect_hyperslab(from, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), "copy");
        memory = Hdf5Id(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), H5Sclose);
      }
      ADVECTIO_HDF5(H5Dread(old, type, memory, from, H5P_DEFAULT, plane.data()), "copy");
      const herr_t put = H5Dwrite(v.dataset, type, memory, from, H5P_DEFAULT, plane.data());
      if (variable.type == DataType::string) (void)H5Dvlen_reclaim(type, memory, H5P_DEFAULT, plane.data());
      ADVECTIO_HDF5(put, "copy");
    }
  }
  ADVECTIO_HDF5(H5Ldelete(root_, link.c_str(), H5P_DEFAULT), "replace");
  v.link = "_advectio_rebuilt_" + std::to_string(i);
  return {};
}

Result<void> Layout::extend(std::size_t variable, const std::vector<std::uint64_t>& end) {
  auto& v = variables_[variable];
  auto extent = v.extent;
  for (std::size_t k = 0; k < extent.size(); ++k) extent[k] = std::max(extent[k], end[k]);
  if (extent == v.extent) return {};
  const std::vector<hsize_t> to(extent.begin(), extent.end());
  ADVECTIO_HDF5(H5Dset_extent(v.dataset, to.data()), "extend " + v.is.name);
  v.extent = std::move(extent);
  return {};
}

Result<void> Layout::apply(const Schema& s) {
  if (any_declared_ && s == declared_) return {};
  auto wished = wish(s);
  if (!wished) return std::move(wished).error();
  const Wish& w = *wished;
  const bool first = !any_declared_ && !loaded_;

  // netCDF-C writes global attributes before everything else.
  ADVECTIO_TRY_WITH(set_attributes(root_, attributes_, s.attributes), "global attributes");

  std::vector<std::size_t> rebuild;
  for (std::size_t v = 0; v < std::min(variables_.size(), s.variables.size()); ++v) {
    auto& is = variables_[v];
    if (!is.structure_known) {
      auto attributes = std::move(is.is.attributes);
      auto name = std::move(is.is.name);
      is.is = s.variables[v];
      is.is.attributes = std::move(attributes);
      is.is.name = std::move(name);
      is.structure_known = true;
    } else if (!same_structure(is.is, s.variables[v])) {
      rebuild.push_back(v);
    }
    is.is.round_bits = s.variables[v].round_bits;
  }
  bool restructured = !rebuild.empty();
  for (std::size_t v = 0; v < variables_.size(); ++v)
    restructured |= variables_[v].link != w.links[v] || variables_[v].is.name != w.names[v];
  for (std::size_t d = 0; d < dimensions_.size(); ++d)
    restructured |= dimensions_[d].is.name != w.dimensions[d].name || dimensions_[d].coordinate != w.coordinate[d];
  if (restructured) {
    for (const auto v : rebuild)
      ADVECTIO_TRY_WITH(rebuild_variable(v, s.variables[v]), "variable " + s.variables[v].name);
    ADVECTIO_TRY(restructure(w));
  }

  // New dimensions and variables, in the order in which netCDF-C makes them.
  const auto old_dimensions = dimensions_.size(), old_variables = variables_.size();
  for (auto d = old_dimensions; d < w.dimensions.size(); ++d) {
    dimensions_.emplace_back();
    dimensions_.back().is = w.dimensions[d];
  }
  variables_.resize(w.names.size());
  std::size_t d = old_dimensions, v = old_variables;
  while (d < dimensions_.size() || v < variables_.size()) {
    std::int64_t awaited = -1;
    for (; d < dimensions_.size() && awaited < 0; ++d) {
      if (w.coordinate[d] < 0)
        ADVECTIO_TRY(create_dimension(d));
      else
        awaited = w.coordinate[d];
    }
    for (bool met = false; v < variables_.size() && !met; ++v) {
      const auto& shape = w.shapes[v];
      const bool scale = !shape.empty() && w.coordinate[shape[0]] == static_cast<std::int64_t>(v);
      ADVECTIO_TRY_WITH(create_variable(v, s.variables[v], w.links[v], scale), "variable " + w.names[v]);
      met = awaited == static_cast<std::int64_t>(v);
    }
  }
  for (std::size_t i = 0; i < variables_.size(); ++i) ADVECTIO_TRY_WITH(attach(i), "variable " + variables_[i].is.name);
  for (std::size_t i = 0; i < old_variables && i < s.variables.size(); ++i)
    ADVECTIO_TRY_WITH(
        set_attributes(variables_[i].dataset, variables_[i].is.attributes, attributes_in_file(s.variables[i])),
        "variable " + variables_[i].is.name);
  if (first) {
    unsigned major = 0, minor = 0, release = 0;
    (void)H5get_libversion(&major, &minor, &release);
    const auto text = "version=2,advectio=" ADVECTIO_VERSION ",hdf5=" + std::to_string(major) + "." +
                      std::to_string(minor) + "." + std::to_string(release);
    Attribute a{properties, DataType::text, text.size(), Bytes(text.size()), {}};
    std::memcpy(a.values.data(), text.data(), text.size());
    ADVECTIO_TRY(write_attribute(root_, a));
  }
  declared_ = s;
  any_declared_ = true;
  return {};
}

void Layout::release() noexcept {
  variables_.clear();
  dimensions_.clear();
  root_.reset();
}

}  // namespace advectio
