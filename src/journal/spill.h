// Where output goes on when the stage is full: segments in a directory on a disk. In the stage each of them is a
// symbolic link, which is taken and followed by renaming like any other segment; given back it is removed, with the
// file it leads to, so that what has been drained need never have been written to the disk.
#pragma once

#include <cstdint>
#include <string>

#include "journal/stage.h"

namespace advectio::journal {

/// Let at most `segments_max` segments spill into a new directory of the run's own (0700) below `directory`, or into
/// the one that an earlier server has made. The stage's link `spill` leads there. Blocks for file-system calls only.
Result<void> begin_spill(const Stage& stage, const std::string& directory, std::uint64_t segments_max);

/// One more segment, free in the pool. Errors: Code::full where the disk or the cap is full; others of the system.
Result<void> make_spilled(const Stage& stage, std::uint64_t number);

/// A segment that nobody needs any more, `path` somewhere in the stage: back into the pool; a spilled or a long one is
/// removed.
Result<void> give_back(const Stage& stage, const std::string& path, const std::string& segment);

/// The directory, with whatever is in it. Nothing where nothing spilled.
void remove_spill(const Stage& stage) noexcept;

}  // namespace advectio::journal
