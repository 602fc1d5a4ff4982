// One rule of `advectio process`, which `outputs` of a dataset may have, too. Private to config/.
#pragma once

#include <optional>
#include <string>

#include "config/fields.h"
#include "config/processing.h"

namespace advectio::config {

/// `where` is what faults call the rule, `name` is the file's, for origins. Files that a rule names (`points`) are read
/// where `with_files`; without, the rule has no places. A fault names `where` and the key.
std::optional<Fault> read_process_rule(const std::string& where, const YAML::Node& item, const std::string& name,
                                       bool with_files, ProcessRule& rule);

/// Says the rule more than how a file is stored?
bool has_operators(const ProcessRule& rule);

}  // namespace advectio::config
