#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "sinks/raw_directory.h"

namespace advectio::testing {

RawContents read_raw_directory(const std::string& path) {
  const auto read = [&](const std::string& name) {
    auto bytes = read_file(system_files(), path + '/' + name);
    if (!bytes) throw std::runtime_error(bytes.error().message);
    return std::move(bytes).value();
  };
  RawContents out;
  auto names = system_files().list(path).value();
  std::sort(names.begin(), names.end());
  for (const auto& name : names) {
    if (!name.ends_with(".json")) continue;
    const auto number = name.substr(0, name.size() - 5);
    if (std::find(names.begin(), names.end(), number + ".schema") != names.end())
      out.schema = decode_schema(read(number + ".schema")).value();
    const auto text = read(name);
    const auto* begin = reinterpret_cast<const char*>(text.data());
    const auto head = nlohmann::json::parse(begin, begin + text.size());
    for (const auto& v : head["variables"]) {
      const auto variable = v["number"].get<std::uint32_t>();
      const auto values = read(number + '.' + std::to_string(variable) + ".raw");
      for (const auto& p : v["parts"]) {
        const auto first = values.begin() + p["at"].get<std::ptrdiff_t>();
        out.parts.emplace_back(variable, Box{p["start"], p["count"]},
                               Bytes(first, first + p["bytes"].get<std::ptrdiff_t>()),
                               p["stride"].get<std::vector<std::uint64_t>>());
      }
    }
  }
  return out;
}

}  // namespace advectio::testing
