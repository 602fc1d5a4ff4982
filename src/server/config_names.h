// Names of variables and dimensions in the config, held against the datasets of the run.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "config/config.h"
#include "core/schema.h"

namespace advectio {

/// The names in `round` and `chunks` of the rules that fit a dataset, and whether any dataset has had them: a name that
/// none has is most often misspelt.
class ConfigNames {
 public:
  void look(const Schema& asked, const DatasetPolicy& policy);

  /// [{"key": "round", "name", "origin": FILE:LINE, "found"}…]
  [[nodiscard]] nlohmann::json to_json() const;
  /// What another node has found.
  static void add(nlohmann::json& own, const nlohmann::json& others);

 private:
  std::map<std::tuple<std::string, std::string, std::string>, bool> found_;  ///< by origin, key, name
};

}  // namespace advectio
