#include "sources/netcdf/netcdf_source.h"

#include <dlfcn.h>

#include <mutex>

#include "capture/netcdf/shadow_schema.h"
#include "sinks/library_lock.h"

namespace advectio {
namespace {

/// The library that this program is linked with, as capture's readers of metadata want it.
const netcdf::RealLibrary& library() {
  static const netcdf::RealLibrary* const found = [] {
    auto* lib = new netcdf::RealLibrary;
#define ADVECTIO_LINKED(F) lib->F = &::F;
    ADVECTIO_LINKED(nc_inq)
    ADVECTIO_LINKED(nc_inq_unlimdims)
    ADVECTIO_LINKED(nc_inq_dim)
    ADVECTIO_LINKED(nc_inq_varnatts)
    ADVECTIO_LINKED(nc_inq_attname)
    ADVECTIO_LINKED(nc_inq_att)
    ADVECTIO_LINKED(nc_get_att)
    ADVECTIO_LINKED(nc_get_att_string)
    ADVECTIO_LINKED(nc_free_string)
    ADVECTIO_LINKED(nc_inq_var)
    ADVECTIO_LINKED(nc_inq_var_chunking)
    ADVECTIO_LINKED(nc_inq_var_deflate)
    ADVECTIO_LINKED(nc_inq_var_fletcher32)
    ADVECTIO_LINKED(nc_inq_var_fill)
    ADVECTIO_LINKED(nc_inq_var_endian)
#undef ADVECTIO_LINKED
    // Older ones lack these.
#define ADVECTIO_FIND(F) lib->F = reinterpret_cast<decltype(lib->F)>(::dlsym(RTLD_DEFAULT, #F));
    ADVECTIO_FIND(nc_inq_var_filter_ids)
    ADVECTIO_FIND(nc_inq_var_filter_info)
    ADVECTIO_FIND(nc_inq_var_quantize)
#undef ADVECTIO_FIND
    return lib;
  }();
  return *found;
}

Result<FileFormat> format_of(int ncid) {
  int format = 0;
  if (const int code = nc_inq_format(ncid, &format); code != NC_NOERR) return Error{Code::io, nc_strerror(code), 0};
  if (format < NC_FORMAT_CLASSIC || format > NC_FORMAT_CDF5)
    return Error{Code::unsupported, "is of an unknown format", 0};
  return static_cast<FileFormat>(format);
}

Result<void> no_groups(int ncid) {
  int groups = 0, types = 0;
  if (nc_inq_grps(ncid, &groups, nullptr) == NC_NOERR && groups > 0)
    return Error{Code::unsupported, "has groups, which are not supported", 0};
  if (nc_inq_typeids(ncid, &types, nullptr) == NC_NOERR && types > 0)
    return Error{Code::unsupported, "has types of its own, which are not supported", 0};
  return {};
}

struct Range {
  explicit Range(const Box& box)
      : start(box.start.begin(), box.start.end()), count(box.count.begin(), box.count.end()) {}
  std::vector<std::size_t> start, count;
};

}  // namespace

Result<std::unique_ptr<Source>> NetcdfSource::open(const std::string& path) {
  const std::lock_guard lock(library_mutex());
  // Each chunk is read once: a cache would only keep what nobody asks for again, for every variable of every file.
  static const int uncached = nc_set_chunk_cache(0, 0, 0.0F);
  (void)uncached;
  int ncid = -1;
  if (const int code = nc_open(path.c_str(), NC_NOWRITE, &ncid); code != NC_NOERR)
    return code > 0
               ? system_error("open " + path, code)
               : Error{code == NC_ENOTNC ? Code::unsupported : Code::io, "open " + path + ": " + nc_strerror(code), 0};
  std::unique_ptr<NetcdfSource> file(new NetcdfSource(path, ncid));
  if (auto format = format_of(ncid); format && is_hdf5(*format)) file->chunks_ = std::make_unique<ChunkReader>(path);
  return std::unique_ptr<Source>(std::move(file));
}

NetcdfSource::~NetcdfSource() {
  const std::lock_guard lock(library_mutex());
  chunks_.reset();
  nc_close(ncid_);
}

Result<SourceHead> NetcdfSource::head() const {
  const std::lock_guard lock(library_mutex());
  SourceHead head;
  ADVECTIO_TRY_WITH(read_head(head), path_);
  return head;
}

Result<void> NetcdfSource::read_head(SourceHead& to) const {
  auto format = format_of(ncid_);
  if (!format) return std::move(format).error();
  auto& schema = to.schema;
  schema.format = *format;
  ADVECTIO_TRY(no_groups(ncid_));
  int variables = 0;
  int code = nc_inq_nvars(ncid_, &variables);
  if (code == NC_NOERR) code = netcdf::read_dimensions(library(), ncid_, schema.dimensions);
  if (code == NC_NOERR) code = netcdf::read_attributes(library(), ncid_, NC_GLOBAL, schema.attributes);
  for (int v = 0; code == NC_NOERR && v < variables; ++v)
    code = netcdf::read_variable(library(), ncid_, v, is_hdf5(schema.format), nullptr, schema.variables.emplace_back());
  for (std::size_t d = 0; code == NC_NOERR && d < schema.dimensions.size(); ++d) {
    std::size_t length = 0;
    code = nc_inq_dimlen(ncid_, static_cast<int>(d), &length);
    to.lengths.push_back(length);
  }
  if (code != NC_NOERR) return Error{Code::io, nc_strerror(code), 0};
  return {};
}

Result<void> NetcdfSource::read(std::uint32_t variable, const Box& box, std::byte* to) const {
  if (box.empty()) return {};
  const std::lock_guard lock(library_mutex());
  const auto number = static_cast<int>(variable);
  nc_type type = NC_NAT;
  if (char name[NC_MAX_NAME + 1] = {}; chunks_ &&
                                       nc_inq_var(ncid_, number, name, &type, nullptr, nullptr, nullptr) == NC_NOERR &&
                                       chunks_->read(name, static_cast<DataType>(type), box, to))
    return {};
  const Range range(box);
  if (const int code = nc_get_vara(ncid_, number, range.start.data(), range.count.data(), to); code != NC_NOERR)
    return Error{Code::io, "read " + path_ + ": " + nc_strerror(code), 0};
  return {};
}

Result<std::vector<StoredChunk>> NetcdfSource::read_stored(std::uint32_t variable, const Box& box,
                                                           std::span<std::byte> to) const {
  if (!chunks_) return std::vector<StoredChunk>();
  if (!schema_) {
    auto known = head();
    if (!known) return std::move(known).error();
    schema_ = std::move(known->schema);
  }
  const auto& v = schema_->variables[variable];
  const std::lock_guard lock(library_mutex());
  return chunks_->read_stored(v.name, v.type, v.filters, box, to);
}

Result<Bytes> NetcdfSource::read_strings(std::uint32_t variable, const Box& box) const {
  std::vector<char*> strings(box.volume(), nullptr);
  Bytes out;
  if (strings.empty()) return out;
  ADVECTIO_TRY(read(variable, box, reinterpret_cast<std::byte*>(strings.data())));
  Encoder e(out);
  for (const char* s : strings) e.string(s);
  const std::lock_guard lock(library_mutex());
  nc_free_string(strings.size(), strings.data());
  return out;
}

}  // namespace advectio
