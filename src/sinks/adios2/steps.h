// What a frame becomes where a format only appends: steps, of which each has at most one record of a
// variable. Knows nothing of ADIOS2.
//
//  * The n-th step that has a variable with records has its record n. Records that nobody has put,
//    before one that somebody has, are fill values.
//  * A frame of one record is one step. A frame of several is several steps, and variables that have
//    fewer of them have theirs in the last ones.
//  * A variable without records is in the first step of each frame in which it was put.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/field.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio::adios2 {

/// Of one frame, as a sink was told of them.
struct FrameParts {
  std::uint64_t number = 0;
  std::vector<std::pair<std::shared_ptr<const Field>, Part>> parts;
};

/// A variable of a step.
struct Put {
  std::uint32_t variable = 0;
  std::shared_ptr<const Field> field;  ///< null: nobody has put anything of that record
  /// What of the field the step has; of a variable with records one record of it.
  Box whole;
  std::vector<Part> parts;  ///< within it, as they were put
};
using Step = std::vector<Put>;

/// The variable has records: its first dimension is unlimited.
bool has_records(const Schema& schema, const Variable& variable) noexcept;

/// An error (Code::unsupported) that names what such a format cannot hold: a string variable, an
/// unlimited dimension that is not a variable's first, an attribute whose name we need.
Result<void> can_append(const Schema& schema);

/// `lengths`: in how many steps each variable of the schema is already; brought up to date.
/// Errors: Code::unsupported where the frame changes what is in an earlier step.
Result<std::vector<Step>> steps_of(const Schema& schema, const FrameParts& frame, std::vector<std::uint64_t>& lengths);

/// The same of a stream, which holds no earlier steps: those of this frame, whatever came before.
Result<std::vector<Step>> steps_alone(const Schema& schema, const FrameParts& frame);

}  // namespace advectio::adios2
