// The records of a dataset that several processes write, put into one order.
//
// Each writer's records come in order, but nothing is known between writers except what the records say: their turn,
// and the round of a sync (journal/SPEC.md). What may not be handled yet waits here; the records' bytes stay where they
// are, in the journals' segments.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/result.h"
#include "journal/reader.h"

namespace advectio {

class Weave {
 public:
  explicit Weave(std::size_t writers) : strands_(writers) {}

  /// What an earlier server has committed of this writer: its records up to `sequence`, its syncs up to `round`.
  void resume(std::size_t writer, std::uint64_t sequence, std::uint64_t round);

  /// The next record of a writer. Errors: Code::corrupt.
  Result<void> take(std::size_t writer, const journal::Record& record);
  /// No record of an earlier turn will come from this writer any more.
  /// False: that was known.
  bool passed(std::size_t writer, std::uint64_t turn);

  /// What is to be done next: one record, or the end of a round (a sync, close or abort of every writer).
  struct Step {
    struct Part {
      std::size_t writer = 0;
      journal::Record record;
    };
    std::vector<Part> parts;
    std::uint64_t round = 0;  ///< 0: a single record
  };
  /// Nothing: some writer may still say something that comes before.
  std::optional<Step> next();
  /// The next record (also a sync or close alone) whatever may still come before it, or a pending block; never the end
  /// of a round. For when the writers cannot go on unless the stage gets room: a writer that has closed the dataset and
  /// writes another needs it as well, and keeps it from those that have not.
  std::optional<Step> next_at_any_price();
  std::optional<Step> next_pending();

  /// All of this writer's records up to here have been given out (or dropped).
  [[nodiscard]] std::uint64_t given(std::size_t writer) const;
  /// Its last round that has been given out.
  [[nodiscard]] std::uint64_t round(std::size_t writer) const { return strands_[writer].round; }

 private:
  struct Strand {
    std::deque<journal::Record> waiting;
    std::map<std::uint64_t, journal::Record> pending;
    std::uint64_t seen = 0;
    std::uint64_t turn = 0;
    std::uint64_t round = 0;
  };
  static bool ends_round(const journal::Record& record) noexcept;

  std::vector<Strand> strands_;
};

}  // namespace advectio
