#include "apps/advectiod/tile_file.h"

#include <dlfcn.h>

#include <mutex>

#include "capture/netcdf/shadow_schema.h"
#include "sinks/library_lock.h"

namespace advectio {
namespace {

/// The library that this program is linked with, as capture's readers of metadata want it; what an older one lacks is
/// null.
const RealLibrary& library() {
  static const RealLibrary* const found = [] {
    auto* lib = new RealLibrary;
#define ADVECTIO_FIND(F) lib->F = reinterpret_cast<decltype(lib->F)>(::dlsym(RTLD_DEFAULT, #F));
    ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_FIND)
#undef ADVECTIO_FIND
    lib->nc_get_att_string = &nc_get_att_string;
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
    return Error{Code::unsupported, "has groups, which cannot be joined", 0};
  if (nc_inq_typeids(ncid, &types, nullptr) == NC_NOERR && types > 0)
    return Error{Code::unsupported, "has types of its own, which cannot be joined", 0};
  return {};
}

struct Range {
  explicit Range(const Box& box)
      : start(box.start.begin(), box.start.end()), count(box.count.begin(), box.count.end()) {}
  std::vector<std::size_t> start, count;
};

}  // namespace

Result<std::unique_ptr<TileFile>> TileFile::open(const std::string& path) {
  const std::lock_guard lock(library_mutex());
  // Each chunk is read once: a cache would only keep what nobody asks for again, for every variable of every tile.
  static const int uncached = nc_set_chunk_cache(0, 0, 0.0F);
  (void)uncached;
  int ncid = -1;
  if (const int code = nc_open(path.c_str(), NC_NOWRITE, &ncid); code != NC_NOERR)
    return code > 0
               ? system_error("open " + path, code)
               : Error{code == NC_ENOTNC ? Code::unsupported : Code::io, "open " + path + ": " + nc_strerror(code), 0};
  std::unique_ptr<TileFile> file(new TileFile(path, ncid));
  ADVECTIO_TRY_WITH(file->read_schema(), path);
  return file;
}

TileFile::~TileFile() {
  const std::lock_guard lock(library_mutex());
  nc_close(ncid_);
}

Result<void> TileFile::read_schema() {
  auto format = format_of(ncid_);
  if (!format) return std::move(format).error();
  schema_.format = *format;
  ADVECTIO_TRY(no_groups(ncid_));
  int variables = 0;
  int code = nc_inq_nvars(ncid_, &variables);
  if (code == NC_NOERR) code = read_dimensions(library(), ncid_, schema_.dimensions);
  if (code == NC_NOERR) code = read_attributes(library(), ncid_, NC_GLOBAL, schema_.attributes);
  for (int v = 0; code == NC_NOERR && v < variables; ++v)
    code = read_variable(library(), ncid_, v, is_hdf5(schema_.format), schema_.variables.emplace_back());
  for (std::size_t d = 0; code == NC_NOERR && d < schema_.dimensions.size(); ++d) {
    std::size_t length = 0;
    code = nc_inq_dimlen(ncid_, static_cast<int>(d), &length);
    lengths_.push_back(length);
  }
  if (code != NC_NOERR) return Error{Code::io, nc_strerror(code), 0};
  return {};
}

Result<void> TileFile::read(std::uint32_t variable, const Box& box, std::byte* to) const {
  if (box.empty()) return {};
  const std::lock_guard lock(library_mutex());
  const Range range(box);
  if (const int code = nc_get_vara(ncid_, static_cast<int>(variable), range.start.data(), range.count.data(), to);
      code != NC_NOERR)
    return Error{Code::io, "read " + schema_.variables[variable].name + " of " + path_ + ": " + nc_strerror(code), 0};
  return {};
}

Result<Bytes> TileFile::read_strings(std::uint32_t variable, const Box& box) const {
  std::vector<char*> strings(box.volume(), nullptr);
  Bytes out;
  if (strings.empty()) return out;
  ADVECTIO_TRY(read(variable, box, reinterpret_cast<std::byte*>(strings.data())));
  Encoder e(out);
  for (const char* s : strings) e.text(s != nullptr ? s : "");
  const std::lock_guard lock(library_mutex());
  nc_free_string(strings.size(), strings.data());
  return out;
}

}  // namespace advectio
