#include "apps/advectiod/process_command.h"

#include <array>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/advectiod/process.h"
#include "apps/advectiod/worker_command.h"
#include "config/config.h"
#include "platform/machine.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod process (--rules FILE | --config FILE --dataset N --number M [--called NAME]) --output DIR "
    "[--force] [--keep] [--kept FILE] [--complete] [--memory SIZE] "
    "[--jobs N] FILE... (or -: "
    "names on stdin, one a line)\n";
constexpr std::array<std::string_view, 3> kFlags = {"--force", "--keep", "--complete"};
constexpr std::array<std::string_view, 9> kOptions = {"--rules",  "--output", "--memory",  "--jobs",  "--kept",
                                                      "--config", "--called", "--dataset", "--number"};

/// Of a file of rules, or one of a config: `datasets[--dataset].outputs[--number]`, with NAME for the config in errors.
Result<ProcessRules> rules_of(const Words& words) {
  const auto config = words.value("--config");
  if (config.empty()) return load_process_rules(words.value("--rules"));
  const auto number = [&](const char* option) -> Result<std::size_t> {
    const auto text = words.value(option);
    std::size_t value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || ec != std::errc() || end != text.data() + text.size())
      return Error{Code::invalid, std::string(option) + ": a whole number is wanted, not '" + text + "'", 0};
    return value;
  };
  const auto dataset = number("--dataset"), output = number("--number");
  if (!dataset) return dataset.error();
  if (!output) return output.error();
  const auto called = words.value("--called");
  return load_processed_rule(config, called.empty() ? config : called, *dataset, *output);
}

Result<ProcessRequest> request_of(const Words& words) {
  ProcessRequest request;
  request.inputs = words.names;
  request.directory = words.value("--output");
  request.replace = words.has("--force");
  request.keep = words.has("--keep");
  request.complete = words.has("--complete");
  if (const auto list = words.value("--kept"); !list.empty()) {
    std::ifstream in(list);
    if (!in) return Error{Code::not_found, list + " cannot be read", 0};
    for (std::string line; std::getline(in, line);) request.kept.push_back(line);
  }
  auto jobs = jobs_of(words, usable_cores());
  if (!jobs) return std::move(jobs).error();
  request.threads = *jobs;
  auto memory = memory_of(words, 512ULL << 20);
  if (!memory) return std::move(memory).error();
  request.memory_max = *memory;
  if (words.value("--rules").empty() == words.value("--config").empty())
    return Error{Code::invalid, "one of --rules and --config is wanted", 0};
  if (request.directory.empty()) return Error{Code::invalid, "--output is missing", 0};
  if (request.inputs.empty()) return Error{Code::invalid, "no files are named", 0};
  return request;
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
  return {{"files", r.files}, {"records", r.records}, {"first", r.first},
          {"last", r.last},   {"notes", r.notes},     {"outputs", outputs}};
}

}  // namespace

int process_command(std::span<const std::string> arguments) {
  auto words = parse_words(arguments, kFlags, kOptions);
  if (!words) return complain(words.error(), kUsage);
  auto request = request_of(*words);
  if (!request) return complain(request.error(), kUsage);
  auto rules = rules_of(*words);
  if (!rules) {
    (void)complain(rules.error());
    return 2;
  }
  request->rules = std::move(rules).value();
  return run_command(
      [&](const TellProgress& progress, const std::atomic<bool>& stop) -> Result<nlohmann::ordered_json> {
        auto report = process(*request, progress, stop);
        if (!report) return std::move(report).error();
        return as_json(*report);
      });
}

}  // namespace advectio
