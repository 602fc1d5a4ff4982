#include "faults/run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "faults/power.h"
#include "faults/writer.h"

namespace advectio::faults {

namespace fs = std::filesystem;

Run::Run(const Case& c, Ledger& ledger, const std::string& scratch, Report& report)
    : case_(c),
      ledger_(ledger),
      run_dir_(scratch + "/run"),
      output_(scratch + "/out"),
      log_file_(scratch + "/log"),
      report_(report),
      random_(c.seed + 1000003),
      servers_(c, ledger, run_dir_, output_, log_file_) {}

void Run::go() {
  fs::create_directory(output_);
  plan();
  if (case_.has(Kind::power_lost)) return go_without_power();
  play();
  if (fs::exists(run_dir_)) damage();
  ledger_.weather.clear();
  if (met_by_restart_ && fs::exists(run_dir_)) drain_once_more();
  if (case_.away && servers_.any_has("/control")) recover_where_the_output_is_away();
  recover();
  judge();
  report_.strikes = ledger_.weather.strikes;
  report_.done = true;
}

std::string Run::log() const {
  std::ifstream in(log_file_);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

/// Small numbers as often as large ones.
std::uint64_t Run::some(std::uint64_t most) {
  auto n = most;
  for (auto halvings = below(10); halvings > 0; --halvings) n = n / 2 + 1;
  return 1 + below(n);
}

void Run::failed(const std::string& what) {
  if (report_.failure[0] == '\0') std::snprintf(report_.failure, sizeof report_.failure, "%s", what.c_str());
}

void Run::plan() {
  for (const auto& d : case_.datasets) frames_in_all_ += d.frames * (d.writing == Writing::alone ? 1 : case_.writers);
  strike_at_ = below(frames_in_all_);
  by_calls_ = below(2) == 0;
  room_again_ms_ = below(2) == 0 ? static_cast<std::int64_t>(below(60)) : -1;
  met_by_restart_ = (case_.has(Kind::journal_damaged) || case_.has(Kind::page_damaged)) && below(2) == 0;
  auto& w = ledger_.weather;
  if (case_.has(Kind::short_writes)) w.short_writes = true;
  if (case_.has(Kind::slow_disk)) w.delay_us = static_cast<std::uint32_t>(200 + below(3000));
  if (case_.has(Kind::stage_full))
    w.stage_space = static_cast<std::int64_t>((below(case_.writers + 3)) * segment_bytes + 20'000 * below(8));
  if (case_.has(Kind::server_killed) || case_.has(Kind::power_lost))
    server_deaths_ = 1 + below(std::max(1U, case_.restarts));
  victim_ = static_cast<std::uint32_t>(below(case_.writers));
  victim_node_ = static_cast<std::uint32_t>(below(case_.nodes));
}

// ---- the processes ----

void Run::start_servers() {
  const bool dies =
      (case_.has(Kind::server_killed) || case_.has(Kind::power_lost)) && by_calls_ && server_lives_ < server_deaths_;
  const auto dies_at = dies ? some(1500) : 0;
  ++server_lives_;
  servers_.start(Servers::Task::serve, victim_node_, dies_at);
  serving_ = true;
  drain_asked_ = false;
}

void Run::start_writers() {
  for (std::uint32_t w = 0; w < case_.writers; ++w) {
    std::uint64_t at_call = 0;
    std::uint32_t at_step = 0;
    if (case_.has(Kind::rank_killed) && w == victim_) {
      if (by_calls_)
        at_call = some(80);
      else
        at_step = static_cast<std::uint32_t>(some(case_.frames() * case_.datasets.size() * 4));
    }
    writers_.push_back(start([&, w] {
      expose(ledger_.weather, output_, at_call);
      if (::chdir(output_.c_str()) != 0) return 1;  // as a run is started where it writes
      if (case_.has(Kind::power_lost)) watch_disk(run_dir_);
      ::setenv("ADVECTIO_RUN", servers_.run_dir(case_.node_of(w)).c_str(), 1);
      ::setenv("OMPI_COMM_WORLD_RANK", std::to_string(w).c_str(), 1);
      return WriterProcess(case_, ledger_, w, output_, at_step).run();
    }));
  }
  pids_ = writers_;
}

void Run::kill_servers() {
  ++report_.kills;
  servers_.kill(victim_node_);
}

void Run::kill_writer(pid_t pid) {
  ++report_.kills;
  (void)::kill(pid, SIGKILL);
}

void Run::collect() {
  for (std::uint32_t w = 0; w < writers_.size(); ++w) {
    int status = 0;
    if (writers_[w] <= 0 || ::waitpid(writers_[w], &status, WNOHANG) == 0) continue;
    writers_[w] = 0;
    ledger_.gone[w] = true;
    if (WIFSIGNALED(status)) writer_killed_ = true;
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) writer_gave_up_ = true;
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
      failed("writer " + std::to_string(w) + " died of signal " + std::to_string(WTERMSIG(status)));
  }
  if (!serving_ || servers_.running()) return;
  serving_ = false;
  const auto code = servers_.code();
  if (code > 128 && code != 128 + SIGKILL) failed("a server died of signal " + std::to_string(code - 128));
  if (code != 0 && code < 128) said_by_exit_ = true;
  server_gone_at_ = Clock::now();
}

bool Run::writers_gone() const {
  return std::all_of(writers_.begin(), writers_.end(), [](pid_t pid) { return pid == 0; });
}

void Run::play() {
  start_servers();
  for (bool ended = false; !ended; ::usleep(300)) {
    collect();
    if (writers_.empty() && serving_ && servers_.ready()) start_writers();
    strike();
    look_after_servers();
    if (writers_.empty() && !serving_) return;  // they never came to live
    if (!writers_.empty() && writers_gone()) {
      if (serving_ && !drain_asked_ && (servers_.ready() || vanished_)) {
        servers_.drain();
        drain_asked_ = true;
      }
      ended = !serving_;
    }
  }
}

/// As `advectio run` does: a server that dies is started again, so often.
void Run::look_after_servers() {
  if (serving_ || servers_.code() < 128) {
    if (!serving_ && !writers_gone()) end_writers_soon();
    return;
  }
  // Not into a new, empty one.
  if (!servers_.any_has()) run_dir_missed_ = true;
  if (server_lives_ <= case_.restarts && !for_good_ && !run_dir_missed_)
    start_servers();
  else if (!writers_gone())
    end_writers_soon();
}

/// The program goes on for a moment, into a stage that nobody empties.
void Run::end_writers_soon() {
  if (Clock::now() - server_gone_at_ < std::chrono::milliseconds(100)) return;
  for (const auto pid : writers_)
    if (pid > 0) kill_writer(pid);
}

void Run::strike() {
  if (writers_.empty()) return;
  if (case_.has(Kind::clock_jumps) && below(20) == 0)
    ledger_.weather.clock_ns = (static_cast<std::int64_t>(below(2001)) - 1000) * 100'000'000'000;
  if (struck_) {
    if (room_again_ms_ >= 0 && Clock::now() - struck_at_ > std::chrono::milliseconds(room_again_ms_)) {
      ledger_.weather.clear();
      room_again_ms_ = -1;
    }
    return;
  }
  if (ledger_.frames < strike_at_) return;
  struck_ = true;
  struck_at_ = Clock::now();
  auto& w = ledger_.weather;
  if (case_.has(Kind::disk_full)) w.space = static_cast<std::int64_t>(some(300'000));
  if (case_.has(Kind::write_fails)) w.writes_until = static_cast<std::int64_t>(some(60)) - 1;
  if (case_.has(Kind::sync_fails)) w.syncs_until = static_cast<std::int64_t>(some(20)) - 1;
  if (case_.has(Kind::read_only)) w.read_only = true;
  if (case_.has(Kind::server_killed) && !by_calls_ && serving_) kill_servers();
  if (case_.has(Kind::journal_damaged) || case_.has(Kind::page_damaged)) {
    for_good_ = true;
    if (serving_) kill_servers();
  }
  if (case_.has(Kind::stage_vanishes)) {
    std::error_code ignored;
    fs::remove_all(run_dir_, ignored);
    vanished_ = true;
  }
}

/// A server takes up what is there as if nothing had happened.
void Run::drain_once_more() {
  servers_.start(Servers::Task::serve);
  while (servers_.running()) {
    if (servers_.ready()) servers_.drain();
    ::usleep(2000);
  }
  const auto code = servers_.code();
  if (code != 0) said_by_exit_ = true;
  if (code >= 128) failed("the server that took up the damage died of signal " + std::to_string(code - 128));
}

/// Its file system is not mounted, another one is, or one with copies of the files.
void Run::recover_where_the_output_is_away() {
  const auto away = output_ + "-away";
  fs::rename(output_, away);
  const auto how = below(4);
  if (how > 0) fs::create_directory(output_);
  if (how == 2) {
    const auto own = output_ + "/.advectio-" + std::to_string(::geteuid());
    fs::create_directory(own);
    std::ofstream(own + "/.other.nc.advectio-00000001-1");
  }
  if (how == 3) fs::copy(away, output_, fs::copy_options::recursive);
  const auto picture = [this] {
    std::string all;
    for (const auto& file : files_in(output_))
      all += file.string() + " " + std::to_string(fs::is_directory(file) ? 0 : fs::file_size(file)) + "\n";
    return all;
  };
  const auto before = how > 0 ? picture() : std::string();
  servers_.start(Servers::Task::recover);
  const int code = servers_.wait();
  if (code >= 128) failed("recovery without the output died of signal " + std::to_string(code - 128));
  if ((code == 0) == servers_.any_has("/control"))
    failed("recovery without the output ended with code " + std::to_string(code) + " and its stage is " +
           (code == 0 ? "there" : "gone"));
  if (how > 0 && picture() != before)
    failed("recovery without the output has changed what is in its place: " + before + "became " + picture());
  if (how == 0 && fs::exists(output_)) failed("recovery without the output has made its directory");
  fs::remove_all(output_);
  fs::rename(away, output_);
}

void Run::recover() {
  if (!servers_.any_has("/control")) return;  // nobody has staged anything
  servers_.start(Servers::Task::recover);
  const int code = servers_.wait();
  if (code >= 128) failed("recovery died of signal " + std::to_string(code - 128));
  if (code != 0) said_by_exit_ = true;
  left_in_stage_ = code != 0;
  if (code != 0 && !case_.may_lose()) failed("recovery ended with code " + std::to_string(code));
  if (code == 0 && servers_.any_has()) failed("recovery has left its run directory");
}

}  // namespace advectio::faults
