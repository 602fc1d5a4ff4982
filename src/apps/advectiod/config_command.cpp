#include "apps/advectiod/config_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "config/config.h"
#include "platform/files.h"
#include "platform/machine.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod config [--config FILE] [--json | --yaml], or --example, or --reference\n";

/// What `auto` comes to here. `null` with the reason where it comes to nothing.
nlohmann::ordered_json on_this_machine(const Config& config) {
  nlohmann::ordered_json here;
  const std::uint64_t memory = usable_memory_bytes();
  here["memory_bytes"] = memory;
  here["threads"] = config.server.threads.value_or(usable_cores());
  here["stage_free_bytes"] = nullptr;
  here["stage_bytes_max"] = nullptr;
  here["stage_error"] = nullptr;
  auto free = system_files().free_bytes(config.stage.directory);
  if (!free) {
    here["stage_error"] = "stage.directory: " + free.error().message;
    return here;
  }
  here["stage_free_bytes"] = *free;
  auto cap = stage_bytes_max(config, memory, *free);
  if (cap)
    here["stage_bytes_max"] = *cap;
  else
    here["stage_error"] = cap.error().message;
  return here;
}

}  // namespace

int config_command(std::span<const std::string> arguments) {
  std::string file;
  std::string form = "--json";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a == "--config" && i + 1 < arguments.size()) {
      file = arguments[++i];
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
    if (form == "--yaml") {
      out = to_yaml(*config);
    } else {
      auto all = nlohmann::ordered_json::parse(to_json(*config));
      all["here"] = on_this_machine(*config);
      out = all.dump(2) + "\n";
    }
  }
  return std::fputs(out.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 2;
}

}  // namespace advectio
