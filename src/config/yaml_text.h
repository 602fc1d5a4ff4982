// YAML text and where things stand in it. Private to config/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/fields.h"

namespace advectio::config {

/// The text of a file. Errors: the system's; Code::config where it is larger than any config.
Result<std::string> read_text(const std::string& path);

/// One document into `root`. Fault: it is not YAML (with a hint why), or there is a second document.
std::optional<Fault> load_yaml(std::string_view text, YAML::Node& root);

/// The line of a key of the map; of the map itself where it has no such key.
int line_of_key(const YAML::Node& map, std::string_view key);

}  // namespace advectio::config
