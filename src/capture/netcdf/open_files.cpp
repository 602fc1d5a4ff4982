#include "capture/netcdf/open_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <optional>

namespace advectio::netcdf {

namespace {
__attribute__((destructor)) void finish() {
  open_files().finish();
}
}  // namespace

std::string absolute(const std::string& path) {
  std::error_code error;
  auto full = std::filesystem::absolute(path, error);
  return error ? path : full.string();
}

CapturedFile* file_at(const std::string& path) {
  struct stat wanted {};
  std::optional<bool> is_there;
  return open_files().find_if([&](CapturedFile* file) {
    if (!is_there) is_there = ::stat(path.c_str(), &wanted) == 0;
    struct stat own {};
    return *is_there && ::stat(file->out().file_path().c_str(), &own) == 0 && own.st_dev == wanted.st_dev &&
           own.st_ino == wanted.st_ino;
  });
}

}  // namespace advectio::netcdf
