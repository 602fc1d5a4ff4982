// What an output makes of a series of files: its schema, and of each of its variables where the
// values come from and what becomes of them along time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/processing.h"
#include "core/result.h"
#include "core/schema.h"
#include "operators/calendar.h"
#include "operators/quantity.h"
#include "operators/regrid.h"
#include "operators/selection.h"
#include "operators/time_statistic.h"
#include "operators/units.h"
#include "operators/values.h"

namespace advectio {

/// It says a time: units like "hours since 2000-01-01".
bool has_since(const Variable& v);

/// Where a file says its times: a numeric variable with units "… since …", or WRF's text `Times`.
struct TimeAxis {
  std::uint32_t dimension = 0;
  std::uint32_t variable = 0;
  bool text = false;                    ///< Times(Time, DateStrLen)
  std::optional<std::uint32_t> bounds;  ///< (time, 2)
  TimeUnits units;                      ///< of text: minutes since the epoch, see `moments_of_text`
  std::string undated;                  ///< why no times are known: records are only numbered; empty: they are

  static constexpr std::uint32_t none = UINT32_MAX;
  [[nodiscard]] bool dated() const noexcept { return undated.empty(); }
  [[nodiscard]] bool has_dimension() const noexcept { return dimension != none; }
};

/// Of a file without times. Its records are numbered along the dimension of a time that nobody can read, or along the
/// first unlimited one; without both nothing in it changes from record to record. `why` is what find_time_axis says.
TimeAxis undated_axis(const Schema& schema, const std::string& why);

/// Errors: Code::unsupported where there is none, or its calendar or units are not known.
Result<TimeAxis> find_time_axis(const Schema& schema);

/// Records of numeric time: `values` one each, `bounds` two each, or none. Errors: Code::invalid for a time that is
/// missing.
Result<std::vector<Moment>> moments_of_numbers(const TimeAxis& axis, std::span<const double> values,
                                               std::span<const double> bounds);
/// Of dates of `length` characters each.
Result<std::vector<Moment>> moments_of_text(const TimeAxis& axis, std::string_view dates, std::size_t length);

/// A variable of an output.
struct ProcessedVariable {
  enum class Kind : std::uint8_t {
    time,        ///< the time coordinate
    bounds,      ///< its bounds
    coordinate,  ///< of the rule's levels or grid
    copied,      ///< of the first file, as it is
    made_once,   ///< of the first file, without a time dimension
    made,        ///< record by record, then along time
  };
  Kind kind = Kind::made;
  std::uint32_t from = 0;            ///< copied, made: the input's variable
  std::vector<std::uint64_t> start;  ///< copied: where its part begins in the input's; empty: it is whole
  std::vector<double> values;        ///< of a coordinate of numbers
  std::string text;                  ///< of one of another type, all its bytes
  // Of what is made:
  std::shared_ptr<const Quantity> quantity;
  std::optional<std::size_t> whole;  ///< a dimension in space along which boxes are best not cut
  std::shared_ptr<const TimePlan> plan;
  bool as_it_is = false;                        ///< single samples, neither unpacked nor looked at for missing values
  double fill = 0;                              ///< what missing values become
  std::shared_ptr<const UnitConversion> units;  ///< of results; null: they stay as they are
};

struct Processed {
  Schema schema;                             ///< before the rule's storage
  std::vector<ProcessedVariable> variables;  ///< one each of the schema's
  std::uint32_t time = 0;                    ///< the time dimension
  std::vector<double> times, bounds;         ///< values of the time coordinate and of its bounds
  std::uint64_t records = 0;
  Selection selection;  ///< of the input's cells; empty where all are there
  /// Variables that it cannot have: text along time, parts of a grid that goes, bounds of cells that become one.
  std::vector<std::string> left_out;
};

/// Dimensions that no variable has go.
void drop_unused_dimensions(Processed& processed);

/// Without times there are neither windows nor periods. Errors: Code::config with the rule's file and line.
Result<void> check_dates(const ProcessRule& rule, const TimeAxis& axis);

/// The schema and plan of one rule. `series` are the records of all files, or of a part of the series of which `whole`
/// is the plan along time; a variable counts as packed in different
/// ways where `packed_alike` says false of it. `weights`: of a rule with `regrid` or `points`; `selection`: of
/// `select_cells`. Errors: Code::config with the rule's file and line (an unknown variable, with the nearest name;
/// text; windows that cannot be).
Result<Processed> process_schema(const Schema& input, const TimeAxis& axis, const std::vector<Moment>& series,
                                 const ProcessRule& rule, const std::vector<bool>& packed_alike,
                                 std::shared_ptr<const RegridWeights> weights = nullptr, Selection selection = {},
                                 const TimePlan* whole = nullptr);

}  // namespace advectio
