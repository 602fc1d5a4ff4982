#include "apps/advectiod/new_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace advectio {
namespace {

/// Whether what is open is still what is at its path: who held the lock before us may have moved it to its place.
bool still_there(int descriptor, const std::string& path) {
  struct stat open {
  }, there{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &there) == 0 && open.st_ino == there.st_ino &&
         open.st_dev == there.st_dev;
}

void sync_directory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

}  // namespace

NewFile::NewFile(Files& files, std::string path, bool replace, const std::string& maker, bool directory)
    : files_(files), path_(std::move(path)), replace_(replace), is_directory_(directory) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  const std::filesystem::path p(path_);
  directory_ = p.has_parent_path() ? p.parent_path().string() : ".";
  temporary_ = directory_ + "/." + p.filename().string() + ".advectio-" + maker;
}

NewFile::~NewFile() {
  if (file_) (void)files_.remove(temporary_);
  std::error_code ignored;
  if (lock_ >= 0) {
    std::filesystem::remove_all(temporary_, ignored);
    ::close(lock_);
  }
}

Result<void> NewFile::check(Files& files, const std::string& path, bool replace, bool directory) {
  const bool is_one = std::filesystem::is_directory(path);
  if (is_one && !directory) return Error{Code::exists, path + " is a directory", 0};
  if (is_one && !files.exists(path + "/zarr.json") && !files.exists(path + "/md.idx"))
    return Error{Code::exists, path + " is a directory, and neither a Zarr store nor a BP file", 0};
  if (!replace && files.exists(path))
    return Error{Code::exists, path + " is there already; --force replaces it when the new one is complete", 0};
  return {};
}

Result<std::unique_ptr<NewFile>> NewFile::begin(Files& files, const std::string& path, bool replace,
                                                const std::string& maker, bool directory) {
  ADVECTIO_TRY(check(files, path, replace, directory));
  std::unique_ptr<NewFile> made(new NewFile(files, path, replace, maker, directory));
  ADVECTIO_TRY(made->take());
  return made;
}

Result<void> NewFile::empty_directory() {
  auto names = files_.list(temporary_);
  if (!names) return std::move(names).error();
  for (const auto& name : *names) {
    std::error_code failed;
    std::filesystem::remove_all(temporary_ + '/' + name, failed);
    if (failed) return system_error("remove " + temporary_ + '/' + name, failed.value());
  }
  return {};
}

Result<void> NewFile::take() {
  const auto somebody = Error{Code::exists, path_ + " is just being made by another process", 0};
  while (is_directory_) {
    if (::mkdir(temporary_.c_str(), 0777) != 0 && errno != EEXIST) return system_error("make " + temporary_, errno);
    const int fd = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) return system_error("open " + temporary_, errno);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd);
      return somebody;
    }
    if (still_there(fd, temporary_)) {
      lock_ = fd;
      return empty_directory();
    }
    ::close(fd);
  }
  for (;;) {
    auto file = files_.open(temporary_, OpenMode::create_new, 0666);
    if (!file && files_.exists(temporary_)) file = files_.open(temporary_, OpenMode::read_write);
    if (!file) return std::move(file).error();
    if (::flock((*file)->descriptor(), LOCK_EX | LOCK_NB) != 0) return somebody;
    if (!still_there((*file)->descriptor(), temporary_)) continue;
    ADVECTIO_TRY((*file)->resize(0));
    file_ = std::move(file).value();
    return {};
  }
}

/// What is there gets the other name in the same moment, and is removed then.
Result<void> NewFile::finish_directory() {
  const bool there = replace_ && files_.exists(path_);
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), there ? RENAME_EXCHANGE : RENAME_NOREPLACE) !=
      0) {
    if (errno != EINVAL && errno != ENOSYS) return system_error("rename " + temporary_ + " to " + path_, errno);
    // A file system that cannot do both in one step.
    if (there) ADVECTIO_TRY(files_.rename(path_, temporary_ + "-old"));
    ADVECTIO_TRY(files_.rename(temporary_, path_));
    if (there) ADVECTIO_TRY(files_.rename(temporary_ + "-old", temporary_));
  }
  std::error_code failed;
  if (there) std::filesystem::remove_all(temporary_, failed);
  ::close(lock_);
  lock_ = -1;
  sync_directory(directory_);
  if (failed) return system_error("remove " + temporary_, failed.value());
  return {};
}

Result<void> NewFile::finish() {
  if (is_directory_) return finish_directory();
  if (replace_) {
    ADVECTIO_TRY(files_.rename(temporary_, path_));
  } else {
    // A rename would replace what somebody has put there meanwhile.
    auto linked = files_.link(temporary_, path_);
    if (!linked && linked.error().sys == EEXIST) return std::move(linked).error();
    if (linked)
      ADVECTIO_TRY(files_.remove(temporary_));
    else
      ADVECTIO_TRY(files_.rename(temporary_, path_));  // a file system without hard links
  }
  file_.reset();
  sync_directory(directory_);
  return {};
}

}  // namespace advectio
