// Which run this process belongs to, and its one session there.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>

#include "capture/session.h"
#include "journal/nodes.h"

namespace advectio {

using capture::ProcessSession;

namespace {

struct Global {
  std::mutex mutex;
  bool tried = false;
  ProcessSession* session = nullptr;
};

Global& global() {
  static auto* g = new Global;  // never destroyed: the program may call us while it exits
  return *g;
}

void child_after_fork() {
  auto& g = global();
  new (&g.mutex) std::mutex;
  if (g.session != nullptr) g.session->become_foreign();
  g.session = nullptr;
  g.tried = false;
}

const char* run_directory() {
  const char* run = std::getenv("ADVECTIO_RUN");
  return run == nullptr || *run == '\0' ? nullptr : run;
}

Result<std::string> stage_directory_in(const char* run) {
  auto simulated = journal::simulated_nodes(std::getenv("ADVECTIO_NODES"));
  if (!simulated) return std::move(simulated).error();
  const auto node = journal::node_of_rank(*simulated, capture::rank_from_environment());
  return journal::stage_directory(run, *simulated, node);
}

ProcessSession* without_server(const std::string& what, const std::string& why = {}) {
  const std::string line = "advectio: no server" + what + ": output goes through the netCDF library as usual" +
                           (why.empty() ? "" : " (" + why + ")") + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  return nullptr;
}

ProcessSession* open_session() {
  const char* run = run_directory();
  if (run == nullptr) return without_server(" (ADVECTIO_RUN is not set)");
  const auto directory = stage_directory_in(run);
  if (!directory) return without_server("", directory.error().message);
  auto stage = journal::Stage::open(system_files(), *directory);
  if (!stage) return without_server("", stage.error().message);
  // Somebody may be restarting a server that has died.
  constexpr std::uint64_t restart_max_ns = 10'000'000'000;
  const auto give_up_ns = journal::monotonic_ns() + restart_max_ns;
  while (!stage->server_alive()) {
    if (stage->closed()) return without_server(" (the run has ended)");
    if (journal::monotonic_ns() > give_up_ns) return without_server(" (nobody serves " + *directory + ")");
    ::usleep(20'000);
  }
  return new ProcessSession(std::move(stage).value(), capture::Rules::read(*directory + "/capture.conf"));
}

}  // namespace

std::string stage_directory_of_process() {
  const char* run = run_directory();
  if (run == nullptr) return {};
  auto directory = stage_directory_in(run);
  return directory ? std::move(directory).value() : std::string();
}

Session* Session::current() {
  auto& g = global();
  const std::lock_guard guard(g.mutex);
  if (g.tried) return g.session;
  g.tried = true;
  static const int handler = ::pthread_atfork(nullptr, nullptr, child_after_fork);
  (void)handler;
  try {
    g.session = open_session();
  } catch (...) {
    constexpr std::string_view line = "advectio: no memory: output goes through the netCDF library as usual\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
  }
  return g.session;
}

}  // namespace advectio
