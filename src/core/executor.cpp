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
  try {
    while (pool_.size() < threads)
      pool_.emplace_back([this, number = static_cast<unsigned>(pool_.size())] { work(number); });
  } catch (const std::system_error&) {
    // The process may have no more threads: there are as many as there can be.
    threads_ = static_cast<unsigned>(pool_.size());
  }
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
  return backlog_;
}

bool Executor::is_busy() const {
  const std::lock_guard lock(mutex_);
  return backlog_ > 0 || running_ >= threads_;
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
    Job job{++given_, level, cost, std::move(work)};
    ++backlog_;
    if (flow != nullptr) {
      if (flow->jobs_.empty()) flows_.push_back(flow);
      flow->waiting_ += cost;
      flow->level_ = level;
      flow->jobs_.push_back(std::move(job));
    } else {
      const auto place = level == first_of_all
                             ? jobs_.begin()
                             : std::upper_bound(jobs_.begin(), jobs_.end(), job,
                                                [](const Job& x, const Job& y) { return x.level > y.level; });
      jobs_.insert(place, std::move(job));
    }
    some_rest = resting_ > 0;
  }
  some_rest ? wake_.notify_all() : wake_.notify_one();
}

void Executor::set_awaited(Flow& flow, bool awaited) {
  const std::lock_guard lock(mutex_);
  flow.awaited_ = awaited ? ++awaited_ : 0;
}

/// Null: it is the turn of a job without a flow.
Executor::Flow* Executor::next_flow() const {
  auto level = jobs_.empty() ? 0 : jobs_.front().level;
  for (const auto* f : flows_) level = std::max(level, f->level_);
  Flow *small = nullptr, *large = nullptr;
  // Those that nobody waits for come last.
  const auto order = [](const Flow& f) { return std::pair(f.awaited_ - 1, f.jobs_.front().number); };
  for (auto* f : flows_) {
    if (f->level_ != level) continue;
    if (f->waiting_ <= little) {
      if (small == nullptr || f->jobs_.front().number < small->jobs_.front().number) small = f;
    } else if (large == nullptr || order(*f) < order(*large)) {
      large = f;
    }
  }
  const bool lone = !jobs_.empty() && jobs_.front().level == level &&
                    (small == nullptr || level == first_of_all || jobs_.front().number < small->jobs_.front().number);
  if (large != nullptr && (taken_ % 4 == 0 || (small == nullptr && !lone))) return large;
  return lone ? nullptr : small;
}

Executor::Job Executor::take_next() {
  ++taken_;
  --backlog_;
  auto* flow = next_flow();
  auto& from = flow != nullptr ? flow->jobs_ : jobs_;
  Job job = std::move(from.front());
  from.pop_front();
  if (flow != nullptr) {
    flow->waiting_ -= job.cost;
    if (flow->jobs_.empty()) flows_.erase(std::find(flows_.begin(), flows_.end(), flow));
  }
  return job;
}

void Executor::work(unsigned number) {
  for (;;) {
    Job job{};
    {
      std::unique_lock lock(mutex_);
      if (number >= threads_ && !ending_) {
        ++resting_;
        wake_.wait(lock, [&] { return ending_ || number < threads_; });
        --resting_;
      }
      wake_.wait(lock, [&] { return ending_ || number >= threads_ || backlog_ > 0; });
      if (number >= threads_ && !ending_) continue;
      if (backlog_ == 0) return;
      job = take_next();
      ++running_;
    }
    job.work();
    const std::lock_guard lock(mutex_);
    --running_;
  }
}

}  // namespace advectio
