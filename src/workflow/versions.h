// The versions of one coupled file (workflow/README.md). Processes that know nothing of each other call these at one
// time; each step is one rename(2), link(2) or unlink(2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace advectio::workflow {

/// What a directory `files/PATH` holds.
struct Versions {
  std::uint64_t newest = 0;          ///< number of the newest complete version; 0: none
  std::string name;                  ///< of its entry
  std::string writer;                ///< NAME of the program that has written it
  std::vector<std::string> writing;  ///< names of what is being written
  std::vector<std::string> closed;   ///< those of them that have a closed_mark
  /// All as it was at one moment. A rename(2) during one readdir(3) could hide both names of a file, so two readings
  /// must agree.
  static Versions in(const std::string& directory);
  [[nodiscard]] bool is_closed(const std::string& entry) const;
  bool operator==(const Versions&) const = default;
};

/// Is the version of that name newer than the other? Of two with one number, made on two nodes at one time, all nodes
/// take the same one. False for what is no version.
bool is_newer(const std::string& name, const std::string& than);

/// A version whose bytes are in the memory of another node: a symbolic link to "@NODE/BYTES".
struct Elsewhere {
  std::string node;
  std::uint64_t bytes = 0;
};
std::optional<Elsewhere> elsewhere(const std::string& version);
std::string to_target(const Elsewhere& there);
/// Entries that stand for those of another node end with "@NODE".
inline constexpr char of_node = '@';

/// A version of another node is to be seen here: as a symbolic link to `target`. Older ones go. False: it is there
/// already, or a newer one is.
Result<bool> note_version(const std::string& directory, const std::string& name, const std::string& target);
/// The bytes of a version of another node have come, as the file `bytes`. Where it is no longer wanted they go.
Result<void> take_in(const std::string& bytes, const std::string& version);

/// One at a time publishes in a directory of versions, from construction to `end`. A file there that programs open for
/// writing by themselves is opened within a turn, too (workflow/pending.h).
class Turn {
 public:
  explicit Turn(const std::string& directory);
  ~Turn() { end(); }
  Turn(Turn&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Turn& operator=(Turn&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  void end();

 private:
  int fd_;
};

/// A path in a directory of versions that nobody else uses.
std::string temporary(const std::string& directory);

/// The entry `entry` (a path) becomes the next version, by `writer`, and older ones go. Returns its number; 0 where
/// there is no such entry, as it has been published before.
Result<std::uint64_t> publish(const std::string& entry, const std::string& writer);
/// Within a turn of its directory.
Result<std::uint64_t> publish(const Turn& turn, const std::string& entry, const std::string& writer);
/// The same for a copy of a file that goes on being written, and for a link to it.
Result<std::uint64_t> publish_copy(const std::string& file, const std::string& directory, const std::string& writer);
Result<std::uint64_t> publish_link(const std::string& file, const std::string& directory, const std::string& writer);

/// Give the version at `path` a further name `as`. Where it is a link to a file elsewhere, that file's path is returned
/// and nothing is made. Code::not_found: it has just been replaced.
Result<std::string> hold(const std::string& path, const std::string& as);

/// The bytes of a file as another file. Copies without passing through this process.
Result<void> copy_file(const std::string& from, const std::string& to);

/// The permissions and times of a file for another.
Result<void> copy_attributes(const std::string& from, const std::string& to);

/// The same, in the place of what is there: a reader has the old file or the new one.
Result<void> replace_by_copy(const std::string& from, const std::string& to);

/// With `mode: memory+file`, `made` says which dataset a version is that is about to be published (`file`, in the
/// directory of versions), and `disk` which one the file on the disk is. `dataset` is a number that no other has.
Result<void> note_made(const std::string& file, std::uint64_t dataset);
Result<void> note_disk(const std::string& directory, const std::string& file, std::uint64_t dataset);
enum class OnDisk : std::uint8_t {
  same,     ///< the file holds what the version holds
  not_yet,  ///< it will, when it is complete
  other,    ///< it has been changed, or nobody knows
};
OnDisk on_disk(const std::string& directory, const std::string& version, const std::string& file);

/// The mark that the program has closed what it wrote at that entry `writing.…`, which the server has yet to publish.
std::string closed_mark(const std::string& entry);

/// What an entry like `writing.NAME,ID.PID.N` names: "NAME,ID", PID and N.
struct Maker {
  std::string member;
  long pid = 0;
  std::uint64_t number = 0;
};
std::optional<Maker> maker_of(const std::string& entry);

}  // namespace advectio::workflow
