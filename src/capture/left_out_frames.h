// Frames that a program leaves out while the stage is full (full: drop-frame in the config).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/box.h"
#include "core/schema.h"

namespace advectio::capture {

/// A frame is all blocks with one index along the record dimension. Its first block decides whether
/// it is left out. A variable without the record dimension is never left out.
class LeftOutFrames {
 public:
  void learn(const Schema& schema) {
    along_records_.clear();
    for (const auto& v : schema.variables)
      along_records_.push_back(!v.dimensions.empty() && schema.dimensions[v.dimensions[0]].unlimited);
    if (last_bytes_ == 0) expected_bytes_ = frame_bytes(schema);
  }
  /// A frame of so many bytes has ended.
  void ended(std::uint64_t bytes) noexcept {
    if (bytes > 0) last_bytes_ = bytes;
  }
  /// Whether the frame of this block is left out. `has_room(bytes)` decides at the first block of a
  /// frame.
  template <typename HasRoom>
  bool leaves_out(std::uint32_t variable, const Box& box, HasRoom&& has_room) {
    if (variable >= along_records_.size() || !along_records_[variable]) return false;
    const auto [frame, fresh] = decided_.try_emplace(box.start[0], false);
    // The next frame is taken to be as large as the last one.
    if (fresh) frame->second = !has_room(last_bytes_ > 0 ? last_bytes_ : expected_bytes_);
    return frame->second;
  }

 private:
  std::vector<bool> along_records_;        ///< by variable
  std::map<std::uint64_t, bool> decided_;  ///< by index: the frame is left out
  std::uint64_t last_bytes_ = 0, expected_bytes_ = 0;
};

}  // namespace advectio::capture
