#include "journal/run_mark.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace advectio::journal {

namespace {

struct flock byte_of(short type) noexcept {
  struct flock out {};
  out.l_type = type;
  out.l_whence = SEEK_SET;
  out.l_start = off_t{1} << 62;
  out.l_len = 1;
  return out;
}

int open_to_look(const std::string& path) noexcept {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

RunMark RunMark::on(int descriptor) noexcept {
  RunMark out;
  auto byte = byte_of(F_RDLCK);
  struct stat file {};
  if (descriptor < 0 || ::fstat(descriptor, &file) != 0) return out;
  if (::fcntl(descriptor, F_OFD_SETLK, &byte) != 0) {
    ::close(descriptor);
    return out;
  }
  out.fd_ = descriptor;
  out.device_ = file.st_dev;
  out.inode_ = file.st_ino;
  return out;
}

RunMark RunMark::on(const std::string& path) noexcept {
  return on(open_to_look(path));
}

bool RunMark::is_on(const std::string& path) noexcept {
  const int fd = open_to_look(path);
  if (fd < 0) return false;
  auto byte = byte_of(F_WRLCK);
  const bool found = ::fcntl(fd, F_OFD_GETLK, &byte) == 0 && byte.l_type != F_UNLCK;
  ::close(fd);
  return found;
}

RunMark::RunMark(RunMark&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_) {}

RunMark& RunMark::operator=(RunMark&& other) noexcept {
  if (this == &other) return *this;
  remove();
  fd_ = std::exchange(other.fd_, -1);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

void RunMark::remove() noexcept {
  auto byte = byte_of(F_UNLCK);
  if (is_kept()) (void)::fcntl(fd_, F_OFD_SETLK, &byte);
  close();
}

bool RunMark::is_kept() const noexcept {
  struct stat file {};
  return fd_ >= 0 && ::fstat(fd_, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

void RunMark::close() noexcept {
  if (is_kept()) ::close(fd_);
  fd_ = -1;
}

}  // namespace advectio::journal
