// A change that goes over bytes which a reader may have read is written down beside the file first, in its redo file. A
// process that dies over the change leaves that, and `resume` makes the change again; to make it twice does no harm.
//
//   begin     The redo file is made. It counts for nothing yet.
//   decide    It is whole. From here on the change will happen.
//             The owner writes over the file.
//   remove    The redo file goes.
//   take_up   In place of the first two, for one that a dead process has left.
//
// Loss of power, where somebody asks for it (`ordered`):
//   - `decide` syncs the redo file and its directory.
//   - What is written over the file may not be on the disk. So the redo file is kept (`keep`) until the file has been
//     synced; `remove` and the next `begin` see to that. To make the change again until then does no harm.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/result.h"
#include "platform/files.h"

namespace advectio {

/// One redo file of one file, again and again. Calls are serial, and block while they write and sync. Errors are the
/// file system's.
class RedoFile {
 public:
  /// How `resume` knows that a redo file is whole.
  enum class Whole : std::uint8_t {
    by_content,  ///< its owner sees it, as by a checksum
    by_name,     ///< it is called PATH.part until it is decided
  };

  /// `changed`: the file that the changes are of. `files` outlives this.
  RedoFile(Files& files, std::string path, std::shared_ptr<File> changed, Whole whole)
      : files_(files), path_(std::move(path)), changed_(std::move(changed)), whole_(whole) {}

  /// There is one to write into, and it is empty unless it was begun before. Where one is kept the file is synced
  /// first.
  Result<void> begin();
  /// Between `begin` or `take_up` and `remove` or `give_up`.
  [[nodiscard]] File& file() const noexcept { return *redo_; }

  /// What is written next may make it whole. Only where it is so by its content.
  void may_count() noexcept { state_ = State::counts; }
  /// `kind` comes behind PATH, and tells `take_up` what the change is; only where it is whole by its name. After an
  /// error it may have been decided.
  Result<void> decide(bool ordered, const std::string& kind = "");

  /// Opens one of this kind that a process before has left, to read. It was decided, or its owner sees that it was not.
  /// False: there is none.
  Result<bool> take_up(const std::string& kind = "");
  /// Removes one of this kind that a process before has left.
  Result<void> forget(const std::string& kind = "") { return files_.remove(path_ + kind); }
  /// The same of one that was only begun, where it is whole by its name.
  Result<void> forget_begun() { return files_.remove(path_ + ".part"); }

  /// The change has been made, and the file may need this until it has been synced.
  void keep() noexcept { state_ = State::kept; }
  /// Nothing where there is none. `ordered`: the name does not come back after a loss of power.
  Result<void> remove(bool ordered);
  /// Removes one that is not decided. False: `resume` may make the change, now or later, and needs what it speaks of.
  [[nodiscard]] bool give_up() noexcept;

 private:
  enum class State : std::uint8_t {
    none,
    begun,
    counts,   ///< may be whole
    decided,  ///< whole, and where the caller asked for it to be
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
