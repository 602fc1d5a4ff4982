#include "journal/writer.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <random>
#include <system_error>
#include <utility>

#include "journal/segments.h"
#include "journal/spill.h"
#include "platform/machine.h"

namespace advectio::journal {

namespace {

constexpr std::uint64_t wait_slice_ns = 20'000'000;
constexpr std::size_t listed_max = 16;
constexpr std::size_t segment_name_max = 63;
constexpr std::uint64_t lacks_max_ns = 1'000'000'000;  // of address space or descriptors, which nobody else gives back
constexpr std::chrono::milliseconds look_again_min(20), look_again_max(640);

void copy_text(char* to, std::size_t size, const std::string& from) {
  const auto n = std::min(size - 1, from.size());
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

}  // namespace

std::string chain_name(std::uint64_t index, const std::string& segment) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%08llu-", static_cast<unsigned long long>(index));
  return digits + segment;
}

Result<MadeJournal> make_journal(const Stage& stage, const std::string& name,
                                 const std::function<void(WriterState&)>& fill) {
  // The server looks at names without a dot only: it sees the directory when the shared state is complete and locked.
  const std::string hidden = stage.journals() + "/." + name;
  ADVECTIO_TRY(stage.files().make_directory(hidden, 0700));
  auto lock = ProcessLock::take(hidden + "/writer");
  if (!lock) return std::move(lock).error();
  auto file = stage.files().open(hidden + "/writer", OpenMode::read_write, 0600);
  if (!file) return std::move(file).error();
  ADVECTIO_TRY((*file)->reserve(writer_bytes));
  auto mapping = stage.files().map(**file, writer_bytes, true);
  if (!mapping) return std::move(mapping).error();
  MappedState<WriterState> shared_state(std::move(mapping).value());
  fill(*shared_state);
  shared_state->magic = writer_magic;
  shared_state->version = format_version;
  const auto publish = [&] { return stage.files().rename(hidden, stage.journals() + "/" + name); };
  // A mirror may begin after the last program of this node has gone: another node sends it.
  const auto done = shared_state->mirror != 0 ? publish() : stage.enter(publish);
  if (!done) {
    (void)stage.files().remove(hidden + "/writer");
    ::rmdir(hidden.c_str());
    if (done.error().code == Code::gone) stage.remove_rest();
    return done.error();
  }
  return MadeJournal{std::move(shared_state), std::move(lock).value()};
}

void begin_segment(std::byte* segment, std::uint64_t bytes, std::uint64_t journal, std::uint64_t index,
                   std::uint64_t first_sequence) noexcept {
  auto* header = reinterpret_cast<SegmentHeader*>(segment);
  header->committed.store(0, std::memory_order_release);
  header->sealed.store(0, std::memory_order_relaxed);
  header->magic = segment_magic;
  header->version = format_version;
  header->reserved0 = 0;
  header->segment_bytes = bytes;
  header->journal = journal;
  header->index = index;
  header->first_sequence = first_sequence;
  header->crc = crc32c(header, offsetof(SegmentHeader, crc));
  header->committed.store(segment_header_bytes, std::memory_order_release);
}

Result<std::unique_ptr<Writer>> Writer::open(const Stage& stage, const WriterIdentity& identity) {
  std::random_device random;
  const std::uint64_t uid = (static_cast<std::uint64_t>(random()) << 32U) ^ random() ^ monotonic_ns();
  const std::string who =
      (identity.rank >= 0 ? std::to_string(identity.rank) : std::string("x")) + "-" + std::to_string(identity.pid);
  char suffix[24];
  std::snprintf(suffix, sizeof suffix, "-%08x", static_cast<unsigned>(uid));
  const std::string name = who + suffix;
  auto made = make_journal(stage, name, [&](WriterState& shared_state) {
    shared_state.pid = identity.pid;
    shared_state.rank = identity.rank;
    shared_state.journal = uid;
    shared_state.started_ns = realtime_ns();
    copy_text(shared_state.host, sizeof shared_state.host, identity.host);
    copy_text(shared_state.command, sizeof shared_state.command, identity.command);
  });
  if (!made) return std::move(made).error();
  // Each process maps the control file for itself.
  auto own = Stage::open(stage.files(), stage.directory());
  if (!own) return std::move(own).error();
  return std::unique_ptr<Writer>(new Writer(std::move(own).value(), stage.journals() + "/" + name, name, uid,
                                            std::move(made->shared_state), std::move(made->lock)));
}

Writer::Writer(Stage stage, std::string directory, std::string name, std::uint64_t uid,
               MappedState<WriterState> shared_state, ProcessLock lock)
    : stage_(std::move(stage)),
      directory_(std::move(directory)),
      name_(std::move(name)),
      uid_(uid),
      shared_state_(std::move(shared_state)),
      lock_(std::move(lock)) {
  segment_bytes_ = stage_.control().segment_bytes;
  on_disk_ = is_on_disk(stage_.directory());
  ahead_wanted_ = 1;
  current_name_.reserve(segment_name_max);

  // Signals are the program's business: the thread takes none.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    thread_ = std::thread([this] {
      try {
        stay_ahead();
      } catch (...) {  // no memory: as without a thread
      }
    });
  } catch (const std::exception&) {
    // The process may have no more threads (pids.max, ulimit -u) or memory. Each segment is taken when it is needed.
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Writer::note_end() const noexcept {
  shared_state_->note_end();
  ring(stage_.control().ends);
}

Writer::~Writer() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Writer::keep_lock() {
  if (lock_.is_kept()) return;
  if (auto again = ProcessLock::take(directory_ + "/writer"); again) lock_ = std::move(again).value();
}

void Writer::forget_in_child() noexcept {
  // Close our copy of the lock, so that it falls with the parent; everything else stays as it is, unused.
  { const ProcessLock dropped = std::move(lock_); }
}

std::uint64_t Writer::payload_max(std::uint64_t meta) const noexcept {
  return (segment_bytes_ - segment_header_bytes - record_bytes(meta, 0)) / alignment * alignment;
}

std::uint64_t Writer::payload_now(std::uint64_t meta) const noexcept {
  if (current_.data == nullptr) return 0;
  const auto room = current_.bytes - at_;
  const auto fixed = record_bytes(meta, 0);
  return room > fixed ? (room - fixed) / alignment * alignment : 0;
}

std::uint64_t Writer::segments_for(std::uint64_t bytes) const noexcept {
  const auto room = current_.data != nullptr ? current_.bytes - at_ : 0;
  if (bytes <= room) return 0;
  const auto holds = segment_bytes_ - segment_header_bytes;
  return (bytes - room + holds - 1) / holds;
}

Result<std::uint64_t> Writer::append(RecordType type, std::uint16_t flags, std::uint32_t dataset,
                                     std::span<const std::byte> meta, std::uint64_t payload_bytes,
                                     const std::function<std::uint32_t(std::byte*)>& fill,
                                     const WhileWaiting& while_waiting, std::uint32_t collective_index) {
  const auto total = record_bytes(meta.size(), payload_bytes);
  const auto& control = stage_.control();
  const auto cap = control.segments_limit.load() * segment_bytes_;
  if (long_segment_bytes(control, total) > std::max(cap, segment_bytes_))
    return Error{Code::invalid,
                 std::string("a ") + name_of(type) + " record of " + std::to_string(total) +
                     " bytes does not fit the stage, which may hold " + std::to_string(cap) +
                     " bytes; raise stage.bytes_max",
                 0};
  if (current_.data == nullptr || at_ + total > current_.bytes) ADVECTIO_TRY(next_segment(total, while_waiting));

  std::byte* const record = current_.data + at_;
  std::byte* const meta_at = record + sizeof(RecordHeader);
  std::byte* const payload_at = meta_at + padded(meta.size());
  if (!meta.empty()) std::memcpy(meta_at, meta.data(), meta.size());
  RecordHeader header{};
  header.magic = record_magic;
  header.type = static_cast<std::uint16_t>(type);
  header.flags = flags;
  header.journal = uid_;
  header.sequence = next_sequence_;
  header.dataset = dataset;
  header.meta_bytes = static_cast<std::uint32_t>(meta.size());
  header.payload_bytes = payload_bytes;
  header.meta_crc = crc32c(meta.data(), meta.size());
  header.payload_crc = payload_bytes > 0 ? fill(payload_at) : 0;
  header.time_ns = realtime_ns();
  header.collective_index = collective_index;
  header.crc = crc32c(&header, offsetof(RecordHeader, crc));
  std::memcpy(record, &header, sizeof header);

  at_ += total;
  appended_ += total;
  ++next_sequence_;
  auto* segment = reinterpret_cast<SegmentHeader*>(current_.data);
  segment->committed.store(at_, std::memory_order_release);
  // The server need not know of every small put at once; it also looks by itself every few milliseconds.
  if (type != RecordType::put || total >= (1U << 20U)) ring(stage_.control().work);
  return header.sequence;
}

/// One that has been mapped ahead; the server may have taken it back for another process meanwhile.
bool Writer::take_ahead(Segment& out) {
  const std::lock_guard guard(mutex_);
  while (!ahead_.empty()) {
    const auto& first = ahead_.front().name;
    const bool is_ours =
        stage_.files().rename(directory_ + "/ahead-" + first, directory_ + "/" + chain_name(next_index_, first)).ok();
    Segment s = std::move(ahead_.front());
    ahead_.pop_front();
    // What is left of the frame needs one less: more would be taken from other writers, or made in vain.
    if (ahead_wanted_ > 1) --ahead_wanted_;
    if (!is_ours) continue;
    mappings_.at(s.name).used = ++uses_;
    out = std::move(s);
    return true;
  }
  return false;
}

/// Make one. This process touches it, at the same time as others touch theirs, and waits for nobody.
bool Writer::take_new(std::uint64_t record, Segment& out) {
  const auto& control = stage_.control();
  if (control.version < shared_making_version) return false;
  const auto bytes = long_segment_bytes(control, record);
  auto made = bytes > segment_bytes_ ? make_long_segment(stage_, directory_, bytes)
                                     : make_segment(stage_, directory_, Pages::reserved);
  if (!made) {
    note_lack(std::move(made).error(), When::now);
    return false;
  }
  if (!made->has_value()) return false;
  auto& segment = **made;
  const auto undo = [&] {
    uncount_segments(stage_.control(), count_of_segment(segment.name));
    {
      const std::lock_guard guard(mutex_);
      mappings_.erase(segment.name);
    }
    (void)stage_.files().remove(segment.path);
  };
  try {
    const auto path = directory_ + "/" + chain_name(next_index_, segment.name);
    auto* const data = mapped(segment.name, segment.path, false, When::now);
    if (data == nullptr || !stage_.files().rename(segment.path, path)) {
      // Out of address space or descriptors: let the caller wait or fail.
      undo();
      return false;
    }
    out = Segment{std::move(segment.name), data, bytes};
    return true;
  } catch (...) {
    undo();
    throw;
  }
}

/// `record`: bytes of the record that does not fit the one under way.
Result<void> Writer::next_segment(std::uint64_t record, const WhileWaiting& while_waiting) {
  Segment next;
  std::uint64_t waiting_since = 0, lacks_since = 0;
  note_unsynced();  // before the next one is taken, as it may find no memory
  const bool usual = record <= segment_bytes_ - segment_header_bytes;
  for (;;) {
    const auto seen = stage_.control().progress.load(std::memory_order_acquire);
    lack_.reset();
    if (usual && (take_ahead(next) || take_from_pool(chain_name(next_index_, ""), segment_letter, next, When::now)))
      break;
    if (take_new(record, next)) break;
    if (usual && spills_ && take_from_pool(chain_name(next_index_, ""), spilled_letter, next, When::now)) break;

    auto& control = stage_.control();
    const auto now = monotonic_ns();
    if (waiting_since == 0) {
      waiting_since = now;
      control.waits.fetch_add(1, std::memory_order_relaxed);
    }
    if (!lack_)
      lacks_since = 0;
    else if (lacks_since == 0)
      lacks_since = now;
    else if (now - lacks_since > lacks_max_ns)
      return std::move(*lack_);
    ask_for_room();
    if (while_waiting) ADVECTIO_TRY(while_waiting());
    await_ring(control.progress, seen, wait_slice_ns);
  }
  if (waiting_since != 0) {
    const auto now = monotonic_ns();
    stage_.control().wait_ns.fetch_add(now - waiting_since, std::memory_order_relaxed);
    stage_.control().relieved_ns.store(now, std::memory_order_relaxed);
  }
  wake_.notify_one();

  begin_segment(next.data, next.bytes, uid_, next_index_, next_sequence_);

  // Only now the old one is sealed: a reader that sees the seal finds the next one ready.
  if (current_.data != nullptr) {
    reinterpret_cast<SegmentHeader*>(current_.data)->sealed.store(1, std::memory_order_release);
    ring(stage_.control().work);
  }
  let_go(current_);
  current_ = std::move(next);
  {
    const std::lock_guard guard(mutex_);
    current_name_ = current_.name;
  }
  at_ = synced_at_ = segment_header_bytes;
  ++next_index_;
  unsynced_.names = true;
  return {};
}

void Writer::seal() noexcept {
  if (current_.data == nullptr) return;
  try {
    note_unsynced();
  } catch (...) {  // no memory: the segment stays in use
    return;
  }
  reinterpret_cast<SegmentHeader*>(current_.data)->sealed.store(1, std::memory_order_release);
  let_go(current_);
  current_ = Segment{};
  ring(stage_.control().work);
}

/// The present segment, if anything was appended to it since it was last forced to the disk.
void Writer::note_unsynced() {
  if (current_.data == nullptr || at_ == synced_at_ || !stage_.survives_power()) return;
  unsynced_.segments.push_back(directory_ + "/" + chain_name(next_index_ - 1, current_.name));
  synced_at_ = at_;
}

Writer::Unsynced Writer::take_unsynced() {
  note_unsynced();
  return std::exchange(unsynced_, {});
}

Result<void> Writer::make_durable(const Unsynced& unsynced) const {
  auto& files = stage_.files();
  for (const auto& segment : unsynced.segments)
    if (auto done = advectio::make_durable(files, segment); !done && done.error().code != Code::not_found) return done;
  if (unsynced.first) ADVECTIO_TRY(advectio::make_durable(files, directory_ + "/writer"));
  if (unsynced.names) ADVECTIO_TRY(advectio::make_durable(files, directory_));
  if (unsynced.first) ADVECTIO_TRY(advectio::make_durable(files, stage_.journals()));
  return {};
}

/// A spilled segment is for one use, its pages are the kernel's to write back and to forget; and a long one is
/// removed.
void Writer::let_go(const Segment& segment) {
  if (!is_spilled(segment.name) && !is_long(segment.name)) return;
  const std::lock_guard guard(mutex_);
  mappings_.erase(segment.name);
}

/// As soon as the stage is full, of the disk, where the records may go there and it has room.
void Writer::ask_for_room() {
  auto& control = stage_.control();
  const bool full = control.segments_total.load() >= control.segments_limit.load();
  const bool spills = spills_ && full && control.spill_total.load() < control.spill_max.load();
  (spills ? control.spill_wanted_ns : control.starved_ns).store(monotonic_ns(), std::memory_order_relaxed);
  ring(control.work);
}

std::uint64_t Writer::room_segments() {
  const auto& control = stage_.control();
  const auto limit = control.segments_limit.load(), total = control.segments_total.load();
  auto room = stage_.free_segments() + (limit > total ? limit - total : 0);
  const std::lock_guard guard(mutex_);
  return room + ahead_.size();
}

/// The name of a free segment, the best first: those mapped here, as their pages are in our page
/// tables; then the lowest numbers, so that as few as can be are in use at all. To list the pool for each would cost
/// more than to map it.
std::string Writer::next_free(std::vector<std::string>& listed, char letter, When when) {
  if (listed.empty()) {
    auto names = stage_.files().list(stage_.pool());
    if (!names) {
      note_lack(std::move(names).error(), when);
      return "";
    }
    std::erase_if(*names, [letter](const std::string& n) { return n[0] != letter; });
    const std::lock_guard guard(mutex_);
    std::stable_partition(names->begin(), names->end(),
                          [this](const std::string& n) { return mappings_.count(n) > 0; });
    if (names->size() > listed_max) names->resize(listed_max);
    listed.assign(names->rbegin(), names->rend());
  }
  if (listed.empty()) return "";
  auto name = std::move(listed.back());
  listed.pop_back();
  return name;
}

bool Writer::take_from_pool(const std::string& as_prefix, char letter, Segment& out, When when) {
  // One list for each thread. What it says may be old: when all of it has gone, look once more.
  const bool spilled = letter == spilled_letter;
  std::vector<std::string> now;
  auto& listed = spilled ? now : listed_[static_cast<std::size_t>(when)];
  for (int looks = listed.empty() ? 1 : 0; looks < 2; ++looks) {
    do {
      auto name = next_free(listed, letter, when);
      if (name.empty()) return false;
      const std::string in_pool = stage_.pool() + "/" + name, path = directory_ + "/" + as_prefix + name;
      // The server opens what has a name in the chain, so a segment gets that when it is mapped.
      const std::string own = spilled ? path : directory_ + "/ahead-" + name;
      if (!stage_.files().rename(in_pool, own)) continue;  // somebody was faster
      // Out of address space, descriptors or memory: give it back, and let the caller wait or fail.
      std::byte* data = nullptr;
      try {
        data = mapped(name, own, true, when);
      } catch (...) {
        (void)stage_.files().rename(own, in_pool);
        throw;
      }
      if (data == nullptr) {
        (void)stage_.files().rename(own, in_pool);
        return false;
      }
      if (own != path && !stage_.files().rename(own, path)) continue;  // the server has taken it back
      out = Segment{std::move(name), data, segment_bytes_};
      return true;
    } while (!listed.empty());
  }
  return false;
}

/// Of this process, which waits for nobody then.
void Writer::note_lack(Error error, When when) {
  if (when == When::now && (error.sys == ENOMEM || error.sys == EMFILE || error.sys == ENFILE))
    lack_ = std::move(error);
}

/// `touched`: its pages are there.
std::byte* Writer::mapped(const std::string& segment, const std::string& path, bool touched, When when) {
  {
    const std::lock_guard guard(mutex_);
    if (const auto it = mappings_.find(segment); it != mappings_.end()) {
      it->second.used = ++uses_;
      return it->second.mapping.data();
    }
  }
  auto file = stage_.files().open(path, OpenMode::read_write, 0600);
  if (!file) {
    note_lack(std::move(file).error(), when);
    return nullptr;
  }
  auto mapping = stage_.files().map(**file, bytes_of_segment(stage_.control(), segment), true);
  if (!mapping) {
    note_lack(std::move(mapping).error(), when);
    return nullptr;
  }
  mapping->populate(!touched || on_disk_ || is_spilled(segment), when == When::ahead);
  const std::lock_guard guard(mutex_);
  auto [it, fresh] = mappings_.emplace(segment, Mapped{std::move(mapping).value(), ++uses_});
  return it->second.mapping.data();
}

/// With many writers all would have mapped the whole stage before long, and page tables are memory, too.
void Writer::unmap_one_too_many() {
  if (mappings_.size() <= 2 * ahead_most_ + 8) return;
  auto oldest = mappings_.end();
  for (auto it = mappings_.begin(); it != mappings_.end(); ++it) {
    const auto held = [&](const Segment& s) { return s.name == it->first; };
    if (it->first == current_name_ || std::any_of(ahead_.begin(), ahead_.end(), held)) continue;
    if (oldest == mappings_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  if (oldest != mappings_.end()) mappings_.erase(oldest);
}

void Writer::keep_ahead(std::uint64_t segments) noexcept {
  {
    const std::lock_guard guard(mutex_);
    ahead_wanted_ = segments;
    ahead_most_ = std::max(ahead_most_, segments);
  }
  wake_.notify_one();
}

bool Writer::is_far_enough_ahead() noexcept {
  const std::lock_guard guard(mutex_);
  return !thread_.joinable() || ahead_.size() >= ahead_wanted_;
}

void Writer::stay_ahead() {
  std::unique_lock guard(mutex_);
  auto pause = look_again_min;
  while (!ending_) {
    unmap_one_too_many();
    if (ahead_.size() >= ahead_wanted_) {
      wake_.wait(guard);
      pause = look_again_min;
      continue;
    }
    guard.unlock();
    Segment s;
    const bool got = take_from_pool("ahead-", segment_letter, s, When::ahead);
    guard.lock();
    if (got) {
      ahead_.push_back(std::move(s));
      pause = look_again_min;
    } else {
      // None is free. The model computes, and is not to be disturbed often.
      if (wake_.wait_for(guard, pause) == std::cv_status::no_timeout) pause = look_again_min;
      pause = std::min(2 * pause, look_again_max);
    }
  }
}

}  // namespace advectio::journal
