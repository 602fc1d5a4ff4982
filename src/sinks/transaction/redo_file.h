// Before a sink overwrites bytes that readers may have read, it writes the change to a redo file beside the file. If
// the process dies during the change, `resume` makes the change again from the redo file. Making it twice does no harm.
//
//   begin     Makes the redo file. `resume` ignores it so far.
//   decide    Makes it complete. From here on the change will happen; the owner overwrites the file.
//   remove    Removes the redo file.
//   take_up   Replaces begin and decide for a redo file that a dead process has left.
//
// Loss of power (`ordered`):
//   - `decide` syncs the redo file and its directory.
//   - The overwritten bytes may not be on the disk yet. So the redo file is kept (`keep`) until the file has been
//     synced; `remove` and the next `begin` sync it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "platform/files.h"

namespace advectio {

/// The redo file of one file; used for one change after the other. Calls are serial, and block while they write and
/// sync. Errors are the file system's.
class RedoFile {
 public:
  /// How `resume` recognizes a complete redo file.
  enum class Whole : std::uint8_t {
    by_content,  ///< its owner checks it, as by a checksum
    by_name,     ///< its name is PATH.part until `decide`
  };

  /// `changed`: the file to be changed. `files` outlives this.
  RedoFile(Files& files, std::string path, std::shared_ptr<File> changed, Whole whole)
      : files_(files), path_(std::move(path)), changed_(std::move(changed)), whole_(whole) {}

  /// Makes an empty redo file to write into, or goes on with the one begun before. If one is kept, syncs the file
  /// first.
  Result<void> begin();
  /// Between `begin` or `take_up` and `remove` or `give_up`.
  [[nodiscard]] File& file() const noexcept { return *redo_; }

  /// The next write may complete it. Only with Whole::by_content.
  void may_count() noexcept { state_ = State::counts; }
  /// `kind` is appended to PATH and tells `take_up` what the change is; only with Whole::by_name. After an error the
  /// change may have been decided.
  Result<void> decide(bool ordered, const std::string& kind = "");

  /// Opens a redo file of this kind that an earlier process has left, for reading. With Whole::by_content the owner
  /// checks that it is complete. False: there is none.
  Result<bool> take_up(const std::string& kind = "");
  /// Removes a redo file of this kind that an earlier process has left.
  Result<void> forget(const std::string& kind = "") { return files_.remove(path_ + kind); }
  /// Removes one that was only begun (PATH.part); only with Whole::by_name.
  Result<void> forget_begun() { return files_.remove(path_ + ".part"); }

  /// The change has been made, and the file may need this until it has been synced.
  void keep() noexcept { state_ = State::kept; }
  /// No effect if there is none. `ordered`: the name does not come back after a loss of power.
  Result<void> remove(bool ordered);
  /// Removes one that is not decided. False: it is or may be decided; `resume` may still make the change, so the caller
  /// keeps everything that the change refers to.
  [[nodiscard]] bool give_up() noexcept;

 private:
  enum class State : std::uint8_t {
    none,
    begun,
    counts,   ///< may be complete
    decided,  ///< complete, and as durable as the caller asked
    kept,     ///< the change has been made
  };

  Files& files_;
  std::string path_;
  std::shared_ptr<File> changed_;
  Whole whole_;
  State state_ = State::none;
  std::unique_ptr<File> redo_;
  std::string name_;    ///< of `redo_`
  bool named_ = false;  ///< its name is on the disk
};

}  // namespace advectio
