#include "server/config_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace advectio {
namespace {

using nlohmann::json;

Schema schema(const std::vector<std::string>& dimensions,
              const std::vector<std::pair<std::string, DataType>>& variables) {
  Schema s;
  for (const auto& name : dimensions) s.dimensions.push_back({name, 3, false});
  for (const auto& [name, type] : variables) {
    Variable v;
    v.name = name;
    v.type = type;
    s.variables.push_back(v);
  }
  return s;
}

DatasetPolicy policy(const std::string& yaml) {
  auto config = parse_config("datasets:\n  - match: \"*\"\n" + yaml, "a.yaml");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return resolve(*config, "/run/wrfout");
}

json entry(const char* key, const char* name, const char* origin, bool found) {
  return {{"key", key}, {"name", name}, {"origin", origin}, {"found", found}};
}

TEST(ConfigNames, AreFoundWhereAnyDatasetHasThem) {
  const auto p = policy("    round: {T: 10, \"Q*\": 10, N: 9, Z: 8}\n    chunks: {x: 2, tim: 1}\n");
  ConfigNames names;
  EXPECT_EQ(names.to_json(), json::array()) << "no dataset has come yet";
  names.look(schema({"x"}, {{"T", DataType::float32}, {"N", DataType::int32}}), p);
  names.look(schema({"y"}, {{"QVAPOR", DataType::float64}}), p);
  EXPECT_THAT(names.to_json(), testing::UnorderedElementsAre(
                                   entry("round", "T", "a.yaml:3", true), entry("round", "Q*", "a.yaml:3", true),
                                   entry("round", "N", "a.yaml:3", false),  // which has no bits to round
                                   entry("round", "Z", "a.yaml:3", false), entry("chunks", "x", "a.yaml:4", true),
                                   entry("chunks", "tim", "a.yaml:4", false)));
}

TEST(ConfigNames, OfAFurtherOutputAreThoseOfItsRule) {
  const auto p = policy("    outputs: [{path: \"small/{name}\", round: {T: 10}}]\n");
  ConfigNames names;
  names.look(schema({}, {}), p);
  EXPECT_EQ(names.to_json(), json::array());
  names.look(schema({}, {}), p.outputs.at(0).policy);
  EXPECT_THAT(names.to_json(), testing::ElementsAre(entry("round", "T", "a.yaml:3", false)));
}

TEST(ConfigNames, OfSeveralNodesAreFoundWhereOneOfThemHasFoundThem) {
  auto own = json::array({entry("round", "T", "/n0/a.yaml:3", false), entry("round", "Q", "/n0/a.yaml:3", true)});
  ConfigNames::add(own,
                   json::array({entry("round", "T", "/n1/a.yaml:3", true), entry("round", "Q", "/n1/a.yaml:3", false),
                                entry("round", "T", "/n1/a.yaml:9", false)}));
  EXPECT_THAT(own,
              testing::ElementsAre(entry("round", "T", "/n0/a.yaml:3", true), entry("round", "Q", "/n0/a.yaml:3", true),
                                   entry("round", "T", "/n1/a.yaml:9", false)));
}

}  // namespace
}  // namespace advectio
