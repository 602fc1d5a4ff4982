#include "faults/power.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace advectio::faults {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t page_bytes = 4096;

struct Watched {
  std::string disk, shadow;
};
Watched watched;

[[noreturn]] void broken(const std::string& what) {
  std::fprintf(stderr, "the shadow of the disk is broken: %s\n", what.c_str());
  std::abort();
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void replace(const std::string& path, const std::string& with) {
  const auto next = path + ".next";
  std::ofstream(next, std::ios::binary).write(with.data(), static_cast<std::streamsize>(with.size()));
  if (std::rename(next.c_str(), path.c_str()) != 0) broken(path);
}

std::string file_of(const std::string& shadow, char what, ino_t inode) {
  return shadow + "/" + what + std::to_string(inode);
}

/// Give it a name in the shadow, so that it lives on. False where it has gone meanwhile.
bool hold(const std::string& shadow, const std::string& path, ino_t inode) {
  const auto held = file_of(shadow, 'i', inode);
  struct stat st {};
  if (::lstat(held.c_str(), &st) == 0) return true;
  const auto made = held + "-" + std::to_string(::getpid());
  if (::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, made.c_str(), 0) != 0) return false;
  const bool same = ::lstat(made.c_str(), &st) == 0 && st.st_ino == inode;
  if (same) (void)::linkat(AT_FDCWD, made.c_str(), AT_FDCWD, held.c_str(), 0);
  (void)::unlinkat(AT_FDCWD, made.c_str(), 0);
  return same;
}

/// What a directory names.
struct Entry {
  ino_t inode = 0;
  bool directory = false;
};
using Names = std::map<std::string, Entry>;

Names names_in(const std::string& directory) {
  Names names;
  std::error_code ignored;
  for (const auto& e : fs::directory_iterator(directory, ignored)) {
    struct stat st {};
    if (::lstat(e.path().c_str(), &st) == 0) names[e.path().filename()] = {st.st_ino, S_ISDIR(st.st_mode)};
  }
  return names;
}

/// One at a time, so that an older state cannot come after a newer one.
class Turn {
 public:
  explicit Turn(ino_t inode)
      : fd_(static_cast<int>(::open(file_of(watched.shadow, 'l', inode).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600))) {
    if (fd_ < 0 || ::flock(fd_, LOCK_EX) != 0) broken("lock");
  }
  ~Turn() { ::close(fd_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int fd_;
};

/// After a loss of power: which of what may be there is.
class Aftermath {
 public:
  Aftermath(std::string shadow, std::uint64_t seed) : shadow_(std::move(shadow)), random_(seed) {}

  void strike(const std::string& disk, ino_t inode) {
    struct stat st {};
    if (::lstat(disk.c_str(), &st) != 0) {
      if (inode != 0 && below(2) == 0) make(disk, inode);
      return;
    }
    look(disk, st.st_ino);
    fs::remove_all(disk);
    make(disk, st.st_ino);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void look(const std::string& directory, ino_t inode) {
    auto& names = live_[inode] = names_in(directory);
    for (const auto& [name, e] : names) {
      const auto path = directory + "/" + name;
      if (e.directory)
        look(path, e.inode);
      else if (!hold(shadow_, path, e.inode) && fs::is_regular_file(path))
        broken(path);
    }
  }

  Names forced_names(ino_t inode) const {
    Names names;
    std::ifstream in(file_of(shadow_, 'd', inode));
    Entry e;
    for (std::string name; in >> e.inode >> e.directory && in.get() && std::getline(in, name);) names[name] = e;
    return names;
  }

  void make(const std::string& directory, ino_t inode) {
    const auto live = live_.find(inode);
    const auto names = live != live_.end() && below(2) == 0 ? live->second : forced_names(inode);
    fs::create_directory(directory);
    fs::permissions(directory, fs::perms::owner_all);
    struct stat st {};
    if (::lstat(directory.c_str(), &st) != 0) broken(directory);
    for (const auto& [name, e] : names) {
      const auto path = directory + "/" + name;
      if (e.directory) {
        make(path, e.inode);
        continue;
      }
      const auto held = file_of(shadow_, 'i', e.inode);
      if (::linkat(AT_FDCWD, held.c_str(), AT_FDCWD, path.c_str(), 0) != 0) continue;  // a socket
      if (done_.insert(e.inode).second) tear(held, e.inode);
    }
    // What is there now is on the disk.
    write_names(shadow_, directory, st.st_ino);
  }

  void tear(const std::string& path, ino_t inode) {
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return;
    const auto forced = contents(file_of(shadow_, 'f', inode));
    const auto live = contents(path);
    const auto mode = below(3);  // all that is newer, nothing of it, or some
    const auto newer = [&] { return mode == 0 || (mode == 2 && below(2) == 0); };
    std::string now(newer() ? live.size() : forced.size(), '\0');
    for (std::size_t at = 0; at < now.size(); at += page_bytes) {
      const auto& from = newer() ? live : forced;
      if (at < from.size())
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min({page_bytes, from.size() - at, now.size() - at}),
                    now.begin() + static_cast<std::ptrdiff_t>(at));
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(now.data(), static_cast<std::streamsize>(now.size()));
    replace(file_of(shadow_, 'f', inode), now);
  }

 public:
  static void write_names(const std::string& shadow, const std::string& directory, ino_t inode) {
    std::string text;
    for (const auto& [name, e] : names_in(directory))
      if (e.directory || hold(shadow, directory + "/" + name, e.inode))
        text += std::to_string(e.inode) + (e.directory ? " 1 " : " 0 ") + name + "\n";
    replace(file_of(shadow, 'd', inode), text);
  }

 private:
  std::string shadow_;
  std::mt19937_64 random_;
  std::map<ino_t, Names> live_;
  std::set<ino_t> done_;
};

}  // namespace

std::string shadow_of(const std::string& run_dir) {
  return (fs::path(run_dir).parent_path() / "shadow").string();
}

void watch_disk(const std::string& run_dir) {
  watched = {fs::path(run_dir).parent_path().string(), shadow_of(run_dir)};
}

void note_forced(int fd) {
  if (watched.disk.empty()) return;
  const auto link = "/proc/self/fd/" + std::to_string(fd);
  std::error_code ignored;
  const auto path = fs::read_symlink(link, ignored).string();
  struct stat st {};
  if (path.rfind(watched.disk + "/", 0) != 0 || path.rfind(watched.shadow, 0) == 0 || ::fstat(fd, &st) != 0) return;
  const Turn turn(st.st_ino);
  if (S_ISDIR(st.st_mode))
    Aftermath::write_names(watched.shadow, path, st.st_ino);
  else
    replace(file_of(watched.shadow, 'f', st.st_ino), contents(link));
}

void lose_power(const std::string& disk, const std::string& shadow, std::uint64_t seed, std::uint64_t inode) {
  Aftermath(shadow, seed).strike(disk, inode);
}

}  // namespace advectio::faults
