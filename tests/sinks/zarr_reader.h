// A strict reader of Zarr stores (version 3, consolidated, sharded), with decoders that are not the
// sink's. What zarr-python and xarray find is held against this in check_zarr.py.
#pragma once

#include <string>

#include "sinks/netcdf_reference.h"

namespace advectio::testing {

/// Throws std::runtime_error where anything in the store is not as it must be.
Contents read_zarr(const std::string& path);

/// What Zarr keeps of what netCDF keeps: only dimensions that a variable has, in the order in which
/// the variables have them; of attributes what JSON can tell (integers,
/// floating-point numbers, texts); strings that are there, without `_FillValue`.
Contents as_zarr_keeps(const Contents& netcdf);

}  // namespace advectio::testing
