#include "capture/plain_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "capture/dataset.h"
#include "capture/markers.h"
#include "capture/own_libraries.h"
#include "journal/hard_link.h"
#include "journal/stage.h"

namespace advectio::capture {
namespace {

using Mode = CoupleRule::Mode;

constinit thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

/// The directory of the shared states of all datasets in flight on this node; null outside a run. Found once.
const std::string* datasets_of_run() {
  static const std::string* const found = [] {
    const auto stage = stage_directory_of_process();
    return stage.empty() ? nullptr : new std::string(stage + "/datasets");
  }();
  return found;
}

/// 0, or the errno with which the call fails.
int wait_for(int directory, const char* path, const Use& use) {
  const int kept = errno;
  const Inside mark;
  int failed = 0;
  try {
    struct stat st {};
    const auto* datasets = datasets_of_run();
    const int links = use.means_name() ? AT_SYMLINK_NOFOLLOW : 0;
    std::string present;
    if (datasets != nullptr && any_file_held()) {
      present = present_path(from_root(directory, path));
      if (!present.empty()) directory = AT_FDCWD, path = present.c_str();
    }
    // Our own readers go by the hard link, and have waited.
    if (datasets != nullptr && !journal::is_hard_link(path) &&
        ::syscall(SYS_newfstatat, directory, path, &st, links) == 0 && S_ISREG(st.st_mode)) {
      const auto shared_state = *datasets + "/" + journal::Stage::state_name(st.st_dev, st.st_ino);
      if (::access(shared_state.c_str(), F_OK) == 0) {
        auto* session = Session::current();
        const std::string name = directory == AT_FDCWD || *path == '/'
                                     ? std::string(path)
                                     : "/proc/self/fd/" + std::to_string(directory) + "/" + path;
        const auto until = use.looks()                    ? Session::Until::complete_if_closed
                           : use.kind == Use::Kind::write ? Session::Until::complete
                                                          : Session::Until::synced;
        const auto waited = session != nullptr ? session->wait_for_plain_use(name, until) : Result<void>{};
        if (!waited && !use.looks()) {
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

}  // namespace

Inside::Inside() noexcept : before_(std::exchange(inside, true)) {}
Inside::~Inside() {
  inside = before_;
}

bool is_of_program(const void* caller, const char* path) {
  if (inside || caller == nullptr || path == nullptr || *path == '\0' || std::getenv("ADVECTIO_RUN") == nullptr)
    return false;
  return !OwnLibraries::of_process().hold(caller);
}

std::string from_root(int directory, const char* path) {
  if (directory == AT_FDCWD || *path == '/') return path;
  char real[PATH_MAX];
  const auto bytes = ::readlink(("/proc/self/fd/" + std::to_string(directory)).c_str(), real, sizeof real);
  return bytes > 0 ? std::string(real, static_cast<std::size_t>(bytes)) + "/" + path : std::string();
}

Use Use::of_flags(int flags) {
  // Tools find out in this way whether a name is that of a directory.
  if ((flags & (O_PATH | O_DIRECTORY)) != 0) return of_look((flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0);
  const bool creates = (flags & O_CREAT) != 0, truncates = (flags & O_TRUNC) != 0;
  const bool exclusive = creates && (flags & O_EXCL) != 0;
  if ((flags & O_ACCMODE) == O_RDONLY && !truncates && !exclusive) return {Kind::read, {}};
  return {Kind::write, {creates, truncates, exclusive}};
}

Use Use::of_mode(const char* mode) {
  if (mode == nullptr || std::strpbrk(mode, "wa+") == nullptr) return {Kind::read, {}};
  const bool truncates = std::strchr(mode, 'w') != nullptr;
  return {Kind::write, {truncates || std::strchr(mode, 'a') != nullptr, truncates, std::strchr(mode, 'x') != nullptr}};
}

Use Use::of_look(int flags) {
  return {(flags & AT_SYMLINK_NOFOLLOW) != 0 ? Kind::look_at_name : Kind::look, {}};
}

Use Use::of_change(int flags) {
  return {(flags & AT_SYMLINK_NOFOLLOW) != 0 ? Kind::change_name : Kind::change, {}};
}

Path::Path(int directory, const char* path, Use use, const void* caller)
    : path_(path), directory_(directory), use_(use) {
  if (use.kind == Use::Kind::nothing || !is_of_program(caller, path)) return;
  const int kept = errno;
  {
    const Inside mark;
    try {
      find_coupled();
    } catch (...) {  // no memory: the call goes on without us
    }
  }
  // A file that shall be new is not in flight.
  const bool is_new = use.kind == Use::Kind::write && use.how.exclusive;
  if (failed_ == 0 && !coupled_ && !waited_ && !is_new) failed_ = wait_for(directory, path, use);
  errno = failed_ != 0 ? failed_ : kept;
}

Path::~Path() {
  if (held_.release.empty() && !turn_) return;
  const int kept = errno;
  const Inside mark;
  turn_.reset();
  if (!held_.release.empty()) (void)leave(held_, false);
  errno = kept;
}

void Path::find_coupled() {
  auto* workflow = workflow_of_process();
  if (workflow == nullptr || journal::is_hard_link(path_)) return;
  const auto name = from_root(directory_, path_);
  if (name.empty()) return;
  const auto file = use_.means_name() ? workflow->of_name(name) : workflow->of(name);
  struct stat st {};
  if (!file) return;
  const int links = use_.means_name() ? AT_SYMLINK_NOFOLLOW : 0;
  if (::syscall(SYS_newfstatat, directory_, path_, &st, links) == 0 && (S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode)))
    return;
  if (use_.kind == Use::Kind::write) return open_to_write(*file);
  // A file that is on the disk, too, is changed there.
  if (use_.changes() && file->rule->mode != Mode::memory) return;
  const bool looks = use_.looks();
  look_at_moved(*file);
  // The libraries open files on the disk by these calls, too.
  if (!looks && file->rule->mode == Mode::file) {
    if (auto there = workflow->wait_on_disk(*file, say_of_coupling); !there) note(there.error());
    return;
  }
  if (looks) {
    auto there = workflow->wait(*file, workflow::Workflow::For::looking, say_of_coupling);
    if (!there) return note(there.error());
    held_.path = std::move(there).value();
  } else {
    auto held = workflow->open_to_read(*file, say_of_coupling);
    if (!held) return note(held.error());
    held_ = std::move(held).value();
  }
  coupled_ = file->rule->mode != Mode::file && held_.path != file->path;
}

bool Path::look_again() noexcept {
  constexpr unsigned most = 100;
  if (errno != ENOENT || !coupled_ || !use_.looks() || ++looks_ > most) return false;
  const Inside mark;
  try {
    coupled_ = false;
    find_coupled();
  } catch (...) {  // no memory: the call has failed
  }
  errno = ENOENT;
  return coupled_;
}

void Path::open_to_write(const workflow::Coupled& file) {
  const bool in_memory = file.rule->mode == Mode::memory;
  if (!in_memory && !use_.how.exclusive) {
    failed_ = wait_for(directory_, path_, use_);
    waited_ = true;
    if (failed_ != 0) return;
  }
  auto opened = workflow_of_process()->open_plainly(file, use_.how, say_of_coupling);
  if (!opened) {
    // The C library finds the same on the disk.
    if (!in_memory && opened.error().code == Code::not_found) return;
    failed_ = opened.error().sys > 0 ? opened.error().sys : EIO;
    if (opened.error().code != Code::not_found && opened.error().code != Code::exists)
      say_of_coupling(opened.error().message);
    return;
  }
  if (opened->path.empty()) {
    say_not_for_others(file);
    return;
  }
  turn_ = std::move(opened->turn);
  held_.path = std::move(opened->path);
  coupled_ = in_memory;
}

void Path::note(const Error& error) {
  if (error.code == Code::not_found) return;
  say_of_coupling(error.message);
  failed_ = use_.looks() ? ENOENT : error.sys > 0 ? error.sys : EIO;
}

bool removes_coupled(int directory, const char* path, const void* caller) {
  if (!is_of_program(caller, path)) return false;
  const int kept = errno;
  const Inside mark;
  bool removed = false;
  try {
    if (workflow_of_process() != nullptr) removed = remove_coupled(from_root(directory, path));
  } catch (...) {  // no memory: the call goes on without us
  }
  errno = kept;
  return removed;
}

}  // namespace advectio::capture
