// The processes that write an output together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "assembly/collective_sequencer.h"
#include "journal/stage.h"

namespace advectio {

/// Empty where one process writes it.
struct SharedWriters {
  struct Share {
    /// `gone`: it has died, or is not heard of any more.
    enum class State : std::uint8_t { writes, gone, closed, aborted };

    std::uint64_t journal = 0;  ///< 0: has not entered yet
    std::uint64_t visible = 0;  ///< its records up to here are committed
    State state = State::writes;

    [[nodiscard]] bool over() const { return state != State::writes; }
    [[nodiscard]] bool closed() const { return state == State::closed; }
    void close() { state = State::closed; }
    void lose() {
      if (!over()) state = State::gone;
    }
    /// A writer that has closed or aborted the dataset has no more records of it.
    void note(journal::RecordType type) {
      if (type == journal::RecordType::close) state = State::closed;
      if (type == journal::RecordType::abort) state = State::aborted;
    }
  };
  std::vector<Share> shares;  ///< by number of the writer
  journal::MappedState<journal::WriterSlot> slots;
  std::unique_ptr<CollectiveSequencer> sequencer;
  std::vector<journal::RecordEnd> ends_kept;  ///< in the dataset's file of them, beside the shared state

  /// Their slots, as an earlier server has left them. `first`: the journal of writer 0, whose slot on another node may
  /// not have been heard of yet.
  void take_up(journal::MappedState<journal::WriterSlot> theirs, std::size_t count, std::uint64_t first) {
    slots = std::move(theirs);
    shares.resize(count);
    for (std::size_t w = 0; w < count; ++w) {
      shares[w].journal = w == 0 ? first : slots[w].journal.load(std::memory_order_acquire);
      shares[w].visible = slots[w].visible.load();
    }
    begin_again();
  }
  /// All that is not committed comes once more.
  void begin_again() {
    const auto before = std::exchange(sequencer, std::make_unique<CollectiveSequencer>(shares.size()));
    for (std::size_t w = 0; w < shares.size(); ++w)
      sequencer->resume(w, shares[w].visible, journal::SyncIndex{slots[w].sync_index.load()});
    if (before) sequencer->remember(*before);
  }
  /// A writer's records up to `sequence` have nothing to do with it.
  void begin_behind(std::size_t writer, std::uint64_t sequence) {
    shares[writer].visible = sequence;
    sequencer->resume(writer, sequence, {});
  }
  /// Who a writer is. Of a further output it is kept here, too: the slots of the program's file may go first.
  void enter(std::size_t writer, std::uint64_t journal, std::uint32_t number) {
    shares[writer].journal = journal;
    slots[writer].number = number;
    slots[writer].journal.store(journal, std::memory_order_release);
  }
  /// The writer whose journal that is.
  [[nodiscard]] std::size_t number_of(std::uint64_t journal) const {
    const auto it = std::find_if(shares.begin(), shares.end(), [&](const Share& s) { return s.journal == journal; });
    return static_cast<std::size_t>(it - shares.begin());
  }
  void close_all() {
    for (auto& s : shares) s.close();
  }
  [[nodiscard]] bool all_closed() const {
    return std::all_of(shares.begin(), shares.end(), [](const Share& s) { return s.closed(); });
  }
  [[nodiscard]] bool any_aborted() const {
    return std::any_of(shares.begin(), shares.end(), [](const Share& s) { return s.state == Share::State::aborted; });
  }
  /// All that the sequencer has given is committed. Writer 0 comes last: after a death in between, its sync that ends a
  /// record ends it again, with what the others give again.
  void note_commit() {
    sequencer->note_commit();
    for (std::size_t w = shares.size(); w-- > 0;) {
      shares[w].visible = sequencer->given(w);
      slots[w].sync_index.store(journal::number(sequencer->sync_index(w)), std::memory_order_relaxed);
      slots[w].visible.store(shares[w].visible, std::memory_order_release);
    }
  }
  /// All is over: what they share with the program is let go.
  void let_go() {
    slots = journal::MappedState<journal::WriterSlot>();
    sequencer.reset();
  }
};

}  // namespace advectio
