// The keys of `advectio process` that choose cells: region, subset, coarsen. Private to config/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/processing.h"

namespace advectio::config {

/// `name` is the file's, for origins. What is wrong, without the key in front.
std::optional<Fault> read_region(const YAML::Node& node, const std::string& name, RegionRule& rule);
std::optional<Fault> read_subset(const YAML::Node& node, const std::string& name, std::vector<SubsetRule>& rules);
std::optional<Fault> read_coarsen(const YAML::Node& node, const std::string& name, CoarsenRule& rule);

/// What stands there, for people.
std::string shown(const YAML::Node& node);

}  // namespace advectio::config
