#include "apps/advectiod/open_source.h"

#include <filesystem>

#include "sources/adios2/bp5_source.h"
#include "sources/grib/grib_source.h"
#include "sources/netcdf/netcdf_source.h"
#include "sources/zarr/zarr_source.h"

namespace advectio {

Result<std::unique_ptr<Source>> open_source(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return is_bp(path) ? open_bp5_source(path) : open_zarr_source(path);
  if (is_grib(path)) return open_grib_source(path);
  return NetcdfSource::open(path);
}

}  // namespace advectio
