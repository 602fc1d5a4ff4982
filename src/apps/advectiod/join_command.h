// `advectiod join`: one file of the tiles of a split one.
#pragma once

#include <span>
#include <string>

namespace advectio {

/// `arguments` without the program's name and "join". Exit codes: 0; 1 where reading or writing has failed; 2 where the
/// arguments or the tiles are not right (one line on stderr). Until it is complete there is nothing at the output's
/// path, or what was there before. On stdout a JSON object a line: {"done", "of"} in bytes, at last {"result"}.
int join_command(std::span<const std::string> arguments);

}  // namespace advectio
