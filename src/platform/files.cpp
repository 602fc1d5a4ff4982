#include "platform/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <utility>

#ifndef MADV_POPULATE_WRITE  // Linux 5.14; glibc 2.36 has it, older headers do not
#define MADV_POPULATE_WRITE 23
#endif

namespace advectio {

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void Mapping::populate(bool for_writing, bool gives_way) const noexcept {
  if (!for_writing) {
    // Faults bring in what is around them, and hold up nobody.
    constexpr std::size_t page = 4096;
    for (std::size_t at = 0; data_ != nullptr && at < bytes_; at += page)
      (void)*static_cast<const volatile std::byte*>(data_ + at);
    return;
  }
  // In pieces: while one is populated, every mmap, munmap and brk of the whole process waits, the program's too. With
  // more threads than cores also for as long as this one is not on a core, if it has lost that in the midst of a piece;
  // so let it lose it between two.
  constexpr std::size_t piece = 512 * 1024;
  for (std::size_t at = 0; data_ != nullptr && at < bytes_; at += piece) {
    (void)::madvise(data_ + at, std::min(piece, bytes_ - at), MADV_POPULATE_WRITE);
    if (gives_way && at + piece < bytes_) ::sched_yield();
  }
}

namespace {

/// Bytes of one system call. For larger ones ext4 (Linux 6.18) looks for larger pieces of memory. Where
/// those are rare, it takes up to ten times as long. Smaller ones cost more calls.
constexpr std::size_t write_bytes_max = 256U << 10U;

constinit std::atomic<std::uint64_t> open_files{0};  // through `system_files`

class SystemFile final : public File {
 public:
  SystemFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) { ++open_files; }
  ~SystemFile() override {
    ::close(fd_);
    --open_files;
  }
  SystemFile(const SystemFile&) = delete;
  SystemFile& operator=(const SystemFile&) = delete;

  Result<void> write(std::uint64_t offset, std::span<const std::byte> data) override {
    while (!data.empty()) {
      const auto n = ::pwrite(fd_, data.data(), std::min(data.size(), write_bytes_max), static_cast<off_t>(offset));
      if (n < 0) {
        if (errno == EINTR) continue;
        return system_error("write " + std::to_string(data.size()) + " bytes to " + path_, errno);
      }
      offset += static_cast<std::uint64_t>(n);
      data = data.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<void> read(std::uint64_t offset, std::span<std::byte> data) override {
    while (!data.empty()) {
      const auto n = ::pread(fd_, data.data(), data.size(), static_cast<off_t>(offset));
      if (n < 0) {
        if (errno == EINTR) continue;
        return system_error("read " + path_, errno);
      }
      if (n == 0) return Error{Code::io, "read " + path_ + ": the file ends at byte " + std::to_string(offset), 0};
      offset += static_cast<std::uint64_t>(n);
      data = data.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<std::uint64_t> size() override {
    struct stat st {};
    if (::fstat(fd_, &st) != 0) return system_error("stat " + path_, errno);
    return static_cast<std::uint64_t>(st.st_size);
  }

  Result<void> resize(std::uint64_t bytes) override {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return system_error("resize " + path_, errno);
    return {};
  }

  Result<void> reserve(std::uint64_t bytes) override {
    if (const int e = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes)); e != 0)
      return system_error("reserve " + std::to_string(bytes) + " bytes for " + path_, e);
    return {};
  }

  Result<void> sync() override {
    if (::fdatasync(fd_) != 0) return system_error("fdatasync " + path_, errno);
    return {};
  }

  [[nodiscard]] int descriptor() const noexcept override { return fd_; }
  [[nodiscard]] const std::string& path() const noexcept override { return path_; }

 private:
  int fd_;
  std::string path_;
};

class SystemFiles final : public Files {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, unsigned permissions) override {
    int flags = O_CLOEXEC;
    switch (mode) {
      case OpenMode::read: flags |= O_RDONLY; break;
      case OpenMode::read_write: flags |= O_RDWR; break;
      case OpenMode::create: flags |= O_RDWR | O_CREAT | O_TRUNC; break;
      case OpenMode::create_new: flags |= O_RDWR | O_CREAT | O_EXCL; break;
    }
    const int fd = ::open(path.c_str(), flags, permissions);
    if (fd < 0) return system_error("open " + path, errno);
    return std::unique_ptr<File>(std::make_unique<SystemFile>(fd, path));
  }

  Result<Mapping> map(File& file, std::size_t bytes, bool writable) override {
    void* p = ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (p == MAP_FAILED) return system_error("map " + file.path(), errno);
    return Mapping(static_cast<std::byte*>(p), bytes);
  }

  Result<void> make_directory(const std::string& path, unsigned permissions) override {
    if (::mkdir(path.c_str(), permissions) == 0 || errno == EEXIST) return {};
    if (errno == ENOENT) {
      const auto slash = path.find_last_of('/');
      if (slash != std::string::npos && slash > 0) {
        ADVECTIO_TRY(make_directory(path.substr(0, slash), permissions));
        if (::mkdir(path.c_str(), permissions) == 0 || errno == EEXIST) return {};
      }
    }
    return system_error("make directory " + path, errno);
  }

  Result<void> rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error("rename " + from + " to " + to, errno);
    return {};
  }

  Result<void> link(const std::string& from, const std::string& to) override {
    if (::link(from.c_str(), to.c_str()) != 0) return system_error("link " + from + " to " + to, errno);
    return {};
  }

  Result<void> remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error("remove " + path, errno);
    return {};
  }

  bool exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  Result<std::vector<std::string>> list(const std::string& directory) override {
    DIR* d = ::opendir(directory.c_str());
    if (d == nullptr) return system_error("list " + directory, errno);
    std::vector<std::string> names;
    while (const dirent* e = ::readdir(d)) {
      const std::string name = e->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    ::closedir(d);
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<std::uint64_t> free_bytes(const std::string& path) override {
    struct statvfs s {};
    if (::statvfs(path.c_str(), &s) != 0) return system_error("statvfs " + path, errno);
    return static_cast<std::uint64_t>(s.f_bavail) * s.f_frsize;
  }
};

}  // namespace

Files& system_files() {
  // Never destroyed: the journal's thread uses it to the very end of a process, when statics are gone.
  static Files& files = *new SystemFiles;
  return files;
}

std::uint64_t descriptors_held() noexcept {
  struct stat now {};
  if (::stat("/proc/self/fd", &now) != 0) return open_files.load();
  if (now.st_size > 0) return static_cast<std::uint64_t>(now.st_size);  // since Linux 6.2
  // Counted ten times a second at most. Files of `system_files` that were opened since then are added.
  constexpr auto counts_for = std::chrono::milliseconds(100);
  static std::mutex mutex;
  static std::chrono::steady_clock::time_point counted_at;
  static std::uint64_t counted = 0, open_then = 0;
  const std::lock_guard guard(mutex);
  const auto at = std::chrono::steady_clock::now();
  if (counted == 0 || at - counted_at > counts_for) {
    DIR* const all = ::opendir("/proc/self/fd");
    if (all == nullptr) return descriptors_max();  // none is left
    constexpr std::uint64_t not_held = 3;          // ".", "..", and the one that reads this
    for (counted = 0; ::readdir(all) != nullptr;) ++counted;
    counted -= std::min(counted, not_held);
    ::closedir(all);
    open_then = open_files.load();
    counted_at = at;
  }
  const auto open = open_files.load();
  return open > open_then ? counted + (open - open_then) : counted - std::min(counted, open_then - open);
}

std::uint64_t descriptors_max() noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

bool has_descriptors_to_spare() noexcept {
  return descriptors_held() < descriptors_max() / 8;
}

Result<std::vector<std::byte>> read_file(Files& files, const std::string& path) {
  auto file = files.open(path, OpenMode::read);
  if (!file) return std::move(file).error();
  auto size = (*file)->size();
  if (!size) return std::move(size).error();
  std::vector<std::byte> bytes(*size);
  ADVECTIO_TRY((*file)->read(0, bytes));
  return bytes;
}

Result<void> make_durable(Files& files, const std::string& path) {
  constexpr int tries = 250;
  auto file = files.open(path, OpenMode::read);
  for (int i = 0; !file && (file.error().sys == EMFILE || file.error().sys == ENFILE) && i < tries; ++i) {
    ::usleep(20'000);
    file = files.open(path, OpenMode::read);
  }
  if (!file) return std::move(file).error();
  return (*file)->sync();
}

Result<void> make_names_durable(Files& files, const std::string& directory) {
  auto done = make_durable(files, directory);
  if (!done && done.error().code == Code::not_found) return {};
  return done;
}

std::string directory_of(const std::string& path) {
  return path.substr(0, path.find_last_of('/') + 1);
}

Result<void> replace_file(Files& files, const std::string& path, std::span<const std::byte> bytes, bool durable) {
  const std::string next = path + ".next";
  {
    auto file = files.open(next, OpenMode::create, 0600);
    if (!file) return std::move(file).error();
    ADVECTIO_TRY((*file)->write(0, bytes));
    if (durable) ADVECTIO_TRY((*file)->sync());
  }
  ADVECTIO_TRY(files.rename(next, path));
  return durable ? make_durable(files, directory_of(path)) : Result<void>{};
}

}  // namespace advectio
