#include "readers/schema_json.h"

#include "readers/base64.h"

namespace advectio::readers {

using nlohmann::json;

namespace {

json to_json(const Attribute& a) {
  json out = {{"name", a.name}, {"type", std::string(name_of(a.type))}, {"count", a.count}};
  if (a.type == DataType::string) {
    out["strings"] = json::array();
    for (const auto& s : a.strings)
      out["strings"].push_back(s ? json(to_base64(std::as_bytes(std::span(*s)))) : json());
  } else {
    out["bytes"] = to_base64(a.values);
  }
  return out;
}

json to_json(const std::vector<Attribute>& attributes) {
  json out = json::array();
  for (const auto& a : attributes) out.push_back(to_json(a));
  return out;
}

DataType type_named(const std::string& name) {
  for (int t = 1; t <= 12; ++t)
    if (name == name_of(static_cast<DataType>(t))) return static_cast<DataType>(t);
  return DataType::none;
}

}  // namespace

Bytes fill_of(const Variable& v) {
  if (size_of(v.type) == 0) return {};
  return v.fill.size() == size_of(v.type) ? v.fill : default_fill(v.type);
}

json to_json(const Schema& schema) {
  json dimensions = json::array(), variables = json::array();
  for (const auto& d : schema.dimensions)
    dimensions.push_back({{"name", d.name}, {"length", d.length}, {"unlimited", d.unlimited}});
  for (const auto& v : schema.variables) {
    json one = {{"name", v.name},
                {"type", std::string(name_of(v.type))},
                {"dimensions", v.dimensions},
                {"attributes", to_json(v.attributes)},
                {"fill", to_base64(fill_of(v))}};
    if (!v.chunks.empty()) one["chunks"] = v.chunks;
    variables.push_back(std::move(one));
  }
  return {{"format", std::string(name_of(schema.format))},
          {"dimensions", std::move(dimensions)},
          {"variables", std::move(variables)},
          {"attributes", to_json(schema.attributes)}};
}

Result<std::vector<ReadVariable>> variables_of(const json& schema) {
  const Error bad{Code::corrupt, "this is no schema", 0};
  if (!schema.is_object() || !schema.contains("variables") || !schema["variables"].is_array()) return bad;
  std::vector<ReadVariable> out;
  for (const auto& v : schema["variables"]) {
    if (!v.is_object() || !v.contains("name") || !v["name"].is_string() || !v.contains("type") ||
        !v["type"].is_string() || !v.contains("dimensions") || !v["dimensions"].is_array() || !v.contains("fill") ||
        !v["fill"].is_string())
      return bad;
    ReadVariable one;
    one.name = v["name"].get<std::string>();
    one.type = type_named(v["type"].get<std::string>());
    one.rank = v["dimensions"].size();
    auto fill = from_base64(v["fill"].get<std::string>());
    if (!fill || fill->size() != size_of(one.type) || one.type == DataType::none) return bad;
    one.fill = std::move(*fill);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace advectio::readers
