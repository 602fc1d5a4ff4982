// Segments are made and removed here, by the server and by writers alike. All processes of a node count them together
// in the stage's control file: who makes one counts it first, so that the cap holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "journal/stage.h"

namespace advectio::journal {

/// How the pages of a new segment come to be in memory.
enum class Pages : std::uint8_t {
  reserved,  ///< the system has set them aside; whoever first touches one waits until it is cleared
  cleared,   ///< they are there
};

/// A segment that has been made and is not in use: a file with a hidden name.
struct NewSegment {
  std::string name;  ///< in the pool, or in a chain
  std::string path;  ///< where it is; it is in use once it is renamed
};

/// Makes one segment in `directory`. Nothing: the cap is reached, or `in_vain` has become true.
/// Where the file system has no room, the stage's limit becomes what there is. Errors: Code::full then; others of the
/// system. Blocks for file-system calls, and for clearing the pages.
Result<std::optional<NewSegment>> make_segment(const Stage& stage, const std::string& directory, Pages pages,
                                               const std::function<bool()>& in_vain = nullptr);

/// Makes a long segment, for one record that does not fit any other. `bytes`: header and record. It counts as the
/// segments that it is as long as. It is never in the pool: given back, it is removed. Free segments make room for it.
Result<std::optional<NewSegment>> make_long_segment(const Stage& stage, const std::string& directory,
                                                    std::uint64_t bytes);

inline constexpr char long_letter = 'l';
inline bool is_long(std::string_view segment) noexcept {
  return !segment.empty() && segment[0] == long_letter;
}

/// Bytes of a long segment for a record of that length: a multiple of the stage's segments.
std::uint64_t long_segment_bytes(const StageControl& control, std::uint64_t record) noexcept;
/// Bytes of that segment; a long one's name tells them.
std::uint64_t bytes_of_segment(const StageControl& control, const std::string& segment) noexcept;
/// Segments that it counts as; 0 for a spilled one, which is counted elsewhere.
std::uint64_t count_of_segment(const std::string& segment) noexcept;

/// Removes a free segment. Its memory is free even where a writer still has it mapped. False: none is free.
bool remove_free_segment(const Stage& stage);

/// A segment that was counted is not there any more.
void uncount_segments(StageControl& control, std::uint64_t segments) noexcept;

}  // namespace advectio::journal
