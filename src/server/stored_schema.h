// How a dataset is stored: what the program asked for, changed where the config's rules say so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/config.h"
#include "core/schema.h"
#include "operators/operator.h"

namespace advectio {

/// What changes fields on their way: the roundings that the rules name, and those that the program has asked for.
Operators operators_of(const DatasetPolicy& policy);

/// The schema as it is written. Only storage changes (format, chunks, filters): dimensions, names, types, attributes
/// and values stay as asked. Applied to its own result it changes nothing. Errors: Code::unsupported where the format
/// cannot hold the schema (say, NC_UINT in a classic file).
Result<Schema> as_stored(const Schema& asked, const DatasetPolicy& policy);

/// HDF5 filters that a variable gets by `codec` and `shuffle` of the policy, whatever the program asked for.
std::vector<std::uint32_t> filters_named(const DatasetPolicy& policy);

/// Chunk lengths for a variable that has none: one step of each unlimited dimension, and of the others as much as fits
/// 4 MiB, the slowest dimensions cut first.
std::vector<std::uint64_t> default_chunks(const Schema& schema, const Variable& variable);

/// A dataset's schema as the program has asked for it, and as it is written.
class StoredSchema {
 public:
  std::optional<Schema> asked;  ///< the latest
  std::optional<Schema> written;
  std::shared_ptr<const Operators> operators;

  /// The program asks for another. After an error it is not known how that is written.
  Result<void> take(const Schema& its, const DatasetPolicy& policy);
  /// Of one of the program's variables, as it is written. Nothing: it is left out.
  [[nodiscard]] std::optional<std::uint32_t> number_of(std::uint32_t variable) const;

 private:
  std::vector<int> numbers_;  ///< see select_variables
};

/// Leaves out the variables that the policy does not name. Returns for each of those that there were its new number;
/// -1: left out. Empty: all stay.
std::vector<int> select_variables(Schema& schema, const DatasetPolicy& policy);

}  // namespace advectio
