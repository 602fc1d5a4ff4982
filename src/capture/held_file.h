// The name of a file that a dataset begins with, until the file has something to show (the config's `appear`).
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "capture/rules.h"
#include "core/result.h"
#include "journal/markers.h"

namespace advectio::capture {

/// A new file is made under its held name (journal/markers.h), and a file that it replaces stays until then.
class HeldFile {
 public:
  /// Decides by the rule, and by what is at `path` (absolute). Some files have their own name from the start:
  /// * on several nodes, as programs on other nodes know nothing of held names;
  /// * tiles that become one file;
  /// * a file that is replaced, and that has further names, another owner, or is behind a symbolic link.
  /// `in_set`: further names of what is there are those of sets, which keep it.
  HeldFile(const journal::Stage& stage, const Rule& rule, const std::string& path, bool in_set);
  ~HeldFile();
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;

  /// Where the file is made: its held name, or `path`.
  [[nodiscard]] const std::string& made_as() const noexcept { return made_as_; }
  [[nodiscard]] bool is_held() const noexcept { return held_; }
  /// The file keeps the permissions of the one that it replaces.
  void take_permissions() const;
  /// Writes the note: from here on programs of the run find the file by its path.
  Result<void> note(const journal::Awaited& dataset);
  /// The file gets its own name at once.
  Result<void> name();
  /// The dataset has begun: the note stays.
  void keep() noexcept { noted_ = false; }

 private:
  const journal::Stage& stage_;
  const std::string path_;
  std::string made_as_;
  bool held_ = false;
  bool awaits_all_ = false;
  bool noted_ = false;
  mode_t replaced_mode_ = 0;
};

}  // namespace advectio::capture
