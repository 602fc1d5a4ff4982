// Datasets made up from a seed: a schema that a sink can carry out, and the blocks of its frames.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sinks/netcdf_reference.h"

namespace advectio::testing {

/// What made-up datasets may contain.
struct Ability {
  std::vector<FileFormat> formats;
  bool strings = true;
  bool many_unlimited = true;   ///< several unlimited dimensions, at any place
  std::vector<DataType> types;  ///< numbers and text
  std::vector<std::vector<Filter>> pipelines = {{}};
  bool storage = true;  ///< layouts, chunks, filters, byte order
};

using Random = std::mt19937_64;

Schema random_schema(Random& random, const Ability& ability);
/// Blocks of one frame: every variable's part of it, cut at random, in any order; some parts are missing, some come
/// twice.
std::vector<OwnedBlock> random_frame(Random& random, const Schema& schema, std::uint64_t frame);
Bytes random_values(Random& random, DataType type, std::uint64_t count);

}  // namespace advectio::testing
