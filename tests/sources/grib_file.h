// GRIB files of edition 1 written byte by byte, without ecCodes: integers on a grid of whole degrees.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "sinks/netcdf_reference.h"
#include "sinks/random_dataset.h"

namespace advectio::testing {

struct GribMessage {
  unsigned level = 500;  ///< hPa
  unsigned step = 0;     ///< hours after 2026-01-31 12:00
  std::uint64_t rows = 3, columns = 4;
  std::vector<std::uint16_t> values;  ///< rows from the north; each value but `missing` is kept as it is
  bool has_bitmap = false;
  std::uint16_t missing = 0;  ///< with a bitmap: points of this value have none
};

Bytes encoded(const GribMessage& message);

/// Temperatures of some levels and steps, some of which are not there, in any order. What is to be found: the schema is
/// the source's own (tests/shows/test_grib.py judges it), the values are not.
Contents make_grib(Random& random, const std::string& path);

}  // namespace advectio::testing
