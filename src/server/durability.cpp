#include "server/durability.h"

#include "journal/hard_link.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace advectio {

Durability::Durability(Run& run)
    : run_(run),
      queue_(
          std::in_place, [this](const auto& job) { return run_.survives_power ? note(job) : Result<void>{}; },
          [this] { run_.wake(); }) {}

bool Durability::is_done_with(const Output& d, std::uint64_t journal, std::uint64_t sequence) const {
  if (d.state == State::ending || d.state == State::failed) return false;
  return std::min(d.visible_of(journal), is_kept(d) ? d.progress.durable : UINT64_MAX) >= sequence;
}

bool Durability::is_kept(const Output& d) const {
  return run_.survives_power && !d.shared() && !d.join.sequencer && !d.is_tile() &&
         (d.policy.durable || d.promises_durable());
}

/// Before a segment goes whose records are durable in the file: where the file goes on must be known.
Result<void> Durability::note(const DurabilityQueue::Job& job) const {
  auto shared_state = run_.stage.open_state(job.output->state_name);
  if (!shared_state || (*shared_state)->journal != job.journal || (*shared_state)->number != job.number) return {};
  journal::set_forced(**shared_state, {job.sequence, job.frames});
  auto forced = make_durable(run_.files, run_.stage.datasets() + "/" + job.output->state_name);
  return forced || forced.error().code != Code::not_found ? std::move(forced) : Result<void>{};  // it has ended
}

void Durability::push(const std::shared_ptr<Output>& d, std::function<Result<void>()> make, std::uint64_t sequence,
                      std::vector<std::uint64_t> synced, bool last) {
  queue_->push({std::move(make), d, sequence, d->progress.frames_visible, std::move(synced), last,
                d->shared_state->journal, d->number, d->file.system});
}

Result<void> Durability::keep_names(const Output& d) const {
  for (const auto& path : {run_.stage.datasets() + "/" + d.state_name, run_.stage.datasets()})
    ADVECTIO_TRY(make_durable(run_.files, path));
  return journal::make_file_names_durable(run_.files, d.path, d.file.link);
}

namespace {

/// Its files, and its names from the innermost on. Ok where it has gone: then that it has.
Result<void> make_store_durable(Files& files, const std::string& store) {
  std::error_code failed;
  std::vector<std::string> directories{store};
  for (std::filesystem::recursive_directory_iterator it(store, failed), end; !failed && it != end;
       it.increment(failed)) {
    if (it->is_directory(failed))
      directories.push_back(it->path());
    else
      ADVECTIO_TRY(make_durable(files, it->path()));
  }
  for (auto it = directories.rbegin(); it != directories.rend(); ++it) ADVECTIO_TRY(make_names_durable(files, *it));
  return make_names_durable(files, directory_of(store));
}

}  // namespace

void Durability::keep_name(const Output& d) {
  report(d, make_names_durable(run_.files, directory_of(d.path)));
}

void Durability::keep_end(const Output& d) {
  report(d, d.is_store() ? make_store_durable(run_.files, d.destination()) : make_durable(run_.files, d.file.link));
}

void Durability::report(const Output& d, const Result<void>& done) {
  if (done || done.error().code == Code::not_found) return;
  run_.not_durable = true;
  run_.report(d.path + ": make durable: " + done.error().message);
}

}  // namespace advectio
