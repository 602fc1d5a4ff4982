// A schema as readers see it: what PROTOCOL.md calls a schema object.
#pragma once

#include <nlohmann/json.hpp>

#include "core/schema.h"

namespace advectio::readers {

nlohmann::json to_json(const Schema& schema);

/// What a reader must know of a variable to read it.
struct ReadVariable {
  std::string name;
  DataType type = DataType::none;
  std::size_t rank = 0;
  Bytes fill;  ///< one element; empty for strings
};
/// Errors: Code::corrupt.
Result<std::vector<ReadVariable>> variables_of(const nlohmann::json& schema);

/// One element: the fill value of the variable, else netCDF's of its type. Empty for strings.
Bytes fill_of(const Variable& variable);

}  // namespace advectio::readers
