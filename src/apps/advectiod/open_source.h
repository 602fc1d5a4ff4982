// Which source a path gets.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "sources/source.h"

namespace advectio {

/// A netCDF or GRIB file, or the directory of a Zarr store or of a BP file. Errors: Code::unsupported for another
/// directory.
Result<std::unique_ptr<Source>> open_source(const std::string& path);

}  // namespace advectio
