// Files that a program has renamed: by which names they are to be found now.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "readers/frame_store.h"

namespace advectio {

struct NamedFile {
  readers::DatasetKey key;
  std::string path;  ///< the latest that is known
  std::uint64_t inode = 0;
  dev_t system = 0;
  unsigned missed = 0;  ///< looks in a row at which it was nowhere
  bool over = false;    ///< nothing will be done to it any more
};

/// True where the file has its name still. Else `path` becomes the name that it has in its directory. Blocks for file
/// system calls.
bool is_in_place(NamedFile& file);

/// Returns those of `files` that have moved or are nowhere. Both are in the order in which the program has made them. A
/// file never comes without an earlier one that the program had renamed before it. Blocks as is_in_place, on any
/// thread.
std::vector<NamedFile> not_in_place(std::vector<NamedFile> files,
                                    const std::function<bool(NamedFile&)>& look = is_in_place);

/// Returns those of the moved files that may be shown by their new names, and those that are nowhere. A file waits
/// behind an earlier one of its process that has lost its old name and has yet to get the new one.
std::vector<NamedFile> in_their_turn(const std::vector<NamedFile>& moved);

}  // namespace advectio
