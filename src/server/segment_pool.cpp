#include "server/segment_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "journal/reader.h"
#include "journal/segments.h"
#include "journal/spill.h"
#include "platform/machine.h"

namespace advectio {

namespace {

constexpr std::chrono::milliseconds starved_look_around(3), warm_look_around(20);
constexpr std::uint64_t free_bytes_most = 64ULL
                                          << 20;  // kept free at the most, once as many as are to be warm are there
constexpr std::uint64_t spill_ahead = 2;
constexpr std::uint64_t spill_wanted_lately_ns = 500'000'000;
constexpr std::uint64_t count_ahead_every_ns = 200'000'000, look_at_memory_every_ns = 2'000'000'000;
constexpr std::uint64_t short_of_memory = 10;  // less than a tenth of it is available
constexpr std::uint64_t input_to_frame = 8;    // a restart is up to so many times as large as a history frame

struct Count {
  std::uint64_t segments = 0;
  std::uint64_t next_number = 0;  ///< above all that were given
};

/// The segments of a stage, and those that have spilled.
std::pair<Count, Count> count_segments(const journal::Stage& stage) {
  Count stages, spill;
  const auto see = [&](const std::string& segment) {
    const bool spilled = journal::is_spilled(segment);
    if (segment.empty() || (segment[0] != journal::segment_letter && !spilled && !journal::is_long(segment))) return;
    auto& c = spilled ? spill : stages;
    c.segments += spilled ? 1 : journal::count_of_segment(segment);
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
        else if (name[0] == '.')
          see(name.substr(1));  // its writer is making it
        else if (const auto parsed = journal::parse_chain_name(name))
          see(parsed->second);
      }
    }
  }
  return {stages, spill};
}

}  // namespace

SegmentPool::SegmentPool(const journal::Stage& stage, std::uint64_t warm, Log& log)
    : stage_(stage), warm_(std::max<std::uint64_t>(1, warm)), log_(log), answered_ns_(journal::monotonic_ns()) {
  const auto [there, spilled] = count_segments(stage);
  next_spilled_ = spilled.next_number;
  auto& control = stage_.control();
  if (control.next_segment.load() < there.next_number) control.next_segment.store(there.next_number);
  control.segments_limit.store(control.segments_max);
  control.segments_total.store(there.segments);
  control.segments_peak.store(std::max(control.segments_peak.load(), there.segments));
  control.spill_total.store(spilled.segments);
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
    const bool gives_back = giving_back_.load();
    const bool made = warm(journal::monotonic_ns());
    if (gives_back) return;
    // The first ones are made while the model starts. After that warming is for the future: it gives way to whoever
    // computes now (Linux: nice is per thread).
    if (!made && std::exchange(first, false))
      (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    guard.lock();
    if (!made && !ending_) wake_.wait_for(guard, warm_look_around, [this] { return ending_.load(); });
  }
}

bool SegmentPool::warm(std::uint64_t now) {
  if (giving_back_.load()) {
    while (!ending_.load() && journal::remove_free_segment(stage_)) {
    }
    return false;
  }
  const auto free = stage_.free_segments();
  if (now - ahead_counted_ns_ > count_ahead_every_ns) {
    ahead_ = stage_.segments_ahead();
    ahead_counted_ns_ = now;
  }
  const auto ready = free + ahead_;
  if (const auto all = total(); all > ready) used_most_ = std::max(used_most_, all - ready);
  free_least_ = std::min(free_least_, free);
  look_at_memory(now);
  return !memory_is_short_ && (total() < wanted_total() || ready < wanted_free()) && make_one(true);
}

/// What has stayed free since the last look is given back where memory is short, half of it at a time.
void SegmentPool::look_at_memory(std::uint64_t now) {
  if (now - looked_at_memory_ns_ < look_at_memory_every_ns) return;
  looked_at_memory_ns_ = now;
  const auto available = std::min(available_memory_bytes(), available_at_most_.load());
  memory_is_short_ = available > 0 && available < usable_memory_bytes() / short_of_memory;
  auto idle = memory_is_short_ ? (free_least_ + 1) / 2 : 0;
  while (idle > 0 && journal::remove_free_segment(stage_)) --idle;
  free_least_ = stage_.free_segments();
}

/// Segments come back as soon as they are drained, and each that is made costs the model CPU: a stage that is as large
/// as a frame needs no second one beside it.
std::uint64_t SegmentPool::wanted_free() const noexcept {
  const auto most = std::max<std::uint64_t>(1, free_bytes_most / stage_.control().segment_bytes);
  const auto some = std::min(warm_ / 4, most);
  return std::max<std::uint64_t>(1, resting_.load() ? some / 2 : some);
}

/// A file that is read tells how large a restart will be. It counts once the program has put frames of that order:
/// others read far more than they write.
std::uint64_t SegmentPool::wanted_total() const noexcept {
  const auto& control = stage_.control();
  const auto read = control.input_bytes.load(std::memory_order_relaxed) / control.segment_bytes;
  if (resting_.load()) return 0;
  return std::max(warm_, std::min(read, input_to_frame * used_most_));
}

/// For writers that wait although there is room: they could not make segments themselves. At the server's own priority.
/// The server's loop is no place for it: a turn of that may be hundreds of megabytes long.
void SegmentPool::make_what_is_missed() {
  std::unique_lock guard(mutex_);
  while (!wake_.wait_for(guard, starved_look_around, [this] { return ending_.load(); })) {
    guard.unlock();
    answer(journal::monotonic_ns());
    guard.lock();
  }
}

void SegmentPool::answer(std::uint64_t now) {
  make_spill();
  auto& control = stage_.control();
  if (const auto limit = control.segments_limit.load(); limit < control.segments_max && !limit_logged_.exchange(true))
    log_.warning("the stage cannot grow beyond " + std::to_string(limit) + " segments: there is no more room in " +
                 stage_.directory());
  if (control.starved_ns.load(std::memory_order_relaxed) <= answered_ns_ || exhausted()) return;
  answered_ns_ = now;
  // Enough that the writer need not ask for each; it asks again.
  for (int n = 0; n < 4 && make_one(false); ++n) {
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

void SegmentPool::grow_beyond_cap() noexcept {
  auto& control = stage_.control();
  control.segments_limit.store(std::max(control.segments_limit.load(), total()) + 1);
  journal::ring(control.progress);
}

/// `ahead`: of need, which may be over meanwhile.
bool SegmentPool::make_one(bool ahead) {
  const auto in_vain = [this, ahead] { return ending_.load() || (ahead && giving_back_.load()); };
  auto made = journal::make_segment(stage_, stage_.pool(), journal::Pages::cleared, in_vain);
  Result<void> done;
  if (!made) {
    done = std::move(made).error();
  } else {
    if (!made->has_value()) return false;
    done = stage_.files().rename((*made)->path, stage_.pool() + "/" + (*made)->name);
    if (!done) {
      (void)stage_.files().remove((*made)->path);
      journal::uncount_segments(stage_.control(), 1);
    }
  }
  if (!done && (done.error().sys == EMFILE || done.error().sys == ENFILE)) return false;  // for a while only
  if (!done) {
    // Whatever it is, to try again at once is in vain.
    stage_.control().segments_limit.store(total());
    if (!limit_logged_.exchange(true))
      log_.warning("the stage cannot grow beyond " + std::to_string(total()) + " segments: " + done.error().message);
    return false;
  }
  journal::ring(stage_.control().progress);
  return true;
}

}  // namespace advectio
