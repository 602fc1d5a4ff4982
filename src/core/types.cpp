#include "core/types.h"

namespace advectio {

std::string_view name_of(DataType type) noexcept {
  switch (type) {
    case DataType::int8: return "byte";
    case DataType::text: return "char";
    case DataType::int16: return "short";
    case DataType::int32: return "int";
    case DataType::float32: return "float";
    case DataType::float64: return "double";
    case DataType::uint8: return "ubyte";
    case DataType::uint16: return "ushort";
    case DataType::uint32: return "uint";
    case DataType::int64: return "int64";
    case DataType::uint64: return "uint64";
    case DataType::string: return "string";
    case DataType::none: return "none";
  }
  return "none";
}

std::string_view name_of(FileFormat format) noexcept {
  switch (format) {
    case FileFormat::classic: return "classic";
    case FileFormat::offset64: return "64-bit offset";
    case FileFormat::netcdf4: return "netCDF-4";
    case FileFormat::netcdf4_classic: return "netCDF-4 classic model";
    case FileFormat::cdf5: return "cdf5";
    case FileFormat::zarr: return "Zarr";
    case FileFormat::bp5: return "BP5";
    case FileFormat::sst: return "SST";
  }
  return "unknown";
}

}  // namespace advectio
