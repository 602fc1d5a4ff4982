#include "apps/advectiod/process_command.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/advectiod/process.h"
#include "config/config.h"
#include "platform/machine.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod process --rules FILE --output DIR [--force] [--keep] [--memory SIZE] [--jobs N] FILE... (or -: "
    "names on stdin, one a line)\n";

std::atomic<bool> stop{false};

struct Arguments {
  ProcessRequest request;
  std::string rules;
};

Result<Arguments> parse(std::span<const std::string> arguments) {
  Arguments a;
  a.request.threads = usable_cores();
  a.request.memory_max = 512ULL << 20;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& arg = arguments[i];
    if (arg == "--force") {
      a.request.replace = true;
    } else if (arg == "--keep") {
      a.request.keep = true;
    } else if (arg == "--rules" || arg == "--output" || arg == "--memory" || arg == "--jobs") {
      if (i + 1 == arguments.size()) return Error{Code::invalid, arg + " needs a value", 0};
      const auto& value = arguments[++i];
      if (arg == "--rules") a.rules = value;
      if (arg == "--output") a.request.directory = value;
      if (arg == "--memory") {
        auto size = parse_size(value);
        if (!size) return std::move(size).error().with(arg);
        if (*size < (16ULL << 20))
          return Error{Code::invalid, "--memory: " + value + " is too little; the least is 16MiB", 0};
        a.request.memory_max = *size;
      }
      if (arg == "--jobs") {
        const auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), a.request.threads);
        if (ec != std::errc() || end != value.data() + value.size() || a.request.threads < 1 ||
            a.request.threads > 1024)
          return Error{Code::invalid, "--jobs: '" + value + "' is not a whole number from 1 to 1024", 0};
      }
    } else if (arg == "-") {
      for (std::string line; std::getline(std::cin, line);) a.request.inputs.push_back(line);
    } else if (arg.starts_with("--")) {
      return Error{Code::invalid, "unknown argument '" + arg + "'", 0};
    } else {
      a.request.inputs.push_back(arg);
    }
  }
  if (a.rules.empty()) return Error{Code::invalid, "--rules is missing", 0};
  if (a.request.directory.empty()) return Error{Code::invalid, "--output is missing", 0};
  if (a.request.inputs.empty()) return Error{Code::invalid, "no files are named", 0};
  return a;
}

/// Whoever has asked for it is gone where nobody listens any more.
void say(const nlohmann::ordered_json& object) {
  if (std::puts(object.dump().c_str()) < 0 || std::fflush(stdout) != 0) stop = true;
}

nlohmann::ordered_json as_json(const ProcessReport& r) {
  auto outputs = nlohmann::ordered_json::array();
  for (const auto& o : r.outputs)
    outputs.push_back({{"path", o.path},
                       {"format", o.format},
                       {"variables", o.variables},
                       {"records", o.records},
                       {"bytes_read", o.bytes_read},
                       {"bytes_written", o.bytes_written},
                       {"kept", o.kept},
                       {"left_out", o.left_out}});
  return {{"files", r.files}, {"records", r.records}, {"first", r.first}, {"last", r.last}, {"outputs", outputs}};
}

int complain(const Error& error) {
  std::fprintf(stderr, "advectiod: error: %s\n", error.message.c_str());
  const bool callers = error.code == Code::invalid || error.code == Code::unsupported || error.code == Code::exists ||
                       error.code == Code::config || error.code == Code::corrupt || error.code == Code::not_found;
  return callers ? 2 : 1;
}

}  // namespace

int process_command(std::span<const std::string> arguments) {
  auto a = parse(arguments);
  if (!a) {
    const int code = complain(a.error());
    std::fputs(kUsage, stderr);
    return code;
  }
  auto rules = load_process_rules(a->rules);
  if (!rules) {
    (void)complain(rules.error());
    return 2;
  }
  a->request.rules = std::move(rules).value();
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  // Both are told by the call that fails.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  const auto report = process(
      a->request,
      [](std::uint64_t done, std::uint64_t of) {
        say({{"done", done}, {"of", of}});
      },
      stop);
  if (!report) return complain(report.error());
  say({{"result", as_json(*report)}});
  return 0;
}

}  // namespace advectio
