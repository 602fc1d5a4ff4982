// A file in flight has a second directory entry, a hard link that belongs to the run. The server finds the inode by
// it, whatever the program does with its own name. The links of one user lie together in a directory of their own
// (`.advectio-UID`) on the file's file system, so that a program that lists or removes its output directory meets
// nothing of ours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "journal/stage.h"
#include "platform/files.h"

namespace advectio::journal {

/// Directories in which the link of `file` (absolute, without symbolic links) may lie, best first, each with a slash at
/// its end: beside the run's own files, else in the highest directory of the file system that this user reaches by
/// writable directories, else beside the file itself. None of them need exist.
std::vector<std::string> hard_link_directories(const std::string& file, const std::string& run_directory);

/// Name of the link of `file` within its directory. `journal` and `suffix` make it unique.
std::string hard_link_name(const std::string& file, std::uint64_t journal, const std::string& suffix);

/// The part of the file's name that its link's name keeps: at most the first 60 bytes. So a file of any name has a
/// link.
std::string name_kept(const std::string& file);
/// The same, of a link's path.
std::string name_in_hard_link(const std::string& link);

/// True for a link's path, false where `link` is the file's own name (a file system without hard links).
[[nodiscard]] bool is_hard_link(const std::string& link) noexcept;

/// Link the file at `path` as `name` in the first of `directories` that takes it, and say so in the shared state. The
/// shared state comes before the link: should the process die here, whoever finishes the run finds and removes it.
/// Where no link can be made, the shared state has the file's own name. Returns what the shared state has. Blocks for
/// file-system calls.
std::string give_hard_link(SharedState& shared_state, const std::string& path, const std::string& name,
                           const std::vector<std::string>& directories);

/// Whether a file in flight is still there, as its names show.
enum class FileNames : std::uint8_t {
  there,    ///< a name of it is there, or is not seen to be gone
  removed,  ///< somebody has removed it
  away,     ///< no name is there. Nor is the directory that held it: perhaps its file system is not mounted
};

/// Look at the names in a shared state called `state_name`. A file counts as removed only where that is seen:
/// * its hard link is there, and is its only name; or
/// * the link is gone from our own directory, which is there, and the file from the directory that held it
///   (`directory_device`, `directory_inode`).
/// A file without a hard link is never seen to be removed: the program may have renamed it.
FileNames look_for_file(const SharedState& shared_state, const std::string& state_name) noexcept;

/// A directory as the kernel knows it; zeros: not known.
struct DirectoryId {
  std::uint64_t device = 0, inode = 0;
  /// The directory that holds `path`, whose last symbolic links are followed.
  static DirectoryId of(const std::string& path);
  /// In the shared state: of the directory that held the file when it was made.
  static DirectoryId in(const SharedState& shared_state) noexcept;
  void keep_in(SharedState& shared_state) const noexcept;
  bool operator==(const DirectoryId&) const = default;
};

/// `path` with the symbolic links of its last name followed, also where they lead to nothing.
std::string without_last_links(std::string path);

/// Remove the link, and its directory if that is ours, empty and this user may remove it. Ok if they are not there. May
/// be done again.
Result<void> remove_hard_link(Files& files, const std::string& link);

/// The file's own name and its link survive a loss of power on return.
Result<void> make_file_names_durable(Files& files, const std::string& path, const std::string& link);

}  // namespace advectio::journal
