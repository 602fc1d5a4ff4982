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
  add(std::move(job), level_, false);
}

void Executor::run_first(std::function<void()> job) {
  add(std::move(job), first_of_all, true);
}

std::size_t Executor::backlog() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
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

void Executor::add(std::function<void()> work, unsigned level, bool first) {
  if (threads_ == 0) {
    work();
    return;
  }
  bool some_rest = false;
  {
    const std::lock_guard lock(mutex_);
    const auto higher = [](const Job& a, const Job& b) { return a.level > b.level; };
    const Job here{level, {}};
    const auto at = first ? std::lower_bound(jobs_.begin(), jobs_.end(), here, higher)
                          : std::upper_bound(jobs_.begin(), jobs_.end(), here, higher);
    jobs_.insert(at, Job{level, std::move(work)});
    some_rest = resting_ > 0;
  }
  some_rest ? wake_.notify_all() : wake_.notify_one();
}

void Executor::work(unsigned number) {
  for (;;) {
    Job job{0, {}};
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
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.work();
  }
}

}  // namespace advectio
