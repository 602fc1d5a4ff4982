// Fill values of a classic file. netCDF-C fills each variable and each record before it is put, and so writes it twice.
// Here only what nobody has put is filled, before it is committed.
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

  /// In the file nothing is to be filled of these records, which are the first, nor, if `fixed`, of the variables
  /// without records.
  void reset(std::uint64_t records, bool fixed);

  /// [begin, end) of the file has been put. What is not due need not be told.
  void note_put(std::uint64_t begin, std::uint64_t end) { put_.add(begin, end); }
  [[nodiscard]] const Extents& put() const noexcept { return put_; }
  /// So many pieces were put that they want to be forgotten: `write`.
  [[nodiscard]] bool many() const noexcept { return put_.pieces() > pieces_max; }

  /// What nobody puts of it will be filled. `record` does not matter where the variable has none.
  [[nodiscard]] bool are_due(std::size_t variable, std::uint64_t record) const;
  /// One element as the file has it.
  [[nodiscard]] Bytes value_of(std::size_t variable) const;

  /// Fills what is due of the variables without records and of the first `records` of the others, in the order of the
  /// file.
  Result<void> write(File& file, std::uint64_t records);
  /// Fills the variables from `first` on, to which nothing has been put, and `records` records of them.
  Result<void> write_added(File& file, std::size_t first, std::uint64_t records);

 private:
  static constexpr std::size_t pieces_max = 1U << 16U;

  [[nodiscard]] bool has_fill(std::size_t variable) const;

  const Schema& schema_;
  const ClassicLayout& layout_;
  SinkCounters& counters_;
  bool fixed_filled_ = false;         // variables without records
  std::uint64_t records_filled_ = 0;  // the same of records
  Extents put_;                       // since then, of what is due
};

}  // namespace advectio
