#include "server/sprint.h"

#include <algorithm>

#include "journal/mirror.h"

namespace advectio {

namespace {
constexpr std::uint64_t sprint_looks_every_ns = 100'000'000;
}  // namespace

Sprint::~Sprint() {
  ending_ = true;
  journal::ring(run_.stage.control().ends);
  if (thread_.joinable()) thread_.join();
}

void Sprint::begin() {
  if (cores_ <= usual_) return;
  thread_ = std::thread([this] {
    while (!ending_) {
      const auto seen = run_.stage.control().ends.load(std::memory_order_acquire);
      look();
      journal::await_ring(run_.stage.control().ends, seen, sprint_looks_every_ns);
    }
  });
}

void Sprint::look() {
  if (cores_ <= usual_) return;
  const auto ends = run_.stage.control().ends.load(std::memory_order_acquire);
  const bool sprints = since_ns_ != 0;
  if (ends == ends_seen_ && !sprints && !run_.shutdown.draining()) return;
  const bool ended = programs_have_ended();
  ends_seen_ = ends;
  if (ended == sprints) return;
  const auto now = monotonic_ns();
  if (!ended) {
    pool_.resize(usual_);
    ns_ += now - since_ns_.exchange(0);
    run_.log.info("a program has begun: " + std::to_string(usual_) + " threads compress again");
    return;
  }
  pool_.resize(cores_);
  threads_ = pool_.threads();
  since_ns_ = now;
  run_.log.info("the programs have ended: " + std::to_string(threads_) + " threads drain what is left, in place of " +
                std::to_string(usual_));
}

std::uint64_t Sprint::ns() const noexcept {
  const auto since = since_ns_.load();
  return ns_ + (since != 0 ? monotonic_ns() - since : 0);
}

/// Each of them has gone, or only waits for its files; and the run's end is asked for, or one waits. A sprint lasts
/// until another begins.
bool Sprint::programs_have_ended() {
  const auto names = run_.files.list(run_.stage.journals());
  if (!names) return false;
  std::erase_if(writers_,
                [&](const auto& w) { return std::find(names->begin(), names->end(), w.first) == names->end(); });
  for (const auto& name : *names) {
    if (name[0] == '.' || journal::is_mirror(name) || writers_.contains(name)) continue;
    // One that cannot be read is nobody's any more.
    if (auto reader = Reader::open(run_.files, run_.stage.journals() + "/" + name, Trust::published))
      writers_[name] = std::move(reader).value();
  }
  bool any_waits = false;
  for (const auto& [name, writer] : writers_) {
    if (!writer->writer_alive()) continue;
    if (!writer->writer().has_ended()) return false;
    any_waits = true;
  }
  return any_waits || since_ns_ != 0 || (run_.shutdown.draining() && !writers_.empty());
}

}  // namespace advectio
