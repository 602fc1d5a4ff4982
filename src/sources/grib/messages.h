// Where the messages of a GRIB file lie, by their own headers (WMO-No. 306, FM 92 GRIB; edition 1 and
// 2). Nothing is decoded here.
//
//  * Messages may have other bytes before, between and behind them: headers of bulletins, padding. These may be
//    long, and may have the letters GRIB in them.
//  * A message of edition 2 may hold several fields, which share its first sections. Each is a field of
//    its own here, and `field_bytes` makes a message of it alone.
//  * The section of values is read only where somebody wants the values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/result.h"
#include "platform/files.h"

namespace advectio::grib {

struct FieldPlace {
  std::uint64_t offset = 0, bytes = 0;  ///< of the message in the file
  std::uint32_t message = 0;            ///< number in the file, from 1
  std::uint32_t field = 0;              ///< number in the message, from 1
  bool alone = true;                    ///< it is the only one in its message
};

/// "message 3 (byte 1042 of the file)", and which field of it.
std::string text_of(const FieldPlace& place);

/// In the order of the file. Errors: Code::corrupt for a message that is cut off or contradicts itself;
/// Code::unsupported for other editions, and for a file without a message.
Result<std::vector<FieldPlace>> find_fields(File& file);

/// A message with this field only. With `header_only` its values are not what they are in the file.
Result<Bytes> field_bytes(File& file, const FieldPlace& place, bool header_only);

/// The section that tells the grid, without what may differ between fields of one grid. Empty: there is none.
Bytes grid_section(const Bytes& message);

/// True: the file begins with a message, or with text (the header of a bulletin) and then a message.
bool begins_with_message(const Bytes& first_bytes);

/// As many first bytes as `begins_with_message` wants.
inline constexpr std::size_t first_bytes_max = 64 << 10U;

}  // namespace advectio::grib
