// Calls that change directories, for the whole program of these tests: what they refuse, and who dies in them.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <string_view>

#include "server/server_fixture.h"

/// A server or program of these tests dies when it has made a file's hard link, or is about to.
bool dies_at_link = false, dies_before_link = false;
extern "C" int link(const char* from, const char* to) noexcept {
  if (dies_before_link) (void)::kill(::getpid(), SIGKILL);
  const int done = ::linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
  if (dies_at_link) (void)::kill(::getpid(), SIGKILL);
  return done;
}

static std::mutex forcing;
static std::set<std::string> forced;
std::set<std::string> forced_below(const std::string& directory) {
  const std::lock_guard guard(forcing);
  std::set<std::string> out;
  for (const auto& path : forced)
    if (path.starts_with(directory)) out.insert(path.substr(directory.size()));
  return out;
}
extern "C" int fdatasync(int fd) {
  std::error_code failed;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), failed).string();
  const std::lock_guard guard(forcing);
  forced.insert(path);
  return 0;
}

/// The directory refuses to remove or rename what has this in its path.
std::atomic<const char*> directory_refuses{nullptr};
/// The hard links of files cannot be removed.
std::atomic<bool> names_stay{false};
/// Called before a name is removed; null: nobody is.
std::atomic<void (*)(const char*)> sees_unlink{nullptr};
extern "C" int unlink(const char* path) noexcept {
  if (const auto see = sees_unlink.load()) see(path);
  if (names_stay && std::strstr(path, ".advectio-") != nullptr) {
    errno = EROFS;
    return -1;
  }
  if (directory_refuses && std::strstr(path, directory_refuses) != nullptr) {
    errno = EROFS;
    return -1;
  }
  return ::unlinkat(AT_FDCWD, path, 0);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (directory_refuses && std::strstr(to, directory_refuses) != nullptr) {
    errno = EROFS;
    return -1;
  }
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}
/// A run's directory of journals is not removed before this is false.
std::atomic<bool> journals_are_held{false};
extern "C" int remove(const char* path) noexcept {
  if (std::string_view(path).ends_with("/journals")) journals_are_held.wait(true);
  if (::unlinkat(AT_FDCWD, path, 0) == 0) return 0;
  return errno == EISDIR ? ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : -1;
}
std::atomic<bool> directories_stay{false};
extern "C" int rmdir(const char* path) noexcept {
  if (directories_stay && std::strstr(path, ".advectio-") != nullptr) {
    errno = EROFS;
    return -1;
  }
  return ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
