// The faulty twin of platform/files.h: a Files that forwards to another one and fails where a test says so.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "platform/files.h"

namespace advectio {

/// What to break. Shared by the test and every file the FaultyFiles has opened; change it at any time.
struct Faults {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t space = never;  ///< bytes that may still be written or reserved; then ENOSPC, after a short write
  std::uint64_t writes_until = never;  ///< this many more writes succeed; then each fails with `write_errno`
  int write_errno = 5;                 ///< EIO
  std::uint64_t syncs_until = never;   ///< the same for File::sync
  std::uint64_t opens_refused = 0;     ///< so many more files cannot be opened: EMFILE
  bool keeps_names = false;            ///< nothing can be removed: EROFS
  std::string only = "";               ///< faults strike only paths that contain this text
  std::uint64_t writes = 0;            ///< counted: all writes asked for
  std::function<void(const char*)> note = nullptr;  ///< hears of each "read" and "write" before it is made
};

/// Not for several threads at once.
class FaultyFiles final : public Files {
 public:
  FaultyFiles(Files& real, std::shared_ptr<Faults> faults) : real_(real), faults_(std::move(faults)) {}

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, unsigned permissions) override;
  Result<Mapping> map(File& file, std::size_t bytes, bool writable) override;
  Result<void> make_directory(const std::string& path, unsigned permissions) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& directory) override;
  Result<std::uint64_t> free_bytes(const std::string& path) override;

 private:
  Files& real_;
  std::shared_ptr<Faults> faults_;
};

}  // namespace advectio
