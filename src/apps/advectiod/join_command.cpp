#include "apps/advectiod/join_command.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/advectiod/join.h"
#include "config/config.h"
#include "platform/machine.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod join --output FILE [--config FILE] [--rule KEYS] [--force] [--take-first] TILE... (or -: names "
    "on "
    "stdin, one a line)\n";

std::atomic<bool> stop{false};

struct Arguments {
  JoinRequest request;
  std::string config, rule;
};

Result<Arguments> parse(std::span<const std::string> arguments) {
  Arguments a;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& arg = arguments[i];
    if (arg == "--force") {
      a.request.replace = true;
    } else if (arg == "--take-first") {
      a.request.take_first = true;
    } else if (arg == "--output" || arg == "--config" || arg == "--rule") {
      if (i + 1 == arguments.size()) return Error{Code::invalid, arg + " needs a value", 0};
      (arg == "--output" ? a.request.output : arg == "--config" ? a.config : a.rule) = arguments[++i];
    } else if (arg == "-") {
      for (std::string line; std::getline(std::cin, line);) a.request.tiles.push_back(line);
    } else if (arg.starts_with("--")) {
      return Error{Code::invalid, "unknown argument '" + arg + "'", 0};
    } else {
      a.request.tiles.push_back(arg);
    }
  }
  if (a.request.output.empty()) return Error{Code::invalid, "--output is missing", 0};
  if (a.request.tiles.empty()) return Error{Code::invalid, "no tiles are named", 0};
  return a;
}

/// The config's rules for the output, and after them the one on the command line: the same keys, read by the same
/// parser.
Result<void> configure(Arguments& a) {
  auto config = a.config.empty() ? Result<Config>(default_config()) : load_config(a.config);
  if (!config) return std::move(config).error();
  if (!a.rule.empty()) {
    auto own = parse_config("datasets: [{match: \"*\", " + a.rule + "}]", "--rule");
    if (!own) return std::move(own).error();
    for (const auto& rule : own->datasets) config->datasets.push_back(rule);
  }
  a.request.policy = resolve(*config, std::filesystem::absolute(a.request.output).string());
  a.request.threads = config->server.threads.value_or(usable_cores());
  a.request.memory_max = config->server.memory_max;
  return {};
}

/// Whoever has asked for it is gone where nobody listens any more.
void say(const nlohmann::ordered_json& object) {
  if (std::puts(object.dump().c_str()) < 0 || std::fflush(stdout) != 0) stop = true;
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

int complain(const Error& error) {
  std::fprintf(stderr, "advectiod: error: %s\n", error.message.c_str());
  const bool callers = error.code == Code::invalid || error.code == Code::unsupported || error.code == Code::exists ||
                       error.code == Code::config || error.code == Code::corrupt;
  return callers ? 2 : 1;
}

}  // namespace

int join_command(std::span<const std::string> arguments) {
  auto a = parse(arguments);
  if (!a) {
    const int code = complain(a.error());
    std::fputs(kUsage, stderr);
    return code;
  }
  if (auto configured = configure(*a); !configured) return complain(configured.error());
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  // Both are told by the call that fails.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  const auto report = join(
      a->request,
      [](std::uint64_t done, std::uint64_t of) {
        say({{"done", done}, {"of", of}});
      },
      stop);
  if (!report) return complain(report.error());
  say({{"result", as_json(*report, a->request.output)}});
  return 0;
}

}  // namespace advectio
