#include "core/executor.h"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

namespace advectio {

namespace {
constexpr unsigned first_of_all = std::numeric_limits<unsigned>::max();
}  // namespace

Executor::Executor(unsigned threads) : threads_(threads) {
  pool_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) pool_.emplace_back([this, i] { work(i); });
}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (auto& t : pool_) t.join();
}

void Executor::run(std::function<void()> job) {
  add(std::move(job), level_, nullptr, 0);
}

void Executor::run(std::function<void()> job, Flow& flow, std::uint64_t cost) {
  add(std::move(job), level_, &flow, cost);
}

void Executor::run_first(std::function<void()> job) {
  add(std::move(job), first_of_all, nullptr, 0);
}

std::size_t Executor::backlog() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

bool Executor::is_busy() const {
  const std::lock_guard lock(mutex_);
  return !jobs_.empty() || running_ >= threads_;
}

void Executor::resize(unsigned threads) {
  if (pool_.empty() || threads == 0) return;
  try {
    while (pool_.size() < threads)
      pool_.emplace_back([this, number = static_cast<unsigned>(pool_.size())] { work(number); });
  } catch (const std::system_error&) {
    // The process may have no more threads: there are as many as there can be.
    threads = static_cast<unsigned>(pool_.size());
  }
  {
    const std::lock_guard lock(mutex_);
    threads_ = threads;
  }
  wake_.notify_all();
}

void Executor::add(std::function<void()> work, unsigned level, Flow* flow, std::uint64_t cost) {
  if (threads_ == 0) {
    work();
    return;
  }
  bool some_rest = false;
  {
    const std::lock_guard lock(mutex_);
    Job job{level, false, flow, cost, std::move(work)};
    if (flow != nullptr) {
      job.beyond = flow->waiting_ > 0 && flow->waiting_ + cost > ahead_max;
      flow->waiting_ += cost;
    }
    const auto before = [](const Job& a, const Job& b) {
      return a.level != b.level ? a.level > b.level : !a.beyond && b.beyond;
    };
    const auto place =
        level == first_of_all ? jobs_.begin() : std::upper_bound(jobs_.begin(), jobs_.end(), job, before);
    jobs_.insert(place, std::move(job));
    some_rest = resting_ > 0;
  }
  some_rest ? wake_.notify_all() : wake_.notify_one();
}

Executor::Job Executor::take_next() {
  auto next = jobs_.begin();
  if (++taken_ % 4 == 0) {
    const auto beyond =
        std::find_if(next, jobs_.end(), [level = next->level](const Job& j) { return j.level != level || j.beyond; });
    if (beyond != jobs_.end() && beyond->level == next->level) next = beyond;
  }
  Job job = std::move(*next);
  jobs_.erase(next);
  if (job.flow != nullptr) job.flow->waiting_ -= job.cost;
  return job;
}

void Executor::work(unsigned number) {
  for (;;) {
    Job job{0, false, nullptr, 0, {}};
    {
      std::unique_lock lock(mutex_);
      if (number >= threads_ && !ending_) {
        ++resting_;
        wake_.wait(lock, [&] { return ending_ || number < threads_; });
        --resting_;
      }
      wake_.wait(lock, [&] { return ending_ || number >= threads_ || !jobs_.empty(); });
      if (number >= threads_ && !ending_) continue;
      if (jobs_.empty()) return;
      job = take_next();
      ++running_;
    }
    job.work();
    const std::lock_guard lock(mutex_);
    --running_;
  }
}

}  // namespace advectio
