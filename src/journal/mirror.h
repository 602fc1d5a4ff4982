// The journal of a process on another node, as far as this node's server needs it: the same records, in segments of
// this stage, for the reader to follow like any other journal here. It is not a promise: what it holds is still staged
// where it comes from, and a server that begins throws away the mirrors of the one before.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "journal/segments.h"
#include "journal/stage.h"

namespace advectio::journal {

/// The mappings of segments that all mirrors of a stage share: a segment that comes back is warm.
class SegmentMappings {
 public:
  /// Null: it cannot be mapped.
  std::byte* of(const Stage& stage, const std::string& segment, const std::string& path);

 private:
  std::unordered_map<std::string, Mapping> mappings_;
};

/// One thread at a time. As long as it lives, the reader takes the writer for alive.
class Mirror {
 public:
  /// `node`: where the journal is. The name in the stage is <node>@<name>.
  static Result<std::unique_ptr<Mirror>> open(const Stage& stage, const std::string& node, const std::string& name,
                                              const WriterState& of);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// Where the next record goes, which takes `bytes`. Null: no segment is free and none can be made; ask again.
  std::byte* room(std::uint64_t bytes, SegmentMappings& mappings);
  /// The record that has been put there can be read.
  void publish(std::uint64_t bytes, std::uint64_t sequence) noexcept;
  /// End the segment under way, so that it can be given back once it is drained.
  void seal() noexcept;

 private:
  Mirror(const Stage& stage, std::string directory, std::uint64_t in_segments, ProcessLock lock)
      : stage_(stage), directory_(std::move(directory)), in_segments_(in_segments), lock_(std::move(lock)) {}

  std::byte* begin(Result<std::optional<NewSegment>> made, SegmentMappings& mappings);
  std::byte* begin(const std::string& name, const std::string& path, SegmentMappings& mappings);

  const Stage& stage_;
  std::string directory_;
  std::uint64_t in_segments_;  ///< WriterState::in_segments
  ProcessLock lock_;
  std::byte* segment_ = nullptr;
  std::uint64_t segment_bytes_ = 0;
  Mapping long_, full_long_;   ///< of `segment_` and `full_`, where they are long ones
  std::byte* full_ = nullptr;  ///< the one before; sealed when the next one is ready
  std::uint64_t at_ = 0, next_index_ = 0;
};

/// True for the name of a mirror's directory.
bool is_mirror(const std::string& journal);
/// A server begins: the mirrors of the one before are thrown away, their segments are free.
Result<void> remove_mirrors(const Stage& stage);
/// The directory of a journal that nobody needs any more: its segments are free.
void free_journal(const Stage& stage, const std::string& journal);

}  // namespace advectio::journal
