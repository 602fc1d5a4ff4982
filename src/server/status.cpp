#include "server/status.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "journal/mirror.h"
#include "server/coupled.h"
#include "server/live.h"
#include "server/sprint.h"

namespace advectio {

/// The status of all nodes, for node 0 to tell: sums of the stages, everybody's datasets.
json Status::with_others(json own) const {
  const auto describe = [this](unsigned node, const json& status) -> json {
    return {{"node", node},
            {"name", run_.peers->name(node)},
            {"pid", status["pid"]},
            {"backlog_bytes", status["stage"]["backlog_bytes"]},
            {"bytes_max", status["stage"]["bytes_max"]},
            {"memory_peak_bytes", status["server"]["memory_peak_bytes"]}};
  };
  for (auto& d : own["datasets"]) d["node"] = run_.peers->name(run_.peers->node());
  if (own.contains("readers"))
    for (auto& r : own["readers"]["connected"]) r["node"] = run_.peers->name(run_.peers->node());
  if (run_.peers->node() != 0) return own;
  own["nodes"] = json::array({describe(0, own)});
  const auto snapshots = run_.peers->snapshots();
  for (unsigned n = 1; n < snapshots.size(); ++n) {
    const auto other = json::parse(snapshots[n], nullptr, false);
    if (!other.is_object()) continue;
    own["nodes"].push_back(describe(n, other));
    for (const char* list : {"writers", "datasets", "errors", "markers_waiting"})
      for (const auto& x : other[list]) own[list].push_back(x);
    own["markers_held"] = own["markers_held"].get<std::uint64_t>() + other["markers_held"].get<std::uint64_t>();
    ConfigNames::add(own["config_names"], other["config_names"]);
    for (const char* group : {"server", "stage"})
      for (auto& [key, value] : own[group].items())
        if (value.is_number() && other[group].contains(key)) {
          if (key == "sprint_s")  // the nodes' sprints are at one time
            value = std::max(value.get<double>(), other[group][key].get<double>());
          else if (value.is_number_float())
            value = value.get<double>() + other[group][key].get<double>();
          else
            value = value.get<std::uint64_t>() + other[group][key].get<std::uint64_t>();
        }
    if (own.contains("readers") && other.contains("readers")) {
      auto& readers = own["readers"];
      for (const auto& x : other["readers"]["connected"]) readers["connected"].push_back(x);
      readers["bytes_held"] =
          readers["bytes_held"].get<std::uint64_t>() + other["readers"]["bytes_held"].get<std::uint64_t>();
    }
  }
  return own;
}

json Status::to_json(bool final) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto cpu = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  std::uint64_t memory = 0;
  {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);)
      if (line.rfind("RssAnon:", 0) == 0) memory = std::strtoull(line.c_str() + 8, nullptr, 10) * 1024;
  }
  memory_peak_ = std::max(memory_peak_, memory);
  const auto* encoders = run_.options.encoders;
  auto& control = run_.stage.control();
  const auto segment = control.segment_bytes;
  const auto allocated = control.segments_total.load() * segment;
  // While it ends, segments go: what is warm is not what there was for frames.
  const auto warm = std::min(allocated, (run_.stage.free_segments() + run_.stage.segments_ahead()) * segment);
  const auto waiting = ledger_.backlog();
  run_.backlog_peak = std::max(run_.backlog_peak, waiting);

  json writers = json::array();
  for (const auto& [name, j] : ledger_.journals) {
    if (!j->reader || journal::is_mirror(name)) continue;
    const auto& w = j->reader->writer();
    writers.push_back(
        {{"rank", w.rank}, {"pid", w.pid}, {"host", w.host}, {"alive", j->alive}, {"command", w.command}});
  }
  // What readers open of the dataset that the program calls so.
  const auto shown = [this](const std::string& source) {
    for (const auto& d : ledger_.outputs)
      if (!d->is_further() && d->path == source) return d->destination();
    return source;
  };
  std::uint64_t encode_ns = 0;
  json datasets = json::array();
  for (const auto& d : ledger_.outputs) {
    if (d->is_elsewhere()) continue;  // its owner knows it all
    encode_ns += d->figures.encode_ns;
    if (d->hidden) continue;
    const auto former = d->progress.frames_of_former;
    datasets.push_back(
        {{"path", run_.coupled->name(d->destination())},
         {"format", std::string(name_of(d->policy.format.value_or(d->format)))},
         {"state", name_of(d->state)},
         {"writer", d->writer},
         {"tiles", d->join.tiles_count > 0 ? json(d->join.tiles_count) : json()},
         {"output_of", d->is_further() ? json(shown(d->further.source)) : json()},
         {"in_place_of", d->is_store() && !d->is_further() ? json(d->path) : json()},
         {"frames_synced",
          former + (d->shared_state ? std::max(d->progress.frames_synced, d->shared_state->frames_synced.load())
                                    : d->progress.frames_synced)},
         {"frames_visible", former + d->progress.frames_visible},
         {"frames_durable", former + d->progress.frames_durable},
         {"frames_dropped", d->shared_state ? d->shared_state->frames_dropped.load() : d->figures.frames_dropped},
         {"promise", std::string(name_of(d->policy.promise))},
         {"bytes_put", d->figures.bytes_put},
         {"bytes_written", d->figures.bytes_written},
         {"ratio", d->figures.bytes_written > 0
                       ? json(static_cast<double>(d->figures.bytes_put) / static_cast<double>(d->figures.bytes_written))
                       : json()},
         {"stall_s", d->figures.stall.to_json()},
         {"to_visible_s", d->figures.to_visible.to_json()},
         {"to_durable_s", d->figures.to_durable.to_json()},
         {"drain_bytes_per_s", d->figures.busy_ns > 0
                                   ? json(static_cast<double>(d->figures.bytes_put) / seconds(d->figures.busy_ns))
                                   : json()},
         {"error", d->state == State::failed ? json(d->trouble.error.message) : json()}});
  }
  json all = {{"version", ADVECTIO_VERSION},
              {"run_dir", run_.options.run_dir},
              {"pid", ::getpid()},
              {"uptime_s", seconds(monotonic_ns() - run_.started_ns)},
              {"final", final},
              {"clean", run_.shutdown.rest == Shutdown::Rest::nothing},
              {"left", run_.shutdown.rest == Shutdown::Rest::on_disk},
              {"server",
               {{"threads", run_.sprint           ? run_.sprint->usual()
                            : encoders != nullptr ? encoders->threads()
                                                  : 0},
                {"sprint_threads", run_.sprint ? run_.sprint->threads() : 0},
                {"sprint_s", run_.sprint ? seconds(run_.sprint->ns()) : 0.0},
                {"memory_bytes", memory},
                {"memory_peak_bytes", memory_peak_},
                {"cpu_s", cpu(usage.ru_utime) + cpu(usage.ru_stime)},
                {"encode_cpu_s", seconds(encode_ns)},
                {"layouts_bytes", run_.layouts.bytes()},
                {"drain_max", run_.config.server.drain_max ? json(*run_.config.server.drain_max) : json()},
                {"held_back_s", seconds(run_.rate.held_ns())}}},
              {"stage",
               {{"directory", run_.stage.directory()},
                {"bytes_max", control.segments_max * segment},
                {"bytes_allocated", allocated},
                {"bytes_allocated_peak", control.segments_peak.load() * segment},
                {"bytes_held", allocated - warm},
                {"bytes_warm", warm},
                {"backlog_bytes", waiting},
                {"backlog_peak_bytes", run_.backlog_peak},
                {"spill_bytes_max", control.spill_max.load() * segment},
                {"spill_bytes", control.spill_total.load() * segment},
                {"spilled_bytes", control.spilled.load() * segment},
                {"waits", control.waits.load()},
                {"wait_s", seconds(control.wait_ns.load())}}},
              {"writers", writers},
              {"datasets", datasets},
              {"markers_held", run_.markers_named + run_.markers_waiting.size()},
              {"markers_waiting", run_.markers_waiting},
              {"config_names", run_.config_names.to_json()},
              {"errors", run_.errors}};
  if (run_.live) all["readers"] = run_.live->status();
  if (run_.options.remote_encoder != nullptr) {
    all["server"]["chunks_by_others"] = run_.options.remote_encoder->by_others();
    all["server"]["chunks_for_others"] = run_.options.remote_encoder->for_others();
  }
  return run_.has_other_nodes() ? with_others(std::move(all)) : all;
}

namespace {

/// The backlog of now in a status that is older.
std::string with_backlog(const std::string& text, std::uint64_t bytes) {
  auto status = json::parse(text, nullptr, false);
  if (!status.is_object() || !status.contains("stage")) return text;
  status["stage"]["backlog_bytes"] = bytes;
  return status.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string Snapshot::get(const std::function<void()>& wake, const std::atomic<std::uint64_t>& backlog) {
  std::unique_lock guard(mutex_);
  if (concluded_) return text_;
  wanted_ = true;
  wake();
  made_.wait_for(guard, patience_, [this] { return !wanted_; });
  // Of a server that has only begun there is no last one.
  made_.wait_for(guard, std::chrono::seconds(30), [this] { return !text_.empty(); });
  // The server is deep in a commit. How much it has to do is what is asked for then.
  return wanted_ ? with_backlog(text_, backlog) : text_;
}

bool Snapshot::is_wanted() {
  const std::lock_guard guard(mutex_);
  return wanted_ || text_.empty();
}

void Snapshot::put(std::string text) {
  const std::lock_guard guard(mutex_);
  text_ = std::move(text);
  wanted_ = false;
  made_.notify_all();
}

void Snapshot::conclude(std::string text) {
  const std::lock_guard guard(mutex_);
  text_ = std::move(text);
  concluded_ = true;
  wanted_ = false;
  made_.notify_all();
}

}  // namespace advectio
