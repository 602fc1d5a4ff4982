#include "apps/advectiod/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace advectio {
namespace {

/// Whether the open file is still the one at its path: who held the lock before us may have moved it to its place.
bool still_there(const File& file) {
  struct stat open {
  }, there{};
  return ::fstat(file.descriptor(), &open) == 0 && ::stat(file.path().c_str(), &there) == 0 &&
         open.st_ino == there.st_ino && open.st_dev == there.st_dev;
}

void sync_directory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

}  // namespace

NewFile::NewFile(Files& files, std::string path, bool replace, const std::string& maker)
    : files_(files), path_(std::move(path)), replace_(replace) {
  const std::filesystem::path p(path_);
  directory_ = p.has_parent_path() ? p.parent_path().string() : ".";
  temporary_ = directory_ + "/." + p.filename().string() + ".advectio-" + maker;
}

NewFile::~NewFile() {
  if (file_) (void)files_.remove(temporary_);
}

Result<std::unique_ptr<NewFile>> NewFile::begin(Files& files, const std::string& path, bool replace,
                                                const std::string& maker) {
  if (std::filesystem::is_directory(path)) return Error{Code::exists, path + " is a directory", 0};
  if (!replace && files.exists(path))
    return Error{Code::exists, path + " is there already; --force replaces it when the new one is complete", 0};
  std::unique_ptr<NewFile> made(new NewFile(files, path, replace, maker));
  ADVECTIO_TRY(made->take());
  return made;
}

Result<void> NewFile::take() {
  for (;;) {
    auto file = files_.open(temporary_, OpenMode::create_new, 0666);
    if (!file && files_.exists(temporary_)) file = files_.open(temporary_, OpenMode::read_write);
    if (!file) return std::move(file).error();
    if (::flock((*file)->descriptor(), LOCK_EX | LOCK_NB) != 0)
      return Error{Code::exists, path_ + " is just being made by another process", 0};
    if (!still_there(**file)) continue;
    ADVECTIO_TRY((*file)->resize(0));
    file_ = std::move(file).value();
    return {};
  }
}

Result<void> NewFile::finish() {
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
