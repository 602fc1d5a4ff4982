// Schema, frames and the end of a dataset. Its blocks are in put.cpp.
#include "capture/journalled_dataset.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "capture/dataset_state.h"
#include "capture/session.h"
#include "journal/hard_link.h"
#include "journal/writer.h"

namespace advectio::capture {

using journal::RecordType;
using journal::Stage;

namespace {
constexpr std::uint64_t link_removed_max_ns = 1'000'000'000;  // from the end of a dataset on

void ask_for(journal::SharedState& shared_state, journal::EndAsked end) noexcept {
  auto asked = shared_state.end_asked.load(std::memory_order_relaxed);
  while (asked < static_cast<std::uint32_t>(end) &&
         !shared_state.end_asked.compare_exchange_weak(asked, static_cast<std::uint32_t>(end),
                                                       std::memory_order_release)) {
  }
}
}  // namespace

JournalledDataset::~JournalledDataset() {
  if (session_.foreign() || !listed_) return;
  // Unsynced puts are lost with a writer that does not end the dataset.
  if (ends_ || schema_.empty())
    end_anyway();
  else if (!closed_)
    give_up();
  session_.forget(this);
}

void JournalledDataset::end_anyway() noexcept {
  if (closed_ || inherited() || taken_over()) return;
  try {
    // Without a schema nobody has put anything.
    (void)(schema_.empty() || all_left_out() ? abort() : close_here());
  } catch (...) {  // still no memory
  }
  if (!closed_) give_up();
}

/// The server ends it when it sees this process end.
void JournalledDataset::give_up() noexcept {
  closed_ = true;
  const std::lock_guard guard(session_.mutex());
  session_.give_up(number_);
}

/// Called while the stage is full: an error gives up.
Result<void> JournalledDataset::while_waiting(Patience& patience) {
  const auto state = patience.look();
  if (state == Patience::State::moves) return {};
  const auto& control = session_.stage().control();
  // Where the stage can still grow, the server may only not have made the next segment yet.
  const bool grows = control.segments_total.load() < control.segments_limit.load() ||
                     (rule_.spills() && control.spill_total.load() < control.spill_max.load());
  if (!grows && has_failed(*shared_state_))
    return error_of_state(*shared_state_).with("the stage is full and this dataset cannot be written");
  if (!session_.stage().there()) return Error{Code::gone, "the stage has been removed", EIO};
  if (state != Patience::State::over) return {};
  return Error{session_.stage().server_alive() ? Code::timeout : Code::gone,
               "the stage is full and nothing has left it for " + std::to_string(control.wait_max_ns / 1'000'000'000U) +
                   " s (stage.wait_max)",
               ETIMEDOUT};
}

Result<std::uint64_t> JournalledDataset::append(RecordType type, std::uint16_t flags, std::span<const std::byte> meta,
                                                std::uint64_t payload, const FillPayload& fill,
                                                std::uint64_t collective_index) {
  if (session_.foreign()) return Error{Code::gone, "the dataset belongs to the parent process", 0};
  if (closed_) return Error{Code::invalid, "the dataset is closed", 0};
  if (taken_over())
    return Error{Code::gone, std::string(shared_state_->path) + ": a process forked from this one writes it now",
                 EBUSY};
  auto writer = session_.writer();
  if (!writer) return std::move(writer).error();
  under_way_.any_record = true;
  // An implicit sync changes nothing: a reader asks for what is there.
  if ((flags & journal::flag_implicit) == 0) ++generation_;
  (*writer)->spills(rule_.spills());
  auto patience = session_.waiting().for_room();
  return (*writer)->append(
      type, flags, number_, meta, payload, fill, [&] { return while_waiting(patience); },
      static_cast<std::uint32_t>(collective_index != 0 ? collective_index : collective_calls_.collective_index()));
}

// --- processes that fork --------------------------------------------------------------------------

std::string JournalledDataset::identity() const {
  return state_name_;
}

bool JournalledDataset::inherited() const noexcept {
  return session_.foreign();
}

bool JournalledDataset::inherited_unsynced() const noexcept {
  return session_.foreign() && under_way_.puts > 0;
}

void JournalledDataset::note_heir() noexcept {
  if (!closed_) shared_state_->heir.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_release);
}

void JournalledDataset::keep_all() noexcept {
  ask_for(*shared_state_, journal::EndAsked::last);
}

bool JournalledDataset::taken_over() const noexcept {
  return shared_state_->end_asked.load(std::memory_order_acquire) == static_cast<std::uint32_t>(journal::EndAsked::now);
}

/// In a forked child: the server ends the dataset. Waits until it has let go of the file.
Result<void> JournalledDataset::take_over() {
  const auto& stage = session_.stage();
  const auto path = std::string(shared_state_->path);
  if (shared_state_->writers > 0 || shared_state_->owner != 0 || rule_.joins_tiles())
    return Error{Code::unsupported,
                 path + ": several ranks write it, or servers of several nodes; a forked process cannot take it over",
                 EBUSY};
  const auto name = Stage::state_name_of(link_);
  ask_for(*shared_state_, journal::EndAsked::now);
  journal::ring(stage.control().work);
  ADVECTIO_TRY(await_end(0));
  if (belongs_to_another(*shared_state_, 0)) return goes_into_another(*shared_state_);
  if (name) ADVECTIO_TRY(await_removal(*name));
  return sink_error();
}

/// After the end the server removes an empty file, its link and then the shared state. A disk may refuse that.
Result<void> JournalledDataset::await_removal(const std::string& state_name) {
  const auto& stage = session_.stage();
  const auto until = journal::monotonic_ns() + link_removed_max_ns;
  return session_.waiting().until(
      [&] { return !stage.files().exists(stage.datasets() + "/" + state_name) || journal::monotonic_ns() > until; },
      "wait for " + std::string(shared_state_->path));
}

Result<void> JournalledDataset::schema(const Schema& schema) {
  const Timer timer(stall_ns_);
  const std::lock_guard guard(session_.mutex());
  ADVECTIO_TRY(pay_syncs());
  auto bytes = encode(schema);
  const auto sent = [this] {
    if (collective_calls_.shared()) collective_calls_.schema_sent();
  };
  if (bytes == schema_) {
    sent();
    return {};
  }
  auto sequence = append(
      RecordType::schema, 0, {}, bytes.size(),
      [&bytes](std::byte* to) { return journal::copy_crc32c(to, bytes.data(), bytes.size()); },
      collective_calls_.shared() ? collective_calls_.schema_index() : 0);
  if (!sequence) return std::move(sequence).error().with("journal the schema");
  schema_ = std::move(bytes);
  sent();
  left_out_.learn(schema);
  record_frames_.learn(schema);
  if (auto writer = session_.writer(); writer)
    session_.keep_ahead(**writer, frame_bytes(schema) / std::max(collective_calls_.writers(), 1U));
  return {};
}

Result<void> JournalledDataset::settle(const std::vector<std::uint64_t>& written,
                                       const std::vector<std::uint64_t>& dropped) {
  const Timer timer(stall_ns_);
  const std::lock_guard guard(session_.mutex());
  ADVECTIO_TRY(pay_syncs());
  posted_ -= std::min<std::uint64_t>(posted_, written.size() + dropped.size());
  // As many at a time as fit the smallest segment there can be.
  constexpr std::size_t at_once = 1024;
  for (std::size_t i = 0; i < std::max(written.size(), dropped.size()); i += at_once) {
    const auto part = [i](const std::vector<std::uint64_t>& all) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(std::min(i, all.size()));
      return std::vector(from, from + std::min<std::ptrdiff_t>(at_once, all.end() - from));
    };
    auto sequence = append(RecordType::settle, in_collective_call_ ? journal::flag_collective : 0,
                           journal::encode(journal::Settle{part(written), part(dropped)}), 0, nullptr);
    if (!sequence) return std::move(sequence).error().with("journal the end of requests");
  }
  return {};
}

// --- frames -------------------------------------------------------------------------------------

/// The error that the sink has met since the last call.
Result<void> JournalledDataset::sink_error() {
  const auto errors = shared_state_->errors.load(std::memory_order_acquire);
  if (errors == errors_seen_) return {};
  errors_seen_ = errors;
  return error_of_state(*shared_state_);
}

/// The dataset is no longer in the midst of a frame.
void JournalledDataset::end_burst() noexcept {
  if (std::exchange(under_way_.puts, 0) > 0) session_.stage().control().bursts.fetch_sub(1, std::memory_order_relaxed);
}

/// Of several ranks each ends a frame. A sync that has failed is journalled before all that comes after it: else the
/// others would wait for it, and the syncs of the ranks would belong to different frames.
Result<void> JournalledDataset::pay_syncs() {
  for (; syncs_owed_ > 0; --syncs_owed_) ADVECTIO_TRY(sync_record(RecordType::sync, 0));
  return {};
}

Result<void> JournalledDataset::sync_record(RecordType type, std::uint16_t flags) {
  if (auto writer = session_.writer(); writer) (*writer)->keep_lock();
  journal::Sync sync;
  // The frame of a shared dataset ends when all its writers sync. So one that only reads ends none.
  const bool ends = !collective_calls_.shared() || (flags & journal::flag_implicit) == 0;
  // Its number is the program's: a record ends without one.
  const bool is_numbered = collective_calls_.shared() && ends && (flags & journal::flag_record) == 0;
  const bool any_put = put_since_sync_ || under_way_.puts > 0;
  if (ends && any_put) {
    sync.frame = frame_ + 1;
    sync.bytes = under_way_.bytes;
  }
  if (is_numbered) sync.sync_index = journal::SyncIndex{sync_index_ + 1};
  sync.stall_ns = std::exchange(stall_ns_, 0);
  const Timer timer(stall_ns_);
  auto sequence = append(type, flags, journal::encode(sync), 0, nullptr);
  if (!sequence) return std::move(sequence).error().with(std::string("journal the ") + journal::name_of(type));
  // From here on nothing fails: the server has the record.
  put_since_sync_ = any_put && !ends;
  if (sync.frame > 0) raise(shared_state_->frames_synced, ++frame_);
  if (is_numbered) ++sync_index_;
  // The next frame is taken to be as large.
  if (auto writer = session_.writer(); writer && under_way_.puts > 0)
    session_.keep_ahead(**writer, (*writer)->appended() - under_way_.began_at);
  left_out_.ended(under_way_.bytes);
  end_burst();
  under_way_ = {};
  if (collective_calls_.shared()) {
    if ((flags & journal::flag_record) == 0) synced_ = *sequence;
    raise(shared_state_->synced, sync_index_);
  } else {
    shared_state_->synced.store(*sequence, std::memory_order_release);
  }
  return {};
}

Result<void> JournalledDataset::sync() {
  std::uint64_t target = 0;
  {
    const std::lock_guard guard(session_.mutex());
    if (all_left_out()) return {};
    if (collective_calls_.shared()) {
      ++syncs_owed_;
      ADVECTIO_TRY(pay_syncs());
    } else {
      ADVECTIO_TRY(sync_record(RecordType::sync, 0));
    }
    target = collective_calls_.shared() ? sync_index_ : shared_state_->synced.load(std::memory_order_acquire);
  }
  ADVECTIO_TRY(kept_in_stage() ? keep_in_stage(target) : await_promise(target));
  return sink_error();
}

/// Whether the promise `durable` holds as soon as the stage has the frame on its disk. Not where
/// several processes write a file, or tiles become one: a loss of power may leave each of them
/// another part of a frame.
bool JournalledDataset::kept_in_stage() const {
  return rule_.promises_durable() && !collective_calls_.shared() && !rule_.joins_tiles() && session_.keeps_durable();
}

/// Force to the disk of the stage: all records up to `target`, and what brings them to their file.
Result<void> JournalledDataset::keep_in_stage(std::uint64_t target) {
  const Timer timer(stall_ns_);
  const auto& stage = session_.stage();
  const auto what = std::string("make durable ") + shared_state_->path;
  if (!names_kept_) {
    const auto shared_state = Stage::state_name_of(link_);
    if (!shared_state) return shared_state.error();
    for (const auto& path : {stage.datasets() + "/" + *shared_state, stage.datasets()})
      ADVECTIO_TRY_WITH(make_durable(stage.files(), path), what);
    ADVECTIO_TRY_WITH(journal::make_file_names_durable(stage.files(), shared_state_->path, link_), what);
    names_kept_ = true;
  }
  ADVECTIO_TRY_WITH(session_.make_journal_durable(), what);
  raise(shared_state_->kept, target);
  return {};
}

/// Wait until the promise of the config holds for the frame. A tile that waits for others is not
/// waited for: the others may wait for this process.
Result<void> JournalledDataset::await_promise(std::uint64_t target) {
  if (rule_.promises_only_staged()) return {};
  const Timer timer(stall_ns_);
  const auto& reached = rule_.promises_durable() ? shared_state_->durable : shared_state_->visible;
  ADVECTIO_TRY(session_.waiting().until(
      [&] {
        return reached.load(std::memory_order_acquire) >= target || !in_flight(*shared_state_) ||
               shared_state_->errors.load(std::memory_order_acquire) != errors_seen_ ||
               belongs_to_another(*shared_state_, target);
      },
      std::string("wait for ") + shared_state_->path + " to be " + (rule_.promises_durable() ? "durable" : "visible"),
      &*shared_state_));
  // An error that the program knows, and that still holds.
  if (errors_seen_ == shared_state_->errors.load(std::memory_order_acquire) && has_failed(*shared_state_))
    return error_of_state(*shared_state_);
  return {};
}

// --- readers and the end ------------------------------------------------------------------------

Result<void> JournalledDataset::wait_visible() {
  if (all_left_out()) return {};
  // Another writer may have journalled something. And where blocks are pending, the last sync is
  // not complete before they are settled.
  if (!inherited() && (under_way_.any_record || collective_calls_.shared())) {
    const std::lock_guard guard(session_.mutex());
    ADVECTIO_TRY(pay_syncs());
    ADVECTIO_TRY(sync_record(RecordType::sync, journal::flag_implicit));
  }
  const auto target = collective_calls_.shared() ? synced_ : shared_state_->synced.load(std::memory_order_acquire);
  ADVECTIO_TRY(session_.waiting().until(
      [this, target] {
        const bool seen = collective_calls_.shared() ? collective_calls_.can_read(target)
                                                     : shared_state_->visible.load(std::memory_order_acquire) >= target;
        return seen || waits_for_others(*shared_state_, target) || !in_flight(*shared_state_);
      },
      std::string("wait for ") + shared_state_->path, &*shared_state_));
  if (belongs_to_another(*shared_state_, target)) return goes_into_another(*shared_state_);
  return sink_error();
}

Result<void> JournalledDataset::await_end(std::uint64_t target) {
  return session_.waiting().until(
      [&] { return !in_flight(*shared_state_) || waits_for_others(*shared_state_, target); },
      std::string("wait for ") + shared_state_->path, &*shared_state_);
}

Result<void> JournalledDataset::close_here() {
  const std::lock_guard guard(session_.mutex());
  auto r = pay_syncs();
  if (r) r = sync_record(RecordType::close, 0);
  closed_ = true;
  if (!r) {
    session_.give_up(number_);
    return r;
  }
  shared_state_->closed.store(1, std::memory_order_release);
  mark_.remove();  // the server has one
  session_.closed(this, rule_.drops_frames());
  try {
    session_.keep_closed(*this, schema_);
  } catch (...) {  // no memory: the library opens it again
  }
  return {};
}

Result<void> JournalledDataset::close() {
  if (closed_) return {};
  ends_ = true;
  if (inherited() || taken_over()) {
    closed_ = true;
    return {};
  }
  if (all_left_out()) return abort();
  ADVECTIO_TRY(close_here());
  const auto target = shared_state_->synced.load(std::memory_order_acquire);
  const bool kept = kept_in_stage();
  if (kept) ADVECTIO_TRY(keep_in_stage(target));
  if (rule_.close_waits() || (!rule_.promises_only_staged() && !kept)) ADVECTIO_TRY(await_end(target));
  return sink_error();
}

Result<void> JournalledDataset::abort() {
  if (closed_) return {};
  ends_ = true;
  if (inherited() || taken_over()) {
    closed_ = true;
    return {};
  }
  const std::lock_guard guard(session_.mutex());
  auto sequence = append(RecordType::abort, 0, {}, 0, nullptr);
  end_burst();
  closed_ = true;
  if (!sequence) {
    session_.give_up(number_);
    return std::move(sequence).error();
  }
  if (!collective_calls_.shared()) shared_state_->synced.store(*sequence, std::memory_order_release);
  shared_state_->closed.store(1, std::memory_order_release);
  mark_.remove();
  return {};
}

Result<void> JournalledDataset::await_answer() {
  if (!journal::continues_file_of_others(*shared_state_)) return {};
  const Timer timer(stall_ns_);
  const auto answer = [this] { return journal::answer_of(*shared_state_); };
  ADVECTIO_TRY(
      session_.waiting().until([&] { return answer() != journal::TakenUp::not_yet || !in_flight(*shared_state_); },
                               std::string("open ") + shared_state_->path, &*shared_state_));
  if (answer() == journal::TakenUp::yes) return {};
  return Error{Code::unsupported, shared_state_->error_text, 0};
}

Result<void> JournalledDataset::hand_over() {
  if (inherited()) return take_over();
  if (all_left_out())
    return Error{Code::unsupported, std::string(shared_state_->path) + ": its frames were left out (full: drop-frame)",
                 0};
  const auto name = Stage::state_name_of(link_);
  ADVECTIO_TRY(close());
  const auto target = shared_state_->synced.load(std::memory_order_acquire);
  ADVECTIO_TRY(await_end(target));
  if (name && journal::state_of(*shared_state_) == journal::DatasetState::dropped) ADVECTIO_TRY(await_removal(*name));
  if (belongs_to_another(*shared_state_, target)) return goes_into_another(*shared_state_);
  return sink_error();
}

}  // namespace advectio::capture
