// open(2), fopen(3), stat(2) and their like, for programs that look at a file in flight without
// netCDF. xarray reads the first bytes itself, h5py brings its own HDF5, scripts copy. On a path
// that is not in flight in this run they cost one more stat(2) and access(2); outside a run nothing.
//
//   open to read    waits until everything synced so far is in the file
//   open to write   waits until the file is complete, unless this process still has it open
//   stat            waits until the file is complete, where its program has closed it; so do calls that
//                   set times, permissions, owners and extended attributes
//
// A coupled file (capture/coupling.h) is somewhere else than its name says: these calls go there,
// and wait until it is there.
//
// A name that is held back (capture/markers.h) is another one until the files that it speaks of are complete:
// calls that make, look at or remove it go there.
//
// A listing (readdir) shows such a name as the program knows it (capture/listing.h).
//
// Advectio's own calls come here, too, and mean the file itself: they pass through, by the caller's
// address.
//
// When the wait fails, open fails with its errno and writes one line to stderr. stat answers for
// the file as it is.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "capture/export.h"
#include "capture/listing.h"
#include "capture/marker_path.h"
#include "capture/plain_path.h"
#include "capture/renaming.h"

// The C library's attributes are of its declarations, not of the types that we take from them.
#pragma GCC diagnostic ignored "-Wignored-attributes"

namespace advectio {
namespace {

/// The definition of the function that comes after ours: the C library's, or another preloaded
/// library's. Null: none.
void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  // This version is kept for old programs only.
  return found != nullptr ? found : dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
}

/// Call it; `known` keeps its address.
template <typename Function, typename... Arguments>
auto call_next(std::atomic<void*>& known, const char* name, Arguments... arguments) {
  using Answer = decltype(std::declval<Function*>()(arguments...));
  auto* function = known.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = next(name);
    known.store(function, std::memory_order_release);
  }
  if (function != nullptr) return reinterpret_cast<Function*>(function)(arguments...);
  errno = ENOSYS;
  if constexpr (std::is_pointer_v<Answer>)
    return Answer{nullptr};
  else
    return Answer{-1};
}
#define ADVECTIO_NEXT(F, ...)                                            \
  [&] {                                                                  \
    static std::atomic<void*> known{nullptr};                            \
    return ::advectio::call_next<decltype(::F)>(known, #F, __VA_ARGS__); \
  }()

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

}  // namespace
}  // namespace advectio

using advectio::takes_mode;
using advectio::capture::MarkerPath;
using advectio::capture::MovePath;
using advectio::capture::Path;
using advectio::capture::removes_coupled;
using advectio::capture::Renaming;
using advectio::capture::Use;
using MarkerUse = MarkerPath::Use;

extern "C" {
// Of the C library, which declares them only where the compiler checks calls, or no longer.
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int directory, const char* path, int flags);
int __openat64_2(int directory, const char* path, int flags);
int __xstat(int version, const char* path, struct stat* st) noexcept;
int __xstat64(int version, const char* path, struct stat64* st) noexcept;
int __lxstat(int version, const char* path, struct stat* st) noexcept;
int __lxstat64(int version, const char* path, struct stat64* st) noexcept;
int __fxstatat(int version, int directory, const char* path, struct stat* st, int flags) noexcept;
int __fxstatat64(int version, int directory, const char* path, struct stat64* st, int flags) noexcept;
}

#define ADVECTIO_CALLER __builtin_return_address(0)

// The third argument of open and its like; absent: 0.
#define ADVECTIO_MODE            \
  mode_t mode = 0;               \
  if (takes_mode(flags)) {       \
    va_list rest;                \
    va_start(rest, flags);       \
    mode = va_arg(rest, mode_t); \
    va_end(rest);                \
  }

#define ADVECTIO_OPEN(F)                                                                   \
  ADVECTIO_EXPORT int F(const char* path, int flags, ...) {                                \
    ADVECTIO_MODE                                                                          \
    const Path at(AT_FDCWD, path, Use::of_flags(flags), ADVECTIO_CALLER);                  \
    const MarkerPath of(AT_FDCWD, at.get(), MarkerPath::of_flags(flags), ADVECTIO_CALLER); \
    return at ? ADVECTIO_NEXT(F, of.get(), flags, mode) : -1;                              \
  }
ADVECTIO_OPEN(open)
ADVECTIO_OPEN(open64)

#define ADVECTIO_OPENAT(F)                                                                  \
  ADVECTIO_EXPORT int F(int directory, const char* path, int flags, ...) {                  \
    ADVECTIO_MODE                                                                           \
    const Path at(directory, path, Use::of_flags(flags), ADVECTIO_CALLER);                  \
    const MarkerPath of(directory, at.get(), MarkerPath::of_flags(flags), ADVECTIO_CALLER); \
    return at ? ADVECTIO_NEXT(F, directory, of.get(), flags, mode) : -1;                    \
  }
ADVECTIO_OPENAT(openat)
ADVECTIO_OPENAT(openat64)

ADVECTIO_EXPORT int __open_2(const char* path, int flags) {
  const Path at(AT_FDCWD, path, Use::of_flags(flags), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerPath::of_flags(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__open_2, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int __open64_2(const char* path, int flags) {
  const Path at(AT_FDCWD, path, Use::of_flags(flags), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerPath::of_flags(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__open64_2, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int __openat_2(int directory, const char* path, int flags) {
  const Path at(directory, path, Use::of_flags(flags), ADVECTIO_CALLER);
  const MarkerPath of(directory, at.get(), MarkerPath::of_flags(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__openat_2, directory, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int __openat64_2(int directory, const char* path, int flags) {
  const Path at(directory, path, Use::of_flags(flags), ADVECTIO_CALLER);
  const MarkerPath of(directory, at.get(), MarkerPath::of_flags(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__openat64_2, directory, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int creat(const char* path, mode_t mode) {
  const Path at(AT_FDCWD, path, Use::of_flags(O_CREAT | O_WRONLY | O_TRUNC), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::replace, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(creat, of.get(), mode) : -1;
}
ADVECTIO_EXPORT int creat64(const char* path, mode_t mode) {
  const Path at(AT_FDCWD, path, Use::of_flags(O_CREAT | O_WRONLY | O_TRUNC), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::replace, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(creat64, of.get(), mode) : -1;
}
ADVECTIO_EXPORT int truncate(const char* path, off_t bytes) noexcept {
  const Path at(AT_FDCWD, path, Use::of_flags(O_WRONLY), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::write, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(truncate, of.get(), bytes) : -1;
}
ADVECTIO_EXPORT int truncate64(const char* path, off64_t bytes) noexcept {
  const Path at(AT_FDCWD, path, Use::of_flags(O_WRONLY), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::write, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(truncate64, of.get(), bytes) : -1;
}
ADVECTIO_EXPORT FILE* fopen(const char* path, const char* mode) {
  const Path at(AT_FDCWD, path, Use::of_mode(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerPath::of_mode(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(fopen, of.get(), mode) : nullptr;
}
ADVECTIO_EXPORT FILE* fopen64(const char* path, const char* mode) {
  const Path at(AT_FDCWD, path, Use::of_mode(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerPath::of_mode(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(fopen64, of.get(), mode) : nullptr;
}
ADVECTIO_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  const Path at(AT_FDCWD, path, Use::of_mode(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerPath::of_mode(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(freopen, of.get(), mode, stream) : nullptr;
}
ADVECTIO_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  const Path at(AT_FDCWD, path, Use::of_mode(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerPath::of_mode(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(freopen64, of.get(), mode, stream) : nullptr;
}

// `USE` looks or changes.
#define ADVECTIO_LOOK(ANSWER, F, USE, DIRECTORY, PARAMETERS, ...)         \
  ADVECTIO_EXPORT ANSWER F PARAMETERS noexcept {                          \
    const auto use = USE;                                                 \
    const auto looks = MarkerPath::of_look(use.means_name());             \
    Path at(DIRECTORY, path, use, ADVECTIO_CALLER);                       \
    auto answer = ANSWER{-1};                                             \
    if (at) do {                                                          \
        const MarkerPath of(DIRECTORY, at.get(), looks, ADVECTIO_CALLER); \
        answer = ADVECTIO_NEXT(F, __VA_ARGS__);                           \
      } while (answer < 0 && at.look_again());                            \
    return answer;                                                        \
  }
#define ADVECTIO_STAT(F, DIRECTORY, PARAMETERS, ...) \
  ADVECTIO_LOOK(int, F, Use::of_look(0), DIRECTORY, PARAMETERS, __VA_ARGS__)
#define ADVECTIO_CHANGE(F, DIRECTORY, FLAGS, PARAMETERS, ...) \
  ADVECTIO_LOOK(int, F, Use::of_change(FLAGS), DIRECTORY, PARAMETERS, __VA_ARGS__)
#define ADVECTIO_LSTAT(F, PARAMETERS, ...) \
  ADVECTIO_LOOK(int, F, Use::of_look(AT_SYMLINK_NOFOLLOW), AT_FDCWD, PARAMETERS, __VA_ARGS__)
#define ADVECTIO_STATAT(F, PARAMETERS, ...) \
  ADVECTIO_LOOK(int, F, Use::of_look(flags), directory, PARAMETERS, __VA_ARGS__)
ADVECTIO_STAT(stat, AT_FDCWD, (const char* path, struct stat* st), of.get(), st)
ADVECTIO_STAT(stat64, AT_FDCWD, (const char* path, struct stat64* st), of.get(), st)
ADVECTIO_LSTAT(lstat, (const char* path, struct stat* st), of.get(), st)
ADVECTIO_LSTAT(lstat64, (const char* path, struct stat64* st), of.get(), st)
ADVECTIO_STATAT(fstatat, (int directory, const char* path, struct stat* st, int flags), directory, of.get(), st, flags)
ADVECTIO_STATAT(fstatat64, (int directory, const char* path, struct stat64* st, int flags), directory, of.get(), st,
                flags)
ADVECTIO_STATAT(statx, (int directory, const char* path, int flags, unsigned mask, struct statx* st), directory,
                of.get(), flags, mask, st)
ADVECTIO_STAT(__xstat, AT_FDCWD, (int version, const char* path, struct stat* st), version, of.get(), st)
ADVECTIO_STAT(__xstat64, AT_FDCWD, (int version, const char* path, struct stat64* st), version, of.get(), st)
ADVECTIO_LSTAT(__lxstat, (int version, const char* path, struct stat* st), version, of.get(), st)
ADVECTIO_LSTAT(__lxstat64, (int version, const char* path, struct stat64* st), version, of.get(), st)
ADVECTIO_STATAT(__fxstatat, (int version, int directory, const char* path, struct stat* st, int flags), version,
                directory, of.get(), st, flags)
ADVECTIO_STATAT(__fxstatat64, (int version, int directory, const char* path, struct stat64* st, int flags), version,
                directory, of.get(), st, flags)

// Times, permissions, owners and extended attributes that are set after the close must stay: the
// server writes the file before.
ADVECTIO_CHANGE(utime, AT_FDCWD, 0, (const char* path, const utimbuf* times), of.get(), times)
ADVECTIO_CHANGE(utimes, AT_FDCWD, 0, (const char* path, const timeval times[2]), of.get(), times)
ADVECTIO_CHANGE(lutimes, AT_FDCWD, AT_SYMLINK_NOFOLLOW, (const char* path, const timeval times[2]), of.get(), times)
ADVECTIO_CHANGE(futimesat, directory, 0, (int directory, const char* path, const timeval times[2]), directory, of.get(),
                times)
ADVECTIO_CHANGE(utimensat, directory, flags, (int directory, const char* path, const timespec times[2], int flags),
                directory, of.get(), times, flags)
ADVECTIO_CHANGE(chmod, AT_FDCWD, 0, (const char* path, mode_t mode), of.get(), mode)
ADVECTIO_CHANGE(fchmodat, directory, flags, (int directory, const char* path, mode_t mode, int flags), directory,
                of.get(), mode, flags)

ADVECTIO_CHANGE(chown, AT_FDCWD, 0, (const char* path, uid_t user, gid_t group), of.get(), user, group)
ADVECTIO_CHANGE(lchown, AT_FDCWD, AT_SYMLINK_NOFOLLOW, (const char* path, uid_t user, gid_t group), of.get(), user,
                group)
ADVECTIO_CHANGE(fchownat, directory, flags, (int directory, const char* path, uid_t user, gid_t group, int flags),
                directory, of.get(), user, group, flags)
ADVECTIO_CHANGE(setxattr, AT_FDCWD, 0, (const char* path, const char* name, const void* value, size_t size, int flags),
                of.get(), name, value, size, flags)
ADVECTIO_CHANGE(lsetxattr, AT_FDCWD, AT_SYMLINK_NOFOLLOW,
                (const char* path, const char* name, const void* value, size_t size, int flags), of.get(), name, value,
                size, flags)
ADVECTIO_CHANGE(removexattr, AT_FDCWD, 0, (const char* path, const char* name), of.get(), name)
ADVECTIO_CHANGE(lremovexattr, AT_FDCWD, AT_SYMLINK_NOFOLLOW, (const char* path, const char* name), of.get(), name)

ADVECTIO_STAT(access, AT_FDCWD, (const char* path, int mode), of.get(), mode)
ADVECTIO_STATAT(faccessat, (int directory, const char* path, int mode, int flags), directory, of.get(), mode, flags)
ADVECTIO_STAT(euidaccess, AT_FDCWD, (const char* path, int mode), of.get(), mode)

// `ls -l` and copies ask for them.
#define ADVECTIO_XATTR(F, USE, PARAMETERS, ...) ADVECTIO_LOOK(ssize_t, F, USE, AT_FDCWD, PARAMETERS, __VA_ARGS__)
ADVECTIO_XATTR(getxattr, Use::of_look(0), (const char* path, const char* name, void* value, size_t size), of.get(),
               name, value, size)
ADVECTIO_XATTR(lgetxattr, Use::of_look(AT_SYMLINK_NOFOLLOW),
               (const char* path, const char* name, void* value, size_t size), of.get(), name, value, size)
ADVECTIO_XATTR(listxattr, Use::of_look(0), (const char* path, char* list, size_t size), of.get(), list, size)
ADVECTIO_XATTR(llistxattr, Use::of_look(AT_SYMLINK_NOFOLLOW), (const char* path, char* list, size_t size), of.get(),
               list, size)

ADVECTIO_STAT(statfs, AT_FDCWD, (const char* path, struct statfs* system), of.get(), system)
ADVECTIO_STAT(statfs64, AT_FDCWD, (const char* path, struct statfs64* system), of.get(), system)
ADVECTIO_STAT(statvfs, AT_FDCWD, (const char* path, struct statvfs* system), of.get(), system)
ADVECTIO_STAT(statvfs64, AT_FDCWD, (const char* path, struct statvfs64* system), of.get(), system)
ADVECTIO_LOOK(long, pathconf, Use::of_look(0), AT_FDCWD, (const char* path, int name), of.get(), name)
ADVECTIO_STATAT(name_to_handle_at, (int directory, const char* path, file_handle* handle, int* mount, int flags),
                directory, of.get(), handle, mount, flags)
ADVECTIO_STAT(inotify_add_watch, AT_FDCWD, (int queue, const char* path, uint32_t events), queue, of.get(), events)

#define ADVECTIO_REMOVE(F, DIRECTORY, PARAMETERS, ...)                        \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                 \
    if (removes_coupled(DIRECTORY, path, ADVECTIO_CALLER)) return 0;          \
    const MarkerPath of(DIRECTORY, path, MarkerUse::remove, ADVECTIO_CALLER); \
    return ADVECTIO_NEXT(F, __VA_ARGS__);                                     \
  }
ADVECTIO_REMOVE(unlink, AT_FDCWD, (const char* path), of.get())
ADVECTIO_REMOVE(remove, AT_FDCWD, (const char* path), of.get())
ADVECTIO_REMOVE(unlinkat, directory, (int directory, const char* path, int flags), directory, of.get(), flags)

// Names that a file gets which is there. Of a coupled file they are the workflow's.
#define ADVECTIO_RENAME(F, KIND, OLD, NEW, FLAGS, LEAVES, TAKES, PARAMETERS, ...)            \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                                \
    Renaming renaming(Renaming::Kind::KIND, {OLD, from}, {NEW, to}, FLAGS, ADVECTIO_CALLER); \
    if (const auto answer = renaming.answer(); answer) return *answer;                       \
    const void* const caller = renaming.is_coupled() ? nullptr : ADVECTIO_CALLER;            \
    const MarkerPath old_path(OLD, from, MarkerUse::LEAVES, caller);                         \
    const MarkerPath new_path(NEW, to, TAKES, old_path, OLD, caller);                        \
    MovePath move(OLD, old_path.get(), NEW, new_path.get(), caller);                         \
    return move.after(renaming.after(ADVECTIO_NEXT(F, __VA_ARGS__)));                        \
  }
ADVECTIO_RENAME(rename, moves, AT_FDCWD, AT_FDCWD, 0, remove, MarkerUse::replace, (const char* from, const char* to),
                old_path.get(), new_path.get())
ADVECTIO_RENAME(renameat, moves, old_at, new_at, 0, remove, MarkerUse::replace,
                (int old_at, const char* from, int new_at, const char* to), old_at, old_path.get(), new_at,
                new_path.get())
ADVECTIO_RENAME(renameat2, moves, old_at, new_at, flags, remove, flags == 0 ? MarkerUse::replace : MarkerUse::make,
                (int old_at, const char* from, int new_at, const char* to, unsigned flags), old_at, old_path.get(),
                new_at, new_path.get(), flags)
ADVECTIO_RENAME(link, links, AT_FDCWD, AT_FDCWD, 0, look, MarkerUse::make, (const char* from, const char* to),
                old_path.get(), new_path.get())
ADVECTIO_RENAME(linkat, links, old_at, new_at, static_cast<unsigned>(flags), look, MarkerUse::make,
                (int old_at, const char* from, int new_at, const char* to, int flags), old_at, old_path.get(), new_at,
                new_path.get(), flags)

#define ADVECTIO_READDIR(F, ENTRY)                                                       \
  ADVECTIO_EXPORT ENTRY* F(DIR* directory) {                                             \
    static_assert(sizeof(ENTRY) == sizeof(struct dirent));                               \
    for (;;) {                                                                           \
      auto* const entry = reinterpret_cast<struct dirent*>(ADVECTIO_NEXT(F, directory)); \
      auto* const shown = advectio::capture::listed(directory, entry, ADVECTIO_CALLER);  \
      if (entry == nullptr || shown != nullptr) return reinterpret_cast<ENTRY*>(shown);  \
    }                                                                                    \
  }
ADVECTIO_READDIR(readdir, struct dirent)
ADVECTIO_READDIR(readdir64, struct dirent64)
ADVECTIO_EXPORT int closedir(DIR* directory) {
  advectio::capture::end_listing(directory);
  return ADVECTIO_NEXT(closedir, directory);
}

#define ADVECTIO_SYMLINK(F, DIRECTORY, PARAMETERS, ...)                         \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                   \
    const MarkerPath of(DIRECTORY, new_path, MarkerUse::make, ADVECTIO_CALLER); \
    return ADVECTIO_NEXT(F, __VA_ARGS__);                                       \
  }
ADVECTIO_SYMLINK(symlink, AT_FDCWD, (const char* target, const char* new_path), target, of.get())
ADVECTIO_SYMLINK(symlinkat, directory, (const char* target, int directory, const char* new_path), target, directory,
                 of.get())

#define ADVECTIO_MKDIR(F, DIRECTORY, PARAMETERS, ...)                          \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                  \
    const MarkerPath waits(DIRECTORY, path, MarkerUse::wait, ADVECTIO_CALLER); \
    return ADVECTIO_NEXT(F, __VA_ARGS__);                                      \
  }
ADVECTIO_MKDIR(mkdir, AT_FDCWD, (const char* path, mode_t mode), path, mode)
ADVECTIO_MKDIR(mkdirat, directory, (int directory, const char* path, mode_t mode), directory, path, mode)
