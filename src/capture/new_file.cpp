#include "capture/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace advectio::capture {
namespace {

constexpr int tries = 100;
constexpr useconds_t pause_us = 1000;

}  // namespace

Result<NewFile> NewFile::take(const std::string& path, bool no_clobber, const std::function<Result<void>()>& is_free,
                              bool anew) {
  for (int i = 0;; ++i) {
    NewFile file(path);
    ADVECTIO_TRY(file.open(no_clobber));
    file.locked_ = file.lock();
    // Who made it may have removed it again before we had the lock.
    if (!file.is_at_its_path()) {
      file.is_new_ = false;
      if (i < tries) continue;
      return system_error("create " + path, ENOENT);
    }
    if (auto free = is_free(); !free) {
      file.is_new_ = false;
      return std::move(free).error();
    }
    if (!anew || file.is_new_) return file;
    if (i == tries || ::unlink(path.c_str()) != 0) return system_error("create " + path, i == tries ? EBUSY : errno);
  }
}

Result<void> NewFile::open(bool no_clobber) {
  is_new_ = ::mknod(path_.c_str(), S_IFREG | 0666, 0) == 0;
  if (!is_new_ && (errno != EEXIST || no_clobber)) return system_error("create " + path_, errno);
  // The system asks the same of a program that opens the file to write it.
  if (!is_new_ && ::access(path_.c_str(), R_OK | W_OK) != 0 && errno != ENOENT)
    return system_error("create " + path_, errno);
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0 && errno == ENOENT) return {};  // removed meanwhile: `is_at_its_path` finds that
  if (fd_ >= 0 && ::fstat(fd_, &stat_) == 0) return {};
  const int failed = errno;
  if (is_new_) ::unlink(path_.c_str());
  return system_error("create " + path_, failed);
}

bool NewFile::lock() const {
  if (fd_ < 0) return false;
  for (int i = 0; ::flock(fd_, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK) return true;  // the file system has no such locks
    if (i == tries) return false;
    ::usleep(pause_us);
  }
  return true;
}

bool NewFile::is_at_its_path() const {
  struct stat now {};
  return fd_ >= 0 && ::stat(path_.c_str(), &now) == 0 && now.st_dev == stat_.st_dev && now.st_ino == stat_.st_ino;
}

Result<void> NewFile::empty() {
  if (is_new_) return {};
  if (::truncate(path_.c_str(), 0) != 0 || ::stat(path_.c_str(), &stat_) != 0)
    return system_error("create " + path_, errno);
  return {};
}

journal::RunMark NewFile::keep() {
  is_new_ = false;
  auto mark = journal::RunMark::on(fd_);
  // Before the lock goes there is the mark, for whoever gets the lock next.
  if (mark) (void)::flock(fd_, LOCK_UN);
  fd_ = -1;
  return mark;
}

NewFile::~NewFile() {
  if (is_new_ && locked_) ::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      is_new_(std::exchange(other.is_new_, false)),
      locked_(other.locked_),
      stat_(other.stat_) {}

}  // namespace advectio::capture
