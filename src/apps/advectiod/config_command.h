// `advectiod config`: parse a config, and tell it back in one of several forms.
#pragma once

#include <span>
#include <string>

namespace advectio {

/// `arguments` without the program's name and "config". Prints to stdout; one line on stderr and exit code 2 for a
/// config that is not right, or arguments that are not.
///   [--config FILE] [--json]    values with their origins, and what they come to on this machine
///   [--config FILE] --yaml      the config in full
///   --example                   a commented example
///   --reference                 the tables of docs/configuration.md
int config_command(std::span<const std::string> arguments);

}  // namespace advectio
