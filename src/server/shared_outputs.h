// Outputs of datasets that several processes write together.
#pragma once

#include <functional>

#include "server/output_writer.h"

namespace advectio {

class SharedOutputs {
 public:
  SharedOutputs(Run& run, Ledger& ledger, OutputWriter& writer, std::function<bool()> read_on)
      : run_(run), ledger_(ledger), writer_(writer), read_on_(read_on) {}

  /// Reads the writers' slots: who has entered, and what of each is committed.
  Result<void> share(Output& d);
  /// Handles the records whose order is known by now. After each frame `stop` is asked whether that is enough.
  Result<void> advance(const std::shared_ptr<Output>& d, bool verify, const std::function<bool()>& stop);
  /// Ends the output where every writer has closed, aborted or died. Not one that is postponed.
  Result<void> end_if_all_over(const std::shared_ptr<Output>& d);
  /// Finds writers that died before they entered, and outputs that all had closed before this server began.
  void look_around();
  /// True when every writer has closed, aborted or died. Until then one of them may still send records of a frame that
  /// a dead writer has synced.
  bool all_writers_over(Output& d);
  /// The stage is full, and writers of this dataset hold segments that others of them need. Writes their records out of
  /// order to free the segments. True when something was written.
  bool make_room(const std::shared_ptr<Output>& d);
  /// The slot in which this writer of the program writes. It stands beside the file that the program asked for.
  WriterSlot& slot_of(Output& d, std::size_t writer);

 private:
  Result<void> do_step(const std::shared_ptr<Output>& d, const CollectiveSequencer::Step& step, bool verify);
  [[nodiscard]] bool lives(const Output& d, std::size_t writer) const;
  Result<void> let_read(const std::shared_ptr<Output>& d, std::size_t writer, std::uint64_t sequence);
  Result<void> end_record(const std::shared_ptr<Output>& d, const Record& r);
  Result<void> end_sync(const std::shared_ptr<Output>& d, const CollectiveSequencer::Step& step);
  Result<void> end_aborted(Output& d);
  Result<void> take_up_ends(Output& d);
  Result<void> keep_ends(Output& d, bool ahead);
  bool died_before_entering(Output& d, std::size_t w);

  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  std::function<bool()> read_on_;
};

}  // namespace advectio
