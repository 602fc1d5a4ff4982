// Create, open, modes, sync, close: the functions that begin and end datasets and frames.
#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "capture/netcdf/open_files.h"

namespace advectio {
namespace {

/// The library skips blanks and control characters in front of a path.
const char* trimmed(const char* path) {
  while (*path != '\0' && static_cast<unsigned char>(*path) <= ' ') ++path;
  return path;
}

/// Remote datasets, and local ones with the format said in the name ("file:///…#mode=zarr").
bool is_url(const char* path) {
  return std::strstr(path, "://") != nullptr || *path == '[';
}

bool can_capture(const char* path, int mode) {
  constexpr int understood =
      NC_WRITE | NC_NOCLOBBER | NC_CLASSIC_MODEL | NC_64BIT_DATA | NC_64BIT_OFFSET | NC_LOCK | NC_SHARE | NC_NETCDF4;
  if (path == nullptr || (mode & ~understood) != 0) return false;
  path = trimmed(path);
  struct stat there {};
  return *path != '\0' && !is_url(path) && (stat(path, &there) != 0 || S_ISREG(there.st_mode));
}

FileFormat format_of(int format) {
  return static_cast<FileFormat>(format);
}
static_assert(NC_FORMAT_CLASSIC == static_cast<int>(FileFormat::classic) &&
              NC_FORMAT_64BIT_OFFSET == static_cast<int>(FileFormat::offset64) &&
              NC_FORMAT_NETCDF4 == static_cast<int>(FileFormat::netcdf4) &&
              NC_FORMAT_NETCDF4_CLASSIC == static_cast<int>(FileFormat::netcdf4_classic) &&
              NC_FORMAT_CDF5 == static_cast<int>(FileFormat::cdf5));

struct Shadow {
  int ncid = -1;
  FileFormat format = FileFormat::netcdf4;
};

/// A dataset in memory that keeps the metadata. A classic one would be laid out in memory, whole, when define mode
/// ends; so it never ends: the redefinition of an empty dataset, which can be given up at any time without a trace.
int make_shadow(const RealLibrary& lib, int mode, Shadow& shadow) {
  static std::atomic<unsigned> count{0};
  // A name of our own: two datasets in memory by one name would be one to HDF5. And one that no file can have: giving
  // up a new dataset removes its file.
  const std::string name = "/dev/null/advectio-shadow-" + std::to_string(count.fetch_add(1));
  const int flags = (mode & ~(NC_NOCLOBBER | NC_SHARE | NC_LOCK)) | NC_DISKLESS;
  int code = lib.nc_create(name.c_str(), flags, &shadow.ncid);
  if (code != NC_NOERR) return code;
  int format = NC_FORMAT_NETCDF4;
  code = lib.nc_inq_format(shadow.ncid, &format);
  shadow.format = format_of(format);
  if (code == NC_NOERR && !is_hdf5(shadow.format)) {
    code = lib.nc_enddef(shadow.ncid);
    if (code == NC_NOERR) code = lib.nc_redef(shadow.ncid);
  }
  if (code != NC_NOERR) lib.nc_abort(shadow.ncid);
  return code;
}

/// Where HDF5 begins objects of that size: multiples of the second number. The last nc_set_alignment asked for some.
std::atomic<bool> aligned{false};

void say_not_aligned(Session& session, FileFormat format) {
  if (aligned.load(std::memory_order_relaxed) && is_hdf5(format))
    session.say_once("nc_set_alignment has no effect on the files that Advectio writes");
}

void drop(const RealLibrary& lib, const Shadow& shadow) {
  lib.nc_abort(shadow.ncid);
}

/// False: the real library shall create the file. It will then also find the reason why we could not, and say it its
/// own way.
bool capture(const RealLibrary& lib, const char* path, int mode, int* ncid, int& code) {
  if (!can_capture(path, mode)) return false;
  auto* session = Session::current();
  if (session == nullptr || !session->wants(trimmed(path))) return false;

  const auto begin = CapturedFile::now();
  Shadow shadow;
  if (make_shadow(lib, mode, shadow) != NC_NOERR) return false;
  // HDF5 does not create over a file which this process has open.
  if (const auto* open = file_at(trimmed(path)); open != nullptr && is_hdf5(shadow.format) && is_hdf5(open->format)) {
    drop(lib, shadow);
    code = (mode & NC_NOCLOBBER) != 0 ? NC_EEXIST : EACCES;
    return true;
  }
  const auto shadow_ns = CapturedFile::now() - begin;
  auto created = session->create({trimmed(path), shadow.format, (mode & NC_NOCLOBBER) != 0});
  if (!created.ok()) {
    drop(lib, shadow);
    const bool in_use = created.error().code == Code::exists && (mode & NC_NOCLOBBER) == 0;
    if (in_use) code = EACCES;
    return in_use;
  }
  (*created)->add_stall(shadow_ns);  // the session counts its own part
  say_not_aligned(*session, shadow.format);
  add_file(
      std::make_unique<CapturedFile>(lib, shadow.ncid, trimmed(path), mode, shadow.format, std::move(created).value()));
  *ncid = shadow.ncid;
  code = NC_NOERR;
  return true;
}

/// The same by several ranks. Collective.
bool capture_together(const RealLibrary& lib, const ProgramCommunicator& program, const char* path, int mode,
                      int* ncid) {
  if (beyond_this_node()) {
    say_beyond_this_node(path != nullptr ? path : "", "netCDF");
    return false;
  }
  auto ranks = duplicate(reinterpret_cast<const void*>(lib.nc_create_par), program);
  if (ranks == nullptr) return false;
  const auto begin = CapturedFile::now();
  mode &= ~NC_MPIIO;  // says what the function's name says
  Session* session = nullptr;
  Shadow shadow;
  bool can = ncid != nullptr && can_capture(path, mode) && file_at(trimmed(path)) == nullptr;
  if (can) {
    session = Session::current();
    can = session != nullptr && session->wants(trimmed(path)) && make_shadow(lib, mode, shadow) == NC_NOERR;
  }
  const bool shadowed = can;
  const CreateRequest request{can ? trimmed(path) : "", shadow.format, (mode & NC_NOCLOBBER) != 0};
  const auto shadow_ns = CapturedFile::now() - begin;
  // The library gives the classic formats to PnetCDF, where they are caught.
  auto out = create_together(*ranks, can && is_hdf5(shadow.format), session, request, "netCDF");
  if (out == nullptr) {
    if (shadowed) drop(lib, shadow);
    return false;
  }
  out->add_stall(shadow_ns);
  if (ranks->rank() == 0) say_not_aligned(*session, shadow.format);
  auto& shared = *out;
  auto file = std::make_unique<CapturedFile>(lib, shadow.ncid, trimmed(path), mode, shadow.format, std::move(out));
  file->write_together(std::move(ranks), shared);
  add_file(std::move(file));
  *ncid = shadow.ncid;
  return true;
}

/// Before the real library touches a path: let what is in flight there arrive.
int wait_for(const char* path, bool writing) {
  if (path == nullptr) return NC_NOERR;
  path = trimmed(path);
  if (*path == '\0' || is_url(path)) return NC_NOERR;
  if (auto* open = file_at(path); open != nullptr) {
    if (writing) return EBUSY;
    // In define mode nothing new can be shown; what was synced can.
    const int code = open->make_visible();
    return code == NC_EINDEFINE ? NC_NOERR : code;
  }
  // A process that never wrote and was not started in a run has nothing to wait for, and nothing to say.
  if (std::getenv("ADVECTIO_RUN") == nullptr) return NC_NOERR;
  auto* session = Session::current();
  if (session == nullptr) return NC_NOERR;
  const auto waited = session->wait_for_file(path, writing);
  if (waited.ok()) return NC_NOERR;
  session->say_once(waited.error().message);
  return code_of(waited.error());
}

/// `create` calls the real function with the program's own arguments.
template <typename Create>
int create_file(const Entry& entry, const char* path, int mode, int* ncid, Create&& create) {
  if (entry.nested()) return create();
  int code = NC_NOERR;
  if (ncid != nullptr && entry.lib.nc_create != nullptr && capture(entry.lib, path, mode, ncid, code)) return code;
  if ((mode & NC_NOCLOBBER) == 0) {
    if (code = wait_for(path, true); code != NC_NOERR) return code;
  }
  return create();
}

template <typename Open>
int open_file(const Entry& entry, const char* path, int mode, Open&& open) {
  if (!entry.nested()) {
    if (const int code = wait_for(path, (mode & NC_WRITE) != 0); code != NC_NOERR) return code;
  }
  return open();
}

/// Collective. All ranks go into the library or none: it waits for all of them.
template <typename Open>
int open_together(const Entry& entry, const ProgramCommunicator& program, const char* path, bool writing, Open&& open) {
  if (entry.nested()) return open();
  const int code = wait_for(path, writing);
  const auto ranks =
      beyond_this_node() ? nullptr : duplicate(reinterpret_cast<const void*>(entry.lib.nc_open_par), program);
  if (ranks != nullptr && !ranks->all(code == NC_NOERR)) return code != NC_NOERR ? code : NC_EIO;
  return code != NC_NOERR ? code : open();
}

template <typename Create>
int create_file_together(const Entry& entry, const ProgramCommunicator& program, const char* path, int mode, int* ncid,
                         Create&& create) {
  if (entry.nested()) return create();
  if (entry.lib.nc_create_par != nullptr && capture_together(entry.lib, program, path, mode, ncid)) return NC_NOERR;
  return (mode & NC_NOCLOBBER) != 0 ? create() : open_together(entry, program, path, true, create);
}

ProgramCommunicator of_fortran(int comm, int info) {
  const auto in_pointer = [](int handle) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(handle)); };
  return {in_pointer(comm), in_pointer(info), true};
}

}  // namespace
}  // namespace advectio

using advectio::create_file;
using advectio::create_file_together;
using advectio::of_fortran;
using advectio::open_file;
using advectio::open_together;
using advectio::remove_file;

ADVECTIO_EXPORT int nc_create(const char* path, int mode, int* ncid) {
  ADVECTIO_ENTER;
  return create_file(entry, path, mode, ncid, [&] { return ADVECTIO_REAL(nc_create, path, mode, ncid); });
}

ADVECTIO_EXPORT int nc__create(const char* path, int mode, size_t initial, size_t* hint, int* ncid) {
  ADVECTIO_ENTER;
  return create_file(entry, path, mode, ncid,
                     [&] { return ADVECTIO_REAL(nc__create, path, mode, initial, hint, ncid); });
}

ADVECTIO_EXPORT int nc__create_mp(const char* path, int mode, size_t initial, int pe, size_t* hint, int* ncid) {
  ADVECTIO_ENTER;
  return create_file(entry, path, mode, ncid,
                     [&] { return ADVECTIO_REAL(nc__create_mp, path, mode, initial, pe, hint, ncid); });
}

ADVECTIO_EXPORT int nc_create_par(const char* path, int mode, void* comm, void* info, int* ncid) {
  ADVECTIO_ENTER;
  return create_file_together(entry, {comm, info}, path, mode, ncid,
                              [&] { return ADVECTIO_REAL(nc_create_par, path, mode, comm, info, ncid); });
}

ADVECTIO_EXPORT int nc_create_par_fortran(const char* path, int mode, int comm, int info, int* ncid) {
  ADVECTIO_ENTER;
  return create_file_together(entry, of_fortran(comm, info), path, mode, ncid,
                              [&] { return ADVECTIO_REAL(nc_create_par_fortran, path, mode, comm, info, ncid); });
}

ADVECTIO_EXPORT int nc_open_par(const char* path, int mode, void* comm, void* info, int* ncid) {
  ADVECTIO_ENTER;
  return open_together(entry, {comm, info}, path, (mode & NC_WRITE) != 0,
                       [&] { return ADVECTIO_REAL(nc_open_par, path, mode, comm, info, ncid); });
}

ADVECTIO_EXPORT int nc_open_par_fortran(const char* path, int mode, int comm, int info, int* ncid) {
  ADVECTIO_ENTER;
  return open_together(entry, of_fortran(comm, info), path, (mode & NC_WRITE) != 0,
                       [&] { return ADVECTIO_REAL(nc_open_par_fortran, path, mode, comm, info, ncid); });
}

ADVECTIO_EXPORT int nc_var_par_access(int ncid, int varid, int access) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr && file->ranks() != nullptr)
    return file->set_access(varid, access);
  return ADVECTIO_REAL(nc_var_par_access, ncid, varid, access);
}

ADVECTIO_EXPORT int nc_open(const char* path, int mode, int* ncid) {
  ADVECTIO_ENTER;
  return open_file(entry, path, mode, [&] { return ADVECTIO_REAL(nc_open, path, mode, ncid); });
}

ADVECTIO_EXPORT int nc__open(const char* path, int mode, size_t* hint, int* ncid) {
  ADVECTIO_ENTER;
  return open_file(entry, path, mode, [&] { return ADVECTIO_REAL(nc__open, path, mode, hint, ncid); });
}

ADVECTIO_EXPORT int nc__open_mp(const char* path, int mode, int pe, size_t* hint, int* ncid) {
  ADVECTIO_ENTER;
  return open_file(entry, path, mode, [&] { return ADVECTIO_REAL(nc__open_mp, path, mode, pe, hint, ncid); });
}

ADVECTIO_EXPORT int nc_close(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return remove_file(*file)->close();
  return ADVECTIO_REAL(nc_close, ncid);
}

ADVECTIO_EXPORT int nc_close_memio(int ncid, void* memory) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return remove_file(*file)->close();
  return ADVECTIO_REAL(nc_close_memio, ncid, memory);
}

ADVECTIO_EXPORT int nc_abort(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return remove_file(*file)->abort();
  return ADVECTIO_REAL(nc_abort, ncid);
}

ADVECTIO_EXPORT int nc_sync(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->sync();
  return ADVECTIO_REAL(nc_sync, ncid);
}

ADVECTIO_EXPORT int nc_redef(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) {
    const advectio::Stall stall(*file);
    return file->redef();
  }
  return ADVECTIO_REAL(nc_redef, ncid);
}

ADVECTIO_EXPORT int nc_enddef(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) {
    const advectio::Stall stall(*file);
    return file->enddef(nullptr, 0, 0, 0);
  }
  return ADVECTIO_REAL(nc_enddef, ncid);
}

ADVECTIO_EXPORT int nc__enddef(int ncid, size_t header_pad, size_t data_align, size_t data_pad, size_t record_align) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) {
    const advectio::Stall stall(*file);
    return file->enddef(&header_pad, data_align, data_pad, record_align);
  }
  return ADVECTIO_REAL(nc__enddef, ncid, header_pad, data_align, data_pad, record_align);
}

ADVECTIO_EXPORT int nc_set_fill(int ncid, int fill_mode, int* old_mode) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->set_fill(fill_mode, old_mode);
  return ADVECTIO_REAL(nc_set_fill, ncid, fill_mode, old_mode);
}

ADVECTIO_EXPORT int nc_set_alignment(int threshold, int alignment) {
  ADVECTIO_ENTER;
  const int code = ADVECTIO_REAL(nc_set_alignment, threshold, alignment);
  if (code == NC_NOERR) advectio::aligned.store(alignment > 1, std::memory_order_relaxed);
  return code;
}

ADVECTIO_EXPORT int nc_inq_path(int ncid, size_t* length, char* path) {
  ADVECTIO_ENTER;
  if (const auto* file = entry.find(ncid); file != nullptr) {
    if (length != nullptr) *length = file->path.size();
    if (path != nullptr) std::strcpy(path, file->path.c_str());
    return NC_NOERR;
  }
  std::size_t bytes = 0;
  int code = ADVECTIO_REAL(nc_inq_path, ncid, &bytes, nullptr);
  std::string name(bytes + 1, '\0');
  if (code == NC_NOERR) code = ADVECTIO_REAL(nc_inq_path, ncid, &bytes, name.data());
  if (code != NC_NOERR) return code;
  name = advectio::name_for_program(name.c_str());
  if (length != nullptr) *length = name.size();
  if (path != nullptr) std::strcpy(path, name.c_str());
  return NC_NOERR;
}

ADVECTIO_EXPORT int nc_inq_format_extended(int ncid, int* format, int* mode) {
  ADVECTIO_ENTER;
  const int code = ADVECTIO_REAL(nc_inq_format_extended, ncid, format, mode);
  if (const auto* file = entry.find(ncid); file != nullptr && code == NC_NOERR && mode != nullptr)
    *mode = (*mode & ~NC_DISKLESS) | (file->mode & (NC_NOCLOBBER | NC_SHARE | NC_LOCK));
  return code;
}
