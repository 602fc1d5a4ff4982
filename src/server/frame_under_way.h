// The frame that an output's records have come to, and small frames that wait to be committed with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/field.h"
#include "operators/operator.h"
#include "sinks/sink.h"

namespace advectio {

/// What has been put of the frame, and what of it the sink has been told.
class FrameUnderWay {
 public:
  /// First record of the frame along the unlimited dimension, and the end.
  using RecordRange = std::optional<std::pair<std::uint64_t, std::uint64_t>>;

  /// Blocks that follow belong to this schema.
  void declare(const Schema& schema) { fields_.declare(schema); }
  /// True: the sink shall have the block, by `give_to`. False: it is small, and waits for others of its variable.
  Result<bool> add(const Block& block, const Schema& schema, const std::shared_ptr<const Operators>& operators);
  /// Small blocks that wait become part of their fields, those of one variable as one block of many boxes. Before
  /// anybody looks at the fields.
  Result<void> join();
  /// Tells the sink of what it has not been told of yet. Joins.
  Result<void> give_to(Sink& sink, const Schema& schema);
  /// Lets go of its fields. The sink may hold them until the next commit.
  void clear();

  [[nodiscard]] bool empty() const { return fields_.empty() && small_.empty(); }
  [[nodiscard]] const auto& fields() const { return fields_.fields(); }
  [[nodiscard]] const RecordRange& records() const { return records_; }

  /// The sink knows of the frame.
  [[nodiscard]] bool begun() const { return begun_; }
  void begin() { begun_ = true; }
  /// The sink is another, or the frame has been ended there.
  void begin_again() { begun_ = false; }

  /// The frame has live readers: they get it first, and the sink behind them.
  [[nodiscard]] bool holds_back() const { return holds_back_; }
  void hold_back(bool wanted) { holds_back_ = wanted; }

  /// Its fields may not hold all of the frame: some of it has been committed before.
  [[nodiscard]] bool in_parts() const { return in_parts_; }
  void set_in_parts() { in_parts_ = true; }
  /// Before what there is of it is committed.
  void note_commit(bool ends) { in_parts_ = !ends && (in_parts_ || (begun_ && !empty())); }
  /// It ends without a commit: the frames behind it add to its fields.
  void end_uncommitted();

 private:
  /// A block costs some microseconds, and a value that a program puts alone is a block.
  static constexpr std::uint64_t small_max = 256, together_max = 1U << 20U;
  static constexpr std::size_t boxes_max = 1U << 16U;
  struct Small {
    Block first;  ///< as it is, while there is no other
    std::shared_ptr<const Operators> operators;
    BoxList boxes;  ///< of all, where there are others
    Bytes values;
  };

  Result<void> add_now(const Block& block, const std::shared_ptr<const Operators>& operators);
  Result<void> join(Small small);
  [[nodiscard]] static bool is_small(const Block& block, const Variable& variable);
  void note_records(const Schema& schema, std::uint32_t variable, const Box& bounds);

  Frame fields_;
  std::map<std::uint32_t, Small> small_;  ///< by variable
  RecordRange records_;
  std::vector<std::pair<std::shared_ptr<const Field>, Part>> held_back_;
  bool begun_ = false, holds_back_ = false, in_parts_ = false;
};

/// Small frames that wait to be committed with the next one (OutputWriter::may_wait).
class WaitingFrames {
 public:
  [[nodiscard]] bool empty() const { return synced_.empty(); }
  [[nodiscard]] std::size_t size() const { return synced_.size(); }
  /// One more may wait.
  [[nodiscard]] bool has_room(std::uint64_t bytes_max) const;
  void add(std::uint64_t synced_ns);
  /// Put since the last commit.
  void count(std::uint64_t bytes) { bytes_ += bytes; }
  /// They are committed: when each was synced.
  [[nodiscard]] std::vector<std::uint64_t> take() { return std::exchange(synced_, {}); }
  void clear() {
    synced_.clear();
    bytes_ = 0;
  }

  /// False: from here on each is committed by itself.
  void allow(bool wait) { allowed_ = wait; }

 private:
  std::vector<std::uint64_t> synced_;
  std::uint64_t bytes_ = 0, since_ns_ = 0;
  bool allowed_ = true;
};

}  // namespace advectio
