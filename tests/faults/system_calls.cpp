#include "faults/system_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

#include "faults/power.h"

namespace advectio::faults {
namespace {

struct Here {
  Weather* weather = nullptr;
  char output[512] = "";
  std::size_t output_length = 0;
  std::uint64_t dies_at = 0;
  std::atomic<std::uint64_t> calls{0};
};
Here here;

bool dies_now() {
  return here.dies_at != 0 && here.calls.fetch_add(1) + 1 == here.dies_at;
}
void die() {
  (void)::kill(::getpid(), SIGKILL);
  for (;;) ::pause();  // until it has come
}
void maybe_die() {
  if (dies_now()) die();
}

bool is_output(const char* path) {
  return here.weather != nullptr && std::strncmp(path, here.output, here.output_length) == 0;
}
bool is_output(int fd) {
  if (here.weather == nullptr) return false;
  char link[64], path[1024];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const auto n = ::syscall(SYS_readlink, link, path, sizeof path - 1);
  if (n <= 0) return false;
  path[n] = '\0';
  return is_output(path);
}

/// One fewer; false when there is none left.
bool take_one(std::atomic<std::int64_t>& left) {
  if (left.load() == no_limit) return true;
  return left.fetch_sub(1) > 0;
}
/// As many of `bytes` as there are.
std::int64_t take(std::atomic<std::int64_t>& left, std::int64_t bytes) {
  auto there = left.load();
  for (;;) {
    if (there == no_limit) return bytes;
    const auto taken = std::clamp<std::int64_t>(there, 0, bytes);
    if (left.compare_exchange_weak(there, there - taken)) return taken;
  }
}

int fail(int error) {
  here.weather->strikes.fetch_add(1);
  errno = error;
  return -1;
}

void be_slow() {
  if (const auto most = here.weather->delay_us.load(); most > 0)
    ::usleep(static_cast<useconds_t>(here.calls.load() * 2654435761U % most));
}

/// How much of a write is done; < 0: it fails, and errno says why.
ssize_t allowed(int fd, std::size_t bytes, off_t offset) {
  if (bytes == 0 || !is_output(fd)) return static_cast<ssize_t>(bytes);
  auto& w = *here.weather;
  be_slow();
  if (!take_one(w.writes_until)) return fail(EIO);
  auto n = static_cast<std::int64_t>(bytes);
  if (w.short_writes && n > 1) {
    n = n / 2 + 1;
    w.strikes.fetch_add(1);
  }
  struct stat st {};
  if (::fstat(fd, &st) == 0 && offset + n > st.st_size) {
    const auto grows = std::min<std::int64_t>(n, offset + n - st.st_size);
    n -= grows - take(w.space, grows);
  }
  if (n == 0) return fail(ENOSPC);
  return n;
}

ssize_t write_at(int fd, const void* data, std::size_t bytes, off_t offset) {
  const bool last = dies_now();
  const auto n = last ? static_cast<ssize_t>(bytes / 2) : allowed(fd, bytes, offset);
  if (n < 0) return n;
  const auto done = ::syscall(SYS_pwrite64, fd, data, n, offset);
  if (last) die();
  return done;
}

bool refused(const char* path) {
  return is_output(path) && here.weather->read_only;
}

}  // namespace

void expose(Weather& weather, const std::string& output, std::uint64_t dies_at) {
  std::snprintf(here.output, sizeof here.output, "%s", output.c_str());
  here.output_length = output.size();
  here.dies_at = dies_at;
  here.calls = 0;
  here.weather = &weather;
}

}  // namespace advectio::faults

using namespace advectio::faults;

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return write_at(fd, data, bytes, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t offset) {
  return write_at(fd, data, bytes, offset);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  if (!is_output(fd)) return ::syscall(SYS_write, fd, data, bytes);
  const bool last = dies_now();
  const auto n = last ? static_cast<ssize_t>(bytes / 2) : allowed(fd, bytes, ::lseek(fd, 0, SEEK_CUR));
  if (n < 0) return n;
  const auto done = ::syscall(SYS_write, fd, data, n);
  if (last) die();
  return done;
}

static int sync_by(long call, int fd) {
  maybe_die();
  if (is_output(fd)) {
    be_slow();
    if (!take_one(here.weather->syncs_until)) return fail(EIO);
  }
  note_forced(fd);
  return static_cast<int>(::syscall(call, fd));
}
int fsync(int fd) {
  return sync_by(SYS_fsync, fd);
}
int fdatasync(int fd) {
  return sync_by(SYS_fdatasync, fd);
}

static int truncate_to(int fd, off_t bytes) {
  maybe_die();
  return static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}
int ftruncate(int fd, off_t bytes) noexcept {
  return truncate_to(fd, bytes);
}
int ftruncate64(int fd, off64_t bytes) noexcept {
  return truncate_to(fd, bytes);
}

/// Returns the error.
static int reserve(int fd, off_t from, off_t bytes) {
  maybe_die();
  if (here.weather != nullptr && take(here.weather->stage_space, bytes) < bytes) {
    here.weather->strikes.fetch_add(1);
    return ENOSPC;
  }
  return ::syscall(SYS_fallocate, fd, 0, from, bytes) == 0 ? 0 : errno;
}
int posix_fallocate(int fd, off_t from, off_t bytes) {
  return reserve(fd, from, bytes);
}
int posix_fallocate64(int fd, off64_t from, off64_t bytes) {
  return reserve(fd, from, bytes);
}

static int open_file(const char* path, int flags, mode_t mode) {
  maybe_die();
  if ((flags & O_ACCMODE) != O_RDONLY && refused(path)) return fail(EROFS);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(path, flags, mode);
}

int rename(const char* from, const char* to) noexcept {
  maybe_die();
  if (refused(from) || refused(to)) return fail(EROFS);
  return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
int link(const char* from, const char* to) noexcept {
  maybe_die();
  if (refused(from) || refused(to)) return fail(EROFS);  // both are on one file system
  return ::linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int unlink(const char* path) noexcept {
  maybe_die();
  if (refused(path)) return fail(EROFS);
  return ::unlinkat(AT_FDCWD, path, 0);
}

/// True outside the directory of the run: a loss of power would not reach what is there.
static bool is_elsewhere(const char* path) {
  const auto scratch = std::string_view(here.output).rfind('/') + 1;
  return here.weather != nullptr && path[0] == '/' && std::strncmp(path, here.output, scratch) != 0;
}

int mkdir(const char* path, mode_t mode) noexcept {
  maybe_die();
  if (refused(path)) return fail(EROFS);
  if (is_elsewhere(path)) {
    errno = EACCES;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rmdir(const char* path) noexcept {
  maybe_die();
  if (refused(path)) return fail(EROFS);
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}

int clock_gettime(clockid_t id, timespec* t) noexcept {
  const int done = static_cast<int>(::syscall(SYS_clock_gettime, id, t));
  if (id != CLOCK_REALTIME || here.weather == nullptr) return done;
  constexpr std::int64_t second = 1'000'000'000;
  const auto ns = t->tv_sec * second + t->tv_nsec + here.weather->clock_ns.load();
  t->tv_sec = ns / second;
  t->tv_nsec = ns % second;
  return done;
}
}
