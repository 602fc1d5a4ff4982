#include "apps/advectiod/inspect_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "journal/survey.h"
#include "platform/machine.h"

namespace advectio {
namespace {

using nlohmann::json;

constexpr const char* kUsage = "usage: advectiod inspect DIR [--records] [--verify] [--progress]\n";

struct Arguments {
  std::string run_dir;
  bool records = false, verify = false, progress = false;
};

Result<Arguments> parse(const std::vector<std::string>& arguments) {
  Arguments a;
  for (const auto& arg : arguments) {
    if (arg == "--records")
      a.records = a.verify = true;  // what a record is worth is part of what is told of it
    else if (arg == "--verify")
      a.verify = true;
    else if (arg == "--progress")
      a.progress = true;
    else if (arg == "--json")
      continue;  // there is nothing else
    else if (arg.starts_with("-") || !a.run_dir.empty())
      return Error{Code::invalid, "unknown argument '" + arg + "'", 0};
    else
      a.run_dir = arg;
  }
  if (a.run_dir.empty()) return Error{Code::invalid, "no run directory is named", 0};
  return a;
}

void print(const json& line) {
  // Names in damaged shared states need not be UTF-8.
  std::printf("%s\n", line.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
}

double seconds(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

const char* name_of(journal::DatasetState state) {
  switch (state) {
    case journal::DatasetState::in_flight: return "in flight";
    case journal::DatasetState::finished: return "finished";
    case journal::DatasetState::failed: return "failed";
    case journal::DatasetState::dropped: return "dropped";
  }
  return "damaged";
}

const char* name_of(journal::FileNames names) {
  switch (names) {
    case journal::FileNames::there: return "there";
    case journal::FileNames::removed: return "removed";
    case journal::FileNames::away: return "away";
  }
  return "?";
}

json text_or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

json json_of(const journal::SurveyedJournal& j) {
  json damage;
  if (j.damage) damage = {{"segment", j.damage->segment}, {"byte", j.damage->byte}, {"reason", j.damage->reason}};
  return {{"name", j.name},
          {"host", j.host},
          {"pid", j.pid},
          {"rank", j.rank},
          {"command", j.command},
          {"started_s", seconds(j.started_ns)},
          {"alive", j.alive},
          {"mirror", j.mirror},
          {"segments", j.segments},
          {"segment_bytes", j.segment_bytes},
          {"records_bytes", j.records_bytes},
          {"records", j.records},
          {"first_sequence", j.first > 0 ? json(j.first) : json()},
          {"last_sequence", j.last > 0 ? json(j.last) : json()},
          {"payloads_checked", j.payloads_checked},
          {"payloads_wrong", j.payloads_wrong},
          {"damage", damage}};
}

json json_of(const journal::SurveyedDataset& d) {
  return {{"path", d.path},
          {"link", d.link},
          {"format", std::string(name_of(d.format))},
          {"state", name_of(d.state)},
          {"closed", d.closed},
          {"file", name_of(d.file)},
          {"error", text_or_null(d.error)},
          {"frames_synced", d.frames_synced},
          {"frames_visible", d.frames_visible},
          {"frames_durable", d.frames_durable ? json(*d.frames_durable) : json()},
          {"frames_staged", d.frames_staged},
          {"bytes_put", d.bytes_put},
          {"bytes_staged", d.bytes_staged},
          {"bytes_unsynced", d.bytes_unsynced},
          {"frames_dropped", d.frames_dropped},
          {"writers", d.writers == 0 ? 1 : d.writers},
          {"tiles", d.tiles > 0 ? json(d.tiles) : json()},
          {"whole", text_or_null(d.whole)},
          {"owner", d.owner ? json(*d.owner) : json()}};
}

json json_of(const std::string& run_dir, const journal::Survey& s) {
  json journals = json::array(), datasets = json::array();
  for (const auto& j : s.journals) journals.push_back(json_of(j));
  for (const auto& d : s.datasets) datasets.push_back(json_of(d));
  return {{"run_dir", run_dir},
          {"served", s.served},
          {"power_lost", s.power_lost},
          {"server_pid", s.server_pid},
          {"node", s.node},
          {"nodes", s.nodes},
          {"segment_bytes", s.segment_bytes},
          {"segments_max", s.segments_max},
          {"segments_free", s.segments_free},
          {"journals", journals},
          {"datasets", datasets},
          {"markers", s.markers},
          {"errors", s.problems},
          {"damaged", s.damaged()}};
}

json json_of(const journal::SurveyedJournal& j, const journal::Record& r, bool whole) {
  return {{"journal", j.name},
          {"sequence", r.sequence},
          {"type", journal::name_of(r.type)},
          {"dataset", r.dataset},
          {"collective_index", r.collective_index},
          {"flags", r.flags},
          {"bytes", r.payload.size()},
          {"time_s", seconds(r.time_ns)},
          {"crc_ok", whole}};
}

}  // namespace

int inspect_command(const std::vector<std::string>& arguments) {
  const auto a = parse(arguments);
  if (!a) {
    std::fprintf(stderr, "advectiod: error: %s\n%s", a.error().message.c_str(), kUsage);
    return 2;
  }
  auto stage = journal::Stage::open(system_files(), a->run_dir, journal::Access::look);
  if (!stage) {
    std::fprintf(stderr, "advectiod: error: %s\n", stage.error().message.c_str());
    return 2;
  }
  journal::SurveyOptions options;
  options.boot = boot_id();
  options.verify = a->verify;
  if (a->records)
    options.on_record = [](const auto& j, const auto& r, bool whole) { print({{"record", json_of(j, r, whole)}}); };
  if (a->progress)
    options.on_progress = [](std::uint64_t done, std::uint64_t of) {
      print({{"done", done}, {"of", of}});
      std::fflush(stdout);
    };
  const auto found = journal::survey(*stage, options);
  if (!found) {
    std::fprintf(stderr, "advectiod: error: %s\n", found.error().message.c_str());
    return 2;
  }
  print({{"result", json_of(a->run_dir, *found)}});
  return found->damaged() ? 1 : 0;
}

}  // namespace advectio
