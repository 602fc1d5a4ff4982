#include "workflow/pending.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace advectio::workflow {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view plain = ".plain-", moved = ".moved", moved_open = ".moved-open";

/// For file systems without leases: a look at all descriptors of this user's processes.
bool a_process_writes(const struct stat& file) {
  std::error_code failed;
  for (auto process = fs::directory_iterator("/proc", failed); !failed && process != fs::directory_iterator();
       process.increment(failed)) {
    if (std::strtol(process->path().filename().c_str(), nullptr, 10) <= 0) continue;
    std::error_code none;
    for (auto fd = fs::directory_iterator(process->path() / "fd", none); !none && fd != fs::directory_iterator();
         fd.increment(none)) {
      struct stat st {};
      if (::stat(fd->path().c_str(), &st) != 0 || st.st_dev != file.st_dev || st.st_ino != file.st_ino) continue;
      std::ifstream info(process->path() / "fdinfo" / fd->path().filename());
      for (std::string key, value; info >> key >> value;)
        if (key == "flags:" && (std::strtol(value.c_str(), nullptr, 8) & O_ACCMODE) != O_RDONLY) return true;
    }
  }
  return false;
}

bool same_bytes(const std::string& a, const std::string& b) {
  std::ifstream one(a, std::ios::binary), other(b, std::ios::binary);
  std::array<char, 1U << 16U> left{}, right{};
  while (one && other) {
    one.read(left.data(), left.size());
    other.read(right.data(), right.size());
    if (one.gcount() != other.gcount() ||
        std::memcmp(left.data(), right.data(), static_cast<std::size_t>(one.gcount())) != 0)
      return false;
  }
  return one.eof() && other.eof();
}

}  // namespace

std::optional<Pending> Pending::of(const std::string& entry) {
  const auto comma = entry.find(',');
  if (comma == std::string::npos) return std::nullopt;
  if (entry.ends_with(moved)) return Pending{Kind::moved, 0};
  if (entry.ends_with(moved_open)) return Pending{Kind::moved_open, 0};
  const auto at = entry.find(plain, comma);
  if (at == std::string::npos) return std::nullopt;
  Pending found;
  const auto* const end = entry.data() + entry.size();
  const auto read = std::from_chars(entry.data() + at + plain.size(), end, found.before_ns);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return found;
}

std::string Pending::suffix() const {
  if (kind == Kind::plain) return std::string(plain) + std::to_string(before_ns);
  return std::string(kind == Kind::moved ? moved : moved_open);
}

bool is_open_for_writing(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  // A lease to read is refused while the file is open for writing. Where somebody opens it now, the signal is one that
  // processes do not hear by default; SIGIO would end them.
  (void)::fcntl(fd, F_SETSIG, SIGURG);
  bool busy = false;
  if (::fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
    (void)::fcntl(fd, F_SETLEASE, F_UNLCK);
  } else if (errno == EAGAIN) {
    busy = true;
  } else {
    struct stat st {};
    busy = ::fstat(fd, &st) == 0 && a_process_writes(st);
  }
  ::close(fd);
  return busy;
}

std::uint64_t changed_ns(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return 0;
  const auto seconds = static_cast<std::uint64_t>(st.st_mtim.tv_sec);
  return std::max<std::uint64_t>(seconds * 1'000'000'000U + static_cast<std::uint64_t>(st.st_mtim.tv_nsec), 1);
}

Result<Settled> settle(const std::string& entry, Becomes becomes, const std::string& writer) {
  const auto name = entry.rfind('/') + 1;
  const auto directory = entry.substr(0, name - 1);
  const auto pending = Pending::of(entry.substr(name));
  if (!pending) return Settled::no_more;
  const Turn turn(directory);
  char target[PATH_MAX];
  const auto bytes = ::readlink(entry.c_str(), target, sizeof target);
  if (bytes < 0 && errno != EINVAL) return Settled::no_more;
  const bool on_disk = bytes > 0;
  const auto file = on_disk ? std::string(target, static_cast<std::size_t>(bytes)) : entry;
  const auto forget = [&entry] { (void)::unlink(entry.c_str()); };
  const auto now_ns = changed_ns(file);
  if (now_ns == 0) {  // it could not be opened, or has been removed since
    forget();
    return Settled::no_more;
  }
  if (is_open_for_writing(file)) return Settled::busy;
  // A file that was mapped may have changed in memory without a new time.
  const auto newest = Versions::in(directory);
  if (pending->before_ns != 0 && now_ns == pending->before_ns && newest.newest > 0 &&
      (on_disk || same_bytes(file, directory + "/" + newest.name))) {
    forget();
    return Settled::no_more;
  }
  auto version = entry;
  if (on_disk && becomes != Becomes::link) {
    version = temporary(directory);
    auto copied = copy_file(file, version);
    if (copied) copied = copy_attributes(file, version);
    if (copied && becomes == Becomes::copy) copied = note_made(version, now_ns);
    if (copied && becomes == Becomes::copy) copied = note_disk(directory, file, now_ns);
    if (!copied) (void)::unlink(version.c_str());
    if (!copied) return std::move(copied).error();
  }
  auto done = publish(turn, version, writer);
  if (!done) return std::move(done).error();
  if (version != entry) forget();
  if (on_disk && becomes == Becomes::memory) (void)::unlink(file.c_str());
  return Settled::no_more;
}

}  // namespace advectio::workflow
