// What a record does to an output: the way from a schema and its puts to a file that is visible, durable, finished.
#pragma once

#include <functional>

#include "server/durability.h"
#include "server/ledger.h"

namespace advectio {

/// Errors of these functions are for `fail`, unless they say otherwise.
class OutputWriter {
 public:
  OutputWriter(Run& run, Ledger& ledger, Durability& durability)
      : run_(run), ledger_(ledger), durability_(durability) {}

  /// A record of a dataset that one process writes.
  Result<void> act(const std::shared_ptr<Output>& d, const Record& r, bool verify);
  Result<void> on_schema(Output& d, const Record& r);
  /// `asked` by the program counts from here on, and is kept in the stage for a later server.
  Result<void> store_schema(Output& d, const Schema& asked);
  /// The same, but not in the stage.
  Result<void> take_schema(Output& d, const Schema& asked);
  /// There is a sink that knows the schema.
  Result<void> ready_sink(Output& d);
  /// The block becomes part of its field, and the sink may read it there: now, or where the frame has live readers at
  /// the end of the frame, behind them. Comes after `ready_sink`.
  Result<void> give_block(Output& d, const Block& block);
  Result<void> on_put(Output& d, const Record& r, bool verify);
  /// All that the sink has taken comes to be in the readable file; frames that wait, too. That may take a while: until
  /// then the output has a `commit`.
  Result<void> begin_commit(const std::shared_ptr<Output>& d, Commit what);
  /// Does for it what can be done now. True: it is over. Where there is an error it is over, too.
  Result<bool> advance_commit(const std::shared_ptr<Output>& d);
  /// The same, and waits for it.
  Result<void> end_commit(const std::shared_ptr<Output>& d);
  Result<void> commit(const std::shared_ptr<Output>& d, Commit what);
  /// In the midst of a frame. False: the sink cannot do that (Abilities::checkpoints). Nothing is committed then, and
  /// nothing of the frame may leave the stage.
  Result<bool> commit_part(const std::shared_ptr<Output>& d);
  /// Closed, and all of it committed: leave the file as it will be. May be done again.
  Result<void> finish(const std::shared_ptr<Output>& d);
  /// The program has opened it again behind the close record of that sequence. False: that ends it. Asked when all
  /// before that record is committed.
  [[nodiscard]] bool goes_on(const Output& d, std::uint64_t closed_at) const;
  /// Keep what is committed, drop the rest.
  Result<void> on_abort(Output& d);
  void answer(Output& d, Result<void> stored);
  static bool is_untouched(const Output& d);
  /// Such a file has been synced, and nothing was put: it stays as it is. `sequence` becomes
  /// `visible` in the shared state.
  void pass_untouched(Output& d, std::uint64_t sequence);
  /// Against `server.drain_max`.
  void charge(Output& d);
  /// What a death has left in the midst of a commit is completed or taken back.
  Result<void> bring_to_last_commit(const Output& d);
  /// Drop what is not committed, and know that it is dropped.
  Result<void> take_back(Output& d);
  /// From its last commit on, with a new sink.
  void begin_anew(Output& d);
  /// What is staged stays staged; the program hears of it at its next sync or close; it is tried again.
  void fail(Output& d, Error error);
  /// The file is as it will be: the stage forgets the output. `brought`: to its last commit, where that has just been
  /// done. Where the disk has refused it, the hard link stays until it can be done (Ledger::LeftBehind).
  void end(Output& d, State state, Result<void> brought = {});
  /// The empty file that nc_create has made, where nothing ever came to be in it.
  Result<void> remove_placeholder(const Output& d);
  /// Error: not while the directory of its file is away.
  [[nodiscard]] Result<void> remove_hard_link(const Output& d) const;
  /// Its writer has gone without closing it.
  void drop_rest(Output& d, const std::string& writer);
  /// No name of its file is there, and it is not known to be removed: its file system may not be mounted. What a later
  /// recovery finds there stays as it is.
  [[nodiscard]] bool is_away(const Output& d) const;
  /// What the durability queue has done, into the ledger.
  void collect_durable();

 private:
  [[nodiscard]] Result<void> is_its_file(const Output& d) const;
  [[nodiscard]] Result<void> is_as_it_was(const Output& d) const;
  [[nodiscard]] Result<void> has_its_store_alone(const Output& d) const;
  void end_elsewhere(Output& d);
  void count_end(Output& d);
  void tell_end(Output& d);
  bool remove_links(Output& d, Result<void> brought);
  void leave_stage(Output& d, bool left);
  void remove_store(const Output& d) const;
  [[nodiscard]] bool was_removed(const Output& d) const;
  Result<void> prepare_commit(Output& d, const Commit& what);
  Result<void> note_commit(Output& d, const Commit& what);
  Result<void> on_sync(const std::shared_ptr<Output>& d, const Record& r, std::uint64_t closed_at = 0);
  /// By live readers.
  [[nodiscard]] bool is_read(const Output& d) const { return run_.live && !d.is_further(); }
  [[nodiscard]] bool may_wait(const Output& d, std::uint64_t sequence) const;
  Result<void> on_close(const std::shared_ptr<Output>& d, const Record& r);
  void count_sink(Output& d);
  void let_go(Output& d);
  [[nodiscard]] bool is_short_of_descriptors() const;
  void spare_descriptors(const Output& needs);
  void let_half_go(const Output& needs, const std::function<bool(const Output&)>& can_be);
  [[nodiscard]] SinkRequest sink_request(const Output& d, bool resume) const;
  void report_error(Output& d, const Error& error);
  void lose_durable(Output& d, const Error& error);

  Run& run_;
  Ledger& ledger_;
  Durability& durability_;
  std::uint64_t sinks_used_ = 0;
};

}  // namespace advectio
