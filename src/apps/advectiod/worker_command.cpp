#include "apps/advectiod/worker_command.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "config/config.h"

namespace advectio {
namespace {

std::atomic<bool> stop{false};

/// Whoever has asked for it is gone where nobody listens any more.
void say(const nlohmann::ordered_json& object) {
  if (std::puts(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str()) < 0 ||
      std::fflush(stdout) != 0)
    stop = true;
}

}  // namespace

Result<Words> parse_words(std::span<const std::string> arguments, std::span<const std::string_view> flags,
                          std::span<const std::string_view> options) {
  const auto among = [](std::span<const std::string_view> all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  Words words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& arg = arguments[i];
    if (among(flags, arg)) {
      words.flags.insert(arg);
    } else if (among(options, arg)) {
      if (i + 1 == arguments.size()) return Error{Code::invalid, arg + " needs a value", 0};
      words.values[arg] = arguments[++i];
    } else if (arg == "-") {
      for (std::string line; std::getline(std::cin, line);) words.names.push_back(line);
    } else if (arg.starts_with("--")) {
      return Error{Code::invalid, "unknown argument '" + arg + "'", 0};
    } else {
      words.names.push_back(arg);
    }
  }
  return words;
}

Result<std::uint64_t> memory_of(const Words& words, std::uint64_t otherwise) {
  const auto value = words.value("--memory");
  if (value.empty()) return otherwise;
  auto size = parse_size(value);
  if (!size) return std::move(size).error().with("--memory");
  if (*size < (16ULL << 20))
    return Error{Code::invalid, "--memory: " + value + " is too little; the least is 16MiB", 0};
  return *size;
}

Result<unsigned> jobs_of(const Words& words, unsigned otherwise) {
  const auto value = words.value("--jobs");
  if (value.empty()) return otherwise;
  unsigned jobs = 0;
  const auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), jobs);
  if (ec != std::errc() || end != value.data() + value.size() || jobs < 1 || jobs > 1024)
    return Error{Code::invalid, "--jobs: '" + value + "' is not a whole number from 1 to 1024", 0};
  return jobs;
}

Result<std::vector<DatasetRule>> rule_of(const Words& words) {
  const auto keys = words.value("--rule");
  if (keys.empty()) return std::vector<DatasetRule>{};
  auto config = parse_config("datasets: [{match: \"*\", " + keys + "}]", "--rule");
  if (config) return std::move(config->datasets);
  auto error = std::move(config).error();
  const std::string_view place = "--rule:1: datasets[0].";  // the user has written no list of rules
  if (error.message.starts_with(place)) error.message.erase(0, place.size());
  return error;
}

int complain(const Error& error) {
  std::fprintf(stderr, "advectiod: error: %s\n", error.message.c_str());
  const bool callers = error.code == Code::invalid || error.code == Code::unsupported || error.code == Code::exists ||
                       error.code == Code::config || error.code == Code::corrupt || error.code == Code::not_found;
  return callers ? 2 : 1;
}

int complain(const Error& error, const char* usage) {
  const int code = complain(error);
  std::fputs(usage, stderr);
  return code;
}

int run_command(
    const std::function<Result<nlohmann::ordered_json>(const TellProgress&, const std::atomic<bool>& stop)>& work) {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  // Both are told by the call that fails.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  const auto result = work([](std::uint64_t done, std::uint64_t of) { say({{"done", done}, {"of", of}}); }, stop);
  if (!result) return complain(result.error());
  say({{"result", *result}});
  return 0;
}

}  // namespace advectio
