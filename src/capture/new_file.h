// The file that a dataset begins with.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "core/result.h"
#include "journal/run_mark.h"

namespace advectio::capture {

/// The file that is to be created, open to read: who watches a directory for files that were written and closed
/// (inotify, IN_CLOSE_WRITE) shall see it once, when it is complete. It is locked (flock(2)) until `keep`: of several
/// processes that create it at one time one is the first.
class NewFile {
 public:
  /// Makes the file, or takes the one that is there, which is not emptied yet. Waits up to 100 ms for the lock.
  /// `is_free` is asked under the lock; what it refuses belongs to another process, and stays as it is. `anew`: never
  /// the one that is there, which keeps its content for those who have a hard link to it; `path` is no symbolic link.
  static Result<NewFile> take(const std::string& path, bool no_clobber, const std::function<Result<void>()>& is_free,
                              bool anew = false);
  /// False: somebody else holds the lock, such as one who reads the file by HDF5.
  [[nodiscard]] bool is_locked() const { return locked_; }
  /// It may become another inode by that: of a file with several names overlayfs makes a copy.
  Result<void> empty();
  /// Somebody has given it another name.
  void moved_to(const std::string& path) { path_ = path; }
  /// It stays, and the lock goes. The run's mark stays on it.
  [[nodiscard]] journal::RunMark keep();
  [[nodiscard]] const struct stat& stat() const { return stat_; }
  /// Without `keep` a file that was made here is removed: the library creates it then. Not without the lock: another
  /// process may have begun to write it.
  ~NewFile();
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;

 private:
  explicit NewFile(std::string path) : path_(std::move(path)) {}
  Result<void> open(bool no_clobber);
  [[nodiscard]] bool lock() const;
  [[nodiscard]] bool is_at_its_path() const;
  std::string path_;
  int fd_ = -1;
  bool is_new_ = false;
  bool locked_ = false;
  struct stat stat_ {};
};

}  // namespace advectio::capture
