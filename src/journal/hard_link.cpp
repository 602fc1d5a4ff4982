#include "journal/hard_link.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

namespace advectio::journal {
namespace {

constexpr const char* mark = ".advectio-";
constexpr std::size_t name_kept_max = 60;

std::string own_directory_name() {
  return mark + std::to_string(::geteuid());
}

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

/// "/a/b/" → "/a/".
std::string above(const std::string& directory) {
  return directory.size() <= 1 ? std::string() : directory_of(directory.substr(0, directory.size() - 1));
}

bool is_own_directory(const std::string& directory) {
  return directory.size() > 1 && base_name(directory.substr(0, directory.size() - 1)) == own_directory_name();
}

/// A directory that somebody else may write could be made to name other files.
bool make_own_directory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat st {};
  return ::lstat(directory.substr(0, directory.size() - 1).c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
         st.st_uid == ::geteuid() && (st.st_mode & 022U) == 0;
}

bool on_device(const std::string& directory, dev_t device) {
  struct stat st {};
  return ::stat(directory.c_str(), &st) == 0 && st.st_dev == device;
}

bool writable(const std::string& directory) {
  return ::access(directory.c_str(), W_OK | X_OK) == 0;
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  return ::lstat(a.c_str(), &one) == 0 && ::lstat(b.c_str(), &other) == 0 && is_same(one, other);
}

/// name_to_handle_at(2); empty: not known.
std::string handle_of(const std::string& path) {
  struct {
    struct file_handle head;
    char bytes[MAX_HANDLE_SZ];
  } handle{};
  handle.head.handle_bytes = sizeof handle.bytes;
  int mount = 0;
  if (::name_to_handle_at(AT_FDCWD, path.c_str(), &handle.head, &mount, 0) != 0) return {};
  return {handle.bytes, std::min<std::size_t>(handle.head.handle_bytes, sizeof handle.bytes)};
}

/// The kernel knows both names as one file. It does not for many file systems of FUSE (bindfs, mergerfs): what is
/// written by one name is not seen by the other at once, though the inode's number is the same.
bool share_a_cache(const std::string& path, const std::string& link) {
  constexpr auto fuse = 0x65735546;  // FUSE_SUPER_MAGIC
  struct statfs fs {};
  if (::statfs(link.c_str(), &fs) != 0 || fs.f_type != fuse) return true;
  const auto handle = handle_of(path);
  return !handle.empty() && handle == handle_of(link);
}

/// Some file systems make of a link another file (sshfs), or count one name whatever there is (SMB). The link is of no
/// use there. `before`: of the file, before it was linked.
bool is_good_link(const std::string& path, const std::string& link, const struct stat& before) {
  struct stat st {};
  return ::lstat(link.c_str(), &st) == 0 && is_same(st, before) && st.st_nlink > before.st_nlink &&
         share_a_cache(path, link);
}

bool link_in(const std::string& path, const std::string& link, const std::string& directory) {
  struct stat before {};
  if (::lstat(path.c_str(), &before) != 0) return false;
  // The server removes the directory when its last link goes, perhaps between the two calls here.
  for (int tries = 0; tries < 100; ++tries) {
    if (is_own_directory(directory) && !make_own_directory(directory)) return false;
    if (::link(path.c_str(), link.c_str()) == 0) {
      if (is_good_link(path, link, before)) return true;
      (void)::unlink(link.c_str());
      return false;
    }
    if (errno == EEXIST) {  // of an earlier life of this dataset
      if (same_file(path, link)) return true;
      if (::unlink(link.c_str()) != 0) return false;
    } else if (errno != ENOENT || !is_own_directory(directory)) {
      return false;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> hard_link_directories(const std::string& file, const std::string& run_directory) {
  std::vector<std::string> found;
  const auto own = own_directory_name() + "/";
  const auto beside = directory_of(file);
  struct stat st {};
  if (::stat(beside.empty() ? "." : beside.c_str(), &st) == 0 && !beside.empty()) {
    const auto run = run_directory.ends_with('/') ? run_directory : run_directory + "/";
    if (!run_directory.empty() && on_device(run, st.st_dev) && writable(run)) found.push_back(run + own);
    auto top = beside;
    for (auto next = above(top); next.size() > 1 && on_device(next, st.st_dev) && writable(next); next = above(next))
      top = next;
    if (writable(top)) found.push_back(top + own);
  }
  found.push_back(beside);
  return found;
}

std::string hard_link_name(const std::string& file, std::uint64_t journal, const std::string& suffix) {
  char middle[32];
  std::snprintf(middle, sizeof middle, "%s%08x-", mark, static_cast<unsigned>(journal));
  return std::string(".").append(name_kept(file)).append(middle).append(suffix);
}

std::string name_kept(const std::string& file) {
  const auto name = base_name(file);
  auto n = std::min(name.size(), name_kept_max);
  // Not a part of a character (UTF-8).
  while (n < name.size() && n > 0 && (static_cast<unsigned char>(name[n]) & 0xC0U) == 0x80U) --n;
  return name.substr(0, n);
}

std::string name_in_hard_link(const std::string& link) {
  const auto name = base_name(link);
  return name.substr(1, name.find(mark, 1) - 1);
}

bool is_hard_link(const std::string& link) noexcept {
  const auto name = link.find_last_of('/') + 1;
  return link[name] == '.' && link.find(mark, name + 1) != std::string::npos;
}

std::string give_hard_link(SharedState& shared_state, const std::string& path, const std::string& name,
                           const std::vector<std::string>& directories) {
  const auto say = [&shared_state](const std::string& link) {
    if (link == shared_state.link) return;
    std::memcpy(shared_state.link, link.c_str(), link.size() + 1);
    shared_state.seal = seal_of(shared_state);
  };
  for (const auto& directory : directories) {
    auto link = directory + name;
    if (link.size() >= sizeof shared_state.link) continue;
    say(link);
    if (link_in(path, link, directory)) return link;
    if (is_own_directory(directory)) (void)::rmdir(directory.c_str());
  }
  say(path);
  return path;
}

std::string without_last_links(std::string path) {
  constexpr int links_max = 40;  // as many as the kernel follows
  char target[PATH_MAX];
  for (int i = 0; i < links_max; ++i) {
    const auto n = ::readlink(path.c_str(), target, sizeof target);
    if (n <= 0 || static_cast<std::size_t>(n) == sizeof target) break;
    const std::string to(target, static_cast<std::size_t>(n));
    path = to.starts_with('/') ? to : directory_of(path) + to;
  }
  return path;
}

DirectoryId DirectoryId::of(const std::string& path) {
  struct stat st {};
  if (::stat(directory_of(without_last_links(path)).c_str(), &st) != 0) return {};
  return {st.st_dev, st.st_ino};
}

DirectoryId DirectoryId::in(const SharedState& shared_state) noexcept {
  return {shared_state.directory_device, shared_state.directory_inode};
}

void DirectoryId::keep_in(SharedState& shared_state) const noexcept {
  shared_state.directory_device = device;
  shared_state.directory_inode = inode;
}

FileNames look_for_file(const SharedState& shared_state, const std::string& state_name) noexcept {
  const std::string path = shared_state.path, link = shared_state.link;
  struct stat own {
  }, linked{};
  const auto inode = Stage::inode_in(state_name);
  const bool there = ::stat(path.c_str(), &own) == 0 && own.st_ino == inode;
  if (!is_hard_link(link)) return there ? FileNames::there : FileNames::away;
  // Opened, because a network file system then asks its server how many names there are.
  const int fd = ::open(link.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd >= 0) {
    const bool known = ::fstat(fd, &linked) == 0;
    ::close(fd);
    if (known && linked.st_ino != inode) return there ? FileNames::there : FileNames::away;
    return known && linked.st_nlink == 1 && !there ? FileNames::removed : FileNames::there;
  }
  const bool gone = errno == ENOENT;
  if (there || errno == EACCES || errno == EPERM || errno == EMFILE || errno == ENFILE) return FileNames::there;
  const auto made_in = DirectoryId::in(shared_state);
  const bool seen = gone && made_in != DirectoryId{} && DirectoryId::of(path) == made_in &&
                    is_own_directory(directory_of(link)) && DirectoryId::of(link).device == made_in.device;
  return seen ? FileNames::removed : FileNames::away;
}

Result<void> remove_hard_link(Files& files, const std::string& link) {
  ADVECTIO_TRY(files.remove(link));
  const auto directory = directory_of(link);
  if (!is_own_directory(directory) || ::rmdir(directory.c_str()) == 0) return {};
  // An empty directory harms nobody where the program has taken the right to remove it away.
  const bool may_stay = errno == EACCES || errno == EPERM;
  const bool done = errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST;
  return may_stay || done ? Result<void>{} : system_error("remove " + directory, errno);
}

Result<void> make_file_names_durable(Files& files, const std::string& path, const std::string& link) {
  // The link last: a file that is found by it then has its own name.
  const auto own = directory_of(path), directory = directory_of(link);
  ADVECTIO_TRY(make_names_durable(files, own));
  if (is_own_directory(directory)) ADVECTIO_TRY(make_names_durable(files, above(directory)));
  return own == directory ? Result<void>{} : make_names_durable(files, directory);
}

}  // namespace advectio::journal
