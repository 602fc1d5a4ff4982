// Bytes as text, after RFC 4648, with padding.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "core/result.h"

namespace advectio::readers {

std::string to_base64(std::span<const std::byte> bytes);
/// Errors: Code::corrupt.
Result<Bytes> from_base64(std::string_view text);

}  // namespace advectio::readers
