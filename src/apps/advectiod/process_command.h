// `advectiod process`: files that rules make of files.
#pragma once

#include <span>
#include <string>

namespace advectio {

/// `arguments` without the program's name and "process". Exit codes: 0; 1 where reading or writing has failed; 2 where
/// the arguments, the rules or the files are not right (one line on stderr). Until it is complete there is nothing at
/// an output's path, or what was there before. On stdout a JSON object a line: {"done", "of"} in bytes, at last
/// {"result"}.
int process_command(std::span<const std::string> arguments);

}  // namespace advectio
