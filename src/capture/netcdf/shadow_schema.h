// Between the real library's metadata and core/schema.h, both ways.
#pragma once

#include "capture/netcdf/real_library.h"
#include "core/schema.h"

namespace advectio::netcdf {

/// Each reads one part of what the open dataset `ncid` holds; NC_NOERR or the library's error.
/// `attributes`: those of the variable where they are known, null where they shall be read as well.
int read_dimensions(const RealLibrary& lib, int ncid, std::vector<Dimension>& dimensions);
int read_attributes(const RealLibrary& lib, int ncid, int variable, std::vector<Attribute>& attributes);
int read_variable(const RealLibrary& lib, int ncid, int variable, bool hdf5, const std::vector<Attribute>* attributes,
                  Variable& to);

/// The attribute in which the library records its rounding of a variable.
inline constexpr const char* rounding_mark = "_QuantizeBitRoundNumberOfSignificantBits";

/// The first of a schema's dimensions and variables, by how many.
struct DefinitionCount {
  std::size_t dimensions = 0, variables = 0;
};

/// Define in the dataset `ncid`, which has those `from` the beginning, what `schema` holds up to
/// those `to` the second, in its order. Global attributes: in an empty one.
int define(const RealLibrary& lib, int ncid, const Schema& schema, const DefinitionCount& from,
           const DefinitionCount& to);
/// In a new, empty dataset: all of it.
int define(const RealLibrary& lib, int ncid, const Schema& schema);

}  // namespace advectio::netcdf
