// How a dataset is stored: what the program asked for, changed where the config's rules say so.
#pragma once

#include "config/config.h"
#include "core/schema.h"

namespace advectio {

/// The schema as it is written. Only storage changes (format, chunks, filters, bit rounding and the attribute that
/// records it): dimensions, names, types and values stay as asked. Errors: Code::unsupported where the format cannot
/// hold the schema (say, NC_UINT in a classic file).
Result<Schema> as_stored(const Schema& asked, const DatasetPolicy& policy);

/// Chunk lengths for a variable that has none: one step of each unlimited dimension, and of the others as much as fits
/// 4 MiB, the slowest dimensions cut first.
std::vector<std::uint64_t> default_chunks(const Schema& schema, const Variable& variable);

}  // namespace advectio
