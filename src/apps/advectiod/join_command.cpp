#include "apps/advectiod/join_command.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/advectiod/join.h"
#include "apps/advectiod/worker_command.h"
#include "config/config.h"
#include "platform/machine.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod join --output FILE [--config FILE] [--rule KEYS] [--force] [--take-first] TILE... (or -: names "
    "on stdin, one a line)\n";
constexpr std::array<std::string_view, 2> kFlags = {"--force", "--take-first"};
constexpr std::array<std::string_view, 3> kOptions = {"--output", "--config", "--rule"};

/// The config's rules for the output, and after them the one on the command line: the same keys, read by the same
/// parser.
Result<void> configure(const Words& words, JoinRequest& request) {
  const auto file = words.value("--config");
  auto config = file.empty() ? Result<Config>(default_config()) : load_config(file);
  if (!config) return std::move(config).error();
  auto rule = rule_of(words);
  if (!rule) return std::move(rule).error();
  for (const auto& r : *rule) config->datasets.push_back(r);
  request.policy = resolve(*config, std::filesystem::absolute(request.output).string());
  request.threads = config->server.threads.value_or(usable_cores());
  request.memory_max = config->server.memory_max;
  return {};
}

nlohmann::ordered_json as_json(const JoinReport& r, const std::string& output) {
  return {{"output", output},
          {"model", r.model},
          {"format", r.format},
          {"tiles", r.tiles},
          {"variables", r.variables},
          {"frames", r.frames},
          {"bytes", r.bytes},
          {"bytes_written", r.bytes_written},
          {"land_points", r.land_points},
          {"disagreements", r.disagreements}};
}

}  // namespace

int join_command(std::span<const std::string> arguments) {
  auto words = parse_words(arguments, kFlags, kOptions);
  if (!words) return complain(words.error(), kUsage);
  JoinRequest request;
  request.tiles = words->names;
  request.output = words->value("--output");
  request.replace = words->has("--force");
  request.take_first = words->has("--take-first");
  if (request.output.empty()) return complain(Error{Code::invalid, "--output is missing", 0}, kUsage);
  if (request.tiles.empty()) return complain(Error{Code::invalid, "no tiles are named", 0}, kUsage);
  if (auto configured = configure(*words, request); !configured) return complain(configured.error());
  return run_command(
      [&](const TellProgress& progress, const std::atomic<bool>& stop) -> Result<nlohmann::ordered_json> {
        auto report = join(request, progress, stop);
        if (!report) return std::move(report).error();
        return as_json(*report, request.output);
      });
}

}  // namespace advectio
