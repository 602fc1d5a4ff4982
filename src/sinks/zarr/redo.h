// What a commit does to files that readers know, written down before any of it is done. A process
// that dies meanwhile leaves the list, and the next one does it again: each step is harmless when
// it comes twice.
#pragma once

#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/result.h"
#include "platform/files.h"

namespace advectio::zarr {

struct Redo {
  struct Rename {
    std::string from, to;
  };
  struct Write {
    std::string file;
    Bytes bytes;  ///< for its beginning
  };
  /// Directories of arrays that get another name go out of each other's way first.
  std::vector<Rename> aside;
  /// Then, in this order. The root's metadata are the last: with them readers see the commit.
  std::vector<Rename> names;
  std::vector<Write> writes;
  Rename root;
};

/// Names within the store. None of them can be a variable's.
inline constexpr const char *redo_name = ".advectio-redo", *aside_name = ".advectio-aside";

/// Decide it: once this has returned ok, the commit happens, now or by `take_up`. `durable`: also
/// after a loss of power.
Result<void> decide(Files& files, const std::string& store, const Redo& redo, bool durable);

/// Do what was decided, and forget it. `durable`: what was done survives a loss of power before it
/// is forgotten.
Result<void> carry_out(Files& files, const std::string& store, const Redo& redo, bool durable);

/// The same of what a process that died has decided. Nothing where there is none. Errors:
/// Code::corrupt where a loss of power has left half of the list: then none of it has been done.
Result<void> take_up(Files& files, const std::string& store, bool durable);

}  // namespace advectio::zarr
