#include "capture/waiting.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "capture/dataset_state.h"
#include "capture/registered.h"
#include "journal/hard_link.h"
#include "journal/markers.h"
#include "journal/run_mark.h"
#include "platform/machine.h"
#include "workflow/workflow.h"

namespace advectio::capture {

using journal::monotonic_ns;
using journal::SharedState;
using journal::Stage;

namespace {
constexpr std::uint64_t look_again_ns = 20'000'000;           // where nobody rings
constexpr std::uint64_t room_again_max_ns = 100'000'000;      // see Patience
constexpr std::uint64_t link_removed_max_ns = 1'000'000'000;  // from the end of a dataset on
}  // namespace

Patience::State Patience::look() {
  const auto now = monotonic_ns();
  const auto between = now - std::exchange(looked_, now);
  if (between > suspended_ns_) since_ += between;  // the server was stopped, too
  if (const auto activity = control_.activity.load(std::memory_order_relaxed); activity != activity_) {
    activity_ = activity;
    since_ = now;
    return State::moves;
  }
  const auto max = activity_ == gave_up_at_ ? std::min(again_max_ns_, control_.wait_max_ns) : control_.wait_max_ns;
  if (now - since_ < max) return State::stands;
  gave_up_at_ = activity_;
  return State::over;
}

std::string Waiting::present_path(const std::string& path) const {
  if (stage_.control().files_held.load(std::memory_order_acquire) == 0) return path;
  const auto whole = workflow::resolved(path);
  auto held = journal::held_name_of(stage_, whole);
  return held == whole ? path : held;
}

Result<void> Waiting::name_now(const std::string& path) const {
  auto whole = workflow::resolved(path);
  if (const auto held = journal::held_as(stage_, whole)) whole = held->path;
  if (!journal::may_be_held(stage_, whole)) return {};
  const auto notes = journal::Markers::await(stage_);
  if (!notes) return notes.error();
  auto marker = notes->of(whole);
  if (!marker) return std::move(marker).error();
  if (!*marker || !(*marker)->is_file) return {};
  auto named = notes->name(**marker);
  return named ? Result<void>{} : std::move(named).error();
}

Result<void> Waiting::for_name(const std::string& path) {
  return until([&] { return present_path(path) == path; }, "wait for the name " + path);
}

Patience Waiting::for_room() {
  return {stage_.control(), gave_up_at_, room_again_max_ns};
}

Result<void> Waiting::until(const std::function<bool()>& done, const std::string& what, SharedState* awaited) {
  auto& control = stage_.control();
  // An earlier wait in vain says less about this one: it may be for something new. So it gets more
  // time than a wait for room.
  Patience patience(control, gave_up_at_, std::max(room_again_max_ns, control.wait_max_ns / 16));
  for (;;) {
    const auto seen = control.progress.load(std::memory_order_acquire);
    if (done()) return {};
    if (awaited != nullptr) awaited->waited_ns.store(monotonic_ns(), std::memory_order_relaxed);
    const auto state = patience.look();
    if (state != Patience::State::moves && !stage_.there())
      return Error{Code::gone, what + ": the stage has been removed", EIO};
    if (state == Patience::State::over) {
      const bool alive = stage_.server_alive();
      return Error{alive ? Code::timeout : Code::gone,
                   what + (alive ? ": the server makes no progress" : ": the server has gone"), ETIMEDOUT};
    }
    journal::await_ring(control.progress, seen, look_again_ns);
  }
}

namespace {

/// The process that writes the dataset lives, and has not closed it: it has the shared state of that name mapped.
bool is_written_now(const SharedState& p, const std::string& name) {
  return p.closed.load(std::memory_order_acquire) == 0 && p.writer_pid != static_cast<std::uint32_t>(::getpid()) &&
         maps_to_write(p.writer_pid, name);
}

/// Has that process started this one, or one that has? It may wait for us.
bool is_ancestor(std::uint32_t pid) {
  auto at = static_cast<std::uint32_t>(::getppid());
  for (int generation = 0; at > 1 && generation < 64; ++generation) {
    if (at == pid) return true;
    at = parent_of(at);
  }
  return false;
}

/// A longer wait for another process gets a line in the log.
constexpr std::uint64_t long_wait_ns = 2'000'000'000;

std::string writer_of(const SharedState& p) {
  return "process " + std::to_string(p.writer_pid);
}

/// For files of which this run has no shared state: no other run is writing it. `is_ours`: this run
/// has one by now.
Result<void> is_of_no_other_run(
    const std::string& file, const std::string& path, const std::function<bool()>& is_ours = [] { return false; }) {
  // A process of this run that has closed it may be about to take its mark away, or has just begun
  // to write it.
  for (unsigned tries = 0; journal::RunMark::is_on(file) && !is_ours(); ++tries) {
    if (tries == 100)
      return Error{Code::exists,
                   path + " is being written by another run; wait until that has ended, or choose another name",
                   EACCES};
    ::usleep(1000);
  }
  return {};
}

}  // namespace

Result<void> Waiting::not_written_now(const std::string& path) const {
  const auto present = present_path(path);
  // Another run makes it, and it has no name yet.
  if (const auto held = journal::held_name_of_new(workflow::resolved(path)); held != present)
    ADVECTIO_TRY(is_of_no_other_run(held, path));
  const auto name = Stage::state_name_of(present);
  if (!name) return {};
  auto shared_state = stage_.open_state(*name);
  // On several nodes others of this run may have marks on it, and only `for_file` asks them.
  if (!shared_state && shared_state.error().code == Code::not_found && stage_.control().nodes < 2) {
    ADVECTIO_TRY(
        is_of_no_other_run(path, path, [&] { return stage_.files().exists(stage_.datasets() + "/" + *name); }));
    shared_state = stage_.open_state(*name);
  }
  if (!shared_state || (*shared_state)->writers > 0 || !is_written_now(**shared_state, *name)) return {};
  return Error{Code::exists, path + " is open for writing in " + writer_of(**shared_state), EACCES};
}

Result<void> Waiting::for_creating(const std::string& path, std::uint64_t own_journal, const Say& say) {
  ADVECTIO_TRY(not_written_now(path));
  return for_file(path, true, own_journal, say);
}

Result<void> Waiting::for_file(const std::string& path, bool for_writing, std::uint64_t own_journal, const Say& say) {
  struct stat st {};
  if (::stat(present_path(path).c_str(), &st) != 0) return {};
  const auto name = Stage::state_name(st.st_dev, st.st_ino);
  const auto state_is_there = [&] { return stage_.files().exists(stage_.datasets() + "/" + name); };
  if (!state_is_there()) {
    // A model reads a restart at its start. Its own restart will be about as large.
    if (!for_writing && S_ISREG(st.st_mode))
      raise(stage_.control().input_bytes, static_cast<std::uint64_t>(st.st_size));
    ADVECTIO_TRY(ask_other_nodes(path, name, for_writing, st.st_mtime));
    if (!for_writing) return {};
    ADVECTIO_TRY(is_of_no_other_run(path, path, state_is_there));
    if (!state_is_there()) return {};
  }
  auto shared_state = stage_.open_state(name);
  if (!shared_state) {
    if (shared_state.error().code == Code::not_found) return {};  // finished meanwhile
    return std::move(shared_state).error();
  }
  SharedState& p = **shared_state;
  const bool closed = p.closed.load(std::memory_order_acquire) != 0;
  const auto target = p.synced.load(std::memory_order_acquire);
  // Not by the process' number: an earlier program may have had it, which exec(2) has replaced.
  if (for_writing && !closed && own_journal != 0 && p.journal == own_journal)
    return Error{Code::exists, path + " is open for writing in this process", EBUSY};
  if (for_writing && p.writers == 0 && is_ancestor(p.writer_pid) && is_written_now(p, name))
    return Error{Code::permission,
                 path + " is open for writing in " + writer_of(p) +
                     ", which has started this one and may wait for it: it can be written when that has closed it, or "
                     "under a rule with capture: false",
                 EACCES};
  // HDF5 does not let two processes write a file, and says so at once.
  if (for_writing && p.writers == 0 && is_hdf5(p.format) && hdf5_locks() && is_written_now(p, name))
    return Error{Code::exists, path + " is open for writing in " + writer_of(p), EACCES};
  const auto long_from = monotonic_ns() + long_wait_ns;
  bool is_said = !for_writing;
  ADVECTIO_TRY(until(
      [&] {
        if (!in_flight(p) || waits_for_others(p, target)) return true;
        // The library would let both write a classic file. That process may wait for this one.
        if (!is_said && monotonic_ns() > long_from && is_written_now(p, name)) {
          is_said = true;
          say("this process waits until " + writer_of(p) + " has closed " + path +
              ", which it writes; a rule with capture: false lets both write it");
        }
        if (for_writing) return !state_is_there();
        return p.visible.load(std::memory_order_acquire) >= target;
      },
      "wait for " + path, &p));
  if (has_failed(p)) return error_of_state(p);
  if (belongs_to_another(p, target)) return goes_into_another(p);
  return {};
}

Result<std::shared_ptr<void>> Waiting::for_turn(const std::string& path, Session::Opening opening) {
  const auto name = Stage::state_name_of(present_path(path));
  if (!name) return std::shared_ptr<void>();
  Result<journal::ProcessLock> taken = journal::ProcessLock();
  ADVECTIO_TRY(until(
      [&] {
        taken = stage_.take_turn_to_open(*name, opening == Session::Opening::by_library);
        return taken || taken.error().code != Code::exists;
      },
      "wait for the turn to open " + path));
  // The stage is another user's, or has gone: then nothing is carried here.
  if (!taken && (taken.error().code == Code::permission || taken.error().code == Code::not_found))
    return std::shared_ptr<void>();
  if (!taken) return std::move(taken).error();
  // A child that was forked meanwhile has the descriptor, too. The lock goes all the same.
  auto* lock = new journal::ProcessLock(std::move(taken).value());
  return std::shared_ptr<void>(lock, [lock, &control = stage_.control()](void*) {
    lock->unlock();
    delete lock;
    journal::ring(control.progress);
  });
}

Result<void> Waiting::for_plain_use(const std::string& path, Session::Until use) {
  const auto name = Stage::state_name_of(present_path(path));
  if (!name) return {};
  auto shared_state = stage_.open_state(*name);
  if (!shared_state) return {};  // finished meanwhile
  SharedState& p = **shared_state;
  const bool closed = p.closed.load(std::memory_order_acquire) != 0;
  if (use == Session::Until::complete_if_closed && !closed) return {};
  const bool complete = use != Session::Until::synced && closed;
  // The server removes the hard link right after the end. Until then stat(2) counts two names. The
  // file system may refuse to remove the link, so this wait is bounded.
  const bool linked = journal::is_hard_link(p.link);
  std::uint64_t ended_ns = 0;
  const auto has_one_name = [&] {
    if (!linked || !stage_.files().exists(p.link)) return true;
    if (ended_ns == 0) ended_ns = monotonic_ns();
    return monotonic_ns() - ended_ns > link_removed_max_ns;
  };
  const auto target = p.synced.load(std::memory_order_acquire);
  ADVECTIO_TRY(until(
      [&] {
        if (waits_for_others(p, target)) return true;
        if (!in_flight(p)) return !complete || has_one_name();
        // Its program has opened it again since: what had been closed is what is waited for.
        const bool goes_on = complete && target > 0 && journal::reopened_behind(p) >= target;
        return (!complete || goes_on) && p.visible.load(std::memory_order_acquire) >= target;
      },
      "wait for " + path, &p));
  // A tile that becomes one file with others stays empty under its own name.
  if (belongs_to_another(p, target)) return {};
  if (has_failed(p)) return error_of_state(p);
  return {};
}

/// No process of this node writes the file, but one on another node may. This node's server asks
/// the others (PROTOCOL.md, `questions/`), and answers when the file is as far as it was synced
/// (`for_writing`: complete).
Result<void> Waiting::ask_other_nodes(const std::string& path, const std::string& shared_state, bool for_writing,
                                      std::time_t changed) {
  // A file that is older than the run is an input. Clocks of file servers differ a little.
  constexpr std::time_t clocks_differ = 60;
  struct stat run {};
  if (stage_.control().nodes < 2 || ::stat((stage_.directory() + "/server.lock").c_str(), &run) != 0 ||
      changed + clocks_differ < run.st_ctime)
    return {};
  static std::atomic<unsigned> count{0};
  const std::string question = stage_.questions() + "/" + shared_state + (for_writing ? "+w" : "+r") + "+" +
                               std::to_string(::getpid()) + "+" + std::to_string(count.fetch_add(1));
  ADVECTIO_TRY(replace_file(stage_.files(), question, {}));
  stage_.control().asked.fetch_add(1, std::memory_order_release);
  journal::ring(stage_.control().work);
  const auto answer = question + journal::answer_suffix;
  auto waited = until([&] { return stage_.files().exists(answer); }, "wait for " + path);
  (void)stage_.files().remove(question);
  if (!waited) return waited;
  auto text = read_file(stage_.files(), answer);
  (void)stage_.files().remove(answer);
  if (!text) return std::move(text).error();
  if (text->empty()) return {};
  return Error{Code::io, std::string(reinterpret_cast<const char*>(text->data()), text->size()), EIO};
}

}  // namespace advectio::capture
