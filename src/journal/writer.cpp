#include "journal/writer.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <random>
#include <utility>

#include "journal/spill.h"
#include "platform/machine.h"

namespace advectio::journal {

namespace {

constexpr std::uint64_t wait_slice_ns = 20'000'000;

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
                                 const std::function<void(WriterPage&)>& fill) {
  // The server looks at names without a dot only: it sees the directory when the page is complete and locked.
  const std::string hidden = stage.journals() + "/." + name;
  ADVECTIO_TRY(stage.files().make_directory(hidden, 0700));
  auto lock = ProcessLock::take(hidden + "/writer");
  if (!lock) return std::move(lock).error();
  auto file = stage.files().open(hidden + "/writer", OpenMode::read_write, 0600);
  if (!file) return std::move(file).error();
  ADVECTIO_TRY((*file)->reserve(writer_bytes));
  auto mapping = stage.files().map(**file, writer_bytes, true);
  if (!mapping) return std::move(mapping).error();
  Page<WriterPage> page(std::move(mapping).value());
  fill(*page);
  page->magic = writer_magic;
  page->version = format_version;
  ADVECTIO_TRY(stage.files().rename(hidden, stage.journals() + "/" + name));
  return MadeJournal{std::move(page), std::move(lock).value()};
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
  auto made = make_journal(stage, name, [&](WriterPage& page) {
    page.pid = identity.pid;
    page.rank = identity.rank;
    page.journal = uid;
    page.started_ns = realtime_ns();
    copy_text(page.host, sizeof page.host, identity.host);
    copy_text(page.command, sizeof page.command, identity.command);
  });
  if (!made) return std::move(made).error();
  // Each process maps the control page for itself.
  auto own = Stage::open(stage.files(), stage.directory());
  if (!own) return std::move(own).error();
  return std::unique_ptr<Writer>(new Writer(std::move(own).value(), stage.journals() + "/" + name, name, uid,
                                            std::move(made->page), std::move(made->lock)));
}

Writer::Writer(Stage stage, std::string directory, std::string name, std::uint64_t uid, Page<WriterPage> page,
               ProcessLock lock)
    : stage_(std::move(stage)),
      directory_(std::move(directory)),
      name_(std::move(name)),
      uid_(uid),
      page_(std::move(page)),
      lock_(std::move(lock)) {
  segment_bytes_ = stage_.control().segment_bytes;
  on_disk_ = is_on_disk(stage_.directory());
  ahead_wanted_ = 1;

  // Signals are the program's business: the thread takes none.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { stay_ahead(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Writer::~Writer() {
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
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
  const auto room = segment_bytes_ - at_;
  const auto fixed = record_bytes(meta, 0);
  return room > fixed ? (room - fixed) / alignment * alignment : 0;
}

std::uint64_t Writer::segments_for(std::uint64_t bytes) const noexcept {
  const auto room = current_.data != nullptr ? segment_bytes_ - at_ : 0;
  if (bytes <= room) return 0;
  const auto holds = segment_bytes_ - segment_header_bytes;
  return (bytes - room + holds - 1) / holds;
}

Result<std::uint64_t> Writer::append(RecordType type, std::uint16_t flags, std::uint32_t dataset,
                                     std::span<const std::byte> meta, std::uint64_t payload_bytes,
                                     const std::function<std::uint32_t(std::byte*)>& fill,
                                     const WhileWaiting& while_waiting, std::uint32_t turn) {
  const auto total = record_bytes(meta.size(), payload_bytes);
  if (total > segment_bytes_ - segment_header_bytes)
    return Error{Code::invalid,
                 std::string("a ") + name_of(type) + " record of " + std::to_string(total) +
                     " bytes does not fit a segment of " + std::to_string(segment_bytes_) +
                     " bytes; raise stage.segment_bytes",
                 0};
  if (current_.data == nullptr || at_ + total > segment_bytes_) ADVECTIO_TRY(next_segment(while_waiting));

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
  header.turn = turn;
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

Result<void> Writer::next_segment(const WhileWaiting& while_waiting) {
  Segment next;
  std::uint64_t waiting_since = 0;
  for (;;) {
    const auto seen = stage_.control().progress.load(std::memory_order_acquire);
    {
      // One that has been mapped ahead; the server may have taken it back for another process meanwhile.
      const std::lock_guard guard(mutex_);
      while (next.data == nullptr && !ahead_.empty()) {
        Segment s = std::move(ahead_.front());
        ahead_.pop_front();
        // What is left of the frame needs one less: more would be taken from other writers, or made in vain.
        if (ahead_wanted_ > 1) --ahead_wanted_;
        if (stage_.files().rename(directory_ + "/ahead-" + s.name, directory_ + "/" + chain_name(next_index_, s.name)))
          next = std::move(s);
      }
    }
    if (next.data == nullptr) take_from_pool(chain_name(next_index_, ""), false, next, When::now);
    if (next.data == nullptr && spills_) take_from_pool(chain_name(next_index_, ""), true, next, When::now);
    if (next.data != nullptr) break;

    auto& control = stage_.control();
    const auto now = monotonic_ns();
    if (waiting_since == 0) {
      waiting_since = now;
      control.waits.fetch_add(1, std::memory_order_relaxed);
    }
    ask_for_room();
    if (while_waiting) ADVECTIO_TRY(while_waiting());
    await_ring(control.progress, seen, wait_slice_ns);
  }
  if (waiting_since != 0) stage_.control().wait_ns.fetch_add(monotonic_ns() - waiting_since, std::memory_order_relaxed);
  wake_.notify_one();

  begin_segment(next.data, segment_bytes_, uid_, next_index_, next_sequence_);

  // Only now the old one is sealed: a reader that sees the seal finds the next one ready.
  if (current_.data != nullptr) {
    reinterpret_cast<SegmentHeader*>(current_.data)->sealed.store(1, std::memory_order_release);
    ring(stage_.control().work);
  }
  let_go(current_);
  note_unsynced();
  current_ = std::move(next);
  at_ = synced_at_ = segment_header_bytes;
  ++next_index_;
  unsynced_.names = true;
  return {};
}

void Writer::seal() noexcept {
  if (current_.data == nullptr) return;
  reinterpret_cast<SegmentHeader*>(current_.data)->sealed.store(1, std::memory_order_release);
  let_go(current_);
  note_unsynced();
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

/// A spilled segment is for one use: its pages are the kernel's to write back and to forget.
void Writer::let_go(const Segment& segment) {
  if (!is_spilled(segment.name)) return;
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

bool Writer::take_from_pool(const std::string& as_prefix, bool spilled, Segment& out, When when) {
  auto names = stage_.files().list(stage_.pool());
  if (!names) return false;
  // Those we have mapped before first: their pages are in our page tables.
  {
    const std::lock_guard guard(mutex_);
    std::stable_partition(names->begin(), names->end(),
                          [this](const std::string& n) { return mappings_.count(n) > 0; });
  }
  for (const auto& name : *names) {
    if (name[0] != (spilled ? spilled_letter : segment_letter)) continue;
    const std::string path = directory_ + "/" + as_prefix + name;
    if (!stage_.files().rename(stage_.pool() + "/" + name, path)) continue;  // somebody was faster
    auto* data = mapped(name, path, when);
    if (data == nullptr) {
      // Out of address space or descriptors: give it back, and let the caller wait or fail.
      (void)stage_.files().rename(path, stage_.pool() + "/" + name);
      return false;
    }
    out = Segment{name, data};
    return true;
  }
  return false;
}

std::byte* Writer::mapped(const std::string& segment, const std::string& path, When when) {
  {
    const std::lock_guard guard(mutex_);
    if (const auto it = mappings_.find(segment); it != mappings_.end()) return it->second.data();
  }
  auto file = stage_.files().open(path, OpenMode::read_write, 0600);
  if (!file) return nullptr;
  auto mapping = stage_.files().map(**file, segment_bytes_, true);
  if (!mapping) return nullptr;
  // The server has touched every page.
  mapping->populate(on_disk_ || is_spilled(segment), when == When::ahead);
  const std::lock_guard guard(mutex_);
  auto [it, fresh] = mappings_.emplace(segment, std::move(mapping).value());
  return it->second.data();
}

void Writer::keep_ahead(std::uint64_t segments) noexcept {
  {
    const std::lock_guard guard(mutex_);
    ahead_wanted_ = segments;
  }
  wake_.notify_one();
}

void Writer::stay_ahead() {
  std::unique_lock guard(mutex_);
  while (!ending_) {
    if (ahead_.size() >= ahead_wanted_) {
      wake_.wait(guard);
      continue;
    }
    guard.unlock();
    Segment s;
    const bool got = take_from_pool("ahead-", false, s, When::ahead);
    guard.lock();
    if (got) {
      ahead_.push_back(std::move(s));
    } else {
      wake_.wait_for(guard, std::chrono::milliseconds(20));
    }
  }
}

}  // namespace advectio::journal
