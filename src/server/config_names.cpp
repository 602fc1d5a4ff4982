#include "server/config_names.h"

#include <algorithm>

#include "config/glob.h"

namespace advectio {

void ConfigNames::look(const Schema& asked, const DatasetPolicy& policy) {
  const auto note = [this](const std::string& origin, const char* key, const std::string& name, const auto& has) {
    auto& found = found_[{origin, key, name}];
    found = found || has();
  };
  for (const auto& chunk : policy.chunks)
    note(policy.names_set_at.chunks, "chunks", chunk.first, [&] {
      return std::any_of(asked.dimensions.begin(), asked.dimensions.end(),
                         [&](const Dimension& d) { return d.name == chunk.first; });
    });
  for (const auto& round : policy.round)
    note(policy.names_set_at.round, "round", round.first, [&] {
      return std::any_of(asked.variables.begin(), asked.variables.end(), [&](const Variable& v) {
        return (v.type == DataType::float32 || v.type == DataType::float64) &&
               (v.name == round.first || glob_matches(round.first, v.name));
      });
    });
}

nlohmann::json ConfigNames::to_json() const {
  auto all = nlohmann::json::array();
  for (const auto& [id, found] : found_) {
    const auto& [origin, key, name] = id;
    all.push_back({{"key", key}, {"name", name}, {"origin", origin}, {"found", found}});
  }
  return all;
}

namespace {

/// Each node reads a copy of the config: the line alone is the same.
std::string line_of(const nlohmann::json& name) {
  const auto origin = name["origin"].get<std::string>();
  return origin.substr(origin.rfind(':') + 1);
}

}  // namespace

void ConfigNames::add(nlohmann::json& own, const nlohmann::json& others) {
  for (const auto& other : others) {
    const auto same = std::find_if(own.begin(), own.end(), [&](const nlohmann::json& mine) {
      return mine["key"] == other["key"] && mine["name"] == other["name"] && line_of(mine) == line_of(other);
    });
    if (same == own.end())
      own.push_back(other);
    else if (other["found"].get<bool>())
      (*same)["found"] = true;
  }
}

}  // namespace advectio
