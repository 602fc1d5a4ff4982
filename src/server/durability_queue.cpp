#include "server/durability_queue.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "journal/writer.h"
#include "server/output.h"

namespace advectio {

DurabilityQueue::DurabilityQueue(std::function<Result<void>(const Job&)> note, std::function<void()> news)
    : note_(std::move(note)), news_(std::move(news)) {
  threads_.emplace_back([this] { work(); });
}

DurabilityQueue::~DurabilityQueue() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void DurabilityQueue::push(Job job) {
  const std::lock_guard guard(mutex_);
  jobs_.push_back(std::move(job));
  auto systems = busy_;
  for (const auto& waiting : jobs_) systems.insert(waiting.system);
  if (systems.size() > threads_.size()) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // no thread can be made: those that are there do it
    }
  }
  wake_.notify_one();
}

void DurabilityQueue::await_half() {
  std::unique_lock guard(mutex_);
  const auto half = (jobs_.size() + busy_.size()) / 2;
  fewer_.wait(guard, [&] { return jobs_.size() + busy_.size() <= half; });
}

std::vector<DurabilityQueue::Done> DurabilityQueue::collect() {
  const std::lock_guard guard(mutex_);
  return std::exchange(done_, {});
}

bool DurabilityQueue::is_idle() const {
  const std::lock_guard guard(mutex_);
  return jobs_.empty() && busy_.empty() && done_.empty();
}

/// The first job to whose file system nothing is being forced.
std::deque<DurabilityQueue::Job>::iterator DurabilityQueue::next() {
  return std::find_if(jobs_.begin(), jobs_.end(), [this](const Job& job) { return !busy_.contains(job.system); });
}

void DurabilityQueue::work() {
  std::unique_lock guard(mutex_);
  for (;;) {
    wake_.wait(guard, [this] { return next() != jobs_.end() || (ending_ && jobs_.empty()); });
    const auto first = next();
    if (first == jobs_.end()) return;
    Job job = std::move(*first);
    jobs_.erase(first);
    // Of several commits of one output the latest speaks for all.
    auto synced = std::move(job.synced);
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      if (it->output != job.output) {
        ++it;
        continue;
      }
      synced.insert(synced.end(), it->synced.begin(), it->synced.end());
      job = std::move(*it);
      it = jobs_.erase(it);
    }
    const auto system = job.system;
    busy_.insert(system);
    guard.unlock();
    auto done = job.make();
    // The system reports an error once: who asks again hears that all is well.
    if (done && job.output->sink.is_refused()) done = Error{Code::io, "the disk has refused what came before", EIO};
    if (!done) job.output->sink.set_refused();
    if (done) done = note_(job);
    const auto now = journal::realtime_ns();
    guard.lock();
    busy_.erase(system);
    done_.push_back(
        {std::move(job.output), job.sequence, job.frames, job.last, std::move(synced), now, std::move(done)});
    fewer_.notify_all();
    wake_.notify_all();  // for the next job of this file system, and for the end
    news_();
  }
}

}  // namespace advectio
