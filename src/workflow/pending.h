// Versions that no library closes: files that a program writes without netCDF and PnetCDF, or moves to a coupled name.
// Such a file is complete when no process has it open for writing any more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"
#include "workflow/versions.h"

namespace advectio::workflow {

/// Parts of the name of such an entry: `writing.NAME,ID.PID.N` and `.plain-M`, `.moved` or `.moved-open`. The entry is
/// the file (`mode: memory`), or a symbolic link to the file on the disk.
struct Pending {
  enum class Kind : std::uint8_t {
    plain,       ///< whoever waits for the file publishes it, as soon as nobody writes it
    moved,       ///< the server of its run still writes it, and alone knows when it is complete
    moved_open,  ///< and its program has not closed it yet
  };
  Kind kind = Kind::plain;
  /// When the file was changed before the program opened it. A file that is still as it was is no version. 0: it is one
  /// in any case.
  std::uint64_t before_ns = 0;

  /// Nothing: the entry is none of these, or is of another node.
  static std::optional<Pending> of(const std::string& entry);
  [[nodiscard]] std::string suffix() const;
};

/// Nanoseconds since 1970; 0: there is no such file.
std::uint64_t changed_ns(const std::string& path);

/// The file's use when it is complete.
enum class Becomes : std::uint8_t {
  memory,  ///< it is in memory, or goes there from the disk
  copy,    ///< a copy goes to memory
  link,    ///< it stays on the disk
};

enum class Settled : std::uint8_t {
  no_more,  ///< it has been published, now or before, or is no version
  busy,     ///< somebody has it open for writing
};
/// Publish what the entry (a path) stands for, unless somebody writes it.
Result<Settled> settle(const std::string& entry, Becomes becomes, const std::string& writer);

}  // namespace advectio::workflow
