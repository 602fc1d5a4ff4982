// Names that are held back (journal/markers.h), as this process makes them or looks at them, for plain_files.cpp.
//
// A call that makes a marker goes to its held name, if the run has closed or synced something that is not in its file
// yet. So does a rename of a file that is closed and in flight, and a link to it. Later calls on the name go there,
// too, until the server has given it its own: for the programs of the run it is there at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "journal/markers.h"

namespace advectio::capture {

/// One call on a name that may be a marker. While it lives, and the name is held, it has the lock of the notes.
class MarkerCall {
 public:
  enum class Use : std::uint8_t {
    look,     ///< the call makes nothing and means the name itself: lstat, link
    read,     ///< makes nothing, and means what a symbolic link leads to: stat, open to read
    write,    ///< opens it, or what a symbolic link leads to, to write, and keeps what is in it
    replace,  ///< makes it anew: open with O_TRUNC, likewise; rename to it
    make,     ///< fails where it is there: link, symlink, open with O_EXCL
    remove,   ///< takes the name away: unlink, rename from it
    wait,     ///< makes what cannot be held, a directory: waits until the files are visible
  };
  MarkerCall() = default;
  /// `path` as the program gave it. Use::wait blocks until the files of the run are visible; so do others where a name
  /// cannot be held, which one line of log says.
  MarkerCall(const std::string& path, Use use);
  /// The name that a file gets which is there: by a rename (Use::replace), or by a link and a rename that replaces
  /// nothing (Use::make). `from`: the call's other name, that of the file; `source`: its path as the program gave it.
  MarkerCall(const std::string& path, Use use, const MarkerCall& from, const std::string& source);
  ~MarkerCall();
  MarkerCall(MarkerCall&&) noexcept = default;
  MarkerCall& operator=(MarkerCall&&) = delete;

  /// The path for the call; empty: the name that the program gave.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  bool take_notes(const std::string& path, Use use);
  bool look_up(const std::string& path);
  void go_there(Use use);
  void hold_marker(const std::string& path, Use use);
  void hold_renamed(const std::string& path, Use use, const journal::Awaited& file);
  void do_without(const std::string& path, const Error& why);

  std::shared_ptr<const journal::Markers> notes_;
  std::optional<journal::Marker> marker_;
  std::string path_;
  bool removes_ = false;
};

/// A rename(2) that may move a directory. The notes of names that are held back in it go along.
class DirectoryMove {
 public:
  /// Paths from the root, before the call.
  DirectoryMove(const std::string& from, const std::string& to);
  /// The call has succeeded.
  void done() const;

 private:
  std::shared_ptr<const journal::Markers> notes_;  ///< null: nothing to do
  std::string from_, to_;                          ///< "/a/b/"
};

/// Some file of the run was renamed, and has yet to get its name.
bool any_file_held();
/// The path that programs call what is held back as `held`; empty: nothing is.
std::string own_name(const std::string& held);
/// The path of the file that programs call `path`: its held name if it was renamed and is in flight, else `path`.
std::string present_path(const std::string& path);

}  // namespace advectio::capture
