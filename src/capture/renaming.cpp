#include "capture/renaming.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "capture/coupling.h"
#include "capture/dataset.h"
#include "capture/plain_path.h"
#include "workflow/versions.h"

namespace advectio::capture {
namespace {

using For = workflow::Workflow::For;
using Comes = workflow::Pending::Kind;
using Mode = CoupleRule::Mode;

constexpr unsigned no_replace = 1U << 0U;  // RENAME_NOREPLACE

/// The file that has that name on the disk; false: there is none.
bool on_disk(const std::string& path, struct stat& st) {
  return ::syscall(SYS_newfstatat, AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
}

bool is_in_memory(const workflow::Coupled& file) {
  return file.rule->mode == Mode::memory;
}

Error is_open(const workflow::Coupled& file) {
  return Error{Code::invalid, file.path + " is coupled and open for writing; it can be moved when it is closed", EBUSY};
}

/// The server of this run writes it.
Comes as_what(const std::string& path) {
  auto* session = Session::current();
  if (session == nullptr || !session->is_in_flight(path)) return Comes::plain;
  return session->is_open_in_flight(path) ? Comes::moved_open : Comes::moved;
}

}  // namespace

Renaming::Renaming(Kind kind, At from, At to, unsigned flags, const void* caller) noexcept : kind_(kind) {
  if (!is_of_program(caller, from.path) || to.path == nullptr || *to.path == '\0') return;
  const int kept = errno;
  int failed = 0;
  {
    const Inside mark;
    try {
      if (auto* workflow = workflow_of_process(); workflow != nullptr) {
        const auto old_name = from_root(from.directory, from.path), new_name = from_root(to.directory, to.path);
        from_ = workflow->of_name(old_name);
        to_ = workflow->of_name(new_name);
        is_coupled_ = from_ || to_;
        if (is_coupled_)
          if (auto begun = begin(old_name, new_name, flags); !begun) fail(begun.error());
      }
    } catch (...) {  // no memory: the call goes on without us
      is_coupled_ = false;
    }
    failed = errno;
  }
  errno = answer_ && *answer_ != 0 ? failed : kept;
}

void Renaming::fail(const Error& error) {
  answer_ = -1;
  if (error.code != Code::exists && error.code != Code::not_found) say_of_coupling(error.message);
  errno = error.sys > 0 ? error.sys : EIO;
}

Result<void> Renaming::begin(const std::string& from, const std::string& to, unsigned flags) {
  auto& workflow = *workflow_of_process();
  struct stat st {};
  const bool has_file = on_disk(from, st);
  // A directory, or a symbolic link itself, is moved on the disk.
  const bool follows = kind_ == Kind::links && (flags & AT_SYMLINK_FOLLOW) != 0;
  if (has_file && !S_ISREG(st.st_mode) && !follows) {
    is_coupled_ = false;
    return {};
  }
  if (kind_ == Kind::moves && (flags & ~no_replace) != 0)
    return Error{Code::unsupported, to + " or " + from + " is coupled: they cannot be exchanged", EINVAL};
  const bool may_replace = (flags & no_replace) == 0 && kind_ == Kind::moves;
  if (from_ && to_ && from_->path == to_->path && kind_ == Kind::moves) {
    is_coupled_ = false;
    if (!is_in_memory(*from_)) return {};
    auto there = workflow.wait(*from_, For::looking, say_of_coupling);
    if (!there) return std::move(there).error();
    answer_ = 0;
    return {};
  }
  if (to_ && !to_->writes) {
    // As where such a program creates a file: a name that nobody has written is its own.
    const auto there = workflow::Versions::in(to_->directory);
    if (there.newest > 0 || !there.writing.empty()) return workflow.may_not_write(*to_);
    say_not_for_others(*to_);
    to_.reset();
  }
  if (to_) {
    ADVECTIO_TRY(workflow.await_own(*to_));
    const auto there = workflow::Versions::in(to_->directory);
    if (!may_replace && (there.newest > 0 || !there.writing.empty()))
      return Error{Code::exists, to_->path + " is there already", EEXIST};
  }
  if (from_) {
    bool in_memory = false;
    ADVECTIO_TRY(take_from(in_memory));
    if (in_memory) return move_from_memory(version_, to, may_replace);
  }
  if (to_ && has_file) comes_as_ = as_what(from);
  return {};
}

Result<void> Renaming::take_from(bool& in_memory) {
  auto& workflow = *workflow_of_process();
  const bool may_be = is_in_memory(*from_);
  if (kind_ == Kind::links) {
    struct stat st {};
    if (!may_be || on_disk(from_->path, st)) return {};
    return Error{Code::unsupported,
                 from_->path + " is coupled and in memory, so it has no hard links; copy it, or make a symbolic link",
                 EXDEV};
  }
  if (may_be && workflow.is_open_by_library(*from_)) return is_open(*from_);
  auto version = workflow.wait(*from_, from_->writes ? For::writing : For::reading, say_of_coupling);
  if (!version && version.error().code != Code::not_found) return std::move(version).error();
  if (version)
    version_ = std::move(version).value();
  else
    from_.reset();
  in_memory = from_ && may_be && workflow.holds(version_);
  return {};
}

/// Nothing of it is on the disk.
Result<void> Renaming::move_from_memory(const std::string& version, const std::string& to, bool may_replace) {
  auto& workflow = *workflow_of_process();
  // A version of its own that is not published yet. The server may still have a published one open.
  if (workflow::Pending::of(version.substr(version.rfind('/') + 1))) return is_open(*from_);
  if (to_ && is_in_memory(*to_)) {
    ADVECTIO_TRY(workflow.move(version, *to_));
    workflow.forget_own(*from_);
  } else {
    struct stat st {};
    const auto target = to_ ? to_->path : to;
    if (on_disk(target, st)) {
      if (!may_replace) return Error{Code::exists, target + " is there already", EEXIST};
      if (S_ISDIR(st.st_mode)) return Error{Code::invalid, target + " is a directory", EISDIR};
    }
    ADVECTIO_TRY(workflow::replace_by_copy(version, target));
    ADVECTIO_TRY(workflow::copy_attributes(version, target));
    (void)workflow.remove(*from_);
    if (to_) ADVECTIO_TRY(workflow.has_come(*to_, Comes::plain));
  }
  answer_ = 0;
  return {};
}

int Renaming::after(int answer) noexcept {
  if (answer != 0 || !is_coupled_) return answer;
  const int kept = errno;
  const Inside mark;
  try {
    finish();
  } catch (...) {  // no memory: the file has moved, and nobody hears of it
  }
  errno = kept;
  return answer;
}

void Renaming::finish() {
  auto& workflow = *workflow_of_process();
  if (from_ && kind_ == Kind::moves) (void)workflow.remove(*from_);
  if (!to_) return;
  if (auto come = workflow.has_come(*to_, comes_as_); !come) say_of_coupling(come.error().message);
}

}  // namespace advectio::capture
