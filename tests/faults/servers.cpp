#include "faults/servers.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "apps/advectiod/open_sink.h"
#include "cluster/remote_encoder.h"
#include "faults/power.h"
#include "faults/transport.h"
#include "server/server.h"
#include "sinks/chunks/elsewhere.h"

namespace advectio::faults {
namespace {

namespace fs = std::filesystem;

constexpr auto end_soon = std::chrono::milliseconds(200);  // between the gentle signal and the other

Server* serving = nullptr;

/// Being told something waits until there is a server.
void hold_signals(int how) {
  sigset_t told;
  ::sigemptyset(&told);
  ::sigaddset(&told, SIGHUP);
  ::sigaddset(&told, SIGTERM);
  ::sigprocmask(how, &told, nullptr);
}

/// Tiles become one file; what is promised; further outputs.
std::string config_of(const Case& c) {
  std::string rules = "datasets:\n  - {match: \"t*_0*\", join: true}\n";
  for (const auto& d : c.datasets) {
    if (d.store)
      rules += "  - {match: " + d.name + ", format: " + (*d.store == FileFormat::zarr ? "zarr" : "bp5") + "}\n";
    if (d.unsynced) rules += "  - {match: " + d.name + ", frames: record}\n";
    if (d.promised) rules += "  - {match: " + d.name + ", promise: durable}\n";
    if (d.second) rules += "  - {match: " + d.name + ", outputs: [{path: \"second_{name}\", format: cdf5}]}\n";
  }
  return rules;
}

int serve(const Case& c, const std::string& run_dir, const std::string& log_file, bool recover, Transport* transport,
          int boot) {
  const int fd = ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(fd, STDERR_FILENO);
  Log log(std::getenv("ADVECTIO_FAULTS_DEBUG") != nullptr ? LogLevel::debug : LogLevel::warning);
  Executor executor(2);
  const auto config = parse_config(config_of(c), "the runs' own");
  if (!config) return 2;
  ServerOptions options;
  options.run_dir = run_dir;
  options.segment_bytes = segment_bytes;
  options.segments_max = recover && transport == nullptr ? 2 : c.segments_max;
  options.warm_segments = recover ? 0 : 2;
  options.wait_max_ns = 2'000'000'000;
  options.recover = recover;
  options.transport = transport;
  // Every other seed commits in the loop: its faults come at the same calls each time.
  options.disk_threads = c.seed % 2 == 0 ? 0 : 2;
  options.boot = "boot " + std::to_string(boot);
  options.survives_power = c.has(Kind::power_lost);
  const SharedBySinks shared{std::make_shared<MemoryBudget>(config->server.memory_max)};
  std::optional<RemoteEncoder> remote_encoder;
  if (transport != nullptr)
    options.remote_encoder = &remote_encoder.emplace(
        *transport, executor,
        [&shared](std::span<const std::byte> request) { return encode_for_another(request, shared.memory); }, 1);
  auto server = Server::open(
      system_files(), options, *config,
      [&](const SinkRequest& r) { return open_sink(r, shared, executor, options.remote_encoder); }, log);
  if (!server) {
    std::fprintf(stderr, "advectiod: error: %s\n", server.error().message.c_str());
    return 2;
  }
  serving = server->get();
  ::signal(SIGHUP, [](int) {
    if (serving != nullptr) serving->drain();
  });
  static bool stopped = false;
  ::signal(SIGTERM, [](int) {
    stopped = true;
    if (serving != nullptr) serving->stop();
  });
  hold_signals(SIG_UNBLOCK);
  const auto outcome = (*server)->run();
  serving = nullptr;
  if (transport != nullptr) transport->leave(!stopped);
  return static_cast<int>(outcome);
}

}  // namespace

Servers::Servers(const Case& c, Ledger& ledger, const std::string& run_dir, std::string output, std::string log_file)
    : case_(c), ledger_(ledger), output_(std::move(output)), log_file_(std::move(log_file)), pids_(c.nodes) {
  hold_signals(SIG_BLOCK);
  for (std::uint32_t n = 0; n < c.nodes; ++n)
    run_dirs_.push_back(c.nodes == 1 ? run_dir : run_dir + "/n" + std::to_string(n));
  if (c.nodes > 1) fs::create_directory(run_dir);
}

bool Servers::any_has(const std::string& file) const {
  return std::any_of(run_dirs_.begin(), run_dirs_.end(), [&](const auto& dir) { return fs::exists(dir + file); });
}

bool Servers::ready() const {
  return std::all_of(run_dirs_.begin(), run_dirs_.end(), [](const auto& dir) { return fs::exists(dir + "/socket"); });
}

void Servers::start(Task task, std::uint32_t victim, std::uint64_t dies_at) {
  code_ = 0;
  ending_ = false;
  Wires wires(case_.nodes);
  for (std::uint32_t n = 0; n < case_.nodes; ++n)
    pids_[n] = faults::start([&, n] {
      if (::chdir(output_.c_str()) != 0) return 1;  // as a run is started where it writes
      if (task == Task::serve || dies_at != 0) expose(ledger_.weather, output_, n == victim ? dies_at : 0);
      if (case_.has(Kind::power_lost)) watch_disk(run_dirs_[n]);
      const auto transport = case_.nodes > 1 ? wires.transport_of(n, case_.io_nodes) : nullptr;
      return serve(case_, run_dirs_[n], log_file_, task == Task::recover, transport.get(), boot_);
    });
}

/// As `advectio run` asks: the first tells the others.
void Servers::drain() {
  if (pids_[0] > 0) (void)::kill(pids_[0], SIGHUP);
}

void Servers::kill(std::uint32_t node) {
  if (pids_[node] > 0) (void)::kill(pids_[node], SIGKILL);
}

bool Servers::running() {
  for (auto& pid : pids_) {
    int status = 0;
    if (pid == 0 || ::waitpid(pid, &status, WNOHANG) == 0) continue;
    pid = 0;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code_ == 0) code_ = code;
    if (code != 0 && !ending_) end_others();
  }
  const bool any = std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; });
  if (any && ending_ && Clock::now() - ending_since_ > end_soon)
    for (std::uint32_t n = 0; n < case_.nodes; ++n) kill(n);
  return any;
}

void Servers::end_others() {
  ending_ = true;
  ending_since_ = Clock::now() - (case_.seed % 2 == 0 ? end_soon : Clock::duration());
  for (const auto pid : pids_)
    if (pid > 0) (void)::kill(pid, SIGTERM);
}

int Servers::wait() {
  while (running()) ::usleep(500);
  return code_;
}

}  // namespace advectio::faults
