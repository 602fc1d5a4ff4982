#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "journal/mirror.h"
#include "server/server_impl.h"

namespace advectio {

std::uint64_t ServerImpl::backlog() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, j] : journals_) {
    for (const auto& load : j->loads) bytes += load.bytes;
    if (j->reader) bytes += j->reader->bytes_ahead();
  }
  return bytes;
}

json ServerImpl::status_json(bool final) {
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
  auto& control = stage_.control();
  const auto segment = control.segment_bytes;
  const auto allocated = control.segments_total.load() * segment;
  allocated_peak_ = std::max(allocated_peak_, allocated);
  const auto waiting = backlog();
  backlog_peak_ = std::max(backlog_peak_, waiting);

  json writers = json::array();
  for (const auto& [name, j] : journals_) {
    if (!j->reader || journal::is_mirror(name)) continue;
    const auto& w = j->reader->writer();
    writers.push_back(
        {{"rank", w.rank}, {"pid", w.pid}, {"host", w.host}, {"alive", j->alive}, {"command", w.command}});
  }
  std::uint64_t encode_ns = 0;
  json datasets = json::array();
  for (const auto& d : datasets_) {
    if (d->owner) continue;  // its owner knows it all
    encode_ns += d->encode_ns;
    if (d->joined) continue;
    datasets.push_back(
        {{"path", d->path},
         {"format", std::string(name_of(d->policy.format.value_or(d->format)))},
         {"state", name_of(d->state)},
         {"writer", d->writer},
         {"tiles", d->tiles_count > 0 ? json(d->tiles_count) : json()},
         {"frames_synced", d->page ? std::max(d->frames_synced, d->page->frames_synced.load()) : d->frames_synced},
         {"frames_visible", d->frames_visible},
         {"frames_durable", d->frames_durable},
         {"frames_dropped", d->page ? d->page->frames_dropped.load() : d->frames_dropped},
         {"promise", std::string(name_of(d->policy.promise))},
         {"bytes_put", d->bytes_put},
         {"bytes_written", d->bytes_written},
         {"ratio", d->bytes_written > 0
                       ? json(static_cast<double>(d->bytes_put) / static_cast<double>(d->bytes_written))
                       : json()},
         {"stall_s", d->stall.to_json()},
         {"to_visible_s", d->to_visible.to_json()},
         {"to_durable_s", d->to_durable.to_json()},
         {"drain_bytes_per_s", d->busy_ns > 0 ? json(static_cast<double>(d->bytes_put) / seconds(d->busy_ns)) : json()},
         {"error", d->state == State::failed ? json(d->error.message) : json()}});
  }
  json all = {{"version", ADVECTIO_VERSION},
              {"run_dir", options_.run_dir},
              {"pid", ::getpid()},
              {"uptime_s", seconds(monotonic_ns() - started_ns_)},
              {"final", final},
              {"left", left_},
              {"server",
               {{"threads", options_.threads},
                {"memory_bytes", memory},
                {"memory_peak_bytes", memory_peak_},
                {"cpu_s", cpu(usage.ru_utime) + cpu(usage.ru_stime)},
                {"encode_cpu_s", seconds(encode_ns)},
                {"drain_max", config_.server.drain_max ? json(*config_.server.drain_max) : json()},
                {"held_back_s", seconds(rate_.held_ns())}}},
              {"stage",
               {{"directory", stage_.directory()},
                {"bytes_max", control.segments_max * segment},
                {"bytes_allocated", allocated},
                {"bytes_allocated_peak", allocated_peak_},
                {"backlog_bytes", waiting},
                {"backlog_peak_bytes", backlog_peak_},
                {"spill_bytes_max", control.spill_max.load() * segment},
                {"spill_bytes", control.spill_total.load() * segment},
                {"spilled_bytes", control.spilled.load() * segment},
                {"waits", control.waits.load()},
                {"wait_s", seconds(control.wait_ns.load())}}},
              {"writers", writers},
              {"datasets", datasets},
              {"errors", errors_}};
  if (options_.helping != nullptr) {
    all["server"]["chunks_by_others"] = options_.helping->by_others();
    all["server"]["chunks_for_others"] = options_.helping->for_others();
  }
  return relay_ ? with_others(std::move(all)) : all;
}

std::string ServerImpl::status() {
  // The ledger belongs to the loop: ask it for a picture, and take the last one when it is deep in a commit.
  std::unique_lock guard(picture_mutex_);
  if (concluded_) return picture_;
  picture_wanted_ = true;
  journal::ring(stage_.control().work);
  picture_made_.wait_for(guard, std::chrono::milliseconds(500), [this] { return !picture_wanted_; });
  return picture_;
}

void ServerImpl::make_picture() {
  {
    const std::lock_guard guard(picture_mutex_);
    if (!picture_wanted_ && !picture_.empty()) return;
  }
  auto text = status_json(false).dump(-1, ' ', false, json::error_handler_t::replace);
  const std::lock_guard guard(picture_mutex_);
  picture_ = std::move(text);
  picture_wanted_ = false;
  picture_made_.notify_all();
}

}  // namespace advectio
