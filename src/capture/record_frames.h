// Frames that end without a sync: the program has gone on to its next record (the config's `frames`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/box.h"
#include "core/schema.h"

namespace advectio::capture {

/// A record is all blocks with one index along the unlimited dimension. The puts of one process.
class RecordFrames {
 public:
  /// `any`: the next record ends a frame whatever has been put. Else it does where every variable along the unlimited
  /// dimension has been put so far, and where no chunk holds both records: it would be written twice.
  explicit RecordFrames(bool any) : any_(any) {}

  void learn(const Schema& schema) {
    variables_.resize(std::max(variables_.size(), schema.variables.size()));
    std::optional<std::uint32_t> records;
    one_dimension_ = true;
    for (std::size_t i = 0; i < schema.variables.size(); ++i) {
      const auto& v = schema.variables[i];
      variables_[i].along = !v.dimensions.empty() && schema.dimensions[v.dimensions[0]].unlimited;
      if (!variables_[i].along) continue;
      one_dimension_ = one_dimension_ && records.value_or(v.dimensions[0]) == v.dimensions[0];
      records = v.dimensions[0];
      // Many records of a variable with no other dimension are a small chunk (netCDF-C's default: 512).
      variables_[i].chunk = v.dimensions.size() > 1 && !v.chunks.empty() ? std::max<std::uint64_t>(v.chunks[0], 1) : 1;
    }
  }
  /// Whether this block comes after the last record, and that ends the frame. Never where several dimensions are
  /// unlimited and in use.
  [[nodiscard]] bool ends_before(std::uint32_t variable, const Box& box) const {
    if (!is_along(variable) || records_ == 0 || box.start[0] < records_) return false;
    return any_ || std::all_of(variables_.begin(), variables_.end(), [this](const Along& v) {
             return !v.along || (v.records >= records_ && records_ % v.chunk == 0);
           });
  }
  /// The next record ends no frame of few `bytes` that began soon after the last end, once there were many of them: the
  /// end would cost more than the frame. Never with `any`.
  [[nodiscard]] bool goes_on(std::uint64_t bytes, std::uint64_t now_ns) const noexcept {
    return !any_ && small_frames_ >= small_frames_max && bytes < small_bytes && now_ns - ended_ns_ < soon_ns;
  }
  /// A record has ended a frame of so many bytes.
  void note_end(std::uint64_t bytes, std::uint64_t now_ns) noexcept {
    if (bytes < small_bytes) ++small_frames_;
    ended_ns_ = now_ns;
  }
  /// This block has been put.
  void note(std::uint32_t variable, const Box& box, const std::vector<std::uint64_t>& stride) {
    if (!is_along(variable)) return;
    records_ = box.start[0] + (box.count[0] - 1) * (stride.empty() ? 1 : stride[0]) + 1;
    variables_[variable].records = std::max(variables_[variable].records, records_);
  }

 private:
  struct Along {
    bool along = false;
    std::uint64_t chunk = 1;    ///< records in it
    std::uint64_t records = 0;  ///< of this variable, up to the last one that was put
  };
  [[nodiscard]] bool is_along(std::uint32_t variable) const {
    return one_dimension_ && variable < variables_.size() && variables_[variable].along;
  }

  static constexpr std::uint64_t small_bytes = 4096, small_frames_max = 1000, soon_ns = 100'000'000;

  bool any_;
  bool one_dimension_ = false;
  std::vector<Along> variables_;
  std::uint64_t records_ = 0;  ///< up to that of the last block
  std::uint64_t small_frames_ = 0;
  std::uint64_t ended_ns_ = 0;  ///< when a record last ended one
};

}  // namespace advectio::capture
