// Records as they are read: each goes to all outputs of its dataset. And once more, where an output has failed, or was
// *postponed*: its sink is busy with a commit, or more urgent ones come first. Its records wait in the stage meanwhile.
#pragma once

#include "server/further_outputs.h"
#include "server/journal_set.h"
#include "server/other_nodes.h"
#include "server/urgency.h"

namespace advectio {

class Records {
 public:
  Records(Run& run, Ledger& ledger, OutputWriter& writer, SharedOutputs& shared, FurtherOutputs& further, Tiles& tiles,
          OtherNodes& nodes, JournalSet& journal_set, Urgencies& urgencies)
      : run_(run),
        ledger_(ledger),
        writer_(writer),
        shared_(shared),
        further_(further),
        tiles_(tiles),
        nodes_(nodes),
        journal_set_(journal_set),
        urgencies_(urgencies) {}

  /// Handle what a journal has, for a while. True when there was something.
  bool follow(Journal& j);
  /// Chunks of frames under way that wait for memory. Looks only where a thread has told of something.
  void advance_sinks();
  /// Advances the commits under way. Then writes records of one postponed output that has none: the most urgent, or of
  /// several the one that has waited longest.
  /// `nothing_else`: for a frame at least, whatever may be more urgent. True when it has done something.
  bool go_on_with_postponed(bool nothing_else);
  /// The process has ended without closing: what was synced is in the file, the frame under way is dropped.
  void writer_gone(Journal& j);
  /// Ends datasets of which a process other than the writer has asked that (journal::EndAsked::now).
  void look_for_ends(Journal& j);
  /// Try the failed datasets again: with a fresh sink behind their last commit.
  void retry_failed(bool now);

 private:
  void handle(Journal& j, const Record& r, bool verify);
  void hand(Journal& j, const Record& r, const std::shared_ptr<Output>& d, Result<void> begun, bool verify);
  [[nodiscard]] bool gives_way(const Output& d);
  bool postpone(const std::shared_ptr<Output>& d);  ///< true
  [[nodiscard]] bool any_postponed(const Journal& j) const;
  /// How far a postponed output is written: until a more urgent one has something, a frame at least, or to the end.
  enum class Until : std::uint8_t { urgent, frame, end };
  void go_on(const std::shared_ptr<Output>& d, Until until);
  bool advance_commits();
  void handle_failure(const std::shared_ptr<Output>& d, Error error);
  [[nodiscard]] std::pair<Journal*, std::uint32_t> place_of(const Output& d) const;
  void set_level(const Output& d);
  [[nodiscard]] bool has_to_wait(const Output& d) { return d.commit || gives_way(d); }
  void go_on_alone(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d, Until until);
  Result<void> advance(const std::shared_ptr<Output>& d, bool verify);
  Result<void> give(Journal& j, const Record& r, const std::shared_ptr<Output>& d, bool verify);
  Result<void> on_create(Journal& j, const Record& r);
  void continue_file(Output& d);
  Result<void> on_enter(Journal& j, const Record& r);
  std::shared_ptr<Output> shared_dataset(const std::string& state_name);
  void writer_gone(Journal& j, Output& d);
  /// As if it had been closed here.
  void end_with_all(Journal& j, std::uint32_t number);
  Result<void> replay(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d);
  Result<void> replay_from(Reader& again, Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d);
  Result<void> again_one_by_one(Journal& j, std::uint32_t number, const std::shared_ptr<Output>& d);
  Result<void> replay_shared(const std::shared_ptr<Output>& d);

  Run& run_;
  Ledger& ledger_;
  OutputWriter& writer_;
  SharedOutputs& shared_;
  FurtherOutputs& further_;
  Tiles& tiles_;
  OtherNodes& nodes_;
  JournalSet& journal_set_;
  Urgencies& urgencies_;
  std::vector<std::shared_ptr<Output>> postponed_;  ///< in the order in which they were
  std::uint32_t rings_seen_ = 0;                    ///< Run::own_rings at the last `advance_sinks`
};

}  // namespace advectio
