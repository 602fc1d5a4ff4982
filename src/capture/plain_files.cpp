// open(2), fopen(3), stat(2) and their like, for programs that look at a file in flight without
// netCDF. xarray reads the first bytes itself, h5py brings its own HDF5, scripts copy. On a path
// that is not in flight in this run they cost one more stat(2) and access(2); outside a run nothing.
//
//   open to read    waits until everything synced so far is in the file
//   open to write   waits until the file is complete, unless this process still has it open
//   stat            waits until the file is complete, where its program has closed it; so do calls that
//                   set times and permissions
//
// A coupled file (capture/coupling.h) is somewhere else than its name says: these calls go there,
// and wait until it is there.
//
// A marker (capture/markers.h) has another name until the files that it speaks of are complete: calls
// that make, look at or remove it go to that name.
//
// Advectio's own calls come here, too, and mean the file itself: they pass through, by the caller's
// address.
//
// When the wait fails, open fails with its errno and writes one line to stderr. stat answers for
// the file as it is.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "capture/coupling.h"
#include "capture/dataset.h"
#include "capture/export.h"
#include "capture/markers.h"
#include "capture/own_libraries.h"
#include "journal/hard_link.h"

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

constinit thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

/// Marks this thread as being in our own code, whose calls pass through.
class Inside {
 public:
  Inside() noexcept : before_(std::exchange(inside, true)) {}
  ~Inside() { inside = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool before_;
};

/// The directory of the shared states of all datasets in flight on this node; null outside a run. Found
/// once.
const std::string* datasets_of_run() {
  static const std::string* const found = [] {
    const auto stage = stage_directory_of_process();
    return stage.empty() ? nullptr : new std::string(stage + "/datasets");
  }();
  return found;
}

enum class Use : std::uint8_t { read, write, look, nothing };

/// The call, from that address, is the program's or a library's, and concerns this run.
bool is_of_program(const void* caller, const char* path) {
  if (inside || path == nullptr || *path == '\0' || std::getenv("ADVECTIO_RUN") == nullptr) return false;
  return !OwnLibraries::of_process().hold(caller);
}

/// The name as from the present directory; empty: the directory is not known.
std::string name_in(int directory, const char* path) {
  if (directory == AT_FDCWD || *path == '/') return path;
  char real[PATH_MAX];
  const auto bytes = ::readlink(("/proc/self/fd/" + std::to_string(directory)).c_str(), real, sizeof real);
  return bytes > 0 ? std::string(real, static_cast<std::size_t>(bytes)) + "/" + path : std::string();
}

/// 0, or the errno with which the call fails.
int wait_for(int directory, const char* path, Use use) {
  const int kept = errno;
  const Inside mark;
  int failed = 0;
  try {
    struct stat st {};
    const auto* datasets = datasets_of_run();
    std::string held;
    if (datasets != nullptr && capture::any_renamed()) {
      held = capture::present_path(name_in(directory, path));
      if (!held.empty()) directory = AT_FDCWD, path = held.c_str();
    }
    // Our own readers go by the hard link, and have waited.
    if (datasets != nullptr && !journal::is_hard_link(path) &&
        ::syscall(SYS_newfstatat, directory, path, &st, 0) == 0 && S_ISREG(st.st_mode)) {
      const auto shared_state = *datasets + "/" + journal::Stage::state_name(st.st_dev, st.st_ino);
      if (::access(shared_state.c_str(), F_OK) == 0) {
        auto* session = Session::current();
        const std::string name = directory == AT_FDCWD || *path == '/'
                                     ? std::string(path)
                                     : "/proc/self/fd/" + std::to_string(directory) + "/" + path;
        const auto until = use == Use::look    ? Session::Until::complete_if_closed
                           : use == Use::write ? Session::Until::complete
                                               : Session::Until::synced;
        const auto waited = session != nullptr ? session->wait_for_plain_use(name, until) : Result<void>{};
        if (!waited && use != Use::look) {
          session->say_once(waited.error().message);
          failed = waited.error().sys > 0 ? waited.error().sys : EIO;
        }
      }
    }
  } catch (...) {  // no memory: the call goes on without us
  }
  errno = kept;
  return failed;
}

/// The path for the next function, where it may be a marker's.
class MarkerPath {
 public:
  using Use = capture::MarkerCall::Use;
  /// `use` empty: the call does not look at names.
  MarkerPath(int directory, const char* path, std::optional<Use> use, const void* caller) : path_(path) {
    if (use) make(caller, [&] { return capture::MarkerCall(name_in(directory, path), *use); });
  }
  /// The name to which `from`, in that directory, is renamed.
  MarkerPath(int directory, const char* path, const MarkerPath& from, int from_directory, const void* caller)
      : path_(path) {
    if (from.path_ == nullptr) return;
    make(caller, [&] {
      return capture::MarkerCall(name_in(directory, path), from.call_, name_in(from_directory, from.path_));
    });
  }
  ~MarkerPath() {
    const int kept = errno;
    const Inside mark;
    try {
      call_ = {};
    } catch (...) {  // no memory: the server looks by itself
    }
    errno = kept;
  }
  MarkerPath(const MarkerPath&) = delete;
  MarkerPath& operator=(const MarkerPath&) = delete;
  [[nodiscard]] const char* get() const { return call_.path().empty() ? path_ : call_.path().c_str(); }

 private:
  template <typename Make>
  void make(const void* caller, Make&& call) {
    if (!is_of_program(caller, path_)) return;
    const int kept = errno;
    const Inside mark;
    try {
      call_ = call();
    } catch (...) {  // no memory: the call goes on without us
    }
    errno = kept;
  }

  const char* path_;
  capture::MarkerCall call_;
};

/// The path for the C library, for as long as a call takes.
class Path {
 public:
  Path(int directory, const char* path, Use use, const void* caller) : path_(path) {
    if (use == Use::nothing || !is_of_program(caller, path)) return;
    const int kept = errno;
    {
      const Inside mark;
      try {
        find_coupled(directory, use);
      } catch (...) {  // no memory: the call goes on without us
      }
    }
    if (failed_ == 0 && !coupled_) failed_ = wait_for(directory, path, use);
    errno = failed_ != 0 ? failed_ : kept;
  }
  ~Path() {
    if (held_.release.empty()) return;
    const int kept = errno;
    const Inside mark;
    (void)capture::leave(held_, false);
    errno = kept;
  }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  /// False: the call fails, and errno says why.
  explicit operator bool() const { return failed_ == 0; }
  [[nodiscard]] const char* get() const { return coupled_ ? held_.path.c_str() : path_; }

 private:
  void find_coupled(int directory, Use use) {
    auto* workflow = capture::workflow_of_process();
    if (workflow == nullptr || journal::is_hard_link(path_)) return;
    const auto name = name_in(directory, path_);
    if (name.empty()) return;
    const auto file = workflow->of(name);
    struct stat st {};
    if (!file || (::syscall(SYS_newfstatat, directory, path_, &st, 0) == 0 && S_ISDIR(st.st_mode))) return;
    using Mode = CoupleRule::Mode;
    using For = workflow::Workflow::For;
    if (use == Use::write) {
      if (file->rule->mode == Mode::memory && file->writes)
        capture::say_of_coupling(file->path +
                                 " is coupled, but written without netCDF or PnetCDF: it goes to its own path, and no "
                                 "other program gets it");
      return;
    }
    // The libraries open files on the disk by these calls, too: they must not wait for a newer one.
    const bool looks = use == Use::look || file->rule->mode == Mode::file;
    if (looks) {
      auto there = workflow->wait(*file, use == Use::look ? For::looking : For::opening, capture::say_of_coupling);
      if (there)
        held_.path = std::move(there).value();
      else
        note(there.error(), use);
    } else {
      auto held = workflow->open_to_read(*file, capture::say_of_coupling);
      if (held)
        held_ = std::move(held).value();
      else
        note(held.error(), use);
    }
    coupled_ = !held_.path.empty() && file->rule->mode != Mode::file;
  }

  void note(const Error& error, Use use) {
    if (error.code == Code::not_found) return;
    capture::say_of_coupling(error.message);
    failed_ = use == Use::look ? ENOENT : error.sys > 0 ? error.sys : EIO;
  }

  const char* path_;
  workflow::Opened held_;
  bool coupled_ = false;
  int failed_ = 0;
};

/// Of open(2).
Use use_of(int flags) {
  const bool untouched = (flags & (O_PATH | O_DIRECTORY)) != 0 || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
  if (untouched) return Use::nothing;
  return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0 ? Use::write : Use::read;
}

Use use_of(const char* mode) {
  return mode != nullptr && std::strpbrk(mode, "wa+") != nullptr ? Use::write : Use::read;
}

using MarkerUse = capture::MarkerCall::Use;

/// Of open(2).
std::optional<MarkerUse> marker_use_of(int flags) {
  if ((flags & (O_PATH | O_DIRECTORY)) != 0) return std::nullopt;
  if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return MarkerUse::make;
  if ((flags & O_TRUNC) != 0) return MarkerUse::replace;
  return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0 ? MarkerUse::write : MarkerUse::look;
}

MarkerUse marker_use_of(const char* mode) {
  if (use_of(mode) == Use::read) return MarkerUse::look;
  if (mode[0] != 'w') return MarkerUse::write;
  return std::strchr(mode, 'x') != nullptr ? MarkerUse::make : MarkerUse::replace;
}

/// The program removes a file that is in memory.
bool removes_coupled(int directory, const char* path, const void* caller) {
  if (!is_of_program(caller, path)) return false;
  if (directory != AT_FDCWD && *path != '/') return false;
  const int kept = errno;
  const Inside mark;
  bool removed = false;
  try {
    removed = capture::remove_coupled(path);
  } catch (...) {  // no memory: the call goes on without us
  }
  errno = kept;
  return removed;
}

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

}  // namespace
}  // namespace advectio

using advectio::marker_use_of;
using advectio::MarkerPath;
using advectio::MarkerUse;
using advectio::Path;
using advectio::takes_mode;
using advectio::Use;
using advectio::use_of;

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

#define ADVECTIO_OPEN(F)                                                            \
  ADVECTIO_EXPORT int F(const char* path, int flags, ...) {                         \
    ADVECTIO_MODE                                                                   \
    const Path at(AT_FDCWD, path, use_of(flags), ADVECTIO_CALLER);                  \
    const MarkerPath of(AT_FDCWD, at.get(), marker_use_of(flags), ADVECTIO_CALLER); \
    return at ? ADVECTIO_NEXT(F, of.get(), flags, mode) : -1;                       \
  }
ADVECTIO_OPEN(open)
ADVECTIO_OPEN(open64)

#define ADVECTIO_OPENAT(F)                                                           \
  ADVECTIO_EXPORT int F(int directory, const char* path, int flags, ...) {           \
    ADVECTIO_MODE                                                                    \
    const Path at(directory, path, use_of(flags), ADVECTIO_CALLER);                  \
    const MarkerPath of(directory, at.get(), marker_use_of(flags), ADVECTIO_CALLER); \
    return at ? ADVECTIO_NEXT(F, directory, of.get(), flags, mode) : -1;             \
  }
ADVECTIO_OPENAT(openat)
ADVECTIO_OPENAT(openat64)

ADVECTIO_EXPORT int __open_2(const char* path, int flags) {
  const Path at(AT_FDCWD, path, use_of(flags), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), marker_use_of(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__open_2, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int __open64_2(const char* path, int flags) {
  const Path at(AT_FDCWD, path, use_of(flags), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), marker_use_of(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__open64_2, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int __openat_2(int directory, const char* path, int flags) {
  const Path at(directory, path, use_of(flags), ADVECTIO_CALLER);
  const MarkerPath of(directory, at.get(), marker_use_of(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__openat_2, directory, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int __openat64_2(int directory, const char* path, int flags) {
  const Path at(directory, path, use_of(flags), ADVECTIO_CALLER);
  const MarkerPath of(directory, at.get(), marker_use_of(flags), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(__openat64_2, directory, of.get(), flags) : -1;
}
ADVECTIO_EXPORT int creat(const char* path, mode_t mode) {
  const Path at(AT_FDCWD, path, Use::write, ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::replace, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(creat, of.get(), mode) : -1;
}
ADVECTIO_EXPORT int creat64(const char* path, mode_t mode) {
  const Path at(AT_FDCWD, path, Use::write, ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::replace, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(creat64, of.get(), mode) : -1;
}
ADVECTIO_EXPORT int truncate(const char* path, off_t bytes) noexcept {
  const Path at(AT_FDCWD, path, Use::write, ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::write, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(truncate, of.get(), bytes) : -1;
}
ADVECTIO_EXPORT int truncate64(const char* path, off64_t bytes) noexcept {
  const Path at(AT_FDCWD, path, Use::write, ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), MarkerUse::write, ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(truncate64, of.get(), bytes) : -1;
}
ADVECTIO_EXPORT FILE* fopen(const char* path, const char* mode) {
  const Path at(AT_FDCWD, path, use_of(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), marker_use_of(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(fopen, of.get(), mode) : nullptr;
}
ADVECTIO_EXPORT FILE* fopen64(const char* path, const char* mode) {
  const Path at(AT_FDCWD, path, use_of(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), marker_use_of(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(fopen64, of.get(), mode) : nullptr;
}
ADVECTIO_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  const Path at(AT_FDCWD, path, use_of(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), marker_use_of(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(freopen, of.get(), mode, stream) : nullptr;
}
ADVECTIO_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  const Path at(AT_FDCWD, path, use_of(mode), ADVECTIO_CALLER);
  const MarkerPath of(AT_FDCWD, at.get(), marker_use_of(mode), ADVECTIO_CALLER);
  return at ? ADVECTIO_NEXT(freopen64, of.get(), mode, stream) : nullptr;
}

#define ADVECTIO_STAT(F, DIRECTORY, PARAMETERS, ...)                            \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                   \
    const Path at(DIRECTORY, path, Use::look, ADVECTIO_CALLER);                 \
    const MarkerPath of(DIRECTORY, at.get(), MarkerUse::look, ADVECTIO_CALLER); \
    return at ? ADVECTIO_NEXT(F, __VA_ARGS__) : -1;                             \
  }
ADVECTIO_STAT(stat, AT_FDCWD, (const char* path, struct stat* st), of.get(), st)
ADVECTIO_STAT(stat64, AT_FDCWD, (const char* path, struct stat64* st), of.get(), st)
ADVECTIO_STAT(lstat, AT_FDCWD, (const char* path, struct stat* st), of.get(), st)
ADVECTIO_STAT(lstat64, AT_FDCWD, (const char* path, struct stat64* st), of.get(), st)
ADVECTIO_STAT(fstatat, directory, (int directory, const char* path, struct stat* st, int flags), directory, of.get(),
              st, flags)
ADVECTIO_STAT(fstatat64, directory, (int directory, const char* path, struct stat64* st, int flags), directory,
              of.get(), st, flags)
ADVECTIO_STAT(statx, directory, (int directory, const char* path, int flags, unsigned mask, struct statx* st),
              directory, of.get(), flags, mask, st)
ADVECTIO_STAT(__xstat, AT_FDCWD, (int version, const char* path, struct stat* st), version, of.get(), st)
ADVECTIO_STAT(__xstat64, AT_FDCWD, (int version, const char* path, struct stat64* st), version, of.get(), st)
ADVECTIO_STAT(__lxstat, AT_FDCWD, (int version, const char* path, struct stat* st), version, of.get(), st)
ADVECTIO_STAT(__lxstat64, AT_FDCWD, (int version, const char* path, struct stat64* st), version, of.get(), st)
ADVECTIO_STAT(__fxstatat, directory, (int version, int directory, const char* path, struct stat* st, int flags),
              version, directory, of.get(), st, flags)
ADVECTIO_STAT(__fxstatat64, directory, (int version, int directory, const char* path, struct stat64* st, int flags),
              version, directory, of.get(), st, flags)

// Times and permissions that are set after the close must stay: the server writes the file before.
ADVECTIO_STAT(utime, AT_FDCWD, (const char* path, const utimbuf* times), of.get(), times)
ADVECTIO_STAT(utimes, AT_FDCWD, (const char* path, const timeval times[2]), of.get(), times)
ADVECTIO_STAT(lutimes, AT_FDCWD, (const char* path, const timeval times[2]), of.get(), times)
ADVECTIO_STAT(futimesat, directory, (int directory, const char* path, const timeval times[2]), directory, of.get(),
              times)
ADVECTIO_STAT(utimensat, directory, (int directory, const char* path, const timespec times[2], int flags), directory,
              of.get(), times, flags)
ADVECTIO_STAT(chmod, AT_FDCWD, (const char* path, mode_t mode), of.get(), mode)
ADVECTIO_STAT(fchmodat, directory, (int directory, const char* path, mode_t mode, int flags), directory, of.get(), mode,
              flags)

ADVECTIO_STAT(access, AT_FDCWD, (const char* path, int mode), of.get(), mode)
ADVECTIO_STAT(faccessat, directory, (int directory, const char* path, int mode, int flags), directory, of.get(), mode,
              flags)
ADVECTIO_STAT(euidaccess, AT_FDCWD, (const char* path, int mode), of.get(), mode)

#define ADVECTIO_REMOVE(F, DIRECTORY, PARAMETERS, ...)                         \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                  \
    const MarkerPath of(DIRECTORY, path, MarkerUse::remove, ADVECTIO_CALLER);  \
    if (advectio::removes_coupled(DIRECTORY, path, ADVECTIO_CALLER)) return 0; \
    return ADVECTIO_NEXT(F, __VA_ARGS__);                                      \
  }
ADVECTIO_REMOVE(unlink, AT_FDCWD, (const char* path), of.get())
ADVECTIO_REMOVE(remove, AT_FDCWD, (const char* path), of.get())
ADVECTIO_REMOVE(unlinkat, directory, (int directory, const char* path, int flags), directory, of.get(), flags)

// Names that come to a file that is there, or to a directory.
#define ADVECTIO_RENAME(F, FROM, TO, PARAMETERS, ...)                      \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                              \
    const MarkerPath from(FROM, path, MarkerUse::remove, ADVECTIO_CALLER); \
    const MarkerPath to(TO, new_path, from, FROM, ADVECTIO_CALLER);        \
    return ADVECTIO_NEXT(F, __VA_ARGS__);                                  \
  }
ADVECTIO_RENAME(rename, AT_FDCWD, AT_FDCWD, (const char* path, const char* new_path), from.get(), to.get())
ADVECTIO_RENAME(renameat, directory, new_directory,
                (int directory, const char* path, int new_directory, const char* new_path), directory, from.get(),
                new_directory, to.get())
ADVECTIO_RENAME(renameat2, directory, new_directory,
                (int directory, const char* path, int new_directory, const char* new_path, unsigned flags), directory,
                from.get(), new_directory, to.get(), flags)

#define ADVECTIO_LINK(F, DIRECTORY, PARAMETERS, ...)                            \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                   \
    const MarkerPath to(DIRECTORY, new_path, MarkerUse::make, ADVECTIO_CALLER); \
    return ADVECTIO_NEXT(F, __VA_ARGS__);                                       \
  }
ADVECTIO_LINK(link, AT_FDCWD, (const char* path, const char* new_path), path, to.get())
ADVECTIO_LINK(linkat, new_directory,
              (int directory, const char* path, int new_directory, const char* new_path, int flags), directory, path,
              new_directory, to.get(), flags)
ADVECTIO_LINK(symlink, AT_FDCWD, (const char* target, const char* new_path), target, to.get())
ADVECTIO_LINK(symlinkat, new_directory, (const char* target, int new_directory, const char* new_path), target,
              new_directory, to.get())

#define ADVECTIO_MKDIR(F, DIRECTORY, PARAMETERS, ...)                          \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {                                  \
    const MarkerPath waits(DIRECTORY, path, MarkerUse::wait, ADVECTIO_CALLER); \
    return ADVECTIO_NEXT(F, __VA_ARGS__);                                      \
  }
ADVECTIO_MKDIR(mkdir, AT_FDCWD, (const char* path, mode_t mode), path, mode)
ADVECTIO_MKDIR(mkdirat, directory, (int directory, const char* path, mode_t mode), directory, path, mode)
