// Between the real library's metadata and core/schema.h, both ways.
#pragma once

#include "capture/netcdf/real_library.h"
#include "core/schema.h"

namespace advectio {

/// Each reads one part of what the open dataset `ncid` holds; NC_NOERR or the library's error. `attributes`: those of
/// the variable where they are known, null where they shall be read as well.
int read_dimensions(const RealLibrary& lib, int ncid, std::vector<Dimension>& dimensions);
int read_attributes(const RealLibrary& lib, int ncid, int variable, std::vector<Attribute>& attributes);
int read_variable(const RealLibrary& lib, int ncid, int variable, bool hdf5, const std::vector<Attribute>* attributes,
                  Variable& to);

/// Define in the new, empty dataset `ncid` everything that `schema` holds, in its order.
int define(const RealLibrary& lib, int ncid, const Schema& schema);

}  // namespace advectio
