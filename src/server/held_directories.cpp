#include "server/held_directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>

#include "platform/files.h"

namespace advectio {

void HeldDirectories::watch(const std::string& directory) {
  struct stat st {};
  if (::stat(directory.c_str(), &st) != 0) return;
  auto& opened = watched_[directory];
  // Another one may have its name since then.
  if (!opened.empty() && opened.back().device == st.st_dev && opened.back().inode == st.st_ino) return;
  if (!has_descriptors_to_spare()) return;
  const int fd = ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  if (::fstat(fd, &st) == 0)
    opened.push_back({fd, st.st_dev, st.st_ino});
  else
    ::close(fd);
}

std::vector<std::string> HeldDirectories::now(const std::string& directory) const {
  std::vector<std::string> found;
  const auto watched = watched_.find(directory);
  if (watched == watched_.end()) return found;
  for (const auto& opened : watched->second) {
    char path[PATH_MAX];
    const auto bytes = ::readlink(("/proc/self/fd/" + std::to_string(opened.fd)).c_str(), path, sizeof path);
    if (bytes <= 0 || static_cast<std::size_t>(bytes) == sizeof path) continue;
    auto where = std::string(path, static_cast<std::size_t>(bytes)) + "/";
    struct stat st {};
    if (::stat(where.c_str(), &st) == 0 && st.st_dev == opened.device && st.st_ino == opened.inode)
      found.push_back(std::move(where));
  }
  return found;
}

void HeldDirectories::forget() {
  for (const auto& [directory, all] : watched_)
    for (const auto& opened : all) ::close(opened.fd);
  watched_.clear();
}

}  // namespace advectio
