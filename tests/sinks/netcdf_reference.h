// The netCDF library as the judge of our files: what it writes when told the same, and what it reads from a file.
#pragma once

#include <string>
#include <vector>

#include "core/schema.h"
#include "sinks/sink.h"

namespace advectio::testing {

/// All that the netCDF interface tells of a file. Dimension::length of unlimited ones is what they have now.
struct Contents {
  Schema schema;
  std::vector<Bytes> values;                 ///< per variable, whole
  std::vector<std::vector<String>> strings;  ///< per variable, where it has strings
};

/// A block that owns its data.
struct OwnedBlock {
  Block block;
  Bytes data;
  OwnedBlock(std::uint32_t variable, Box box, Bytes bytes, std::vector<std::uint64_t> stride = {});
  OwnedBlock(const OwnedBlock& other);
  OwnedBlock& operator=(const OwnedBlock& other);
};

/// Throws std::runtime_error with netCDF's reason.
void write_by_netcdf(const std::string& path, const Schema& schema, const std::vector<OwnedBlock>& blocks);
Contents read_by_netcdf(const std::string& path);

/// Empty where they are equal; else the first difference in words. Values of variables without fill are compared where
/// `written` says so (per variable one flag per element; empty: everywhere). With `values_of_simple` values are
/// compared only of variables that have no unlimited dimension but the first: of others netCDF-C 4.9 reads wrong values
/// where the variable is shorter than the dimension.
std::string difference(const Contents& a, const Contents& b, const std::vector<std::vector<bool>>& written = {},
                       bool values_of_simple = false);

/// What a file must hold after these blocks, computed plainly.
struct Model {
  Contents contents;
  std::vector<std::vector<bool>> written;
};
Model model_of(const Schema& schema, const std::vector<OwnedBlock>& blocks);

}  // namespace advectio::testing
