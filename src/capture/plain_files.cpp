// open(2), fopen(3), stat(2) and their like, for programs that look at a file in flight without netCDF: xarray reads
// the first bytes itself, h5py brings its own HDF5, scripts copy. On a path that is not in flight in this run they cost
// one more stat(2) and access(2), and nothing where there is no run.
//
//   open to read    waits until everything synced so far is in the file
//   open to write   waits until the file is complete, unless this process still has it open
//   stat            waits until the file is complete, where its program has closed it
//
// Where the wait fails, open fails with its errno and one line on stderr; stat answers what is there.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "capture/dataset.h"
#include "capture/interposed.h"
#include "journal/hard_link.h"

// The C library's attributes are of its declarations, not of the types that we take from them.
#pragma GCC diagnostic ignored "-Wignored-attributes"

namespace advectio {
namespace {

/// The definition of the function that comes after ours: the C library's, or another preloaded library's. Null: none.
void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  return found != nullptr ? found : dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");  // kept for old programs only
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

/// Where this node's stage keeps a page for each dataset in flight; null outside a run. Found once.
const std::string* datasets_of_run() {
  static const std::string* const found = [] {
    const auto stage = stage_directory_of_process();
    return stage.empty() ? nullptr : new std::string(stage + "/datasets");
  }();
  return found;
}

enum class Use : std::uint8_t { read, write, look };

/// 0, or the errno with which the call fails.
int wait_for(int directory, const char* path, Use use) {
  if (inside || path == nullptr || *path == '\0' || std::getenv("ADVECTIO_RUN") == nullptr) return 0;
  const int kept = errno;
  const Inside mark;
  int failed = 0;
  try {
    struct stat st {};
    const auto* datasets = datasets_of_run();
    // Our own readers go by the hard link, and have waited.
    if (datasets != nullptr && !journal::is_hard_link(path) &&
        ::syscall(SYS_newfstatat, directory, path, &st, 0) == 0 && S_ISREG(st.st_mode)) {
      const auto page = *datasets + "/" + journal::Stage::page_name(st.st_dev, st.st_ino);
      if (::access(page.c_str(), F_OK) == 0) {
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

/// The same for open(2). False: it fails, and errno says why.
bool may_open(int directory, const char* path, int flags) {
  if ((flags & (O_PATH | O_DIRECTORY)) != 0 || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return true;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  const int failed = wait_for(directory, path, writes ? Use::write : Use::read);
  if (failed != 0) errno = failed;
  return failed == 0;
}

bool may_open(const char* path, const char* mode) {
  const int failed =
      wait_for(AT_FDCWD, path, mode != nullptr && std::strpbrk(mode, "wa+") != nullptr ? Use::write : Use::read);
  if (failed != 0) errno = failed;
  return failed == 0;
}

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

}  // namespace
}  // namespace advectio

using advectio::may_open;
using advectio::takes_mode;
using advectio::Use;
using advectio::wait_for;

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

#define ADVECTIO_OPEN(F)                                    \
  ADVECTIO_EXPORT int F(const char* path, int flags, ...) { \
    mode_t mode = 0;                                        \
    if (takes_mode(flags)) {                                \
      va_list rest;                                         \
      va_start(rest, flags);                                \
      mode = va_arg(rest, mode_t);                          \
      va_end(rest);                                         \
    }                                                       \
    if (!may_open(AT_FDCWD, path, flags)) return -1;        \
    return ADVECTIO_NEXT(F, path, flags, mode);             \
  }
ADVECTIO_OPEN(open)
ADVECTIO_OPEN(open64)

#define ADVECTIO_OPENAT(F)                                                 \
  ADVECTIO_EXPORT int F(int directory, const char* path, int flags, ...) { \
    mode_t mode = 0;                                                       \
    if (takes_mode(flags)) {                                               \
      va_list rest;                                                        \
      va_start(rest, flags);                                               \
      mode = va_arg(rest, mode_t);                                         \
      va_end(rest);                                                        \
    }                                                                      \
    if (!may_open(directory, path, flags)) return -1;                      \
    return ADVECTIO_NEXT(F, directory, path, flags, mode);                 \
  }
ADVECTIO_OPENAT(openat)
ADVECTIO_OPENAT(openat64)

ADVECTIO_EXPORT int __open_2(const char* path, int flags) {
  return may_open(AT_FDCWD, path, flags) ? ADVECTIO_NEXT(__open_2, path, flags) : -1;
}
ADVECTIO_EXPORT int __open64_2(const char* path, int flags) {
  return may_open(AT_FDCWD, path, flags) ? ADVECTIO_NEXT(__open64_2, path, flags) : -1;
}
ADVECTIO_EXPORT int __openat_2(int directory, const char* path, int flags) {
  return may_open(directory, path, flags) ? ADVECTIO_NEXT(__openat_2, directory, path, flags) : -1;
}
ADVECTIO_EXPORT int __openat64_2(int directory, const char* path, int flags) {
  return may_open(directory, path, flags) ? ADVECTIO_NEXT(__openat64_2, directory, path, flags) : -1;
}
ADVECTIO_EXPORT int creat(const char* path, mode_t mode) {
  return may_open(AT_FDCWD, path, O_WRONLY | O_TRUNC) ? ADVECTIO_NEXT(creat, path, mode) : -1;
}
ADVECTIO_EXPORT int creat64(const char* path, mode_t mode) {
  return may_open(AT_FDCWD, path, O_WRONLY | O_TRUNC) ? ADVECTIO_NEXT(creat64, path, mode) : -1;
}
ADVECTIO_EXPORT int truncate(const char* path, off_t bytes) noexcept {
  return may_open(AT_FDCWD, path, O_WRONLY) ? ADVECTIO_NEXT(truncate, path, bytes) : -1;
}
ADVECTIO_EXPORT int truncate64(const char* path, off64_t bytes) noexcept {
  return may_open(AT_FDCWD, path, O_WRONLY) ? ADVECTIO_NEXT(truncate64, path, bytes) : -1;
}
ADVECTIO_EXPORT FILE* fopen(const char* path, const char* mode) {
  return may_open(path, mode) ? ADVECTIO_NEXT(fopen, path, mode) : nullptr;
}
ADVECTIO_EXPORT FILE* fopen64(const char* path, const char* mode) {
  return may_open(path, mode) ? ADVECTIO_NEXT(fopen64, path, mode) : nullptr;
}
ADVECTIO_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return may_open(path, mode) ? ADVECTIO_NEXT(freopen, path, mode, stream) : nullptr;
}
ADVECTIO_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return may_open(path, mode) ? ADVECTIO_NEXT(freopen64, path, mode, stream) : nullptr;
}

#define ADVECTIO_STAT(F, DIRECTORY, PARAMETERS, ...) \
  ADVECTIO_EXPORT int F PARAMETERS noexcept {        \
    (void)wait_for(DIRECTORY, path, Use::look);      \
    return ADVECTIO_NEXT(F, __VA_ARGS__);            \
  }
ADVECTIO_STAT(stat, AT_FDCWD, (const char* path, struct stat* st), path, st)
ADVECTIO_STAT(stat64, AT_FDCWD, (const char* path, struct stat64* st), path, st)
ADVECTIO_STAT(lstat, AT_FDCWD, (const char* path, struct stat* st), path, st)
ADVECTIO_STAT(lstat64, AT_FDCWD, (const char* path, struct stat64* st), path, st)
ADVECTIO_STAT(fstatat, directory, (int directory, const char* path, struct stat* st, int flags), directory, path, st,
              flags)
ADVECTIO_STAT(fstatat64, directory, (int directory, const char* path, struct stat64* st, int flags), directory, path,
              st, flags)
ADVECTIO_STAT(statx, directory, (int directory, const char* path, int flags, unsigned mask, struct statx* st),
              directory, path, flags, mask, st)
ADVECTIO_STAT(__xstat, AT_FDCWD, (int version, const char* path, struct stat* st), version, path, st)
ADVECTIO_STAT(__xstat64, AT_FDCWD, (int version, const char* path, struct stat64* st), version, path, st)
ADVECTIO_STAT(__lxstat, AT_FDCWD, (int version, const char* path, struct stat* st), version, path, st)
ADVECTIO_STAT(__lxstat64, AT_FDCWD, (int version, const char* path, struct stat64* st), version, path, st)
ADVECTIO_STAT(__fxstatat, directory, (int version, int directory, const char* path, struct stat* st, int flags),
              version, directory, path, st, flags)
ADVECTIO_STAT(__fxstatat64, directory, (int version, int directory, const char* path, struct stat64* st, int flags),
              version, directory, path, st, flags)
