// The bytes of one version, from the memory of one node into that of another.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace advectio::exchange {

/// To who has asked for it on that connection. Errors are said to it; those of the connection: Code::gone.
Result<std::uint64_t> send_version(int socket, const std::string& version);

/// Asks for nothing: receives what `send_version` sends, as the file `to`. Room for all of it is reserved first.
/// Nothing is left of it where it fails: Code::full, Code::gone, Code::corrupt (its checksum is another one),
/// Code::not_found.
Result<std::uint64_t> receive_version(int socket, const std::string& to);

}  // namespace advectio::exchange
