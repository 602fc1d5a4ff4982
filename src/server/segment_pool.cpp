#include "server/segment_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include "journal/reader.h"
#include "journal/spill.h"

namespace advectio {

namespace {

constexpr std::chrono::milliseconds starved_look_around(3);
constexpr std::uint64_t enough_for_now = 4;  // free segments with which making more can wait
constexpr std::uint64_t spill_ahead = 2;
constexpr std::uint64_t spill_wanted_lately_ns = 500'000'000;
constexpr std::array<std::byte, 65536> zeros{};

struct Count {
  std::uint64_t segments = 0;
  std::uint64_t next_number = 0;  ///< above all that were given
};

/// The segments of a stage, and those that have spilled.
std::pair<Count, Count> count_segments(const journal::Stage& stage) {
  Count stages, spill;
  const auto see = [&](const std::string& segment) {
    if (segment.empty() || (segment[0] != journal::segment_letter && !journal::is_spilled(segment))) return;
    auto& c = journal::is_spilled(segment) ? spill : stages;
    ++c.segments;
    c.next_number = std::max<std::uint64_t>(c.next_number, std::strtoull(segment.c_str() + 1, nullptr, 10) + 1);
  };
  auto& files = stage.files();
  if (auto free = files.list(stage.pool())) {
    for (const auto& name : *free) {
      if (name[0] == '.')
        (void)files.remove(stage.pool() + "/" + name);  // half-made when a server died
      else
        see(name);
    }
  }
  if (auto writers = files.list(stage.journals())) {
    for (const auto& w : *writers) {
      auto names = files.list(stage.journals() + "/" + w);
      if (!names) continue;
      for (const auto& name : *names) {
        if (name.rfind("ahead-", 0) == 0)
          see(name.substr(6));
        else if (const auto parsed = journal::parse_chain_name(name))
          see(parsed->second);
      }
    }
  }
  return {stages, spill};
}

/// Segments that writers have mapped and not begun: as good as free.
std::uint64_t ahead_of_need(const journal::Stage& stage) {
  std::uint64_t n = 0;
  auto writers = stage.files().list(stage.journals());
  if (!writers) return 0;
  for (const auto& w : *writers) {
    if (auto names = stage.files().list(stage.journals() + "/" + w))
      n += static_cast<std::uint64_t>(std::count_if(
          names->begin(), names->end(), [](const std::string& name) { return name.rfind("ahead-", 0) == 0; }));
  }
  return n;
}

}  // namespace

SegmentPool::SegmentPool(const journal::Stage& stage, std::uint64_t warm, Log& log)
    : stage_(stage), warm_(std::max<std::uint64_t>(1, warm)), log_(log) {
  const auto [there, spilled] = count_segments(stage);
  total_ = there.segments;
  next_number_ = there.next_number;
  next_spilled_ = spilled.next_number;
  begun_ = total_.load();
  set_limit(stage.control().segments_max);
  stage_.control().segments_total.store(total_);
  stage_.control().spill_total.store(spilled.segments);
}

void SegmentPool::begin() {
  warming_ = std::thread([this] { warm_ahead(); });
  answering_ = std::thread([this] { make_what_is_missed(); });
}

SegmentPool::~SegmentPool() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (warming_.joinable()) warming_.join();
  if (answering_.joinable()) answering_.join();
}

void SegmentPool::warm_ahead() {
  bool first = true;
  std::unique_lock guard(mutex_);
  while (!ending_) {
    guard.unlock();
    if (giving_back_.load()) {
      while (!ending_.load() && remove_free()) {
      }
      return;
    }
    auto free = stage_.free_segments();
    const auto wanted = total_.load() < warm_ ? warm_ : wanted_later();
    if (free < wanted) free += ahead_of_need(stage_);
    const bool made = free < wanted && make_one(true);
    // The first ones are made while the model starts. After that warming is for the future: it gives way to whoever
    // computes now (Linux: nice is per thread).
    if (!made && std::exchange(first, false))
      (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    guard.lock();
    if (!made && !ending_) wake_.wait_for(guard, std::chrono::milliseconds(10), [this] { return ending_.load(); });
  }
}

/// Segments come back as soon as they are drained, and each that is made costs the model CPU: a stage that is as large
/// as a frame needs no second one beside it.
std::uint64_t SegmentPool::wanted_later() const noexcept {
  const auto some = std::min(warm_, enough_for_now);
  return resting_.load() ? some : std::max(some, warm_ / 4);
}

/// For writers that wait, at the server's own priority. The server's loop is no place for it: a turn of that may be
/// hundreds of megabytes long.
void SegmentPool::make_what_is_missed() {
  auto answered = journal::monotonic_ns();
  std::unique_lock guard(mutex_);
  while (!wake_.wait_for(guard, starved_look_around, [this] { return ending_.load(); })) {
    make_spill();
    if (stage_.control().starved_ns.load(std::memory_order_relaxed) <= answered || exhausted()) continue;
    guard.unlock();
    answered = journal::monotonic_ns();
    // Enough that the writer need not ask for each; it asks again.
    for (int n = 0; n < 4 && make_one(false); ++n) {
    }
    guard.lock();
  }
}

/// On the disk, a little ahead of a writer that has wanted one of late.
void SegmentPool::make_spill() {
  auto& control = stage_.control();
  if (control.spill_wanted_ns.load(std::memory_order_relaxed) + spill_wanted_lately_ns < journal::monotonic_ns())
    return;
  const auto names = stage_.files().list(stage_.pool());
  if (!names) return;
  auto free = static_cast<std::uint64_t>(std::count_if(names->begin(), names->end(), journal::is_spilled));
  for (; free < spill_ahead && control.spill_total.load() < control.spill_max.load(); ++free) {
    auto made = journal::make_spilled(stage_, next_spilled_.fetch_add(1));
    if (made) continue;
    control.spill_max.store(control.spill_total.load());
    log_.warning("the spill cannot grow beyond " + std::to_string(control.spill_max.load()) +
                 " segments: " + made.error().message);
  }
}

void SegmentPool::set_limit(std::uint64_t segments) noexcept {
  limit_ = segments;
  stage_.control().segments_limit.store(segments);
}

/// `ahead`: of need, which may be over meanwhile.
bool SegmentPool::make_one(bool ahead) {
  const auto in_vain = [this, ahead] { return ending_.load() || (ahead && giving_back_.load()); };
  // Both threads make: each first takes its place in the count.
  if (begun_.fetch_add(1) >= limit_.load()) {
    --begun_;
    return false;
  }
  char name[24];
  std::snprintf(name, sizeof name, "s%06llu", static_cast<unsigned long long>(next_number_.fetch_add(1)));
  const std::string hidden = stage_.pool() + "/." + name;
  auto& files = stage_.files();
  auto file = files.open(hidden, OpenMode::create, 0600);
  const auto bytes = stage_.control().segment_bytes;
  Result<void> reserved;
  if (!file) {
    reserved = std::move(file).error();
  } else if (reserved = (*file)->reserve(bytes); reserved) {
    // Memory that has only been reserved is cleared when it is first touched; that must not be in a put. Written, it is
    // in half the time of touching a mapping of it.
    for (std::uint64_t at = 0; reserved && at < bytes && !in_vain(); at += zeros.size())
      reserved = (*file)->write(at, std::span(zeros).first(std::min<std::uint64_t>(zeros.size(), bytes - at)));
  }
  if (in_vain()) {
    (void)files.remove(hidden);
    --begun_;
    return false;
  }
  if (reserved) reserved = files.rename(hidden, stage_.pool() + "/" + name);
  if (!reserved) {
    (void)files.remove(hidden);
    --begun_;
    set_limit(total_.load());
    log_.warning("the stage cannot grow beyond " + std::to_string(limit_.load()) +
                 " segments: " + reserved.error().message);
    return false;
  }
  stage_.control().segments_total.store(++total_);
  journal::ring(stage_.control().progress);
  return true;
}

/// One that is still free: a writer may take it meanwhile.
bool SegmentPool::remove_free() {
  auto& files = stage_.files();
  const auto names = files.list(stage_.pool());
  if (!names) return false;
  for (const auto& name : *names) {
    if (name.empty() || name[0] != journal::segment_letter) continue;
    // Out of the writers' sight first: one that takes it at the same moment has it, or has not.
    const std::string hidden = stage_.pool() + "/." + name;
    if (!files.rename(stage_.pool() + "/" + name, hidden)) continue;
    (void)files.remove(hidden);
    --begun_;
    stage_.control().segments_total.store(--total_);
    return true;
  }
  return false;
}

}  // namespace advectio
