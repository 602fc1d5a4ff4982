// What of a dataset is wanted: variables by their names, records by their numbers or times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "operators/calendar.h"
#include "operators/processed.h"

namespace advectio {

/// The variables that names or patterns mean, by number, in the schema's order. Errors: Code::invalid for a name that
/// is none, with the nearest one.
Result<std::vector<std::uint32_t>> variables_named(const Schema& schema, const std::vector<std::string>& names);

/// `chosen`, and what belongs to them: coordinates, their bounds and formula terms, grid mappings, and what tells the
/// time. In the schema's order.
std::vector<std::uint32_t> with_coordinates(const Schema& schema, const std::vector<std::uint32_t>& chosen);

/// True where a variable belongs to others in that way, or is a dimension's coordinate.
std::vector<bool> are_coordinates(const Schema& schema);

/// Records as Python's slices number them: "0:24", "::4", "-1". Errors: Code::invalid.
Result<std::vector<std::uint64_t>> records_numbered(const std::string& slice, std::uint64_t records);

/// Records "FROM..TO", both included; either may be missing. A day without an hour is all of it. Errors: Code::invalid
/// for a text that is no date, and where no record is meant.
Result<std::vector<std::uint64_t>> records_timed(const std::string& range, const std::vector<Moment>& moments,
                                                 Calendar calendar);

/// The variables `chosen` alone, and the dimensions that they have; with `all_dimensions` all of them. `numbers`: by
/// old number of a dimension its new one.
Schema with_variables(const Schema& schema, const std::vector<std::uint32_t>& chosen, bool all_dimensions,
                      std::vector<std::optional<std::uint32_t>>& numbers);

}  // namespace advectio
