// While a run writes a file it keeps a mark on it, so that no other run creates or writes it: both would write over
// each other. The mark is a read lock of one byte far behind all data (F_OFD_SETLK). Neither HDF5's locks nor those of
// programs meet it, so readers may read. It is found on the machine, and from other nodes where the file system has
// such locks. A program sets one when it creates a dataset, the server when it has heard of that.
#pragma once

#include <sys/types.h>

#include <string>

namespace advectio::journal {

class RunMark {
 public:
  /// Takes the descriptor. There is no mark where the file system has no such locks.
  static RunMark on(int descriptor) noexcept;
  static RunMark on(const std::string& path) noexcept;
  /// Somebody has a mark on the file, in this process or another.
  static bool is_on(const std::string& path) noexcept;

  RunMark() = default;
  RunMark(RunMark&& other) noexcept;
  RunMark& operator=(RunMark&& other) noexcept;
  ~RunMark() { remove(); }

  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Also of processes that were forked from this one since.
  void remove() noexcept;
  /// In such a process: the mark is the parent's alone from here on.
  void leave_to_parent() noexcept { close(); }

 private:
  [[nodiscard]] bool is_kept() const noexcept;
  void close() noexcept;

  int fd_ = -1;
  // A program may have closed the descriptor, and its number be another file's.
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace advectio::journal
