// A call on a path, as open(2) or stat(2), before the C library gets it: it waits for a file in flight, or
// go to the place of a coupled file. One place for all such calls; plain_files.cpp has the calls themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "capture/coupling.h"

namespace advectio::capture {

/// Marks this thread as being in our own code, whose calls pass through.
class Inside {
 public:
  Inside() noexcept;
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  bool before_;
};

/// The call, from that address, is the program's or a library's, and concerns this run. Null: it is ours.
bool is_of_program(const void* caller, const char* path);

/// `path` from the root, of a call like openat(2). Empty: the directory is not known.
std::string from_root(int directory, const char* path);

/// The program's use of a path.
struct Use {
  enum class Kind : std::uint8_t {
    nothing,
    read,
    write,
    look,
    look_at_name,  ///< and not at what a symbolic link leads to
    change,        ///< its times or permissions
    change_name,
  };
  Kind kind = Kind::nothing;
  workflow::Workflow::PlainOpen how;  ///< to write

  static Use of_flags(int flags);        ///< of open(2)
  static Use of_mode(const char* mode);  ///< of fopen(3)
  static Use of_look(int flags);         ///< of fstatat(2)
  static Use of_change(int flags);       ///< of fchmodat(2)
  [[nodiscard]] bool looks() const { return kind != Kind::read && kind != Kind::write; }
  [[nodiscard]] bool changes() const { return kind == Kind::change || kind == Kind::change_name; }
  /// A symbolic link is meant itself.
  [[nodiscard]] bool means_name() const {
    return kind == Kind::look_at_name || kind == Kind::change_name || (kind == Kind::write && how.exclusive);
  }
};

/// The path for the C library, for as long as a call takes.
class Path {
 public:
  Path(int directory, const char* path, Use use, const void* caller);
  ~Path();
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  /// False: the call fails, and errno says why.
  explicit operator bool() const { return failed_ == 0; }
  [[nodiscard]] const char* get() const { return coupled_ ? held_.path.c_str() : path_; }
  /// The call has looked at a version that was replaced meanwhile: it shall be made again.
  bool look_again() noexcept;

 private:
  void find_coupled();
  void open_to_write(const workflow::Coupled& file);
  void note(const Error& error);

  const char* path_;
  const int directory_;
  const Use use_;
  unsigned looks_ = 0;
  workflow::Opened held_;
  std::optional<workflow::Turn> turn_;  ///< others do not publish the file before it is open
  bool coupled_ = false;
  bool waited_ = false;
  int failed_ = 0;
};

/// The program removes a file that is in memory.
bool removes_coupled(int directory, const char* path, const void* caller);

}  // namespace advectio::capture
