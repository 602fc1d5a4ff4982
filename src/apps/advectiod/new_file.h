// A file that is at its path only when it is complete: until then it has another name beside it.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "platform/files.h"

namespace advectio {

class NewFile {
 public:
  /// Errors: Code::exists where there is a file at `path` and it is not to be replaced, or where somebody else is
  /// making it. What a killed process has left is taken over. `maker` is a part of the other name.
  static Result<std::unique_ptr<NewFile>> begin(Files& files, const std::string& path, bool replace,
                                                const std::string& maker = "join");
  /// Removes what was not finished.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Where to write. The file is there, and empty.
  [[nodiscard]] const std::string& path() const noexcept { return temporary_; }

  /// Its content is on disk already; now it is at its path, for good.
  Result<void> finish();

 private:
  NewFile(Files& files, std::string path, bool replace, const std::string& maker);
  Result<void> take();

  Files& files_;
  std::string path_, directory_, temporary_;
  bool replace_;
  std::unique_ptr<File> file_;  // holds the lock
};

}  // namespace advectio
