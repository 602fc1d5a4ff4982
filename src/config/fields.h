// The keys of `advectio.yaml`, declared as data: parsing, `explain`, the JSON dump and the reference page are all
// derived from these tables, so that they cannot say different things. Private to config/.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace advectio::config {

/// What is wrong with a value, and on which line (counted from 1).
struct Fault {
  int line = 0;
  std::string text;
};

inline int line_of(const YAML::Node& node) {
  return node.Mark().line + 1;
}

template <typename Section>
struct Field {
  std::string_view key;
  std::string_view type;     ///< what may be written, for people
  std::string_view doc;      ///< one line
  std::string_view example;  ///< for the commented example, where the default shows too little; else empty
  std::function<std::optional<Fault>(const YAML::Node&, Section&)> read;
  std::function<std::string(const Section&)> show;  ///< as one writes it in YAML
  std::function<std::optional<double>(const Section&)> number;
  std::function<void(const Section& from, Section& to)> copy;
};

const std::vector<Field<StageConfig>>& stage_fields();
const std::vector<Field<ServerConfig>>& server_fields();
const std::vector<Field<ReadersConfig>>& readers_fields();
const std::vector<Field<WorkflowConfig>>& workflow_fields();
const std::vector<Field<LogConfig>>& log_fields();
const std::vector<Field<OutsideConfig>>& outside_fields();
/// All keys of a rule of `couple`.
const std::vector<Field<CoupleRule>>& couple_fields();
/// All keys of a rule of `sets`.
const std::vector<Field<SetRule>>& set_fields();
/// The keys of a dataset rule but `match`.
const std::vector<Field<DatasetPolicy>>& dataset_fields();

inline constexpr std::string_view kMatchType = "pattern";
inline constexpr std::string_view kMatchDoc =
    "Which datasets: a shell pattern on the file's name; with a / in it, on the whole absolute path.";

/// Name of a section's key as people write it. The keys at the top of the config have a section without a name.
inline std::string full_key(const std::string& section, std::string_view key) {
  return section.empty() ? std::string(key) : section + "." + std::string(key);
}

/// Call `visit(name, table, section)` for each of the plain sections, in their order; the keys at the top are the last
/// one, without a name. `C` is Config or const Config.
template <typename C, typename Visit>
void for_each_section(C& config, Visit&& visit) {
  visit(std::string("stage"), stage_fields(), config.stage);
  visit(std::string("server"), server_fields(), config.server);
  visit(std::string("readers"), readers_fields(), config.readers);
  visit(std::string("workflow"), workflow_fields(), config.workflow);
  visit(std::string("log"), log_fields(), config.log);
  visit(std::string(), outside_fields(), config.outside);
}

/// Text as a YAML scalar that reads back as this text: plain where that is safe, else in double quotes.
std::string yaml_scalar(const std::string& text);

/// YAML on one line that reads back as this node.
std::string flow_text(const YAML::Node& node);

/// Keys of a rule that say how a file is stored: an output has them, too.
bool is_of_storage(std::string_view key);

/// What is wrong with the storage keys of a rule in combination. `where` is what the fault calls the rule, `item` is
/// its text.
std::optional<Fault> check_storage(const std::string& where, const YAML::Node& item, const DatasetRule& rule);

/// Range of `level` for a codec. Empty: the codec has no levels.
struct LevelRange {
  int least = 0, most = 0;
};
std::optional<LevelRange> level_range(Codec codec, DeflateBy by);

}  // namespace advectio::config
