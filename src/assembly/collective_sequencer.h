// The records of a dataset that several processes write, put into one order.
//
// Records of one writer arrive in order. Between writers two numbers alone order them: a record's collective index, and
// the sync index of a sync (journal/SPEC.md). A record that may not be handled yet waits here. Its bytes stay where
// they are, in the journal's segment.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/result.h"
#include "journal/reader.h"

namespace advectio {

class CollectiveSequencer {
 public:
  explicit CollectiveSequencer(std::size_t writers) : queues_(writers) {}

  /// An earlier server has committed this writer's records up to `sequence`, and its syncs up to `sync_index`.
  void resume(std::size_t writer, std::uint64_t sequence, journal::SyncIndex sync_index);

  /// This sequencer takes the place of `before`, because a commit has failed. The ends of records that `before` let
  /// others overtake do not come again from the journals. They are taken over from it. Call it after `resume`.
  void remember(const CollectiveSequencer& before);
  /// The same for one that takes up what an earlier server has left: `ends` is what was `overtaken` there.
  void remember(const std::vector<journal::RecordEnd>& ends);
  /// Ends of records that were overtaken and have not been returned. `ahead`: also those that `next_at_any_price` would
  /// let others overtake.
  [[nodiscard]] std::vector<journal::RecordEnd> overtaken(bool ahead) const;
  /// All that has been returned is committed.
  void note_commit() { returned_ends_.clear(); }

  /// The next record of a writer. Errors: Code::corrupt.
  Result<void> take(std::size_t writer, const journal::Record& record);
  /// No record with a smaller collective index will come from this writer. Returns false where that was known.
  bool passed(std::size_t writer, std::uint64_t collective_index);

  /// What comes next: one record, or the end of a common sync (every writer has synced, closed or aborted).
  struct Step {
    struct Part {
      std::size_t writer = 0;
      journal::Record record;
    };
    std::vector<Part> parts;
    journal::SyncIndex sync_index{};  ///< 0: a single record
  };
  /// Writer 0 goes on to its next record: the one before it ends with this.
  static bool ends_record(const journal::Record& record) noexcept;
  /// Empty while an earlier record may still arrive.
  std::optional<Step> next();
  /// The next record even where an earlier one may still arrive: a single one, also a sync or close. For a full stage,
  /// when writers wait for segments that other writers of this dataset hold. The sync of a record stays for `next`,
  /// without its meta.
  std::optional<Step> next_at_any_price();
  /// The next block of a request that nobody has waited for yet (iput). For the same case.
  std::optional<Step> next_pending();

  /// Some block has been read and not returned.
  [[nodiscard]] bool holds_puts() const;
  /// Every record of this writer up to this sequence has been returned, or dropped.
  [[nodiscard]] std::uint64_t given(std::size_t writer) const;
  /// The writer's last sync that has been returned.
  [[nodiscard]] journal::SyncIndex sync_index(std::size_t writer) const { return queues_[writer].sync_index; }

 private:
  struct WriterQueue {
    std::deque<journal::Record> waiting;
    std::map<std::uint64_t, journal::Record> pending;
    std::uint64_t seen = 0;
    std::uint64_t collective_index = 0;
    journal::SyncIndex sync_index{};
  };
  [[nodiscard]] bool all_have_come_to(std::uint64_t collective_index) const;
  static bool ends_sync(const journal::Record& record) noexcept;

  std::vector<WriterQueue> queues_;
  /// Overtaken by records behind them; without their bytes.
  std::deque<journal::Record> ends_of_records_;
  std::vector<journal::Record> returned_ends_;  ///< of these, since the last commit
};

}  // namespace advectio
