// Datasets made up from a seed: a schema that a sink can carry out, and the blocks of its frames.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "operators/operator.h"
#include "sinks/netcdf_reference.h"
#include "sinks/sink.h"

namespace advectio::testing {

/// What made-up datasets may contain.
struct Ability {
  std::vector<FileFormat> formats;
  bool strings = true;
  bool many_unlimited = true;   ///< several unlimited dimensions, at any place
  std::vector<DataType> types;  ///< numbers and text
  std::vector<std::vector<Filter>> pipelines = {{}};
  bool storage = true;  ///< layouts, chunks, filters, byte order
  bool no_fill = true;  ///< variables that are not filled
};

/// What the sink says that it can do.
Ability ability_of(const Abilities& abilities);

using Random = std::mt19937_64;

Schema random_schema(Random& random, const Ability& ability);
/// Blocks of one frame: every variable's part of it, cut at random, in any order; some parts are missing, some come
/// twice. Of a format that only appends (BP5) a frame has records of its own, and the first one has
/// something of every variable.
std::vector<OwnedBlock> random_frame(Random& random, const Schema& schema, std::uint64_t frame);
/// An output's operators: all floating-point variables keep `bits` of mantissa; 0: as the schema says.
std::shared_ptr<Operators> rounding(unsigned bits = 0);
Bytes random_values(Random& random, DataType type, std::uint64_t count);

}  // namespace advectio::testing
