// Files and shared memory as the rest of Advectio sees them. One small interface, with a faulty twin
// (faulty_files.h) that fails on demand, so that tests can fill the disk or cut a write wherever they like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace advectio {

/// One open file. Offsets are explicit, so that one File may be used by several threads. Whole reads and writes:
/// short ones are continued inside. Closed by the destructor.
class File {
 public:
  virtual ~File() = default;
  virtual Result<void> write(std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Reads exactly data.size() bytes. Error Code::io with sys 0 where the file ends before.
  virtual Result<void> read(std::uint64_t offset, std::span<std::byte> data) = 0;
  virtual Result<std::uint64_t> size() = 0;
  virtual Result<void> resize(std::uint64_t bytes) = 0;
  /// Reserve real space for [0, bytes), so that touching a mapping of it cannot fail later.
  virtual Result<void> reserve(std::uint64_t bytes) = 0;
  /// Data (and size) survive a loss of power on return.
  virtual Result<void> sync() = 0;
  [[nodiscard]] virtual int descriptor() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
};

/// A shared mapping of a file. Unmapped by the destructor; the file may be closed or removed before.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }
  /// Enter the page-table entries for the range now, so that its first use does not fault. Best effort. `for_writing`:
  /// for pages that do not exist yet, or whose first write a disk's file system wants to know of; pages of memory that
  /// exist are entered writable either way, six times as fast without. `gives_way`, of what is populated for
  /// writing: whoever wants the core comes first.
  void populate(bool for_writing, bool gives_way = false) const noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

enum class OpenMode : std::uint8_t {
  read,        ///< must exist
  read_write,  ///< must exist
  create,      ///< create, or empty what is there (the inode stays)
  create_new,  ///< must not exist
};

class Files {
 public:
  virtual ~Files() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, unsigned permissions = 0644) = 0;
  virtual Result<Mapping> map(File& file, std::size_t bytes, bool writable) = 0;
  virtual Result<void> make_directory(const std::string& path,
                                      unsigned permissions = 0700) = 0;  ///< with parents; ok when it exists
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<void> link(const std::string& from, const std::string& to) = 0;
  virtual Result<void> remove(const std::string& path) = 0;  ///< ok when it is not there
  virtual bool exists(const std::string& path) = 0;
  /// Names (not paths) in a directory, sorted; without "." and "..".
  virtual Result<std::vector<std::string>> list(const std::string& directory) = 0;
  /// Bytes a user may still write on the file system of `path`.
  virtual Result<std::uint64_t> free_bytes(const std::string& path) = 0;
};

/// The system's files.
Files& system_files();

/// How many descriptors this process has open, those of libraries included. Any thread. Takes 1 to
/// 3 µs since Linux 6.2; before, it counts them ten times a second at most, which takes 0.6 ms for
/// 1,000.
std::uint64_t descriptors_held() noexcept;
/// How many it may have open.
std::uint64_t descriptors_max() noexcept;

/// This process holds less than an eighth of the descriptors that it may have: more may be kept open for long.
bool has_descriptors_to_spare() noexcept;

/// Read a whole (small) file.
Result<std::vector<std::byte>> read_file(Files& files, const std::string& path);

/// On return a loss of power does not change the file (of a directory: its names). Waits some seconds where this
/// process has too many files open.
Result<void> make_durable(Files& files, const std::string& path);

/// The names in a directory survive a loss of power on return. Ok where the directory has gone, and its names with it.
Result<void> make_names_durable(Files& files, const std::string& directory);

/// With the slash at its end; empty: the present one.
std::string directory_of(const std::string& path);

/// Put a whole (small) file in place in one step: readers see the old bytes or the new ones. `durable`: so does whoever
/// comes after a loss of power.
Result<void> replace_file(Files& files, const std::string& path, std::span<const std::byte> bytes,
                          bool durable = false);

}  // namespace advectio
