// `advectiod convert`: files in another format, stored otherwise, or parts of them.
#pragma once

#include <span>
#include <string>

namespace advectio {

/// `arguments` without the program's name and "convert". Exit codes, and what is on stdout, as of `join_command`.
int convert_command(std::span<const std::string> arguments);

}  // namespace advectio
