#include "apps/advectiod/config_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/advectiod/open_sink.h"
#include "apps/advectiod/open_source.h"
#include "config/config.h"
#include "config/glob.h"
#include "config/processing.h"
#include "platform/files.h"
#include "platform/machine.h"
#include "server/config_names.h"
#include "server/stored_schema.h"
#include "sinks/netcdf4/readable.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod config [--config FILE] [--json [--like FILE]... | --yaml], or --example, or --reference\n";

/// What `auto` comes to here. `null` with the reason where it comes to nothing.
nlohmann::ordered_json on_this_machine(const Config& config) {
  nlohmann::ordered_json here;
  const std::uint64_t memory = usable_memory_bytes();
  here["memory_bytes"] = memory;
  here["threads"] = config.server.threads.value_or(usable_cores());
  here["stage_free_bytes"] = nullptr;
  here["stage_bytes_max"] = nullptr;
  here["segment_bytes"] = config.stage.segment_bytes;
  here["stage_error"] = nullptr;
  auto free = system_files().free_bytes(config.stage.directory);
  if (!free) {
    here["stage_error"] = "stage.directory: " + free.error().message;
    return here;
  }
  here["stage_free_bytes"] = *free;
  auto cap = stage_bytes_max(config, memory, *free);
  if (!cap) {
    here["stage_error"] = cap.error().message;
    return here;
  }
  here["stage_bytes_max"] = *cap;
  here["segment_bytes"] = stage_segment_bytes(config, *cap);
  return here;
}

/// Rules by which files would be stored as somebody who reads them cannot decode.
nlohmann::ordered_json not_readable(const Config& config) {
  auto all = nlohmann::ordered_json::array();
  const auto look = [&](const DatasetRule& rule, const DatasetPolicy& policy, const std::string& origin) {
    // No netCDF program reads it, and its own readers have all codecs.
    if (policy.format && is_store(*policy.format)) return;
    const auto filters = filters_named(policy);
    auto programs = nlohmann::ordered_json::array();
    for (const auto& program : config.readers.programs)
      if (std::any_of(filters.begin(), filters.end(), [&](auto f) { return !can_read(program, f); }))
        programs.push_back(program);
    if (programs.empty()) return;
    std::string how(name_of(policy.codec));
    if (policy.codec == Codec::asked) how = "shuffle: bit";
    all.push_back({{"match", rule.match}, {"origin", origin}, {"codec", how}, {"programs", programs}});
  };
  for (const auto& rule : config.datasets) {
    for (const char* key : {"codec", "shuffle"})
      if (rule.sets(key)) {
        look(rule, rule.values, rule.origins.at(key));
        break;
      }
    if (rule.sets("outputs"))
      for (const auto& output : rule.values.outputs) look(rule, output.policy, rule.origins.at("outputs"));
  }
  return all;
}

/// What of the config fits none of these files, which are like those that the run will write.
Result<nlohmann::ordered_json> held_against(const Config& config, const std::vector<std::string>& files) {
  std::vector<bool> matched(config.datasets.size(), false);
  ConfigNames names;
  for (const auto& file : files) {
    const auto path = std::filesystem::absolute(file).lexically_normal().string();
    auto opened = open_source(path);
    if (!opened) return std::move(opened).error();
    auto head = (*opened)->head();
    if (!head) return std::move(head).error().with(path);
    for (std::size_t i = 0; i < matched.size(); ++i)
      if (dataset_matches(config.datasets[i].match, path)) matched[i] = true;
    const auto policy = resolve(config, path);
    names.look(head->schema, policy);
    for (const auto& output : policy.outputs) names.look(head->schema, output.policy);
  }
  nlohmann::ordered_json found = {{"unmatched_rules", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < matched.size(); ++i)
    if (!matched[i])
      found["unmatched_rules"].push_back({{"match", config.datasets[i].match}, {"origin", config.datasets[i].origin}});
  found["config_names"] = names.to_json();
  return found;
}

}  // namespace

int config_command(std::span<const std::string> arguments) {
  std::string file;
  std::string form = "--json";
  std::vector<std::string> like;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a == "--config" && i + 1 < arguments.size()) {
      file = arguments[++i];
    } else if (a == "--like" && i + 1 < arguments.size()) {
      like.push_back(arguments[++i]);
    } else if (a == "--json" || a == "--yaml" || a == "--example" || a == "--reference") {
      form = a;
    } else {
      std::fprintf(stderr, "advectiod: error: config: unknown argument '%s'\n%s", a.c_str(), kUsage);
      return 2;
    }
  }

  std::string out;
  if (form == "--example") {
    out = example_yaml();
  } else if (form == "--reference") {
    out = reference_markdown();
  } else {
    auto config = file.empty() ? Result<Config>(default_config()) : load_config(file);
    if (!config) {
      std::fprintf(stderr, "advectiod: error: %s\n", config.error().message.c_str());
      return 2;
    }
    if (auto can = can_be_written(*config); !can) {
      std::fprintf(stderr, "advectiod: error: %s\n", can.error().message.c_str());
      return 2;
    }
    // Files that they name are read, too.
    for (std::size_t i = 0; i < config->datasets.size(); ++i)
      for (const auto& output : config->datasets[i].values.processed)
        if (auto rule = load_processed_rule(file, file, i, output.number); !rule) {
          std::fprintf(stderr, "advectiod: error: %s\n", rule.error().message.c_str());
          return 2;
        }
    if (form == "--yaml") {
      out = to_yaml(*config);
    } else {
      auto all = nlohmann::ordered_json::parse(to_json(*config));
      all["here"] = on_this_machine(*config);
      all["not_readable"] = not_readable(*config);
      if (!like.empty()) {
        auto held = held_against(*config, like);
        if (!held) {
          std::fprintf(stderr, "advectiod: error: %s\n", held.error().message.c_str());
          return 2;
        }
        all["like"] = std::move(held).value();
      }
      out = all.dump(2) + "\n";
    }
  }
  return std::fputs(out.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 2;
}

}  // namespace advectio
