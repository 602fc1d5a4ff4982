// A model that forks, closes descriptors, replaces itself, is stopped by a signal, or looks netCDF's functions up by
// their names, and knows nothing of Advectio. One that is right says so; its file is compared with what it writes
// without Advectio.
//
//   process_program [--format NETCDF4|NETCDF3_…] ACTION
//
//   fork-writes      the parent makes the file, a child writes and closes it
//   fork-goes-on     the same, but the parent had put and not synced
//   fork-pool        children do nothing with the file, then read from it; the parent goes on writing
//   daemon           the parent ends at once, the child goes on and closes; then it makes the file `done`
//   close-fds        closes all descriptors that it does not know, between two syncs
//   exec             replaces itself after a sync, and appends to the file
//   signal-close     a handler closes the file within a put, and ends the process
//   signal-exit      the same by exit(3), without closing
//   signal-returns   a handler closes the file within a put, and the program goes on
//   looked-up        by dlsym
//   past             by addresses that no dlsym has given
//   writes           nothing special; process_program_no_pie creates by nc__create
//   over-reader      creates a file that it has open to read
//   reader-sync      syncs a second handle, and reads what the first has put since
//   write-twice      opens the file for writing once more, and appends by that handle
//   leaked           creates one name three times, and closes nothing
//   share            NC_SHARE: another process reads each record at once
//   tool             starts itself, to open for writing what it has open (`open-it`)
//   at-exit          puts the last record and closes in an exit handler that was there before the first call of netCDF
//   deep             in a directory whose path is longer than the system tells, which it removes again
//   watched          counts IN_CLOSE_WRITE of its files (inotify) until each was seen
//   stays-as-set     sets times and permissions of a file that it has just closed, and looks again
//   named            calls chown(2), statvfs(3) and others on a file that nobody has looked at
//   create-twice     starts itself, to create what it has open (`create-it`)
#include <dlfcn.h>
#include <fcntl.h>
#include <netcdf.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

namespace {

constexpr std::size_t cells = 512;
int mode = NC_NETCDF4;
int file = -1, field = -1;

[[noreturn]] void fail(const char* what, int code) {
  std::fprintf(stderr, "process_program: %s: %s\n", what, nc_strerror(code));
  std::_Exit(3);
}

void check(int code, const char* what) {
  if (code != NC_NOERR) fail(what, code);
}

double value(std::size_t record, std::size_t x) {
  return static_cast<double>(1000 * record + x);
}

void create() {
  int d[2] = {};
#ifdef CALLS_NC__CREATE
  std::size_t hint = 0;
  check(nc__create("out.nc", mode, 0, &hint, &file), "create");
#else
  check(nc_create("out.nc", mode, &file), "create");
#endif
  check(nc_def_dim(file, "time", NC_UNLIMITED, &d[0]), "define");
  check(nc_def_dim(file, "x", cells, &d[1]), "define");
  check(nc_def_var(file, "t", NC_DOUBLE, 2, d, &field), "define");
  check(nc_put_att_text(file, field, "units", 1, "K"), "define");
  check(nc_enddef(file), "end of definitions");
}

void fill(double* values, std::size_t record) {
  for (std::size_t x = 0; x < cells; ++x) values[x] = value(record, x);
}

int put_values(std::size_t record, const double* values) {
  const std::size_t start[] = {record, 0}, count[] = {1, cells};
  return nc_put_vara_double(file, field, start, count, values);
}

int put_code(std::size_t record) {
  double values[cells];
  fill(values, record);
  return put_values(record, values);
}

void put(std::size_t record) {
  check(put_code(record), "put");
}

void get(std::size_t record) {
  double values[cells] = {};
  const std::size_t start[] = {record, 0}, count[] = {1, cells};
  check(nc_get_vara_double(file, field, start, count, values), "get");
  for (std::size_t x = 0; x < cells; ++x)
    if (values[x] != value(record, x)) fail("wrong value", NC_NOERR);
}

std::size_t records() {
  std::size_t length = 0;
  check(nc_inq_dimlen(file, 0, &length), "inquire");
  return length;
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void fork_writes(bool unsynced) {
  create();
  if (unsynced) {
    put(0);
    check(nc_sync(file), "sync");
    put(1);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    for (std::size_t k = records(); k < 5; ++k) {
      put(k);
      check(nc_sync(file), "sync");
      get(k);
    }
    check(nc_close(file), "close");
    std::_Exit(0);
  }
  std::_Exit(wait_for(child));
}

void fork_pool() {
  create();
  put(0);
  check(nc_sync(file), "sync");
  pid_t children[4] = {};
  for (int c = 0; c < 4; ++c) {
    children[c] = ::fork();
    if (children[c] != 0) continue;
    if (c % 2 == 0) get(0);
    if (c == 3) check(nc_close(file), "close");
    std::_Exit(c == 3 || records() == 1 ? 0 : 4);
  }
  for (const auto child : children)
    if (wait_for(child) != 0) fail("a child", NC_NOERR);
  put(1);
  check(nc_close(file), "close");
}

void daemon() {
  create();
  put(0);
  const pid_t parent = ::getpid();
  if (::fork() != 0) std::_Exit(0);
  while (::getppid() == parent) ::usleep(1000);
  ::usleep(200'000);
  put(1);
  check(nc_close(file), "close");
  std::fclose(std::fopen("done", "w"));
}

void close_fds() {
  create();
  put(0);
  check(nc_sync(file), "sync");
  check(nc_close(file), "close");
  for (int fd = 3; fd < 1024; ++fd) ::close(fd);
  check(nc_create("second.nc", mode, &file), "create");
  int d[2] = {};
  check(nc_def_dim(file, "time", NC_UNLIMITED, &d[0]), "define");
  check(nc_def_dim(file, "x", cells, &d[1]), "define");
  check(nc_def_var(file, "t", NC_DOUBLE, 2, d, &field), "define");
  check(nc_enddef(file), "end of definitions");
  for (std::size_t k = 0; k < 3; ++k) {
    put(k);
    check(nc_sync(file), "sync");
    ::usleep(150'000);
  }
  check(nc_close(file), "close");
}

void exec(char** arguments, bool again) {
  if (!again) {
    create();
    put(0);
    check(nc_sync(file), "sync");
    ::setenv("PROCESS_PROGRAM_AGAIN", "1", 1);
    ::execv("/proc/self/exe", arguments);
    std::_Exit(9);
  }
  check(nc_open("out.nc", NC_WRITE, &file), "open");
  check(nc_inq_varid(file, "t", &field), "inquire");
  put(1);
  check(nc_close(file), "close");
}

void* hidden = nullptr;

/// The handler runs in the midst of a put: nobody can read its values before.
void put_until(void (*handler)(int)) {
  create();
  for (std::size_t k = 0; k < 8; ++k) put(k);
  constexpr auto bytes = cells * sizeof(double);
  hidden = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (hidden == MAP_FAILED) std::_Exit(5);
  auto* values = static_cast<double*>(hidden);
  fill(values, 0);
  if (::mprotect(hidden, bytes, PROT_NONE) != 0) std::_Exit(5);
  std::signal(SIGSEGV, handler);
  check(put_values(0, values), "put with an interruption");
  if (put_code(0) == NC_NOERR) fail("the file is still open", NC_NOERR);
}

/// All calls by addresses; `dlsym` as the C library has it where `past`.
void looked_up(bool past) {
  void* lib = ::dlopen("libnetcdf.so.19", RTLD_LAZY);
  if (lib == nullptr) lib = ::dlopen("libnetcdf.so", RTLD_LAZY);
  if (lib == nullptr) fail(::dlerror(), NC_NOERR);
  void* (*look_up)(void*, const char*) = &::dlsym;
  if (past)
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"})
      if (void* f = ::dlvsym(RTLD_DEFAULT, "dlsym", version); f != nullptr && look_up == &::dlsym)
        look_up = reinterpret_cast<void* (*)(void*, const char*)>(f);
#define ADVECTIO_FOUND(F) auto* F##_ = reinterpret_cast<decltype(&F)>(look_up(lib, #F))
  ADVECTIO_FOUND(nc_create);
  ADVECTIO_FOUND(nc_def_dim);
  ADVECTIO_FOUND(nc_def_var);
  ADVECTIO_FOUND(nc_enddef);
  ADVECTIO_FOUND(nc_put_vara_double);
  ADVECTIO_FOUND(nc_sync);
  ADVECTIO_FOUND(nc_close);
  int d[2] = {};
  check(nc_create_("out.nc", mode, &file), "create");
  check(nc_def_dim_(file, "time", NC_UNLIMITED, &d[0]), "define");
  check(nc_def_dim_(file, "x", cells, &d[1]), "define");
  check(nc_def_var_(file, "t", NC_DOUBLE, 2, d, &field), "define");
  check(nc_enddef_(file), "end of definitions");
  for (std::size_t k = 0; k < 3; ++k) {
    double values[cells];
    for (std::size_t x = 0; x < cells; ++x) values[x] = value(k, x);
    const std::size_t start[] = {k, 0}, count[] = {1, cells};
    check(nc_put_vara_double_(file, field, start, count, values), "put");
    check(nc_sync_(file), "sync");
  }
  check(nc_close_(file), "close");
}

void say(const char* what, int code) {
  std::printf("%s: %d\n", what, code);
  std::fflush(stdout);
}

void over_reader() {
  create();
  put(0);
  check(nc_close(file), "close");
  int reader = -1, over = -1;
  check(nc_open("out.nc", NC_NOWRITE, &reader), "open");
  say("create over it", nc_create("out.nc", mode, &over));
  file = reader;
  get(0);
  check(nc_close(reader), "close");
}

void reader_sync() {
  create();
  put(0);
  check(nc_sync(file), "sync");
  const int writer = file;
  int reader = -1, other = -1;
  check(nc_open("out.nc", NC_NOWRITE, &other), "open");
  check(nc_open("out.nc", NC_NOWRITE, &reader), "open");
  check(nc_close(other), "close");  // a lower number is free
  put(1);
  check(nc_sync(file), "sync");
  check(nc_sync(reader), "sync of the reader");
  file = reader;
  if (records() != 2) fail("the reader does not see the record", NC_NOERR);
  get(1);
  check(nc_close(reader), "close");
  file = writer;
  put(2);
  check(nc_close(writer), "close");
}

void write_twice() {
  create();
  put(0);
  check(nc_sync(file), "sync");
  const int first = file;
  check(nc_open("out.nc", NC_WRITE, &file), "open");
  put(1);
  check(nc_close(file), "close");
  check(nc_close(first), "close");
}

void leaked() {
  for (int k = 0; k < 3; ++k) {
    create();
    for (int i = 0; i <= k; ++i) put(static_cast<std::size_t>(i));
    check(nc_sync(file), "sync");
  }
}

void share() {
  mode |= NC_SHARE;
  create();
  for (std::size_t k = 0; k < 2; ++k) {
    put(k);
    if (std::system("ncdump -v t out.nc | grep -c 1511") < 0) fail("system", NC_NOERR);
  }
  check(nc_close(file), "close");
}

void at_exit() {
  std::atexit([] {
    if (put_code(1) != NC_NOERR || nc_close(file) != NC_NOERR) std::printf("lost\n");
  });
  create();
  put(0);
}

void deep() {
  const std::string name(200, 'd');
  for (int k = 0; k < 25; ++k)
    if (::mkdir(name.c_str(), 0755) != 0 || ::chdir(name.c_str()) != 0) fail("mkdir", NC_NOERR);
  create();
  put(0);
  check(nc_close(file), "close");
  check(nc_open("out.nc", NC_NOWRITE, &file), "open");
  get(0);
  check(nc_close(file), "close");
  ::unlink("out.nc");  // few programs find their way down here
  for (int k = 0; k < 25; ++k)
    if (::chdir("..") != 0 || ::rmdir(name.c_str()) != 0) fail("rmdir", NC_NOERR);
}

void watched() {
  const int watch = ::inotify_init1(IN_CLOEXEC);
  if (::inotify_add_watch(watch, ".", IN_CLOSE_WRITE) < 0) fail("inotify", NC_NOERR);
  for (int k = 0; k < 3; ++k) {
    create();
    for (std::size_t i = 0; i < 3; ++i) put(i);
    check(nc_close(file), "close");
    alignas(inotify_event) char events[4096];
    if (::read(watch, events, sizeof events) < static_cast<ssize_t>(sizeof(inotify_event))) fail("read", NC_NOERR);
    check(nc_open("out.nc", NC_NOWRITE, &file), "open");
    std::printf("closed with %zu records\n", records());
    check(nc_close(file), "close");
  }
}

void stays_as_set() {
  create();
  for (std::size_t i = 0; i < 50; ++i) put(i);
  check(nc_close(file), "close");
  const timeval times[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  if (::utimes("out.nc", times) != 0 || ::chmod("out.nc", 0440) != 0) fail("set", NC_NOERR);
  struct stat st {};
  for (int i = 0; i < 20; ++i) {
    if (::stat("out.nc", &st) != 0) fail("stat", NC_NOERR);
    if (st.st_mtime != 1'000'000'000 || (st.st_mode & 0777) != 0440) fail("not as it was set", NC_NOERR);
    ::usleep(10'000);
  }
}

/// Each call on the name of a new file that no other call has looked at.
void named() {
  struct Call {
    const char* name;
    std::function<int()> make;
  };
  struct statfs system {};
  struct statvfs volume {};
  const int watch = ::inotify_init1(IN_CLOEXEC);
  const Call calls[] = {
      {"chown", [] { return ::chown("out.nc", ::getuid(), ::getgid()); }},
      {"lchown", [] { return ::lchown("out.nc", ::getuid(), ::getgid()); }},
      {"fchownat", [] { return ::fchownat(AT_FDCWD, "out.nc", ::getuid(), ::getgid(), 0); }},
      // Not all file systems keep attributes, but all look for the file first.
      {"setxattr", [] { return ::setxattr("out.nc", "user.a", "b", 1, 0) != 0 && errno == ENOENT ? -1 : 0; }},
      {"lsetxattr", [] { return ::lsetxattr("out.nc", "user.a", "b", 1, 0) != 0 && errno == ENOENT ? -1 : 0; }},
      {"removexattr", [] { return ::removexattr("out.nc", "user.a") != 0 && errno == ENOENT ? -1 : 0; }},
      {"lremovexattr", [] { return ::lremovexattr("out.nc", "user.a") != 0 && errno == ENOENT ? -1 : 0; }},
      {"statfs", [&] { return ::statfs("out.nc", &system); }},
      {"statvfs", [&] { return ::statvfs("out.nc", &volume); }},
      {"pathconf", [] { return ::pathconf("out.nc", _PC_LINK_MAX) > 0 ? 0 : -1; }},
      {"inotify_add_watch", [&] { return ::inotify_add_watch(watch, "out.nc", IN_ATTRIB); }},
      {"open", [] { return ::open("out.nc", O_PATH | O_CLOEXEC); }},
  };
  for (const bool closed : {false, true})
    for (const auto& call : calls) {
      const auto directory = std::string(call.name) + (closed ? "-closed" : "-open");
      if (::mkdir(directory.c_str(), 0777) != 0 || ::chdir(directory.c_str()) != 0) fail("mkdir", NC_NOERR);
      create();
      put(0);
      if (closed) check(nc_close(file), "close");
      if (call.make() < 0) std::printf("%s: %s\n", directory.c_str(), std::strerror(errno));
      if (!closed) check(nc_close(file), "close");
      if (::chdir("..") != 0) fail("chdir", NC_NOERR);
    }
}

void start_another(const std::string& self, const char* action) {
  create();
  put(0);
  check(nc_sync(file), "sync");
  const auto format = (mode & NC_NETCDF4) != 0 ? "NETCDF4 " : "NETCDF3_CLASSIC ";
  if (std::system((self + " --format " + format + action).c_str()) < 0) fail("system", NC_NOERR);
  put(1);
  check(nc_close(file), "close");
}

}  // namespace

int main(int n, char** arguments) {
  std::string action;
  for (int i = 1; i < n; ++i) {
    const std::string word = arguments[i];
    if (word == "--format" && i + 1 < n) {
      const std::string format = arguments[++i];
      mode = format == "NETCDF4" ? NC_NETCDF4 : format == "NETCDF3_64BIT_DATA" ? NC_64BIT_DATA : 0;
    } else {
      action = word;
    }
  }
  if (action == "fork-writes" || action == "fork-goes-on") fork_writes(action == "fork-goes-on");
  if (action == "fork-pool") fork_pool();
  if (action == "daemon") daemon();
  if (action == "close-fds") close_fds();
  if (action == "exec") exec(arguments, std::getenv("PROCESS_PROGRAM_AGAIN") != nullptr);
  if (action == "signal-close") {
    put_until([](int) {
      if (nc_close(file) != NC_NOERR) std::_Exit(4);
      std::_Exit(0);
    });
  }
  if (action == "signal-exit") put_until([](int) { std::exit(0); });
  if (action == "signal-returns") {
    put_until([](int) {
      if (nc_close(file) != NC_NOERR) std::_Exit(4);
      (void)::mprotect(hidden, cells * sizeof(double), PROT_READ);
    });
  }
  if (action == "looked-up" || action == "past") looked_up(action == "past");
  if (action == "over-reader") over_reader();
  if (action == "reader-sync") reader_sync();
  if (action == "write-twice") write_twice();
  if (action == "leaked") leaked();
  if (action == "share") share();
  if (action == "tool") start_another(arguments[0], "open-it");
  if (action == "create-twice") start_another(arguments[0], "create-it");
  if (action == "writes") {
    create();
    put(0);
    check(nc_close(file), "close");
  }
  if (action == "at-exit") at_exit();
  if (action == "deep") deep();
  if (action == "watched") watched();
  if (action == "stays-as-set") stays_as_set();
  if (action == "named") named();
  if (action == "open-it") say("open for writing", nc_open("out.nc", NC_WRITE, &file));
  if (action == "create-it") say("create", nc_create("out.nc", mode, &file));
  std::printf("%s: right\n", action.c_str());
  return 0;
}
