#include "sinks/transaction/write_behind.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "core/buffer.h"

namespace advectio {

namespace {
constexpr std::size_t joined_max = 1U << 20U;  // neighbours go out in one write
constexpr std::size_t little = 1U << 16U;      // has memory of its own, not a chunk's
constexpr std::uint64_t cost_of_part = 128;    // beside its bytes
}  // namespace

struct WriteBehind::Queue {
  struct Part {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    Buffer data;

    /// Bytes right behind those that it has.
    void append(std::span<const std::byte> more) {
      if (const auto need = bytes + more.size(); need > data.capacity()) {
        Buffer larger;
        larger.reserve(std::max(need, std::min(joined_max, 2 * data.capacity())));
        std::memcpy(larger.data(), data.data(), bytes);
        data = std::move(larger);
      }
      std::memcpy(data.data() + bytes, more.data(), more.size());
      bytes += more.size();
    }
  };

  std::shared_ptr<File> file;
  std::shared_ptr<MemoryBudget> memory;
  std::function<void()> wake;

  mutable std::mutex mutex;
  std::condition_variable news;
  std::deque<Part> parts;     ///< the first of them is being written where `writing` says so
  std::uint64_t waiting = 0;  ///< their bytes, and what each part costs
  bool writing = false;
  bool given = false;  ///< a thread has been asked for
  std::optional<Error> error;
  std::uint64_t bytes_written = 0, write_ns = 0;

  [[nodiscard]] Result<void> state() const { return error ? Result<void>(*error) : Result<void>{}; }

  /// The first part; nobody else is writing. `lock` is held on return as on call.
  void write_next(std::unique_lock<std::mutex>& lock) {
    auto& part = parts.front();  // a deque: parts may be added behind it
    writing = true;
    const bool refused = error.has_value();
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    auto done = refused ? Result<void>{} : file->write(part.offset, part.data.first(part.bytes));
    const auto ns = static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
    lock.lock();
    const bool was_behind = is_behind();
    writing = false;
    if (!done) error = std::move(done).error();
    if (!refused) bytes_written += part.bytes, write_ns += ns;
    waiting -= part.bytes + cost_of_part;
    memory->release(part.bytes);
    memory->give(std::move(part.data));
    parts.pop_front();
    news.notify_all();
    // Under the lock: what it wakes may end when nothing waits any more.
    if (was_behind && !is_behind() && wake) wake();
  }
  [[nodiscard]] bool is_behind() const { return waiting > waiting_max / 2; }

  /// Of a thread.
  void work() {
    std::unique_lock lock(mutex);
    write_down_to(lock, 0);
    given = false;
  }
  /// Also of the caller: it takes part, as all threads may wait for other files.
  void write_down_to(std::unique_lock<std::mutex>& lock, std::uint64_t left) {
    while (waiting > left) {
      if (writing)
        news.wait(lock, [&] { return !writing; });
      else
        write_next(lock);
    }
  }
};

WriteBehind::WriteBehind(std::shared_ptr<File> file, Executor& threads, std::shared_ptr<MemoryBudget> memory,
                         std::function<void()> wake)
    : queue_(std::make_shared<Queue>()), threads_(threads) {
  queue_->file = std::move(file);
  queue_->memory = std::move(memory);
  queue_->wake = std::move(wake);
}

WriteBehind::~WriteBehind() {
  (void)drain();
}

Result<void> WriteBehind::write(std::uint64_t offset, std::span<const std::byte> data) {
  auto& q = *queue_;
  std::unique_lock lock(q.mutex);
  if (q.error) return *q.error;
  q.write_down_to(lock, waiting_max - std::min<std::uint64_t>(waiting_max, data.size()));
  const bool is_free = q.parts.size() > (q.writing ? 1U : 0U);  // the last one is in nobody's hands
  if (is_free && q.parts.back().offset + q.parts.back().bytes == offset &&
      q.parts.back().bytes + data.size() <= joined_max) {
    q.parts.back().append(data);
  } else {
    auto buffer = data.size() < little ? Buffer() : q.memory->take();
    buffer.reserve(data.size());
    q.parts.push_back({offset, 0, std::move(buffer)});
    q.parts.back().append(data);
    q.waiting += cost_of_part;
  }
  q.waiting += data.size();
  (void)q.memory->reserve(data.size(), true);
  if (std::exchange(q.given, true)) return {};
  lock.unlock();
  threads_.run([queue = queue_] { queue->work(); });
  return {};
}

bool WriteBehind::is_behind() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->is_behind();
}

Result<void> WriteBehind::drain() {
  std::unique_lock lock(queue_->mutex);
  queue_->write_down_to(lock, 0);
  return queue_->state();
}

Result<void> WriteBehind::drain(std::uint64_t offset, std::uint64_t bytes) {
  // The file may end before bytes that nothing is written to.
  const auto there = queue_->file->size();
  if (!there) return there.error();
  if (offset + bytes <= *there) {
    const std::lock_guard lock(queue_->mutex);
    if (std::none_of(queue_->parts.begin(), queue_->parts.end(),
                     [&](const Queue::Part& p) { return p.offset < offset + bytes && offset < p.offset + p.bytes; }))
      return queue_->state();
  }
  return drain();
}

Result<std::uint64_t> WriteBehind::size() const {
  const std::lock_guard lock(queue_->mutex);
  auto bytes = queue_->file->size();
  if (bytes)
    for (const auto& p : queue_->parts) *bytes = std::max<std::uint64_t>(*bytes, p.offset + p.bytes);
  return bytes;
}

std::uint64_t WriteBehind::bytes_written() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->bytes_written;
}

std::uint64_t WriteBehind::write_ns() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->write_ns;
}

}  // namespace advectio
