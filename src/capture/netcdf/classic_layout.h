// The layout that netCDF-C gives a classic file when define mode ends. The shadow never ends it:
// that would lay the file out in memory.
#pragma once

#include <cstdint>

#include "core/schema.h"

namespace advectio::netcdf {

/// As nc__enddef takes them. An alignment of 1 is none.
struct ClassicPadding {
  std::uint64_t header = 0, data_align = 1, data = 0, record_align = 1;
};

struct ClassicLayout {
  /// Of the first variable of fixed size, and of the first one with records.
  std::uint64_t begin_data = 0, begin_records = 0;
  std::uint64_t end_data = 0;  ///< behind the last variable of fixed size

  bool operator==(const ClassicLayout&) const = default;
  std::uint64_t records_there = 0;  ///< where records begin in the file; they never move backwards

  /// The code that nc_enddef returns: NC_EVARSIZE where the format cannot hold the beginnings or
  /// sizes. Then the library (4.9.0) forgets the new beginning of the data and keeps that of the
  /// records.
  int end_define_mode(const Schema& schema, ClassicPadding padding);
  /// As the library knows it when it has opened the file: that records begin later than the data ends is in the file
  /// only where it has a variable with records. Source: NC_computeshapes of netCDF-C 4.9.0.
  void reopen(const Schema& schema);
  /// The paddings by which a file with this header, new or laid out before, comes to the same
  /// layout.
  void pad(Schema& schema) const;
};

/// Bytes of the header as it is written to the file.
std::uint64_t classic_header_bytes(const Schema& schema);

}  // namespace advectio::netcdf
