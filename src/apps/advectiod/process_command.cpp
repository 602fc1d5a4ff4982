#include "apps/advectiod/process_command.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/advectiod/process.h"
#include "apps/advectiod/worker_command.h"
#include "config/config.h"
#include "platform/machine.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod process --rules FILE --output DIR [--force] [--keep] [--kept FILE] [--complete] [--memory SIZE] "
    "[--jobs N] FILE... (or -: "
    "names on stdin, one a line)\n";
constexpr std::array<std::string_view, 3> kFlags = {"--force", "--keep", "--complete"};
constexpr std::array<std::string_view, 5> kOptions = {"--rules", "--output", "--memory", "--jobs", "--kept"};

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
  if (words.value("--rules").empty()) return Error{Code::invalid, "--rules is missing", 0};
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
  return {{"files", r.files}, {"records", r.records}, {"first", r.first}, {"last", r.last}, {"outputs", outputs}};
}

}  // namespace

int process_command(std::span<const std::string> arguments) {
  auto words = parse_words(arguments, kFlags, kOptions);
  if (!words) return complain(words.error(), kUsage);
  auto request = request_of(*words);
  if (!request) return complain(request.error(), kUsage);
  auto rules = load_process_rules(words->value("--rules"));
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
