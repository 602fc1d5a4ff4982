#include "capture/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "capture/dataset_state.h"
#include "capture/journalled_dataset.h"

namespace advectio::capture {

using journal::Writer;

namespace {
std::string own_command() {
  std::ifstream in("/proc/self/comm");
  std::string name;
  std::getline(in, name);
  return name;
}
}  // namespace

Result<Writer*> ProcessSession::open_writer() {
  char host[64] = "";
  ::gethostname(host, sizeof host - 1);
  auto opened =
      Writer::open(stage_, {rank_from_environment(), static_cast<std::uint32_t>(::getpid()), host, own_command()});
  if (!opened) return std::move(opened).error().with("begin a journal");
  writer_ = std::move(opened).value();
  own_journal_.store(writer_->journal(), std::memory_order_release);
  return writer_.get();
}

Result<void> ProcessSession::make_journal_durable() {
  const std::lock_guard one_at_a_time(durable_mutex_);
  Writer::Unsynced unsynced;
  {
    const std::lock_guard guard(mutex_);
    unsynced = writer_->take_unsynced();
  }
  auto done = writer_->make_durable(unsynced);
  // The system reports an error once; a second fsync(2) succeeds. So from here on only files count
  // as durable.
  if (!done) journal_not_durable_ = true;
  return done;
}

void ProcessSession::keep_ahead(Writer& writer, std::uint64_t bytes) noexcept {
  try {
    const auto names = stage_.files().list(stage_.journals());
    const auto writers = names && !names->empty() ? names->size() : 1;
    const auto share = stage_.control().segments_max / writers / 2;
    writer.keep_ahead(std::max<std::uint64_t>(1, std::min(writer.segments_for(bytes), share)));
  } catch (...) {  // no memory: as many as before
  }
}

void ProcessSession::closed(JournalledDataset* dataset, bool keeps) noexcept {
  constexpr std::uint64_t little = 256U << 10U;
  open_.erase(dataset);
  if (!open_.empty() || !writer_ || writer_->used_bytes() < little || (keeps && writer_->room_segments() == 0)) return;
  writer_->seal();
}

void ProcessSession::forget(JournalledDataset* dataset) noexcept {
  const std::lock_guard guard(mutex_);
  open_.erase(dataset);
}

void ProcessSession::give_up(std::uint32_t number) noexcept {
  std::erase_if(in_flight_, [&](const Mapped& p) {
    return writer_ && (*p)->journal == writer_->journal() && (*p)->number == number;
  });
}

void ProcessSession::become_foreign() noexcept {
  foreign_ = true;
  // Not free: another thread was changing them when the process forked.
  if (mutex_.try_lock()) {
    for (auto* dataset : open_) dataset->leave_mark_to_parent();
    mutex_.unlock();
  }
  if (writer_) writer_->forget_in_child();
  (void)writer_.release();  // its thread lives in the parent: leaked on purpose
}

void ProcessSession::finish() noexcept {
  if (foreign_) return;
  try {
    for (;;) {
      JournalledDataset* dataset = nullptr;
      {
        const std::lock_guard guard(mutex_);
        if (open_.empty()) break;
        dataset = *open_.begin();
        open_.erase(open_.begin());
      }
      try {
        (void)dataset->close();
      } catch (...) {  // no memory: its destructor may not come any more
        dataset->end_anyway();
      }
    }
    {
      const std::lock_guard guard(mutex_);
      if (writer_) writer_->note_end();
    }
    if (rules_.later) return;
    for (const auto& mapped : in_flight_) {
      const auto& p = *mapped;
      auto ended = waiting_.until(
          [&p] { return !in_flight(*p) || waits_for_others(*p, p->synced.load(std::memory_order_acquire)); },
          std::string("wait for ") + p->path);
      if (!ended) {
        say_once(ended.error().message);
        break;
      }
      if (has_failed(*p)) say_once(std::string(p->path) + ": " + p->error_text);
    }
  } catch (...) {  // no memory, and the process is ending
  }
}

void ProcessSession::say_once(const std::string& text) noexcept {
  try {
    if (!logged_.insert(text).second) return;
    const std::string line = "advectio: " + text + "\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {
  }
}

}  // namespace advectio::capture
