// advectiod: the server. Names the concrete sinks; everything else is in the libraries.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/advectiod/config_command.h"
#include "apps/advectiod/convert_command.h"
#include "apps/advectiod/inspect_command.h"
#include "apps/advectiod/join_command.h"
#include "apps/advectiod/open_sink.h"
#include "apps/advectiod/process_command.h"
#include "apps/advectiod/transport_here.h"
#include "cluster/remote_encoder.h"
#include "config/config.h"
#include "exchange/node_server.h"
#include "journal/stage.h"
#include "platform/machine.h"
#include "server/server.h"
#include "sinks/chunks/elsewhere.h"

namespace {

using namespace advectio;

constexpr const char* usage =
    "advectiod carries what the programs of a run have put into its stage to their files.\n"
    "It is started by `advectio run`; by hand:\n"
    "\n"
    "  advectiod serve --run-dir DIR [--config FILE] [--exit-when-idle SECONDS] [--drain-later]\n"
    "                  [--ready-fd N] [--workflow DIR --workflow-memory DIR --as NAME --member ENTRY]\n"
    "      serve a run; programs find it by ADVECTIO_RUN=DIR; the line \"ready\" goes to descriptor N\n"
    "  mpirun … advectiod_mpi serve --run-dir DIR [--io-nodes N] …\n"
    "      the same on several nodes, a process on each; the last N of them are there for output only\n"
    "  advectiod workflow --workflow DIR --workflow-memory DIR --listen ADDRESS... [--ready-fd N]\n"
    "      keep this node's part of a workflow of several nodes; started by `serve`\n"
    "  advectiod recover DIR [--config FILE] [--json]\n"
    "      finish what a leftover run directory holds\n"
    "  advectiod inspect DIR [--records] [--verify] [--progress]\n"
    "      tell what a run directory holds, a JSON object a line, and change nothing\n"
    "  advectiod join --output FILE [--config FILE] [--rule KEYS] [--force] [--take-first] TILE... (or - for stdin)\n"
    "      make one file of the tiles of a split one; what is going on is told on stdout, a JSON object a line\n"
    "  advectiod process --rules FILE --output DIR [--force] [--keep] [--memory SIZE] [--jobs N] FILE... (or - for "
    "stdin)\n"
    "      make further files of files; what is going on is told as by join\n"
    "  advectiod convert --output PATH [--to FORMAT] [--rule KEYS] [--variables NAMES] [--records SLICE | --times "
    "FROM..TO]\n"
    "                    [--along DIMENSION] [--split] [--force] [--take-first] [--memory SIZE] [--jobs N] SRC... (or "
    "- for "
    "stdin)\n"
    "      make files of files, in another format or stored otherwise; what is going on is told as by join\n"
    "  advectiod config [--config FILE] [--json | --yaml], or --example, or --reference\n"
    "      check a config and print every value with its origin\n"
    "  advectiod --version\n";

constexpr int exit_usage = 2;

int complain(const std::string& text) {
  std::fprintf(stderr, "advectiod: error: %s\n", text.c_str());
  return exit_usage;
}

Server* serving = nullptr;
volatile std::sig_atomic_t stopped = 0;
pid_t supervisor = 0;  // `advectio run`, or the keeper of `advectio exec`; 0: there is none

/// At its time limit a batch system sends SIGTERM to every process of the job. The programs end, and the supervisor
/// asks for the drain and for the summary. Both need this server.
bool is_supervised() {
  return supervisor != 0 && ::getppid() == supervisor;
}

void on_signal(int, siginfo_t* by, void*) {
  if (is_supervised() && by->si_pid != supervisor) return;
  stopped = 1;
  if (serving != nullptr) serving->stop();
}

void on_hangup(int) {
  if (is_supervised()) return;
  if (serving != nullptr) serving->drain();
}

struct Arguments {
  std::string command, run_dir, config_file, directory;
  double exit_when_idle_s = -1;
  unsigned io_nodes = 0;
  bool drain_later = false;
  int ready_fd = -1;
  workflow::Settings workflow;  ///< of it what the command line says
  std::vector<std::string> listen;
};

Result<Arguments> parse(int argc, char** argv) {
  Arguments a;
  a.command = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> Result<std::string> {
      if (i + 1 >= argc) return Error{Code::invalid, arg + " needs a value", 0};
      return std::string(argv[++i]);
    };
    if (arg == "--json") continue;  // there is nothing else
    if (arg == "--drain-later") {
      a.drain_later = true;
      continue;
    }
    if (arg == "--run-dir" || arg == "--config" || arg == "--directory" || arg == "--exit-when-idle" ||
        arg == "--io-nodes" || arg == "--ready-fd" || arg == "--workflow" || arg == "--workflow-memory" ||
        arg == "--as" || arg == "--member" || arg == "--listen") {
      auto v = value();
      if (!v) return std::move(v).error();
      if (arg == "--run-dir")
        a.run_dir = *v;
      else if (arg == "--config")
        a.config_file = *v;
      else if (arg == "--directory")
        a.directory = *v;
      else if (arg == "--workflow")
        a.workflow.directory = *v;
      else if (arg == "--workflow-memory")
        a.workflow.memory = *v;
      else if (arg == "--listen")
        a.listen.push_back(*v);
      else if (arg == "--as")
        a.workflow.name = *v;
      else if (arg == "--member")
        a.workflow.entry = *v;
      else if (arg == "--io-nodes" || arg == "--ready-fd") {
        char* end = nullptr;
        const auto n = std::strtol(v->c_str(), &end, 10);
        if (end == v->c_str() || *end != '\0' || n < 0 || n > 1'000'000)
          return Error{Code::invalid, arg + " needs a number, not '" + *v + "'", 0};
        if (arg == "--io-nodes")
          a.io_nodes = static_cast<unsigned>(n);
        else
          a.ready_fd = static_cast<int>(n);
      } else {
        char* end = nullptr;
        a.exit_when_idle_s = std::strtod(v->c_str(), &end);
        if (end == v->c_str() || *end != '\0' || a.exit_when_idle_s < 0)
          return Error{Code::invalid, "--exit-when-idle needs a number of seconds, not '" + *v + "'", 0};
      }
    } else if (a.command == "recover" && a.run_dir.empty() && arg[0] != '-') {
      a.run_dir = arg;
    } else {
      return Error{Code::invalid, "unknown argument '" + arg + "'; see advectiod --help", 0};
    }
  }
  return a;
}

/// `advectio run` waits for this line; the end of the pipe tells it that the server has gone.
void say_ready(int fd) {
  if (fd < 0) return;
  (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  constexpr std::string_view line = "ready\n";
  (void)!::write(fd, line.data(), line.size());
}

int ready_descriptor = -1;

int serve_workflow(const Arguments& a, const Config& config) {
  Log log(std::max(config.log.level, LogLevel::info));  // it has a file of its own
  ready_descriptor = a.ready_fd;
  ::signal(SIGPIPE, SIG_IGN);
  auto served = exchange::serve_node({a.workflow.memory, a.workflow.directory, a.listen}, log, [] {
    say_ready(ready_descriptor);
    if (ready_descriptor >= 0) ::close(ready_descriptor);
  });
  if (served) return 0;
  if (a.ready_fd >= 0) (void)!::write(a.ready_fd, served.error().message.data(), served.error().message.size());
  return complain(served.error().message);
}

int serve(Arguments a, const Config& config, bool recover) {
  auto found = find_transport(a.io_nodes);
  if (!found) return complain(found.error().message);
  Transport* const transport = found->all.get();
  if (!found->simulated.empty()) {
    if (auto made = system_files().make_directory(a.run_dir, 0700); !made) return complain(made.error().message);
    a.run_dir = journal::stage_directory(a.run_dir, found->simulated, transport->node());
  }
  allow_open_files();
  Log log(config.log.level);
  const unsigned threads = config.server.threads.value_or(usable_cores());
  Executor executor(threads);
  ServerOptions options;
  options.run_dir = a.run_dir;
  options.recover = recover;
  options.drain_later = a.drain_later;
  options.exit_when_idle_s = a.exit_when_idle_s;
  options.encoders = &executor;
  options.disk_threads = 4;
  options.cores = usable_cores();
  options.transport = transport;
  options.segment_bytes = config.stage.segment_bytes;
  options.wait_max_ns = static_cast<std::uint64_t>(config.stage.wait_max.count()) * 1'000'000U;
  if (!recover) {
    if (auto made = system_files().make_directory(a.run_dir, 0700); !made)
      return complain(std::move(made).error().with("stage.directory").message);
    if (auto ours = journal::is_private(a.run_dir); !ours) return complain(ours.error().message);
    (void)::chmod(a.run_dir.c_str(), 0700);
    if (!config.log.file.empty()) {
      // Found out now, not when the first warning has nowhere to go.
      std::FILE* const appended = std::fopen(config.log.file.c_str(), "ae");
      if (appended == nullptr) return complain(system_error("log.file " + config.log.file, errno).message);
      std::fclose(appended);
    }
  }
  if (!recover && !config.couple.empty() && a.workflow.memory.empty())
    return complain(config.couple.front().origin +
                    ": couple has rules, and the run is in no workflow; start it with advectio run --workflow DIR --as "
                    "NAME, or leave them out");
  options.workflow = a.workflow;
  options.workflow.wait_max = config.workflow.wait_max;
  options.workflow.restart_max = config.workflow.restart_max;
  options.workflow.rules = config.couple;
  options.boot = boot_id();
  options.segments_max = 2;
  if (!recover || transport != nullptr) {
    // One of several nodes may have had nothing left to do, and removed it, when another's server died.
    if (auto made = system_files().make_directory(a.run_dir, 0700); !made) return complain(made.error().message);
    auto free = system_files().free_bytes(a.run_dir);
    if (!free) return complain(free.error().message);
    auto cap = stage_bytes_max(config, usable_memory_bytes(), *free);
    if (!cap) return complain(cap.error().message);
    // Simulated nodes have one machine's memory between them.
    const auto each = *cap / std::max<std::size_t>(1, found->simulated.size());
    options.segment_bytes = stage_segment_bytes(config, each);
    options.segments_max = each / options.segment_bytes;
    if (!recover && !config.stage.spill.empty()) {
      auto there = system_files().free_bytes(config.stage.spill);
      if (!there) return complain(std::move(there).error().with("stage.spill").message);
      options.spill = config.stage.spill;
      options.spill_max = spill_bytes_max(config, *there) / std::max<std::size_t>(1, found->simulated.size());
    }
    if (!recover)
      options.warm_segments = std::min(options.segments_max, config.stage.warm_bytes / options.segment_bytes);
  }
  // What spills goes to another disk, and the stages of several nodes to disks of their own.
  options.survives_power = !recover && transport == nullptr && stage_keeps_promises(config) && is_on_disk(a.run_dir);
  const SharedBySinks shared{std::make_shared<MemoryBudget>(config.server.memory_max)};
  std::optional<RemoteEncoder> remote_encoder;
  if (transport != nullptr)
    options.remote_encoder = &remote_encoder.emplace(
        *transport, executor,
        [&shared](std::span<const std::byte> request) { return encode_for_another(request, shared.memory); });
  auto server = Server::open(
      system_files(), options, config,
      [&](const SinkRequest& request) { return open_sink(request, shared, executor, options.remote_encoder); }, log);
  if (!server) return complain(server.error().message);
  log.also_to(a.run_dir + "/advectiod.log", 0600);
  if (!config.log.file.empty()) log.also_to(config.log.file);
  serving = server->get();
  if (a.ready_fd >= 0) supervisor = ::getppid();
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // ulimit -f: an error of that file
  // Batch systems warn a job by these signals, and may send them to all its processes.
  if (!recover)
    for (const int number : {SIGUSR1, SIGUSR2}) ::signal(number, SIG_IGN);
  // Ctrl-C reaches the whole group; the run ends when its command does, and the server after that.
  ::signal(SIGINT, recover ? SIG_DFL : SIG_IGN);
  // Whoever has started the run is gone: nobody will ask for the drain any more.
  action.sa_flags = 0;
  action.sa_handler = on_hangup;
  ::sigaction(SIGHUP, &action, nullptr);
  // mpirun passes this one on; SIGHUP it takes for itself.
  if (transport != nullptr) ::sigaction(SIGUSR1, &action, nullptr);
  say_ready(a.ready_fd);
  const auto outcome = (*server)->run();
  serving = nullptr;
  if (recover && (transport == nullptr || transport->node() == 0)) std::printf("%s\n", (*server)->status().c_str());
  if (transport != nullptr) transport->leave(stopped == 0);
  // A reader that has stopped would hold up the end of its stream, and with it that of the run.
  constexpr std::chrono::seconds patience(10);
  if (!shared.streams->wait(patience)) {
    log.warning("a reader of a stream (format: sst) does not let it end; it is left");
    server->reset();
    std::fflush(nullptr);
    ::_exit(static_cast<int>(outcome));
  }
  return static_cast<int>(outcome);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) {
    std::fputs(usage, argc < 2 ? stderr : stdout);
    return argc < 2 ? exit_usage : 0;
  }
  if (std::strcmp(argv[1], "--version") == 0) {
    std::puts("advectiod " ADVECTIO_VERSION);
    return 0;
  }
  if (std::strcmp(argv[1], "config") == 0) return config_command(std::vector<std::string>(argv + 2, argv + argc));
  if (std::strcmp(argv[1], "inspect") == 0) return inspect_command(std::vector<std::string>(argv + 2, argv + argc));
  if (std::strcmp(argv[1], "join") == 0) return join_command(std::vector<std::string>(argv + 2, argv + argc));
  if (std::strcmp(argv[1], "process") == 0) return process_command(std::vector<std::string>(argv + 2, argv + argc));
  if (std::strcmp(argv[1], "convert") == 0) return convert_command(std::vector<std::string>(argv + 2, argv + argc));
  auto arguments = parse(argc, argv);
  if (!arguments) return complain(arguments.error().message);
  const auto& a = *arguments;
  auto config = a.config_file.empty() ? Result<Config>(default_config()) : load_config(a.config_file);
  if (!config) return complain(config.error().message);
  if (!a.directory.empty() && ::chdir(a.directory.c_str()) != 0)
    return complain(system_error("--directory " + a.directory, errno).message);

  if (a.command == "serve") {
    if (a.run_dir.empty()) return complain("serve needs --run-dir DIR");
    if (auto can = can_be_written(*config); !can) return complain(can.error().message);
    return serve(a, *config, false);
  }
  if (a.command == "workflow") {
    if (a.workflow.memory.empty() || a.workflow.directory.empty() || a.listen.empty())
      return complain("workflow needs --workflow DIR, --workflow-memory DIR and --listen ADDRESS");
    return serve_workflow(a, *config);
  }
  if (a.command == "recover") {
    if (a.run_dir.empty())
      return complain("recover needs the run directory, e.g. advectiod recover /dev/shm/advectio-1000/RUN");
    return serve(a, *config, true);
  }
  return complain("unknown command '" + a.command + "'; see advectiod --help");
}
