// Several sources as one dataset: tiles of a whole, records that follow each other, or both.
//
//  * Tiles (core/placement.h) of one file are one part of the series; any other source is a part by
//    itself. Tiles belong together by their names, as the models number them.
//  * Parts follow each other along one dimension, in the order of their times; where they do not say
//    their times, in the order in which they are named.
//  * Nothing is read here but metadata and times. `extracts` says who holds a box.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/bytes.h"
#include "core/placement.h"
#include "core/result.h"
#include "core/schema.h"
#include "sources/series.h"
#include "sources/source.h"
#include "sources/times.h"

namespace advectio {

/// A part of a box of a variable, and who holds it.
struct Extract {
  std::size_t source = 0;  ///< index into Collection::paths
  std::uint32_t variable = 0;
  Box from;               ///< in the source
  Box to;                 ///< in the collection; the same counts
  bool repeated = false;  ///< others hold the same; not to be written, and to be the same
};

class Collection {
 public:
  /// `along`: name of the dimension along which parts follow each other; empty: that of the time, else the first
  /// unlimited one. Errors: Code::invalid where the sources do not belong together, each says which.
  static Result<Collection> look_at(const std::vector<std::string>& paths, const std::string& along,
                                    const OpenSource& open, const std::atomic<bool>& stop,
                                    Overlap overlap = Overlap::refused);

  /// As one source would have it: that of the first part. Dimension::length of the one along which there are several
  /// parts is that of all.
  [[nodiscard]] const Schema& schema() const noexcept { return schema_; }
  [[nodiscard]] const std::vector<std::uint64_t>& lengths() const noexcept { return lengths_; }
  [[nodiscard]] const std::vector<std::string>& paths() const noexcept { return paths_; }
  [[nodiscard]] std::size_t parts() const noexcept { return parts_.size(); }
  [[nodiscard]] std::optional<std::uint32_t> along() const noexcept { return along_; }
  [[nodiscard]] std::uint64_t records() const noexcept { return along_ ? lengths_[*along_] : 0; }
  [[nodiscard]] bool has_records(std::uint32_t variable) const {
    const auto& d = schema_.variables[variable].dimensions;
    return along_ && !d.empty() && d.front() == *along_;
  }
  /// Of all records; an error where they are not known.
  [[nodiscard]] const Result<std::vector<Moment>>& moments() const noexcept { return moments_; }
  [[nodiscard]] Calendar calendar() const noexcept { return calendar_; }

  /// Tiles that were joined, of which model, and points that no tile holds (core/placement.h).
  [[nodiscard]] std::size_t tiles() const noexcept { return tiles_; }
  [[nodiscard]] const std::string& model() const noexcept { return model_; }
  [[nodiscard]] std::uint64_t land_points() const noexcept { return land_points_; }

  /// All parts have these variables (one flag each), of the same shape and with the same attributes. Errors:
  /// Code::invalid.
  [[nodiscard]] Result<void> check(const std::vector<bool>& wanted);
  /// The differences between parts that were accepted, a line each. Known after `check`.
  [[nodiscard]] std::vector<std::string> notes() const;
  /// The records are those of one source, as it has them.
  [[nodiscard]] bool as_in_source() const noexcept {
    return parts_.size() == 1 && runs_.size() <= 1 && (runs_.empty() || runs_[0].record == 0);
  }
  /// Times that the parts count from different dates: all values of such a variable, counted as in the first part.
  [[nodiscard]] const Bytes* counted_again(std::uint32_t variable) const {
    const auto it = again_.find(variable);
    return it == again_.end() ? nullptr : &it->second;
  }

  /// Who holds the box. What is repeated comes after what is not.
  [[nodiscard]] std::vector<Extract> extracts(std::uint32_t variable, const Box& box) const;
  /// How many times `extracts` holds a variable's elements, all repetitions counted.
  [[nodiscard]] std::uint64_t copies(std::uint32_t variable) const;

 private:
  struct Part {
    std::vector<std::size_t> sources;  ///< indices into `paths_`; of tiles in the order of `pieces`
    Schema schema;
    std::vector<std::uint64_t> lengths;
    std::vector<std::vector<Piece>> pieces;               ///< of tiles
    std::vector<std::optional<std::uint32_t>> variables;  ///< by number in the collection's schema: its own
    std::uint64_t records = 0;
    Calendar calendar = Calendar::standard;
    std::vector<Moment> moments;
  };

  Collection() : moments_(Error{Code::unsupported, "", 0}) {}
  Result<void> add_tiles(std::vector<std::size_t> sources, std::vector<SourceHead>& heads);
  Result<void> find_along(const std::string& named);
  Result<void> read_times(const OpenSource& open);
  Result<void> put_in_order(Overlap overlap);
  Result<void> count_again(const OpenSource& open);
  Result<void> count_again(const OpenSource& open, std::uint32_t variable, const Variable& time);
  void add_extracts(std::uint32_t variable, const Part& part, const Box& local, std::uint64_t first,
                    std::vector<Extract>& out, std::vector<Extract>& repeated) const;
  [[nodiscard]] const std::string& name_of(const Part& part) const { return paths_[part.sources.front()]; }

  std::vector<std::string> paths_;
  std::vector<Part> parts_;
  Schema schema_;
  std::vector<std::uint64_t> lengths_;
  std::optional<std::uint32_t> along_;
  std::vector<RecordRun> runs_;  ///< of parts_
  Result<std::vector<Moment>> moments_;
  std::map<std::uint32_t, Bytes> again_;
  std::vector<std::string> notes_;
  Calendar calendar_ = Calendar::standard;
  std::size_t tiles_ = 0;
  std::string model_;
  std::uint64_t land_points_ = 0;
};

}  // namespace advectio
