// The file of an output, as the server has found it and has changed it on the disk.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "journal/hard_link.h"
#include "journal/run_mark.h"

namespace advectio {

class FileOnDisk {
 public:
  std::string link;              ///< the hard link by which the server opens it
  journal::DirectoryId made_in;  ///< the directory that held it then

  /// The file may hold commits of an earlier life of its sink.
  [[nodiscard]] bool may_hold_commits() const { return holds_ != Holds::nothing; }
  dev_t system = 0;  ///< that it lies on; known before a sink opens the file

  /// Nobody has opened the file since the power was lost.
  [[nodiscard]] bool power_lost() const { return holds_ == Holds::what_power_left; }
  /// By a sink before the next one.
  void note_commits() {
    if (holds_ == Holds::nothing) holds_ = Holds::commits;
  }
  void lose_power() { holds_ = Holds::what_power_left; }
  /// A sink has opened it: it has repaired what a loss of power may have left.
  void note_opened() {
    if (power_lost()) holds_ = Holds::commits;
  }

  /// A program may make its file read-only while it is written. The server opens the file by its name, so it adds the
  /// owner's permission until the end.
  void lend_permission();
  void give_permission_back();

  /// While the file is written here no other run writes it.
  void mark_as_ours();
  void remove_mark() { mark_.remove(); }

  /// It has got its name, which is to be forced to the disk.
  void note_name() noexcept { names_durable_ = false; }
  /// True the first time: its directory entries are to survive a loss of power, too.
  [[nodiscard]] bool needs_durable_names() { return !std::exchange(names_durable_, true); }

 private:
  enum class Holds : std::uint8_t { nothing, commits, what_power_left };

  Holds holds_ = Holds::nothing;
  mode_t lent_permission_ = 0;
  journal::RunMark mark_;
  bool names_durable_ = false;  ///< asked for
};

/// Raises IN_CLOSE_WRITE (inotify) for the file's path. The server writes through the hard link, and a watcher of the
/// directory does not see that.
void tell_watchers(const std::string& path);

}  // namespace advectio
