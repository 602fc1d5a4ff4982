// Create, open, modes, sync, close: the functions that begin and end datasets and frames.
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <span>

#include "capture/pnetcdf/parallel_file.h"

namespace advectio {
namespace {

// Never destroyed: the last calls of a program may come from destructors.
struct OpenFiles {
  std::mutex mutex;
  std::vector<ParallelFile*> files;
};
OpenFiles& open_files() {
  static auto* o = new OpenFiles;
  return *o;
}
std::atomic<bool> any_ever{false};

void forget(ParallelFile& file) {
  file.lib.files[file.ncid].store(nullptr, std::memory_order_release);
  std::erase(open_files().files, &file);
}

std::unique_ptr<ParallelFile> remove_file(ParallelFile& file) {
  const std::lock_guard lock(open_files().mutex);
  forget(file);
  return std::unique_ptr<ParallelFile>(&file);
}

/// A program that ends without closing has lost nothing with us that it would have kept with the library.
void close_what_is_open() {
  for (;;) {
    ParallelFile* file = nullptr;
    {
      const std::lock_guard lock(open_files().mutex);
      if (open_files().files.empty()) break;
      file = open_files().files.back();
      forget(*file);
    }
    const Entry entry(file->lib);
    file->close_at_exit();
    delete file;
  }
}

/// The datasets are the parent's.
void after_fork_in_child() {
  new (&open_files().mutex) std::mutex;
  while (!open_files().files.empty()) forget(*open_files().files.back());
}

void add_file(std::unique_ptr<ParallelFile> file) {
  static std::once_flag once;
  std::call_once(once, [] {
    any_ever.store(true, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
    std::atexit(close_what_is_open);
  });
  const std::lock_guard lock(open_files().mutex);
  auto& added = *file.release();
  open_files().files.push_back(&added);
  added.lib.files[added.ncid].store(&added, std::memory_order_release);
}

/// The session is asked for only where one was opened: a shell that has us preloaded must not wait or speak.
__attribute__((destructor)) void finish() {
  if (!any_ever.load(std::memory_order_acquire)) return;
  if (auto* session = Session::current(); session != nullptr) session->finish();
}

/// MPI-IO's way to say which file system a path is on, before a colon.
bool has_prefix(const char* path) {
  const char* colon = std::strchr(path, ':');
  if (colon == nullptr) return false;
  const std::string prefix(path, colon);
  static const char* const known[] = {"ufs",    "nfs",  "xfs",    "pvfs2", "gpfs",   "panfs",
                                      "lustre", "daos", "testfs", "ime",   "quobyte"};
  return std::any_of(std::begin(known), std::end(known), [&prefix](const char* k) { return prefix == k; });
}

bool can_capture(const RealLibrary& lib, const char* path, int mode) {
  constexpr int understood = NC_WRITE | NC_NOCLOBBER | NC_64BIT_DATA | NC_64BIT_OFFSET | NC_LOCK | NC_SHARE;
  if (!lib.mpi.usable || path == nullptr || *path == '\0' || (mode & ~understood) != 0 || has_prefix(path))
    return false;
  struct stat there {};
  if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) return false;
  // A mode to find errors in programs, in which all ranks compare what they say.
  const char* safe = std::getenv("PNETCDF_SAFE_MODE");
  return safe == nullptr || *safe == '\0' || *safe == '0';
}

/// A file of this rank's own in memory, beside the journals: what a killed process leaves goes with the run directory.
std::string shadow_path(const Session& session) {
  static std::atomic<unsigned> count{0};
  const std::string directory = session.directory() + "/shadows";
  (void)mkdir(directory.c_str(), 0700);
  return directory + "/" + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
}

/// Collective. Not true: the real library shall create the file. It will then also find the reason why we could not,
/// and say it its own way. `code`: what a rank gets whose mode is not rank 0's; that one's counts.
bool capture(const RealLibrary& lib, MPI_Comm comm, const char* path, int mode, MPI_Info info, int* ncid, int& code) {
  if (beyond_this_node()) {
    say_beyond_this_node(path != nullptr ? path : "", "PnetCDF");
    return false;
  }
  const MpiRanks ranks(lib.mpi, comm, info);
  if (!ranks.usable()) return false;
  const int asked = mode;
  ranks.tell(std::as_writable_bytes(std::span(&mode, 1)));
  code = mode == asked ? NC_NOERR : NC_EMULTIDEFINE_CMODE;
  Session* session = nullptr;
  bool can = ncid != nullptr && can_capture(lib, path, mode);
  if (can) {
    session = Session::current();
    can = session != nullptr && session->wants(path);
  }
  int shadow = -1, format = NC_FORMAT_CLASSIC;
  const std::string at = can ? shadow_path(*session) : "";
  if (can) can = lib.ncmpi_create(lib.mpi.self, at.c_str(), mode & ~NC_NOCLOBBER, info, &shadow) == NC_NOERR;
  if (can) lib.ncmpi_inq_format(shadow, &format);
  const bool shadowed = can;

  const CreateRequest request{can ? path : "", static_cast<FileFormat>(format), (mode & NC_NOCLOBBER) != 0};
  auto out = create_together(ranks, can, session, request, "PnetCDF");
  if (out == nullptr) {
    if (shadowed) {
      lib.ncmpi_abort(shadow);
      unlink(at.c_str());
    }
    return false;
  }
  add_file(std::make_unique<ParallelFile>(lib, shadow, path, at, ranks.rank(), ranks.count(), std::move(out)));
  *ncid = shadow;
  return true;
}

/// Before the real library touches a path: let what is in flight there arrive.
int wait_for(const char* path, bool writing) {
  if (path == nullptr || *path == '\0' || std::getenv("ADVECTIO_RUN") == nullptr) return NC_NOERR;
  auto* session = Session::current();
  if (session == nullptr) return NC_NOERR;
  const auto waited = session->wait_for_file(path, writing);
  if (waited.ok()) return NC_NOERR;
  session->say_once(waited.error().message);
  return code_of(waited.error());
}

/// Collective. All ranks go into the library or none: it waits for all of them.
int wait_together(const RealLibrary& lib, MPI_Comm comm, MPI_Info info, const char* path, bool writing) {
  const int code = wait_for(path, writing);
  const MpiRanks ranks(lib.mpi, comm, info);
  if (beyond_this_node() || !ranks.usable() || ranks.all(code == NC_NOERR)) return code;
  return code != NC_NOERR ? code : NC_EFILE;
}

}  // namespace
}  // namespace advectio

using advectio::Collective;
using advectio::remove_file;
using advectio::Stall;
using advectio::wait_for;
using advectio::wait_together;

ADVECTIO_EXPORT int ncmpi_create(MPI_Comm comm, const char* path, int mode, MPI_Info info, int* ncid) {
  ADVECTIO_ENTER;
  if (!entry.nested() && entry.lib.ncmpi_create != nullptr) {
    int captured = NC_NOERR;
    if (advectio::capture(entry.lib, comm, path, mode, info, ncid, captured)) return captured;
    if ((mode & NC_NOCLOBBER) == 0) {
      if (const int code = wait_together(entry.lib, comm, info, path, true); code != NC_NOERR) return code;
    }
  }
  return ADVECTIO_REAL(ncmpi_create, comm, path, mode, info, ncid);
}

ADVECTIO_EXPORT int ncmpi_open(MPI_Comm comm, const char* path, int mode, MPI_Info info, int* ncid) {
  ADVECTIO_ENTER;
  if (!entry.nested()) {
    const int code = wait_together(entry.lib, comm, info, path, (mode & NC_WRITE) != 0);
    if (code != NC_NOERR) return code;
  }
  return ADVECTIO_REAL(ncmpi_open, comm, path, mode, info, ncid);
}

ADVECTIO_EXPORT int ncmpi_delete(const char* path, MPI_Info info) {
  ADVECTIO_ENTER;
  if (!entry.nested()) (void)wait_for(path, true);
  return ADVECTIO_REAL(ncmpi_delete, path, info);
}

ADVECTIO_EXPORT int ncmpi_inq_file_format(const char* path, int* format) {
  ADVECTIO_ENTER;
  if (!entry.nested()) (void)wait_for(path, false);
  return ADVECTIO_REAL(ncmpi_inq_file_format, path, format);
}

ADVECTIO_EXPORT int ncmpi_close(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return remove_file(*file)->close();
  return ADVECTIO_REAL(ncmpi_close, ncid);
}

ADVECTIO_EXPORT int ncmpi_abort(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return remove_file(*file)->abort();
  return ADVECTIO_REAL(ncmpi_abort, ncid);
}

ADVECTIO_EXPORT int ncmpi_sync(int ncid) {
  ADVECTIO_ENTER;
  if (auto* file = entry.find(ncid); file != nullptr) return file->sync();
  return ADVECTIO_REAL(ncmpi_sync, ncid);
}

ADVECTIO_EXPORT int ncmpi_redef(int ncid) {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_redef, ncid);
  const Collective turn(file->turns());
  const Stall stall(*file);
  return file->redef();
}

ADVECTIO_EXPORT int ncmpi_enddef(int ncid) {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi_enddef, ncid);
  const Collective turn(file->turns());
  const Stall stall(*file);
  return file->enddef();
}

ADVECTIO_EXPORT int ncmpi__enddef(int ncid, MPI_Offset header_pad, MPI_Offset data_align, MPI_Offset data_pad,
                                  MPI_Offset record_align) {
  ADVECTIO_ENTER;
  auto* file = entry.find(ncid);
  if (file == nullptr) return ADVECTIO_REAL(ncmpi__enddef, ncid, header_pad, data_align, data_pad, record_align);
  const Collective turn(file->turns());
  const Stall stall(*file);
  return file->enddef(header_pad, data_align, data_pad, record_align);
}

// Collective calls that change nothing but the mode of the library, and the turn.
#define ADVECTIO_MODE(F, DONE)                                                   \
  ADVECTIO_EXPORT int F(int ncid) {                                              \
    ADVECTIO_ENTER;                                                              \
    auto* file = entry.find(ncid);                                               \
    if (file == nullptr) return ADVECTIO_REAL(F, ncid);                          \
    const Collective turn(file->turns());                                        \
    if (const int settled = file->settle(); settled != NC_NOERR) return settled; \
    const int code = ADVECTIO_REAL(F, ncid);                                     \
    if (code == NC_NOERR) DONE;                                                  \
    return code;                                                                 \
  }
ADVECTIO_MODE(ncmpi_begin_indep_data, file->independent(true))
ADVECTIO_MODE(ncmpi_end_indep_data, file->independent(false))
ADVECTIO_MODE(ncmpi_sync_numrecs, (void)0)
ADVECTIO_MODE(ncmpi_flush, (void)0)
