// A file, or the directory of a Zarr store or a BP file, that is at its path only when it is complete: until then it
// has another name beside it.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "platform/files.h"

namespace advectio {

class NewFile {
 public:
  /// Errors: Code::exists where there is something at `path` and it is not to be replaced, or cannot be: a directory is
  /// replaced only where it is a Zarr store or a BP file, and another directory takes its place.
  static Result<void> check(Files& files, const std::string& path, bool replace, bool directory = false);

  /// Errors: as `check`; Code::exists, too, where somebody else is making it. What a killed process has left is taken
  /// over. `maker` is a part of the other name.
  static Result<std::unique_ptr<NewFile>> begin(Files& files, const std::string& path, bool replace,
                                                const std::string& maker = "join", bool directory = false);
  /// Removes what was not finished.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Where to write. The file or directory is there, and empty.
  [[nodiscard]] const std::string& path() const noexcept { return temporary_; }

  /// Its content is on disk already; now it is at its path, for good.
  Result<void> finish();

 private:
  NewFile(Files& files, std::string path, bool replace, const std::string& maker, bool directory);
  Result<void> take();
  Result<void> empty_directory();
  Result<void> finish_directory();

  Files& files_;
  std::string path_, directory_, temporary_;
  bool replace_, is_directory_;
  std::unique_ptr<File> file_;  // holds the lock
  int lock_ = -1;               // the same of a directory
};

}  // namespace advectio
