#include "journal/hard_link.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace advectio::journal {
namespace {

constexpr const char* mark = ".advectio-";

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

bool same_file(const std::string& a, const std::string& b) {
  struct stat one {
  }, other{};
  return ::lstat(a.c_str(), &one) == 0 && ::lstat(b.c_str(), &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

bool link_in(const std::string& path, const std::string& link, const std::string& directory) {
  // The server removes the directory when its last link goes, perhaps between the two calls here.
  for (int tries = 0; tries < 100; ++tries) {
    if (is_own_directory(directory) && !make_own_directory(directory)) return false;
    if (::link(path.c_str(), link.c_str()) == 0) return true;
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
  return std::string(".").append(base_name(file)).append(middle).append(suffix);
}

bool is_hard_link(const std::string& link) noexcept {
  const auto name = link.find_last_of('/') + 1;
  return link[name] == '.' && link.find(mark, name) != std::string::npos;
}

std::string give_hard_link(SharedState& shared_state, const std::string& path, const std::string& name,
                           const std::vector<std::string>& directories) noexcept {
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
