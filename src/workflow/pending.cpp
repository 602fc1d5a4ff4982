#include "workflow/pending.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fstream>
#include <string_view>

#include "platform/open_for_writing.h"

namespace advectio::workflow {
namespace {

constexpr std::string_view plain = ".plain-", moved = ".moved", moved_open = ".moved-open";

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
