// Whole runs in a fraction of a second: writers with the real session, a server with the real sinks, faults that a seed
// chooses, recovery, and a judge that knows only what the writers saw (check.h).
//
//   fault_runs --seed 7                        that case again, with what was said
//   fault_runs --first 0 --runs 2000 --jobs 2 --table
//   fault_runs --power --runs 2000                        the power goes, of a stage on a disk (power.h)
//
// A seed fixes who writes what and what goes wrong when, by counts of calls or frames. Which process is how far at that
// moment is another matter in each run.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/advectiod/open_sink.h"
#include "capture/dataset.h"
#include "faults/case.h"
#include "faults/check.h"
#include "faults/power.h"
#include "faults/system_calls.h"
#include "journal/scratch.h"
#include "journal/stage.h"
#include "server/server.h"

namespace advectio::faults {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t segment_bytes = 64 * 1024;
constexpr unsigned hang_s = 30;
constexpr int gave_up = 3;

/// What the writers have seen, in memory that Advectio knows nothing of.
struct Ledger {
  Weather weather;
  struct Part {
    std::atomic<std::uint32_t> begun{0};   ///< frames of which something was put
    std::atomic<std::uint32_t> synced{0};  ///< frames whose sync has returned
  };
  Part part[datasets_max][writers_max];
  std::atomic<bool> gone[writers_max]{};
  std::atomic<bool> told[writers_max]{};  ///< some call has returned an error to it
  std::atomic<std::uint32_t> frames{0};
  /// How the writers of a shared dataset find each other.
  struct Meeting {
    std::atomic<int> state{0};  ///< 1: told; 2: could not be created
    std::atomic<std::uint32_t> joined{0};
    char page[64], path[256], link[320];
    std::uint64_t journal, created_ns;
    std::uint32_t number, owner;
  };
  Meeting meeting[datasets_max];
};

template <typename T>
T* share() {
  void* p = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : new (p) T;
}

/// A process of a run goes with the one that drives it.
pid_t start(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  ::_exit(body());
}

// ---- the writers ----

class WriterProcess {
 public:
  WriterProcess(const Case& c, Ledger& ledger, std::uint32_t me, std::string output, std::uint32_t dies_at_step)
      : case_(c), ledger_(ledger), me_(me), output_(std::move(output)), dies_at_step_(dies_at_step) {}

  int run() {
    auto* session = Session::current();
    if (session == nullptr) return 99;
    std::vector<std::unique_ptr<CapturedDataset>> open(case_.datasets.size());
    for (std::uint32_t tick = 0; tick < case_.frames(); ++tick) {
      for (std::size_t i = 0; i < open.size(); ++i) {
        const auto& d = case_.datasets[i];
        if (!d.written_by(me_)) continue;
        step();
        if (tick == d.begins) open[i] = begin(*session, i);
        if (!open[i]) continue;
        auto* together = d.shared() ? static_cast<SharedDataset*>(open[i].get()) : nullptr;
        if (!frame(*open[i], together, i, tick - d.begins)) return gave_up;
        if (tick + 1 < d.begins + d.frames) continue;
        step();
        if (!accepted(open[i]->close())) return gave_up;
        open[i].reset();
      }
      ::usleep(case_.pause_us);
    }
    step();
    session->finish();
    return 0;
  }

 private:
  void step() {
    if (dies_at_step_ != 0 && ++steps_ == dies_at_step_) (void)::kill(::getpid(), SIGKILL);
  }
  /// Was it taken? A sink's error is told beside that.
  bool accepted(const Result<void>& done) {
    if (done) return true;
    ledger_.told[me_] = true;
    return done.error().message.find("journal the") == std::string::npos;
  }

  std::unique_ptr<CapturedDataset> begin(Session& session, std::size_t i) {
    const auto& d = case_.datasets[i];
    const CreateRequest request{output_ + "/" + d.name, d.format, false};
    std::unique_ptr<CapturedDataset> made;
    if (!d.shared()) {
      if (auto created = session.create(request)) made = std::move(created).value();
    } else {
      made = me_ == 0 ? invite(session, i, request) : join(session, i);
    }
    if (!made) {
      ledger_.told[me_] = true;
      return nullptr;
    }
    step();
    if ((!d.shared() || me_ == 0) && !made->schema(schema_of(d))) {
      ledger_.told[me_] = true;
      return nullptr;
    }
    if (d.shared()) static_cast<SharedDataset&>(*made).end_turn();
    return made;
  }

  std::unique_ptr<SharedDataset> invite(Session& session, std::size_t i, const CreateRequest& request) {
    auto& m = ledger_.meeting[i];
    Invitation told;
    auto made = session.create_shared(request, case_.writers, told);
    if (!made) {
      m.state = 2;
      return nullptr;
    }
    std::snprintf(m.page, sizeof m.page, "%s", told.page.c_str());
    std::snprintf(m.path, sizeof m.path, "%s", told.path.c_str());
    std::snprintf(m.link, sizeof m.link, "%s", told.link.c_str());
    m.journal = told.journal;
    m.created_ns = told.created_ns;
    m.number = told.number;
    m.owner = told.owner;
    m.state = 1;
    while (m.joined < case_.writers - 1 && !anybody_gone()) ::usleep(100);
    return std::move(made).value();
  }
  std::unique_ptr<SharedDataset> join(Session& session, std::size_t i) {
    auto& m = ledger_.meeting[i];
    while (m.state == 0 && !ledger_.gone[0]) ::usleep(100);
    if (m.state != 1) return nullptr;
    auto made = session.join(
        {m.page, m.path, m.link, case_.datasets[i].format, m.journal, m.number, case_.writers, m.owner, m.created_ns},
        me_);
    ++m.joined;
    return made ? std::move(made).value() : nullptr;
  }
  [[nodiscard]] bool anybody_gone() const {
    return std::any_of(std::begin(ledger_.gone), std::end(ledger_.gone), [](const auto& gone) { return gone.load(); });
  }

  template <typename Value>
  bool put(CapturedDataset& dataset, std::uint32_t variable, Box box, std::uint64_t row_cells, const Value& value) {
    using T = decltype(value(0));
    const auto rank = box.rank();
    std::vector<T> data(box.volume());
    for (std::uint64_t k = 0; k < data.size(); ++k) data[k] = value(box.start[rank - 2] * row_cells + k);
    const auto done = dataset.put(variable, box, {}, {data.data(), {}}, sizeof(T));
    if (!done) ledger_.told[me_] = true;
    return done.ok();
  }

  bool frame(CapturedDataset& dataset, SharedDataset* together, std::size_t i, std::uint64_t f) {
    const auto& d = case_.datasets[i];
    auto& part = ledger_.part[i][me_];
    part.begun = static_cast<std::uint32_t>(f + 1);
    const auto from = together != nullptr ? d.y * me_ / case_.writers : 0;
    const auto to = together != nullptr ? d.y * (me_ + 1) / case_.writers : d.y;
    // In pieces, more or fewer.
    const auto rows = std::max<std::uint64_t>(1, (to - from) / (1 + f % 3));
    for (auto y = from; y < to; y += rows) {
      const auto n = std::min(rows, to - y);
      step();
      if (!put(dataset, 0, {{f, y, 0}, {1, n, d.x}}, d.x, [&](std::uint64_t k) { return value_t(i, f, k); }))
        return false;
      if (has_u(f) &&
          !put(dataset, 1, {{f, y, 0}, {1, n, d.x}}, d.x, [&](std::uint64_t k) { return value_u(i, f, k); }))
        return false;
      if (f == 0 && !put(dataset, 2, {{y, 0}, {n, d.x}}, d.x, [&](std::uint64_t k) { return value_h(i, k); }))
        return false;
    }
    if (together != nullptr) together->end_turn();
    step();
    const bool done = accepted(dataset.sync());
    if (together != nullptr) together->end_turn();
    if (!done) return false;
    part.synced = static_cast<std::uint32_t>(f + 1);
    ++ledger_.frames;
    return true;
  }

  const Case& case_;
  Ledger& ledger_;
  std::uint32_t me_;
  std::string output_;
  std::uint32_t dies_at_step_, steps_ = 0;
};

// ---- the server ----

Server* serving = nullptr;

/// Being asked to drain waits until there is a server.
void hold_hangup(int how) {
  sigset_t hangup;
  ::sigemptyset(&hangup);
  ::sigaddset(&hangup, SIGHUP);
  ::sigprocmask(how, &hangup, nullptr);
}

/// What the config says of the datasets that are promised to be durable.
Config config_of(const Case& c) {
  std::string rules;
  for (const auto& d : c.datasets)
    if (d.promised) rules += "  - {match: " + d.name + ", promise: durable}\n";
  return rules.empty() ? default_config() : parse_config("datasets:\n" + rules, "case").value();
}

int serve(const Case& c, const std::string& run_dir, const std::string& log_file, bool recover,
          const std::string& boot = "") {
  const int fd = ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(fd, STDERR_FILENO);
  Log log(std::getenv("ADVECTIO_FAULTS_DEBUG") != nullptr ? LogLevel::debug : LogLevel::warning);
  Executor executor(2);
  const auto config = config_of(c);
  ServerOptions options;
  options.run_dir = run_dir;
  options.segment_bytes = segment_bytes;
  options.segments_max = recover ? 2 : c.segments_max;
  options.warm_segments = recover ? 0 : 2;
  options.wait_max_ns = 5'000'000'000;
  options.recover = recover;
  options.boot = boot;
  options.survives_power = c.has(Kind::power_lost);
  const auto memory = std::make_shared<MemoryBudget>(config.server.memory_max);
  auto server = Server::open(
      system_files(), options, config, [&](const SinkRequest& r) { return open_sink(r, memory, executor); }, log);
  if (!server) {
    std::fprintf(stderr, "advectiod: error: %s\n", server.error().message.c_str());
    return 2;
  }
  serving = server->get();
  ::signal(SIGHUP, [](int) {
    if (serving != nullptr) serving->drain();
  });
  hold_hangup(SIG_UNBLOCK);
  const auto outcome = (*server)->run();
  serving = nullptr;
  return static_cast<int>(outcome);
}

// ---- one run ----

/// What is told of a run to whoever counts them.
struct Report {
  bool done = false;
  std::uint64_t synced = 0, lost = 0, lost_said = 0, malformed = 0, strikes = 0, kills = 0;
  bool damaged = false;
  char failure[4096] = "";
};

class Run {
 public:
  Run(const Case& c, Ledger& ledger, std::string scratch, Report& report)
      : case_(c),
        ledger_(ledger),
        run_dir_(scratch + "/run"),
        output_(scratch + "/out"),
        log_file_(scratch + "/log"),
        report_(report),
        random_(c.seed + 1000003) {}

  void go() {
    fs::create_directory(output_);
    hold_hangup(SIG_BLOCK);
    plan();
    if (case_.has(Kind::power_lost)) return go_without_power();
    play();
    if (fs::exists(run_dir_)) damage();
    ledger_.weather.clear();
    if (met_by_restart_ && fs::exists(run_dir_)) drain_once_more();
    recover();
    judge();
    report_.strikes = ledger_.weather.strikes;
    report_.done = true;
  }
  [[nodiscard]] std::string log() const {
    std::ifstream in(log_file_);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // -- until the power goes, perhaps once more while it is recovered --

  void go_without_power() {
    fs::create_directory(shadow_);
    play_until_power_goes();
    lose();
    if (below(3) == 0) {
      // Recovery is under way when it goes again.
      const auto at = some(400);
      (void)wait_for(start([&] {
        expose(ledger_.weather, output_, at);
        watch_disk(disk(), shadow_);
        return serve(case_, run_dir_, log_file_, true, "boot 2");
      }));
      lose();
    }
    recover();
    judge();
    report_.done = true;
  }
  [[nodiscard]] std::string disk() const { return fs::path(run_dir_).parent_path(); }

  void play_until_power_goes() {
    const auto wait_us = some(6000);
    const bool at_end = below(4) == 0;
    start_server();
    for (bool gone = false; !gone; ::usleep(100)) {
      collect();
      if (writers_.empty() && server_ > 0 && server_ready()) {
        struct stat st {};
        if (::stat(run_dir_.c_str(), &st) == 0) run_inode_ = st.st_ino;
        start_writers();
      }
      const bool ended = !writers_.empty() && writers_gone();
      if (ended && server_ > 0 && !drain_asked_) {
        (void)::kill(server_, SIGHUP);
        drain_asked_ = true;
      }
      if (server_ == 0 && server_code_ == 128 + SIGKILL && server_lives_ <= case_.restarts && below(2) == 0)
        start_server();
      gone = server_ == 0 || (at_end ? ended : !writers_.empty() && ledger_.frames >= strike_at_);
    }
    ::usleep(static_cast<useconds_t>(wait_us));
    for (const auto pid : writers_)
      if (pid > 0) kill(pid);
    if (server_ > 0) kill(server_);
    while (!writers_gone() || server_ > 0) collect();
  }
  void lose() {
    lose_power(run_dir_, shadow_, random_(), run_inode_);
    lose_power(output_, shadow_, random_());
  }

  std::uint64_t below(std::uint64_t n) { return random_() % std::max<std::uint64_t>(1, n); }
  /// Small numbers as often as large ones.
  std::uint64_t some(std::uint64_t most) {
    auto n = most;
    for (auto halvings = below(10); halvings > 0; --halvings) n = n / 2 + 1;
    return 1 + below(n);
  }
  void failed(const std::string& what) {
    if (report_.failure[0] == '\0') std::snprintf(report_.failure, sizeof report_.failure, "%s", what.c_str());
  }

  void plan() {
    for (const auto& d : case_.datasets) frames_in_all_ += d.frames * (d.shared() ? case_.writers : 1);
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
  }

  // -- the processes --

  void start_server() {
    const bool dies =
        (case_.has(Kind::server_killed) || case_.has(Kind::power_lost)) && by_calls_ && server_lives_ < server_deaths_;
    const auto dies_at = dies ? some(1500) : 0;
    ++server_lives_;
    server_ = start([&] {
      expose(ledger_.weather, output_, dies_at);
      if (case_.has(Kind::power_lost)) watch_disk(disk(), shadow_);
      return serve(case_, run_dir_, log_file_, false, "boot 1");
    });
    server_code_ = -1;
    drain_asked_ = false;
  }
  void start_writers() {
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
        if (case_.has(Kind::power_lost)) watch_disk(disk(), shadow_);
        ::setenv("ADVECTIO_RUN", run_dir_.c_str(), 1);
        return WriterProcess(case_, ledger_, w, output_, at_step).run();
      }));
    }
    pids_ = writers_;
  }
  [[nodiscard]] bool server_ready() const { return fs::exists(run_dir_ + "/socket"); }

  void kill(pid_t pid) {
    ++report_.kills;
    (void)::kill(pid, SIGKILL);
  }
  void collect() {
    for (std::uint32_t w = 0; w < writers_.size(); ++w) {
      int status = 0;
      if (writers_[w] <= 0 || ::waitpid(writers_[w], &status, WNOHANG) == 0) continue;
      writers_[w] = 0;
      ledger_.gone[w] = true;
      if (WIFSIGNALED(status)) writer_killed_ = true;
      if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        failed("writer " + std::to_string(w) + " died of signal " + std::to_string(WTERMSIG(status)));
    }
    int status = 0;
    if (server_ > 0 && ::waitpid(server_, &status, WNOHANG) != 0) {
      server_ = 0;
      server_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (server_code_ > 128 && server_code_ != 128 + SIGKILL)
        failed("the server died of signal " + std::to_string(server_code_ - 128));
      if (server_code_ != 0 && server_code_ < 128) said_by_exit_ = true;
      server_gone_at_ = Clock::now();
    }
  }
  [[nodiscard]] bool writers_gone() const {
    return std::all_of(writers_.begin(), writers_.end(), [](pid_t pid) { return pid == 0; });
  }

  void play() {
    start_server();
    for (bool ended = false; !ended; ::usleep(300)) {
      collect();
      if (writers_.empty() && server_ > 0 && server_ready()) start_writers();
      strike();
      look_after_server();
      if (writers_.empty() && server_ == 0) return;  // it never came to live
      if (!writers_.empty() && writers_gone()) {
        if (server_ > 0 && !drain_asked_ && (server_ready() || vanished_)) {
          (void)::kill(server_, SIGHUP);
          drain_asked_ = true;
        }
        ended = server_ == 0;
      }
    }
  }
  /// As `advectio run` does: a server that dies is started again, so often.
  void look_after_server() {
    if (server_ != 0 || server_code_ < 128) {
      if (server_ == 0 && !writers_gone()) end_writers_soon();
      return;
    }
    // Not into a new, empty one.
    if (!fs::exists(run_dir_)) run_dir_missed_ = true;
    if (server_lives_ <= case_.restarts && !for_good_ && !run_dir_missed_)
      start_server();
    else if (!writers_gone())
      end_writers_soon();
  }
  /// The program goes on for a moment, into a stage that nobody empties.
  void end_writers_soon() {
    if (Clock::now() - server_gone_at_ < std::chrono::milliseconds(100)) return;
    for (const auto pid : writers_)
      if (pid > 0) kill(pid);
  }

  void strike() {
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
    if (case_.has(Kind::server_killed) && !by_calls_ && server_ > 0) kill(server_);
    if (case_.has(Kind::journal_damaged) || case_.has(Kind::page_damaged)) {
      for_good_ = true;
      if (server_ > 0) kill(server_);
    }
    if (case_.has(Kind::stage_vanishes)) {
      std::error_code ignored;
      fs::remove_all(run_dir_, ignored);
      vanished_ = true;
    }
  }

  // -- damage of what only the stage holds --

  void flip(const fs::path& file, std::uint64_t at, std::uint64_t bytes) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint64_t i = 0; i < bytes; ++i) {
      f.seekg(static_cast<std::streamoff>(at + i));
      const int byte = f.get();
      f.seekp(static_cast<std::streamoff>(at + i));
      f.put(static_cast<char>(byte ^ static_cast<int>(1 + below(255))));
    }
    report_.damaged = true;
    damage_ +=
        file.string().substr(run_dir_.size()) + " byte " + std::to_string(at) + " +" + std::to_string(bytes) + "; ";
  }
  std::vector<fs::path> files_in(const fs::path& directory) {
    std::vector<fs::path> all;
    std::error_code ignored;
    for (const auto& e : fs::directory_iterator(directory, ignored)) all.push_back(e.path());
    std::sort(all.begin(), all.end());
    return all;
  }
  void damage() {
    if (case_.has(Kind::journal_damaged)) damage_journal();
    if (case_.has(Kind::page_damaged)) damage_page();
  }
  void damage_journal() {
    std::vector<fs::path> segments;
    for (const auto& journal : files_in(run_dir_ + "/journals"))
      for (const auto& file : files_in(journal))
        if (std::isdigit(file.filename().string()[0]) != 0) segments.push_back(file);
    if (segments.empty()) return;
    const auto& segment = segments[below(segments.size())];
    // "x-<pid>-…"
    const auto name = segment.parent_path().filename().string();
    const auto pid = std::atoi(name.c_str() + name.find('-') + 1);
    std::uint64_t published = 0;
    std::ifstream(segment, std::ios::binary).seekg(64).read(reinterpret_cast<char*>(&published), sizeof published);
    if (published <= 4096 || published > segment_bytes) return;
    // Mostly records; sometimes the header, which says among others up to where there are any.
    const auto at = below(8) == 0 ? below(80) : 4096 + below(published - 4096);
    flip(segment, at, 1 + below(8));
    const auto w = std::find(pids_.begin(), pids_.end(), pid) - pids_.begin();
    for (std::size_t i = 0; i < case_.datasets.size(); ++i)
      touched_[i] = touched_[i] || case_.datasets[i].written_by(static_cast<std::uint32_t>(w));
  }
  void damage_page() {
    std::vector<fs::path> pages;
    for (const auto& page : files_in(run_dir_ + "/datasets"))
      if (page.filename().string().find('.') == std::string::npos) pages.push_back(page);
    if (pages.empty()) return;
    const auto& page = pages[below(pages.size())];
    using journal::DatasetPage;
    struct Field {
      std::uint64_t at, bytes;
    };
    const Field fields[] = {{0, 32},
                            {offsetof(DatasetPage, path), 40},
                            {offsetof(DatasetPage, link), 60},
                            {offsetof(DatasetPage, synced), 32},
                            {offsetof(DatasetPage, visible), 36},
                            {offsetof(DatasetPage, writers), 20},
                            {offsetof(DatasetPage, whole), 8}};
    const auto& field = fields[below(std::size(fields))];
    flip(page, field.at + below(field.bytes), 1 + below(4));
    for (std::size_t i = 0; i < case_.datasets.size(); ++i) {
      struct stat st {};
      if (::stat((output_ + "/" + case_.datasets[i].name).c_str(), &st) == 0 &&
          journal::Stage::page_name(st.st_dev, st.st_ino) == page.filename())
        touched_[i] = true;
    }
  }

  // -- the end --

  int wait_for(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// A server takes up what is there as if nothing had happened.
  void drain_once_more() {
    const auto pid = start([&] {
      expose(ledger_.weather, output_, 0);
      return serve(case_, run_dir_, log_file_, false);
    });
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (server_ready()) (void)::kill(pid, SIGHUP);
      ::usleep(2000);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) said_by_exit_ = true;
    if (WIFSIGNALED(status))
      failed("the server that took up the damage died of signal " + std::to_string(WTERMSIG(status)));
  }
  void recover() {
    if (!fs::exists(run_dir_ + "/control")) return;  // nobody has staged anything
    const int code = wait_for(start([&] { return serve(case_, run_dir_, log_file_, true, "boot 3"); }));
    if (code >= 128) failed("recovery died of signal " + std::to_string(code - 128));
    if (code != 0) said_by_exit_ = true;
    left_in_stage_ = code != 0;
    if (code != 0 && !case_.may_lose()) failed("recovery ended with code " + std::to_string(code));
    if (code == 0 && fs::exists(run_dir_)) failed("recovery has left its run directory");
  }

  [[nodiscard]] bool said(std::size_t dataset) const {
    std::istringstream lines(log());
    const auto& d = case_.datasets[dataset];
    for (std::string line; std::getline(lines, line);)
      if (line.find(" error: ") != std::string::npos &&
          (line.find("/" + d.name) != std::string::npos || (vanished_ && line.find(run_dir_) != std::string::npos)))
        return true;
    if (!vanished_) return false;
    if (run_dir_missed_) return true;  // `advectio run` says it
    // To the program itself, which has had an error instead of success.
    for (std::uint32_t w = 0; w < case_.writers; ++w)
      if (d.written_by(w) && ledger_.told[w]) return true;
    return false;
  }

  void judge() {
    for (std::size_t i = 0; i < case_.datasets.size(); ++i) {
      const auto& d = case_.datasets[i];
      std::uint64_t synced = UINT64_MAX, begun = 0;
      for (std::uint32_t w = 0; w < case_.writers; ++w) {
        if (!d.written_by(w)) continue;
        synced = std::min<std::uint64_t>(synced, ledger_.part[i][w].synced);
        begun = std::max<std::uint64_t>(begun, ledger_.part[i][w].begun);
      }
      if (case_.has(Kind::power_lost) && !d.promised) synced = 0;
      const auto v = check_file(output_ + "/" + d.name, d, i, synced, begun);
      report_.synced += synced;
      if (!v.wrong.empty()) {
        ++report_.malformed;
        failed(d.name + ": " + v.wrong);
      }
      if (v.held >= synced) continue;
      const auto lost = synced - v.held;
      report_.lost += lost;
      const bool is_said = said(i) && (said_by_exit_ || vanished_);
      if (is_said) report_.lost_said += lost;
      const auto text =
          d.name + ": of " + std::to_string(synced) + " synced frames " + std::to_string(v.held) + " are there";
      if (!touched_[i] && !vanished_)
        failed(text + (report_.damaged ? ", and it was not touched" : ""));
      else if (!is_said)
        failed(text + ", and nobody says so");
    }
    for (const auto& file : files_in(output_)) judge_leftover(file);
    if (report_.failure[0] != '\0' && !damage_.empty()) {
      const std::string all =
          std::string(report_.failure) + " (damaged: " + damage_ + (met_by_restart_ ? "met by a server" : "") + ")";
      std::snprintf(report_.failure, sizeof report_.failure, "%s", all.c_str());
    }
  }
  void judge_leftover(const fs::path& file) {
    const auto name = file.filename().string();
    const bool own =
        std::any_of(case_.datasets.begin(), case_.datasets.end(), [&](const auto& d) { return d.name == name; });
    std::error_code ignored;
    // Of who is killed within nc_create.
    const bool empty = fs::file_size(file, ignored) == 0;
    // What was not promised need not be known of any more.
    if (own || (empty && writer_killed_) || left_in_stage_ || vanished_ || case_.has(Kind::power_lost)) return;
    failed("left behind: " + name);
  }

  const Case& case_;
  Ledger& ledger_;
  std::string run_dir_, output_, log_file_, shadow_ = disk() + "/shadow";
  std::uint64_t run_inode_ = 0;
  Report& report_;
  std::mt19937_64 random_;

  std::uint64_t frames_in_all_ = 0, strike_at_ = 0, server_deaths_ = 0;
  std::int64_t room_again_ms_ = -1;
  bool by_calls_ = false, met_by_restart_ = false;
  std::uint32_t victim_ = 0;

  pid_t server_ = 0;
  std::vector<pid_t> writers_, pids_;
  int server_code_ = -1;
  std::uint32_t server_lives_ = 0;
  bool drain_asked_ = false, for_good_ = false, struck_ = false, vanished_ = false;
  bool run_dir_missed_ = false, writer_killed_ = false, said_by_exit_ = false, left_in_stage_ = false;
  Clock::time_point struck_at_, server_gone_at_;
  bool touched_[datasets_max] = {};
  std::string damage_;
};

// ---- many runs ----

struct Row {
  std::uint64_t runs = 0, synced = 0, lost = 0, lost_said = 0, malformed = 0, hangs = 0, failures = 0;
};

struct Options {
  std::uint64_t first = 0, runs = 1;
  unsigned jobs = 1;
  bool table = false, json = false, loud = false, power = false;
};

/// A run in processes of its own, so that it can hang or die without harm to the others.
struct Slot {
  Case run;
  std::unique_ptr<Scratch> scratch;
  Report* report = nullptr;
  Ledger* ledger = nullptr;
  pid_t pid = 0;
  std::chrono::steady_clock::time_point began;
};

class Runs {
 public:
  explicit Runs(const Options& options) : options_(options), slots_(options.jobs) {}

  int go() {
    auto next = options_.first;
    const auto end = options_.first + options_.runs;
    for (bool busy = true; busy; ::usleep(500)) {
      busy = false;
      for (auto& slot : slots_) {
        if (slot.pid == 0 && next < end) begin(slot, next++);
        if (slot.pid == 0) continue;
        busy = true;
        int status = 0;
        const bool late = std::chrono::steady_clock::now() - slot.began > std::chrono::seconds(hang_s);
        if (late) (void)::kill(-slot.pid, SIGKILL);
        if (::waitpid(slot.pid, &status, late ? 0 : WNOHANG) != 0) end_run(slot, status, late);
      }
    }
    if (options_.table) print_table();
    if (options_.json) print_json();
    return all_.failures == 0 ? 0 : 1;
  }

 private:
  void begin(Slot& slot, std::uint64_t seed) {
    slot.run = options_.power ? Case::of_power(seed) : Case::of(seed);
    slot.scratch = std::make_unique<Scratch>("/dev/shm");
    slot.report = share<Report>();
    slot.ledger = share<Ledger>();
    slot.began = std::chrono::steady_clock::now();
    std::fflush(nullptr);
    slot.pid = ::fork();
    if (slot.pid != 0) return;
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Run run(slot.run, *slot.ledger, slot.scratch->path(), *slot.report);
    run.go();
    if (options_.loud) std::printf("%s\n%s", slot.run.text().c_str(), run.log().c_str());
    std::fflush(nullptr);
    ::_exit(0);
  }

  void end_run(Slot& slot, int status, bool late) {
    (void)::kill(-slot.pid, SIGKILL);
    slot.pid = 0;
    auto& r = *slot.report;
    if (late) {
      std::snprintf(r.failure, sizeof r.failure, "it hangs");
    } else if (!r.done && r.failure[0] == '\0') {
      std::snprintf(r.failure, sizeof r.failure, "the run itself ended with status %d", status);
    }
    const bool bad = r.failure[0] != '\0';
    const auto count = [&](Row& row) {
      ++row.runs;
      row.synced += r.synced;
      row.lost += r.lost;
      row.lost_said += r.lost_said;
      row.malformed += r.malformed;
      row.hangs += late ? 1 : 0;
      row.failures += bad ? 1 : 0;
    };
    count(rows_[row_of(slot.run)]);
    count(all_);
    if (bad) {
      std::printf("FAILED %s\n  %s\n  again: fault_runs %s--seed %llu\n", slot.run.text().c_str(), r.failure,
                  options_.power ? "--power " : "", static_cast<unsigned long long>(slot.run.seed));
      std::fflush(stdout);
    }
    ::munmap(slot.report, sizeof(Report));
    ::munmap(slot.ledger, sizeof(Ledger));
    slot.scratch.reset();
  }

  void print_table() const {
    std::printf("| fault | runs | frames synced | lost | of these said | malformed files | hangs | failures |\n");
    std::printf("|---|---:|---:|---:|---:|---:|---:|---:|\n");
    const auto line = [](const char* name, const Row& r) {
      std::printf("| %s | %llu | %llu | %llu | %llu | %llu | %llu | %llu |\n", name,
                  static_cast<unsigned long long>(r.runs), static_cast<unsigned long long>(r.synced),
                  static_cast<unsigned long long>(r.lost), static_cast<unsigned long long>(r.lost_said),
                  static_cast<unsigned long long>(r.malformed), static_cast<unsigned long long>(r.hangs),
                  static_cast<unsigned long long>(r.failures));
    };
    for (std::size_t k = 0; k < rows_.size(); ++k) line(row_name(k), rows_[k]);
    line("all runs", all_);
  }
  void print_json() const {
    nlohmann::json all;
    const auto entry = [](const Row& r) {
      return nlohmann::json{{"runs", r.runs},           {"frames_synced", r.synced},
                            {"frames_lost", r.lost},    {"losses_said", r.lost_said},
                            {"malformed", r.malformed}, {"hangs", r.hangs},
                            {"failures", r.failures}};
    };
    for (std::size_t k = 0; k < rows_.size(); ++k) all["by_fault"][row_name(k)] = entry(rows_[k]);
    all["all"] = entry(all_);
    all["first_seed"] = options_.first;
    std::printf("%s\n", all.dump(2).c_str());
  }

  Options options_;
  std::vector<Slot> slots_;
  /// By the fault where there is one; then two that lose nothing, and two of which one may.
  static std::size_t row_of(const Case& c) {
    std::vector<Kind> kinds = c.kinds;
    if (kinds.size() > 1) std::erase(kinds, Kind::nothing);
    return kinds.size() == 1 ? static_cast<std::size_t>(kinds[0]) : kind_names.size() + (c.may_lose() ? 1 : 0);
  }
  static const char* row_name(std::size_t row) {
    constexpr std::array pairs = {"two of these, not the last three", "two of these, one of the last three"};
    return row < kind_names.size() ? kind_names[row] : pairs[row - kind_names.size()];
  }

  std::array<Row, kind_names.size() + 2> rows_;
  Row all_;
};

std::optional<Options> parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto number = [&]() -> std::uint64_t { return i + 1 < argc ? std::strtoull(argv[++i], nullptr, 10) : 0; };
    if (arg == "--seed") {
      o.first = number();
      o.loud = true;
    } else if (arg == "--first") {
      o.first = number();
    } else if (arg == "--runs") {
      o.runs = number();
    } else if (arg == "--jobs") {
      o.jobs = static_cast<unsigned>(std::max<std::uint64_t>(1, number()));
    } else if (arg == "--power") {
      o.power = true;
    } else if (arg == "--table") {
      o.table = true;
    } else if (arg == "--json") {
      o.json = true;
    } else {
      return std::nullopt;
    }
  }
  return o;
}

}  // namespace
}  // namespace advectio::faults

int main(int argc, char** argv) {
  const auto options = advectio::faults::parse(argc, argv);
  if (!options) {
    std::fprintf(stderr, "fault_runs [--seed N] [--first N] [--runs N] [--jobs N] [--power] [--table] [--json]\n");
    return 2;
  }
  return advectio::faults::Runs(*options).go();
}
