// Files as one series of records, for `convert` and `process` alike: the order of the records, and whether a variable
// is the same in all files. A difference that changes no value is accepted, with a note. One that changes values is an
// error that names the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/processing.h"
#include "core/result.h"
#include "core/schema.h"
#include "operators/calendar.h"
#include "operators/time_statistic.h"

namespace advectio {

/// The times of a file.
struct SeriesPart {
  std::string name;
  Calendar calendar = Calendar::standard;
  std::vector<Moment> moments;
};

/// Records that follow each other both in their file and in the series.
struct RecordRun {
  std::size_t part = 0;
  std::uint64_t first = 0;   ///< in the series
  std::uint64_t record = 0;  ///< in the file
  std::uint64_t count = 0;
  [[nodiscard]] std::uint64_t end() const noexcept { return first + count; }
};

struct Series {
  std::vector<RecordRun> runs;  ///< in order, without gaps
  std::vector<Moment> moments;
  std::vector<std::string> notes;  ///< what was taken, a line each
};

/// The files in the order of their earliest times; those without a record last.
std::vector<std::size_t> order_of(std::span<const SeriesPart> parts);

/// The same things in that order.
template <typename T>
std::vector<T> in_order(std::vector<T> things, const std::vector<std::size_t>& order) {
  std::vector<T> out;
  out.reserve(order.size());
  for (const auto i : order) out.push_back(std::move(things[i]));
  return out;
}

/// All records in the order of their times. `parts` are in that of `order_of`.
///
/// A time that several records have is an error, unless `overlap` says whose counts: `first` the file's that begins
/// first (in a file the record that stands first), `last` the other. Where two files have a time in common, only the
/// records of the chosen one count from its first time to its last: a restart has its own trajectory.
///
/// Calendars are alike where their dates are: standard and proleptic_gregorian from 1582-10-15 on. `how` is the way in
/// which the caller's user says `overlap`. Errors: Code::invalid.
Result<Series> series_of(std::span<const SeriesPart> parts, Overlap overlap, const std::string& how);

/// A file, as errors call it.
struct SeriesFile {
  std::string name;
  const Schema* schema = nullptr;
  const std::vector<std::uint64_t>* lengths = nullptr;
};

/// Compares the variables of files with those of the first file.
class Agreement {
 public:
  /// `along`: the dimension of the first file along which the files follow each other. `unpacked`: values are taken out
  /// of their packing, file by file, and missing ones as each file has them.
  Agreement(SeriesFile first, std::uint32_t along, bool unpacked)
      : first_(std::move(first)), along_(along), unpacked_(unpacked) {}

  /// Type, shape and attributes of a variable of another file. Errors: Code::invalid, which names file, variable and
  /// attribute. The units of a time (`… since …`) may differ: the caller counts such times again.
  Result<void> check(std::uint32_t variable, const SeriesFile& other, std::uint32_t its);

  /// Of each variable what differs and is left out, as no file's is that of all.
  [[nodiscard]] const std::map<std::string, std::set<std::string>>& dropped() const noexcept { return dropped_; }
  /// The differences that were accepted, a line each.
  [[nodiscard]] std::vector<std::string> notes() const;

 private:
  SeriesFile first_;
  std::uint32_t along_;
  bool unpacked_;
  std::map<std::string, std::set<std::string>> taken_, dropped_;
};

}  // namespace advectio
