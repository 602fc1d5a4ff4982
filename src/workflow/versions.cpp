#include "workflow/versions.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "platform/files.h"

namespace advectio::workflow {
namespace {

/// The number in the name of a version; 0: it is none.
std::uint64_t number_of(const std::string& name) {
  const auto dot = name.find('.');
  if (dot == std::string::npos || dot < 6) return 0;
  const bool digits = std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(dot),
                                  [](char c) { return c >= '0' && c <= '9'; });
  return digits ? std::strtoull(name.c_str(), nullptr, 10) : 0;
}

std::string version_name(std::uint64_t number, const std::string& writer) {
  char text[24];
  std::snprintf(text, sizeof text, "%06llu.", static_cast<unsigned long long>(number));
  return text + writer;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), &::closedir);
  while (open != nullptr) {
    const auto* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    names.emplace_back(static_cast<const char*>(entry->d_name));
  }
  return names;
}

void remove_older(const std::string& directory, const std::string& version) {
  for (const auto& name : names_in(directory))
    if (number_of(name) > 0 && is_newer(version, name)) (void)::unlink((directory + "/" + name).c_str());
}

Versions read_once(const std::string& directory) {
  Versions found;
  std::vector<std::string> marks;
  for (auto& name : names_in(directory)) {
    if (is_newer(name, found.name)) {
      found.newest = number_of(name);
      found.writer = name.substr(name.find('.') + 1);
      found.name = std::move(name);
    } else if (name.starts_with("writing.")) {
      found.writing.push_back(std::move(name));
    } else if (name.starts_with("closed.")) {
      marks.push_back(std::move(name));
    }
  }
  std::sort(found.writing.begin(), found.writing.end());
  std::copy_if(found.writing.begin(), found.writing.end(), std::back_inserter(found.closed), [&](const auto& entry) {
    return std::find(marks.begin(), marks.end(), closed_mark(entry)) != marks.end();
  });
  return found;
}

}  // namespace

Turn::Turn(const std::string& directory) : fd_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

void Turn::end() {
  if (fd_ < 0) return;
  // A process that was forked meanwhile has the descriptor, too: closing would not end the lock.
  (void)::flock(fd_, LOCK_UN);
  ::close(std::exchange(fd_, -1));
}

std::string temporary(const std::string& directory) {
  static std::atomic<unsigned> count{0};
  return directory + "/new." + std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1));
}

bool is_newer(const std::string& name, const std::string& than) {
  const auto number = number_of(name), other = number_of(than);
  return number > other || (number == other && number > 0 && name > than);
}

std::optional<Elsewhere> elsewhere(const std::string& version) {
  char target[PATH_MAX];
  const auto bytes = ::readlink(version.c_str(), target, sizeof target - 1);
  if (bytes < 2 || target[0] != of_node) return std::nullopt;
  const std::string text(target + 1, static_cast<std::size_t>(bytes) - 1);
  const auto slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  return Elsewhere{text.substr(0, slash), std::strtoull(text.c_str() + slash + 1, nullptr, 10)};
}

std::string to_target(const Elsewhere& there) {
  return of_node + there.node + "/" + std::to_string(there.bytes);
}

Result<bool> note_version(const std::string& directory, const std::string& name, const std::string& target) {
  const Turn turn(directory);
  if (!is_newer(name, Versions::in(directory).name)) return false;
  const auto link = temporary(directory);
  if (::symlink(target.c_str(), link.c_str()) != 0) return system_error("link " + link, errno);
  if (::rename(link.c_str(), (directory + "/" + name).c_str()) != 0) return system_error("note " + name, errno);
  remove_older(directory, name);
  return true;
}

Result<void> take_in(const std::string& bytes, const std::string& version) {
  const Turn turn(version.substr(0, version.rfind('/')));
  if (!elsewhere(version)) {
    (void)::unlink(bytes.c_str());
    return {};
  }
  if (::rename(bytes.c_str(), version.c_str()) != 0) return system_error("take in " + version, errno);
  return {};
}

Versions Versions::in(const std::string& directory) {
  auto found = read_once(directory);
  for (;;) {
    auto again = read_once(directory);
    if (again == found) return found;
    found = std::move(again);
  }
}

bool Versions::is_closed(const std::string& entry) const {
  return std::find(closed.begin(), closed.end(), entry) != closed.end();
}

Result<std::uint64_t> publish(const std::string& entry, const std::string& writer) {
  const Turn turn(entry.substr(0, entry.rfind('/')));
  return publish(turn, entry, writer);
}

Result<std::uint64_t> publish(const Turn& /*turn*/, const std::string& entry, const std::string& writer) {
  const auto directory = entry.substr(0, entry.rfind('/'));
  const auto number = Versions::in(directory).newest + 1;
  const auto version = directory + "/" + version_name(number, writer);
  if (::rename(entry.c_str(), version.c_str()) != 0) {
    if (errno == ENOENT) return std::uint64_t{0};
    return system_error("publish " + version, errno);
  }
  (void)::unlink(closed_mark(entry).c_str());
  remove_older(directory, version.substr(directory.size() + 1));
  return number;
}

namespace {

/// A file as it is: which, how long, and when it was changed. Empty: there is none.
std::string state_of(const std::string& file) {
  struct stat st {};
  if (::stat(file.c_str(), &st) != 0) return {};
  std::string text;
  for (const auto part : {static_cast<std::uint64_t>(st.st_dev), static_cast<std::uint64_t>(st.st_ino),
                          static_cast<std::uint64_t>(st.st_size), static_cast<std::uint64_t>(st.st_mtim.tv_sec),
                          static_cast<std::uint64_t>(st.st_mtim.tv_nsec)})
    text += ' ' + std::to_string(part);
  return text;
}

std::uint64_t inode_of(const std::string& file) {
  struct stat st {};
  return ::stat(file.c_str(), &st) == 0 ? st.st_ino : 0;
}

std::string text_at(const std::string& path) {
  const auto text = read_file(system_files(), path);
  return text ? std::string(reinterpret_cast<const char*>(text->data()), text->size()) : std::string();
}

}  // namespace

Result<void> note_made(const std::string& file, std::uint64_t dataset) {
  const auto text = std::to_string(dataset) + ' ' + std::to_string(inode_of(file));
  return replace_file(system_files(), file.substr(0, file.rfind('/')) + "/made", std::as_bytes(std::span(text)));
}

Result<void> note_disk(const std::string& directory, const std::string& file, std::uint64_t dataset) {
  const auto text = std::to_string(dataset) + state_of(file);
  return replace_file(system_files(), directory + "/disk", std::as_bytes(std::span(text)));
}

OnDisk on_disk(const std::string& directory, const std::string& version, const std::string& file) {
  const auto made = text_at(directory + "/made");
  const auto dataset = made.substr(0, made.find(' '));
  if (made != dataset + ' ' + std::to_string(inode_of(version))) return OnDisk::other;
  const auto disk = text_at(directory + "/disk");
  if (!disk.starts_with(dataset + ' ')) return OnDisk::not_yet;
  return disk == dataset + state_of(file) ? OnDisk::same : OnDisk::other;
}

std::string closed_mark(const std::string& entry) {
  const auto name = entry.rfind('/') + 1;
  constexpr std::string_view kind = "writing.";
  if (entry.compare(name, kind.size(), kind) != 0) return entry + ".closed";
  return entry.substr(0, name) + "closed." + entry.substr(name + kind.size());
}

Result<std::uint64_t> publish_copy(const std::string& file, const std::string& directory, const std::string& writer) {
  const auto copy = temporary(directory);
  if (auto done = copy_file(file, copy); !done) {
    (void)::unlink(copy.c_str());
    return std::move(done).error();
  }
  return publish(copy, writer);
}

Result<std::uint64_t> publish_link(const std::string& file, const std::string& directory, const std::string& writer) {
  const auto link = temporary(directory);
  if (::symlink(file.c_str(), link.c_str()) != 0) return system_error("link " + link, errno);
  return publish(link, writer);
}

Result<std::string> hold(const std::string& path, const std::string& as) {
  char target[PATH_MAX];
  if (const auto bytes = ::readlink(path.c_str(), target, sizeof target); bytes > 0)
    return std::string(target, static_cast<std::size_t>(bytes));
  if (::link(path.c_str(), as.c_str()) != 0) {
    if (errno == ENOENT) return Error{Code::not_found, path + " has been replaced", ENOENT};
    return system_error("link " + as, errno);
  }
  return as;
}

Result<void> copy_file(const std::string& from, const std::string& to) {
  const int in = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0) return system_error("open " + from, errno);
  const int out = ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  Result<void> done = out < 0 ? system_error("create " + to, errno) : Result<void>{};
  for (bool within = true; done;) {
    constexpr std::size_t at_once = 1UL << 30;
    const auto bytes = within ? ::copy_file_range(in, nullptr, out, nullptr, at_once, 0)  // may share what it copies
                              : ::sendfile(out, in, nullptr, at_once);
    if (bytes == 0) break;
    if (bytes < 0 && std::exchange(within, false)) continue;  // between two file systems
    if (bytes < 0 && errno != EINTR) done = system_error("copy " + from + " to " + to, errno);
  }
  if (out >= 0 && ::close(out) != 0 && done) done = system_error("write " + to, errno);
  ::close(in);
  return done;
}

Result<void> copy_attributes(const std::string& from, const std::string& to) {
  struct stat st {};
  const auto has = [&] {
    const timespec times[2] = {st.st_atim, st.st_mtim};
    return ::chmod(to.c_str(), st.st_mode & 07777U) == 0 && ::utimensat(AT_FDCWD, to.c_str(), times, 0) == 0;
  };
  if (::stat(from.c_str(), &st) != 0 || !has()) return system_error("permissions and times of " + to, errno);
  return {};
}

Result<void> replace_by_copy(const std::string& from, const std::string& to) {
  const auto slash = to.rfind('/');
  const auto copy = to.substr(0, slash + 1) + ".advectio-" + to.substr(slash + 1) + "." + std::to_string(::getpid());
  (void)::unlink(copy.c_str());  // of a process that had our number and died
  struct stat st {};
  const auto mode = ::stat(to.c_str(), &st) == 0 ? st.st_mode & 07777U : 0644U;
  auto done = copy_file(from, copy);
  if (done && (::chmod(copy.c_str(), mode) != 0 || ::rename(copy.c_str(), to.c_str()) != 0))
    done = system_error("replace " + to, errno);
  if (!done) (void)::unlink(copy.c_str());
  return done;
}

std::optional<Maker> maker_of(const std::string& entry) {
  // kind.NAME,ID.PID.N; NAME may have dots, ID has none
  const auto begin = entry.find('.');
  const auto comma = entry.find(',', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || comma == std::string::npos) return std::nullopt;
  const auto end = entry.find('.', comma);
  if (end == std::string::npos) return std::nullopt;
  char* after = nullptr;
  const long pid = std::strtol(entry.c_str() + end + 1, &after, 10);
  return Maker{entry.substr(begin + 1, end - begin - 1), pid,
               *after == '.' ? std::strtoull(after + 1, nullptr, 10) : 0};
}

}  // namespace advectio::workflow
