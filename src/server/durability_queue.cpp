#include "server/durability_queue.h"

#include <utility>

#include "journal/writer.h"
#include "server/output.h"

namespace advectio {

DurabilityQueue::DurabilityQueue(std::function<Result<void>(const Job&)> note, std::function<void()> news)
    : note_(std::move(note)), news_(std::move(news)), thread_([this] { work(); }) {}

DurabilityQueue::~DurabilityQueue() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void DurabilityQueue::push(Job job) {
  const std::lock_guard guard(mutex_);
  jobs_.push_back(std::move(job));
  wake_.notify_one();
}

void DurabilityQueue::await_half() {
  std::unique_lock guard(mutex_);
  const auto half = (jobs_.size() + busy_) / 2;
  fewer_.wait(guard, [&] { return jobs_.size() + busy_ <= half; });
}

std::vector<DurabilityQueue::Done> DurabilityQueue::collect() {
  const std::lock_guard guard(mutex_);
  return std::exchange(done_, {});
}

bool DurabilityQueue::is_idle() const {
  const std::lock_guard guard(mutex_);
  return jobs_.empty() && busy_ == 0 && done_.empty();
}

void DurabilityQueue::work() {
  std::unique_lock guard(mutex_);
  for (;;) {
    wake_.wait(guard, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
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
    ++busy_;
    guard.unlock();
    auto done = job.make();
    // The system reports an error once: who asks again hears that all is well.
    if (done && job.output->sink.is_refused()) done = Error{Code::io, "the disk has refused what came before", EIO};
    if (!done) job.output->sink.set_refused();
    if (done) done = note_(job);
    const auto now = journal::realtime_ns();
    guard.lock();
    --busy_;
    done_.push_back(
        {std::move(job.output), job.sequence, job.frames, job.last, std::move(synced), now, std::move(done)});
    fewer_.notify_all();
    news_();
  }
}

}  // namespace advectio
