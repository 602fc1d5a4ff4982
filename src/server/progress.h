// How far an output has come: what has been handled, is readable, survives a loss of power.
#pragma once

#include <algorithm>
#include <cstdint>

namespace advectio {

/// Sequences are those of the journal; of an output that several processes write, and of a whole, indices of syncs.
struct Progress {
  std::uint64_t seen = 0;     ///< sequence of the last record handled
  std::uint64_t visible = 0;  ///< everything up to here is committed
  std::uint64_t durable = 0;  ///< everything up to here is durable in the file, or has nothing to do with it

  /// Frames that have ended before what is handled now, in the order of its records: the next block is of the frame
  /// after them.
  std::uint64_t frames_ended = 0;
  std::uint64_t frames_synced = 0, frames_visible = 0, frames_durable = 0;
  std::uint64_t frames_of_former = 0;  ///< that earlier datasets of this run have put into the same file

  bool uncommitted = false;  ///< blocks or a schema have gone to the sink since the last commit
  bool partial = false;      ///< committed in the midst of a frame, to make room

  /// What comes before the dataset's first record has nothing to do with it.
  void begin_behind(std::uint64_t sequence) { seen = visible = durable = sequence; }
  /// Where an earlier server has left it.
  void take_up(std::uint64_t sequence) { seen = visible = sequence; }
  void take_up_frames(std::uint64_t frames) { frames_ended = frames_visible = frames_synced = frames; }
  /// `frame`: from 1; 0: none ends.
  void end_frame(std::uint64_t frame) { frames_ended = std::max(frames_ended, frame); }
  void sync_frame(std::uint64_t frame) { frames_synced = std::max(frames_synced, frame); }
  [[nodiscard]] bool any_durable() const { return durable > 0 || frames_durable > 0; }
  void note_durable(std::uint64_t sequence, std::uint64_t frames) {
    durable = std::max(durable, sequence);
    frames_durable = frames;
  }
  /// What is behind the last commit is handled again.
  void back_to_visible() { frames_ended = frames_visible; }
  /// What is committed and not durable is handled again.
  void back_to_durable() {
    visible = seen = durable;
    frames_visible = frames_durable;
  }
};

}  // namespace advectio
