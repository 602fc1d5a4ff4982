#include "capture/marker_path.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "capture/plain_path.h"

namespace advectio::capture {

template <typename Make>
void MarkerPath::make(const void* caller, Make&& call) {
  if (!is_of_program(caller, path_)) return;
  const int kept = errno;
  const Inside mark;
  try {
    call_.emplace(call());
  } catch (...) {  // no memory: the call goes on without us
  }
  errno = kept;
}

MarkerPath::MarkerPath(int directory, const char* path, std::optional<Use> use, const void* caller) : path_(path) {
  if (use) make(caller, [&] { return MarkerCall(from_root(directory, path), *use); });
}

MarkerPath::MarkerPath(int directory, const char* path, Use use, const MarkerPath& from, int from_directory,
                       const void* caller)
    : path_(path) {
  if (from.path_ == nullptr || *from.path_ == '\0') return;
  make(caller, [&] {
    const MarkerCall none;
    return MarkerCall(from_root(directory, path), use, from.call_ ? *from.call_ : none,
                      from_root(from_directory, from.path_));
  });
}

MarkerPath::~MarkerPath() {
  const int kept = errno;
  const Inside mark;
  try {
    call_.reset();
  } catch (...) {  // no memory: the server looks by itself
  }
  errno = kept;
}

MovePath::MovePath(int from_directory, const char* from, int to_directory, const char* to,
                   const void* caller) noexcept {
  if (!is_of_program(caller, from) || to == nullptr || *to == '\0') return;
  const int kept = errno;
  const Inside mark;
  try {
    move_.emplace(from_root(from_directory, from), from_root(to_directory, to));
  } catch (...) {  // no memory: the server finds the directory by itself
  }
  errno = kept;
}

int MovePath::after(int answer) noexcept {
  if (answer != 0 || !move_) return answer;
  const int kept = errno;
  const Inside mark;
  try {
    move_->done();
  } catch (...) {  // no memory: the same
  }
  errno = kept;
  return answer;
}

MovePath::~MovePath() {
  const int kept = errno;
  const Inside mark;
  move_.reset();
  errno = kept;
}

std::optional<MarkerPath::Use> MarkerPath::of_flags(int flags) {
  if ((flags & O_DIRECTORY) != 0) return std::nullopt;
  if ((flags & O_PATH) != 0) return of_look((flags & O_NOFOLLOW) != 0);
  if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return Use::make;
  if ((flags & O_TRUNC) != 0) return Use::replace;
  return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0 ? Use::write : of_look((flags & O_NOFOLLOW) != 0);
}

MarkerPath::Use MarkerPath::of_mode(const char* mode) {
  if (mode == nullptr || std::strpbrk(mode, "wa+") == nullptr) return Use::read;
  if (mode[0] != 'w') return Use::write;
  return std::strchr(mode, 'x') != nullptr ? Use::make : Use::replace;
}

}  // namespace advectio::capture
