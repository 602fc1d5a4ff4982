// The element types of the data model. The numbers are netCDF's `nc_type`, so that no table stands between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace advectio {

enum class DataType : std::int32_t {
  none = 0,
  int8 = 1,     // NC_BYTE
  text = 2,     // NC_CHAR
  int16 = 3,    // NC_SHORT
  int32 = 4,    // NC_INT
  float32 = 5,  // NC_FLOAT
  float64 = 6,  // NC_DOUBLE
  uint8 = 7,    // NC_UBYTE
  uint16 = 8,   // NC_USHORT
  uint32 = 9,   // NC_UINT
  int64 = 10,   // NC_INT64
  uint64 = 11,  // NC_UINT64
  string = 12,  // NC_STRING: variable length, see "String blocks" in journal/SPEC.md for how it travels
};

/// Bytes of one element; 0 for `string` and `none`, whose elements have no fixed size.
constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::int8:
    case DataType::text:
    case DataType::uint8: return 1;
    case DataType::int16:
    case DataType::uint16: return 2;
    case DataType::int32:
    case DataType::uint32:
    case DataType::float32: return 4;
    case DataType::int64:
    case DataType::uint64:
    case DataType::float64: return 8;
    case DataType::none:
    case DataType::string: return 0;
  }
  return 0;
}

constexpr bool is_known(DataType type) noexcept {
  return type >= DataType::int8 && type <= DataType::string;
}

/// The CDL name: "float", "int", …
std::string_view name_of(DataType type) noexcept;

/// What a file is. A program asks for one of netCDF's, whose numbers these are; `netcdf4_classic` is
/// NC_NETCDF4|NC_CLASSIC_MODEL. Only the config can ask for the others (`is_store`).
enum class FileFormat : std::int32_t {
  classic = 1,
  offset64 = 2,
  netcdf4 = 3,
  netcdf4_classic = 4,
  cdf5 = 5,
  zarr = 6,
  bp5 = 7,  // ADIOS2
  sst = 8   // ADIOS2
};

constexpr bool is_hdf5(FileFormat f) noexcept {
  return f == FileFormat::netcdf4 || f == FileFormat::netcdf4_classic;
}

/// CDF-1, -2 and -5.
constexpr bool is_classic(FileFormat f) noexcept {
  return f == FileFormat::classic || f == FileFormat::offset64 || f == FileFormat::cdf5;
}

/// Something else takes the place of the program's file: a directory (Zarr, BP5), or a stream of
/// which only the address is a file (SST).
constexpr bool is_store(FileFormat f) noexcept {
  return f == FileFormat::zarr || f == FileFormat::bp5 || f == FileFormat::sst;
}

std::string_view name_of(FileFormat format) noexcept;

}  // namespace advectio
