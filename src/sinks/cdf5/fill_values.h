// Fill values of a classic file. netCDF-C fills each variable and each record before the put, and so writes it twice.
// This class fills only the bytes that nobody has put, just before the commit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/result.h"
#include "core/schema.h"
#include "platform/files.h"
#include "sinks/cdf5/extents.h"
#include "sinks/cdf5/header.h"
#include "sinks/sink.h"

namespace advectio {

/// Calls are serial. Variables are known by their numbers, records from 0 on.
class FillValues {
 public:
  /// All of them outlive this. `layout` is always that of `schema`. Bytes written are added to `counters`.
  FillValues(const Schema& schema, const ClassicLayout& layout, SinkCounters& counters)
      : schema_(schema), layout_(layout), counters_(counters) {}

  /// The first `records` records need no filling, nor, if `fixed`, do the variables without records.
  void reset(std::uint64_t records, bool fixed);

  /// Notes that [begin, end) of the file was put. Optional for bytes that are not due.
  void note_put(std::uint64_t begin, std::uint64_t end) { put_.add(begin, end); }
  [[nodiscard]] const Extents& put() const noexcept { return put_; }
  /// The list of puts is long; `write` clears it.
  [[nodiscard]] bool many() const noexcept { return put_.pieces() > pieces_max; }

  /// Whether the bytes that nobody puts there will be filled. `record` is ignored for a variable without records.
  [[nodiscard]] bool are_due(std::size_t variable, std::uint64_t record) const;
  /// The fill value, encoded as in the file.
  [[nodiscard]] Bytes value_of(std::size_t variable) const;

  /// Fills all that is due: variables without records, and the first `records` records of the others. Writes in the
  /// order of the file.
  Result<void> write(File& file, std::uint64_t records);
  /// Fills the variables from `first` on and `records` records of them. Nothing was put to them.
  Result<void> write_added(File& file, std::size_t first, std::uint64_t records);

 private:
  static constexpr std::size_t pieces_max = 1U << 16U;

  [[nodiscard]] bool has_fill(std::size_t variable) const;

  const Schema& schema_;
  const ClassicLayout& layout_;
  SinkCounters& counters_;
  bool fixed_filled_ = false;         // variables without records are filled
  std::uint64_t records_filled_ = 0;  // number of records that are filled
  Extents put_;                       // puts since then, of bytes that are due
};

}  // namespace advectio
