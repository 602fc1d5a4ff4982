#include "sinks/chunks/chunk_assembly.h"

#include <ctime>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "sinks/chunks/elsewhere.h"
#include "sinks/transaction/transactional_sink.h"

namespace advectio {

std::uint64_t thread_cpu_ns() noexcept {
  timespec t{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000 + static_cast<std::uint64_t>(t.tv_nsec);
}

namespace {

/// Chunks that the caller makes where no thread is free: each, and all of one flush.
constexpr std::size_t small_chunk = 16U << 10U, small_chunks_max = 64U << 10U;
constexpr std::uint64_t advance_ns = 5'000'000;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

Box box_at(const ChunkedVariable& v, const std::array<std::uint64_t, ChunkAssembly::rank_max>& start) {
  return {{start.begin(), start.begin() + static_cast<std::ptrdiff_t>(v.chunk.size())}, v.chunk};
}

std::span<const std::uint64_t> start_of(const std::array<std::uint64_t, ChunkAssembly::rank_max>& start,
                                        const ChunkedVariable& v) {
  return std::span(start).first(v.chunk.size());
}

Box clip(Box box, const std::vector<std::uint64_t>& limit) {
  for (std::size_t i = 0; i < box.rank(); ++i) box.count[i] = std::min(box.count[i], limit[i] - box.start[i]);
  return box;
}

}  // namespace

struct ChunkAssembly::Shared {
  std::mutex mutex;
  std::condition_variable news;
  std::deque<Done> done;
  std::size_t running = 0;  // started and not in `done` yet
  std::atomic<std::uint64_t> encode_ns = 0;
  std::shared_ptr<MemoryBudget> budget;
  std::function<void()> wake;
  Executor::Flow flow;

  void hand_in(Done chunk) {
    const std::lock_guard lock(mutex);
    done.push_back(std::move(chunk));
    --running;
    news.notify_all();
    // Under the lock: what it rings may end when nothing is running any more.
    if (wake) wake();
  }
};

/// A chunk to be made. Its entry may be changed meanwhile, and its field may grow.
struct ChunkAssembly::Job {
  Key key;
  std::uint64_t version, reserved;
  std::shared_ptr<const ChunkedVariable> variable;
  std::shared_ptr<const Field> field;
  std::span<const std::byte> view;  ///< the chunk as it lies in memory; empty: it is gathered
  bool whole;                       ///< all of it is in the field, and none beyond the variable
  std::optional<Buffer> base;       ///< what the file holds of it
  std::shared_ptr<Shared> shared;
  Executor& executor;
  Helpers* helpers;

  [[nodiscard]] Done outcome() const {
    Done done;
    done.key = key;
    done.version = version;
    done.variable = variable;
    done.reserved = reserved;
    return done;
  }
  [[nodiscard]] Error no_memory() const {
    return Error{Code::full, "no memory for a chunk of " + std::to_string(variable->chunk_bytes()) + " bytes", 0};
  }
};

std::size_t ChunkAssembly::KeyHash::operator()(const Key& k) const noexcept {
  std::uint64_t h = 0x9E3779B97F4A7C15ULL ^ k.variable;
  for (const auto s : k.start) h = (h ^ s) * 0xBF58476D1CE4E5B9ULL, h ^= h >> 29;
  return h;
}

ChunkAssembly::ChunkAssembly(ChunkStore& store, Executor& executor, std::shared_ptr<MemoryBudget> budget,
                             Helpers* helpers, std::function<void()> wake)
    : store_(store),
      executor_(executor),
      helpers_(helpers),
      budget_(std::move(budget)),
      shared_(std::make_shared<Shared>()) {
  shared_->budget = budget_;
  shared_->wake = std::move(wake);
}

ChunkAssembly::~ChunkAssembly() {
  abandon();
}

std::uint64_t ChunkAssembly::encode_ns() const noexcept {
  return shared_->encode_ns;
}

Result<void> ChunkAssembly::add(const std::shared_ptr<const Field>& field,
                                const std::shared_ptr<const ChunkedVariable>& variable,
                                const std::vector<std::uint64_t>& extent, const Box& box, bool dense) {
  const auto& v = *variable;
  const auto rank = v.chunk.size();
  extents_[field->variable()] = extent;

  Key key;
  key.variable = field->variable();
  for (std::size_t i = 0; i < rank; ++i) key.start[i] = box.start[i] / v.chunk[i] * v.chunk[i];
  const auto first = key.start;
  for (;;) {
    const auto chunk = box_at(v, key.start), needed = clip(chunk, v.limit), part = intersect(needed, box);
    auto& entry = entries_[key];
    if (entry.field != field) entry.covered = false;
    entry.variable = variable;
    entry.field = field;
    entry.dirty = true;
    if (!dense) {
      // Counting elements does not show whether the chunk is covered. It waits for `seal`.
      entry.started = true;
    } else if (part == needed) {
      entry.touched = part.volume();
      entry.covered = true;
      want(key, entry);
    } else {
      entry.touched += part.volume();
      if (!entry.started && entry.touched >= std::max(needed.volume(), entry.try_at)) {
        entry.try_at = 2 * entry.touched;
        entry.covered = field->covers(needed);
        if (entry.covered) want(key, entry);
      }
    }

    std::size_t i = rank;
    for (; i > 0; --i) {
      key.start[i - 1] += v.chunk[i - 1];
      if (key.start[i - 1] < box.start[i - 1] + box.count[i - 1]) break;
      key.start[i - 1] = first[i - 1];
    }
    if (i == 0) break;
  }
  if (entries_.size() > chunks_max) return flush();
  for (;;) {
    auto done = advance();
    if (!done) return std::move(done).error();
    if (waiting_.empty() || shared_->wake) return {};
    await_news();
  }
}

/// A chunk is finished, or nothing is under way.
void ChunkAssembly::await_news() {
  std::unique_lock lock(shared_->mutex);
  shared_->news.wait(lock, [&] { return !shared_->done.empty() || shared_->running == 0; });
}

/// False: that would be too much memory.
bool ChunkAssembly::reserve(std::uint64_t bytes) {
  bool any = false;
  {
    const std::lock_guard lock(shared_->mutex);
    any = shared_->running > 0 || !shared_->done.empty();
  }
  // Without this, sinks that share a budget could wait for each other for ever.
  return budget_->reserve(bytes, !any);
}

void ChunkAssembly::want(const Key& key, Entry& entry) {
  entry.started = true;
  if (!std::exchange(entry.waiting, true)) waiting_.push_back(key);
}

/// The chunk that has waited longest. False: none waits, or there is no memory for it.
Result<bool> ChunkAssembly::start_next() {
  if (waiting_.empty()) return false;
  auto& entry = entries_[waiting_.front()];
  auto started = start(waiting_.front(), entry);
  if (!started || !*started) return started;
  entry.waiting = false;
  waiting_.pop_front();
  return true;
}

/// False: there is no memory for it.
Result<bool> ChunkAssembly::start(const Key& key, Entry& entry) {
  const auto& v = *entry.variable;
  const auto bytes = v.chunk_bytes();
  const auto& extent = extents_[key.variable];
  const auto chunk = box_at(v, key.start), there = clip(chunk, extent);
  if (!entry.covered) entry.covered = entry.field->covers(there);
  const bool whole = entry.covered && there == chunk;
  const auto view = whole && !v.swap ? entry.field->view(chunk) : std::span<const std::byte>();
  const bool as_it_is = v.pipeline.stages.empty() && !view.empty();
  const auto reserved = as_it_is ? 0
                                 : (view.empty() ? bytes : 0) + std::min<std::size_t>(v.pipeline.stages.size(), 2) *
                                                                    encoded_bytes_max(v.pipeline, bytes);
  if (!as_it_is && !reserve(reserved)) return false;
  entry.dirty = false;
  ++entry.version;
  if (as_it_is) {
    ADVECTIO_TRY(store_.put(key.variable, v, start_of(key.start, v), 0, view));
    return true;
  }
  std::optional<Buffer> base;
  if (!entry.covered) {
    auto read = read_base(key, entry, extent, base.emplace());
    if (!read) {
      budget_->release(reserved);
      return std::move(read).error();
    }
  }
  const bool small = helpers_ == nullptr && bytes <= small_chunk && made_here_bytes_ + bytes <= small_chunks_max &&
                     executor_.is_busy();
  auto job = std::make_shared<Job>(Job{key, entry.version, reserved, entry.variable, entry.field, view, whole,
                                       std::move(base), shared_, executor_, helpers_});
  {
    const std::lock_guard lock(shared_->mutex);
    ++shared_->running;
  }
  if (small) {
    made_here_bytes_ += bytes;
    make(job);
  } else {
    executor_.run([job] { make(job); }, shared_->flow, bytes);
  }
  return true;
}

void ChunkAssembly::make(const std::shared_ptr<Job>& job) {
  const auto begin = thread_cpu_ns();
  const auto& var = *job->variable;
  const auto size = var.chunk_bytes();
  const auto box = box_at(var, job->key.start);
  auto& shared = *job->shared;
  std::optional<unsigned> place;
  Done done = job->outcome();
  try {
    // All threads here have something to do, and there is more.
    if (job->helpers != nullptr && !var.pipeline.stages.empty() && job->executor.backlog() > 0)
      place = job->helpers->place(size);
    const auto how = place ? told_how(var.pipeline, size) : Bytes();
    Buffer gathered;
    const auto* source = job->view.data();
    if (job->view.empty()) {
      if (job->base) {
        gathered = std::move(*job->base);
      } else {
        gathered = shared.budget->take();
        gathered.reserve(size + how.size());
        if (!job->whole) fill_with(gathered.data(), size, var.fill);
      }
      job->field->read(box, gathered.data());
      if (var.swap) swap_bytes(gathered.data(), size / var.element, var.element);
      source = gathered.data();
    }
    if (place) {
      if (source != gathered.data() || gathered.capacity() < size + how.size()) {
        auto copy = shared.budget->take();
        copy.reserve(size + how.size());
        std::memcpy(copy.data(), source, size);
        std::swap(gathered, copy);
        shared.budget->give(std::move(copy));
      }
      std::memcpy(gathered.data() + size, how.data(), how.size());
      const auto request = message_of(shared.budget, std::move(gathered));
      request->bytes = size + how.size();
      job->field.reset();
      shared.encode_ns += thread_cpu_ns() - begin;
      return make_elsewhere(job, *std::exchange(place, std::nullopt), request);
    }
    make_here(*job, std::move(gathered), source, done);
  } catch (const std::bad_alloc&) {
    if (place) job->helpers->let_go(*place);
    done.error = job->no_memory();
  }
  job->field.reset();
  shared.encode_ns += thread_cpu_ns() - begin;
  shared.hand_in(std::move(done));
}

void ChunkAssembly::make_here(const Job& job, Buffer gathered, const std::byte* source, Done& done) {
  const auto& var = *job.variable;
  const auto size = var.chunk_bytes();
  if (var.pipeline.stages.empty()) {
    done.data = std::move(gathered);
    done.encoded.bytes = size;
    return;
  }
  auto& budget = *job.shared->budget;
  auto spare = budget.take();
  done.data = budget.take();
  auto encoded = encode(var.pipeline, {source, size}, done.data, spare);
  if (encoded)
    done.encoded = *encoded;
  else
    done.error = std::move(encoded).error();
  budget.give(std::move(gathered));
  budget.give(std::move(spare));
}

void ChunkAssembly::make_elsewhere(const std::shared_ptr<Job>& job, unsigned place,
                                   std::shared_ptr<const Message> request) {
  auto answered = [job, request](std::optional<Message> reply) {
    auto& shared = *job->shared;
    if (const auto said = reply ? read_reply(reply->span()) : std::nullopt) {
      auto done = job->outcome();
      done.data = std::move(reply->buffer);
      done.encoded = said->encoded;
      shared.encode_ns += said->cpu_ns;
      return shared.hand_in(std::move(done));
    }
    job->executor.run([job, request] {
      const auto begin = thread_cpu_ns();
      auto done = job->outcome();
      try {
        make_here(*job, {}, request->buffer.data(), done);
      } catch (const std::bad_alloc&) {
        done.error = job->no_memory();
      }
      job->shared->encode_ns += thread_cpu_ns() - begin;
      job->shared->hand_in(std::move(done));
    });
  };
  job->helpers->ask(place, std::move(request), std::move(answered));
}

Result<void> ChunkAssembly::hand_over(Done done) {
  budget_->release(done.reserved);
  if (done.error) return std::move(*done.error).with("chunk of " + done.variable->name);
  const auto it = entries_.find(done.key);
  // A job started later for the same chunk makes this one's result history.
  if (it != entries_.end() && it->second.version == done.version) {
    ADVECTIO_TRY(store_.put(done.key.variable, *done.variable, start_of(done.key.start, *done.variable),
                            done.encoded.mask, {done.data.data(), done.encoded.bytes}));
  }
  budget_->give(std::move(done.data));
  return {};
}

/// False: no chunk is finished.
Result<bool> ChunkAssembly::hand_over_next() {
  Done done;
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->done.empty()) return false;
    done = std::move(shared_->done.front());
    shared_->done.pop_front();
  }
  ADVECTIO_TRY(hand_over(std::move(done)));
  return true;
}

Result<void> ChunkAssembly::read_base(const Key& key, const Entry& entry, const std::vector<std::uint64_t>& extent,
                                      Buffer& base) {
  const auto& v = *entry.variable;
  base.reserve(v.chunk_bytes());
  fill_with(base.data(), v.chunk_bytes(), v.fill);
  return store_.get(key.variable, v, start_of(key.start, v), extent, base.data());
}

void ChunkAssembly::seal() {
  if (std::exchange(sealed_, true)) return;
  executor_.set_awaited(shared_->flow, true);
  for (auto& [key, entry] : entries_)
    if (entry.dirty) want(key, entry);
}

Result<bool> ChunkAssembly::advance() {
  return advance(now_ns() + advance_ns);
}

Result<bool> ChunkAssembly::advance(std::uint64_t until_ns) {
  const bool may_wait = until_ns == UINT64_MAX;
  for (bool any = true; any;) {
    if (!may_wait && store_.is_behind()) return false;
    auto handed = hand_over_next();
    if (!handed) return handed;
    auto started = start_next();
    if (!started) return started;
    any = *handed || *started;
    if (!any || may_wait || now_ns() <= until_ns) continue;
    if (shared_->wake) shared_->wake();  // there is more to do
    return false;
  }
  if (!waiting_.empty()) return false;
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->running > 0 || !shared_->done.empty()) return false;
  }
  if (std::exchange(sealed_, false)) {
    executor_.set_awaited(shared_->flow, false);
    entries_.clear();
    extents_.clear();
    made_here_bytes_ = 0;
  }
  return true;
}

Result<void> ChunkAssembly::flush() {
  seal();
  for (;;) {
    auto all = advance(UINT64_MAX);
    if (!all) return std::move(all).error();
    if (*all) return {};
    await_news();
  }
}

void ChunkAssembly::abandon() noexcept {
  {
    std::unique_lock lock(shared_->mutex);
    shared_->news.wait(lock, [&] { return shared_->running == 0; });
    for (const auto& done : shared_->done) budget_->release(done.reserved);
    shared_->done.clear();
  }
  entries_.clear();
  extents_.clear();
  waiting_.clear();
  executor_.set_awaited(shared_->flow, false);
  sealed_ = false;
  made_here_bytes_ = 0;
}

}  // namespace advectio
