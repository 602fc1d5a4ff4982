#include "apps/advectiod/convert_command.h"

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/advectiod/convert.h"
#include "apps/advectiod/worker_command.h"
#include "config/config.h"
#include "platform/machine.h"

namespace advectio {
namespace {

constexpr const char* kUsage =
    "usage: advectiod convert --output PATH [--to FORMAT] [--rule KEYS] [--variables NAMES] [--records SLICE | --times "
    "FROM..TO] [--along DIMENSION] [--overlap first|last] [--split] [--force] [--take-first] [--memory SIZE] [--jobs "
    "N] SRC... (or -: names "
    "on "
    "stdin, one a line)\n";
constexpr std::array<std::string_view, 3> kFlags = {"--split", "--force", "--take-first"};
constexpr std::array<std::string_view, 10> kOptions = {"--overlap", "--output", "--to",    "--rule",   "--variables",
                                                       "--records", "--times",  "--along", "--memory", "--jobs"};

/// A format as the key `format` of a rule has it, and as ncdump -k and nccopy -k do.
Result<std::optional<FileFormat>> format_named(const std::string& name) {
  static const std::array<std::pair<std::string_view, FileFormat>, 14> known = {
      {{"zarr", FileFormat::zarr},
       {"netcdf4", FileFormat::netcdf4},
       {"netCDF-4", FileFormat::netcdf4},
       {"nc4", FileFormat::netcdf4},
       {"netcdf4-classic", FileFormat::netcdf4_classic},
       {"nc7", FileFormat::netcdf4_classic},
       {"classic", FileFormat::classic},
       {"cdf1", FileFormat::classic},
       {"cdf2", FileFormat::offset64},
       {"64bit-offset", FileFormat::offset64},
       {"nc6", FileFormat::offset64},
       {"cdf5", FileFormat::cdf5},
       {"bp5", FileFormat::bp5},
       {"bp", FileFormat::bp5}}};
  if (name.empty()) return std::optional<FileFormat>();
  for (const auto& [n, format] : known)
    if (n == name) return std::optional(format);
  return Error{Code::invalid,
               "--to: '" + name + "' is none of zarr, netcdf4, netcdf4-classic, classic, cdf2, cdf5, bp5", 0};
}

Result<ConvertRequest> request_of(const Words& words) {
  ConvertRequest request;
  request.inputs = words.names;
  request.output = words.value("--output");
  request.records = words.value("--records");
  request.times = words.value("--times");
  request.along = words.value("--along");
  if (const auto overlap = words.value("--overlap"); !overlap.empty()) {
    const auto named = overlap_named(overlap);
    if (!named) return Error{Code::invalid, "--overlap: '" + overlap + "' is none of first, last", 0};
    request.overlap = *named;
  }
  request.split = words.has("--split");
  request.replace = words.has("--force");
  request.take_first = words.has("--take-first");
  std::istringstream names(words.value("--variables"));
  for (std::string name; std::getline(names, name, ',');)
    if (!name.empty()) request.variables.push_back(name);
  auto jobs = jobs_of(words, usable_cores());
  if (!jobs) return std::move(jobs).error();
  request.threads = *jobs;
  auto memory = memory_of(words, 256ULL << 20);
  if (!memory) return std::move(memory).error();
  request.memory_max = *memory;
  if (request.output.empty()) return Error{Code::invalid, "--output is missing", 0};
  if (request.inputs.empty()) return Error{Code::invalid, "no files are named", 0};
  auto format = format_named(words.value("--to"));
  if (!format) return std::move(format).error();
  auto config = default_config();
  auto rule = rule_of(words);
  if (!rule) return std::move(rule).error();
  config.datasets = std::move(rule).value();
  request.policy = resolve(config, request.output);
  if (*format) request.policy.format = *format;
  return request;
}

nlohmann::ordered_json as_json(const ConvertReport& r) {
  auto outputs = nlohmann::ordered_json::array();
  for (const auto& o : r.outputs)
    outputs.push_back({{"path", o.path},
                       {"format", o.format},
                       {"variables", o.variables},
                       {"records", o.records},
                       {"bytes", o.bytes},
                       {"bytes_written", o.bytes_written}});
  return {{"outputs", outputs},
          {"files", r.files},
          {"tiles", r.tiles},
          {"model", r.model},
          {"first", r.first},
          {"last", r.last},
          {"land_points", r.land_points},
          {"notes", r.notes},
          {"disagreements", r.disagreements},
          {"memory_peak", r.memory_peak}};
}

}  // namespace

int convert_command(std::span<const std::string> arguments) {
  auto words = parse_words(arguments, kFlags, kOptions);
  if (!words) return complain(words.error(), kUsage);
  auto request = request_of(*words);
  if (!request) return complain(request.error());
  return run_command(
      [&](const TellProgress& progress, const std::atomic<bool>& stop) -> Result<nlohmann::ordered_json> {
        auto report = convert(*request, progress, stop);
        if (!report) return std::move(report).error();
        return as_json(*report);
      });
}

}  // namespace advectio
