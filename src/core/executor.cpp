#include "core/executor.h"

namespace advectio {

Executor::Executor(unsigned threads) {
  pool_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) pool_.emplace_back([this] { work(); });
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
  add(std::move(job), false);
}

void Executor::run_first(std::function<void()> job) {
  add(std::move(job), true);
}

std::size_t Executor::backlog() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

void Executor::add(std::function<void()> job, bool first) {
  if (pool_.empty()) {
    job();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.insert(first ? jobs_.begin() : jobs_.end(), std::move(job));
  }
  wake_.notify_one();
}

void Executor::work() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace advectio
