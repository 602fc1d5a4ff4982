// Which outputs are to survive a loss of power, and what of their records may go before they do. The queue's thread
// forces files to the disk; OutputWriter::collect_durable takes what it has done, and programs see it in
// SharedState::durable.
#pragma once

#include <optional>

#include "server/durability_queue.h"
#include "server/output.h"
#include "server/run.h"

namespace advectio {

class Durability {
 public:
  explicit Durability(Run& run);

  /// True when the output needs no record of that journal up to `sequence`: they are committed and, where it is kept,
  /// durable.
  [[nodiscard]] bool is_done_with(const Output& d, std::uint64_t journal, std::uint64_t sequence) const;
  /// True where records stay in the stage until they are durable in the file, so that a loss of power finds them in one
  /// of the two.
  [[nodiscard]] bool is_kept(const Output& d) const;
  /// `make` forces the file to the disk; it is called on the queue's thread.
  void push(const std::shared_ptr<Output>& d, std::function<Result<void>()> make, std::uint64_t sequence,
            std::vector<std::uint64_t> synced, bool last = false);
  /// Before anything is in the file: its names and its shared state are made durable, for a later server.
  [[nodiscard]] Result<void> keep_names(const Output& d) const;
  /// The stage is about to forget the output: its file is made durable first; of a store also that it has been emptied
  /// or removed, and to where it has been cut.
  void keep_end(const Output& d);
  /// The file is complete, and has its name.
  void keep_name(const Output& d);

  /// Blocks until half of what is queued is done.
  void await_half() { queue_->await_half(); }
  /// Does what is queued; nothing is pushed any more.
  void stop() { queue_.reset(); }
  /// What has been made durable since the last call.
  std::vector<DurabilityQueue::Done> collect() { return queue_->collect(); }
  [[nodiscard]] bool is_idle() const { return queue_->is_idle(); }

 private:
  void report(const Output& d, const Result<void>& done);
  [[nodiscard]] Result<void> note(const DurabilityQueue::Job& job) const;

  Run& run_;
  std::optional<DurabilityQueue> queue_;
};

}  // namespace advectio
