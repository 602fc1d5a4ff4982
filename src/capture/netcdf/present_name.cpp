#include "capture/netcdf/present_name.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

namespace advectio::netcdf {

namespace fs = std::filesystem;

bool same_file(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

std::optional<std::string> present_name(const std::string& ours, const std::string& path, const std::string& servers) {
  std::error_code error;
  if (same_file(ours, path)) {
    auto place = fs::canonical(path, error);
    return error ? path : place.string();
  }
  // The server's link may go between two looks; it does not come back.
  for (;;) {
    const bool has_servers = same_file(servers, ours);
    struct stat file {};
    const bool there = stat(ours.c_str(), &file) == 0;
    if (has_servers != same_file(servers, ours)) continue;
    if (there && file.st_nlink <= (has_servers ? 2U : 1U)) return "";
    break;
  }
  for (auto entry = fs::directory_iterator(fs::path(path).parent_path(), error);
       !error && entry != fs::directory_iterator(); entry.increment(error))
    if (entry->path() != ours && entry->path() != servers && same_file(entry->path(), ours))
      return entry->path().string();
  return std::nullopt;
}

}  // namespace advectio::netcdf
