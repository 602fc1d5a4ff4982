// BP5 files as ADIOS2's own reader finds them.
#pragma once

#include <string>

#include "sinks/netcdf_reference.h"

namespace advectio::testing {

/// Names the wheel of the source tree's Python to the library, where nobody has named another ADIOS2.
/// Empty where there is one; else why there is none.
std::string why_no_adios2();

/// Throws std::runtime_error where anything in the file is not as it must be. Variables and
/// attributes are in the order of their names. Records that a variable lacks at its end have its fill
/// value.
Contents read_bp5(const std::string& path);

/// What a BP5 file keeps of what netCDF keeps: only dimensions that a variable has; of texts one
/// type; no attribute without values. Variables are in the order of their names.
Contents as_bp5_keeps(const Contents& netcdf);
/// The same, with variables in their own order.
Contents as_bp5_keeps_in_order(const Contents& netcdf);

}  // namespace advectio::testing
