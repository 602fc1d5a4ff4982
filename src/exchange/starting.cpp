#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "exchange/node_server.h"
#include "readers/message.h"
#include "workflow/members.h"
#include "workflow/workflow.h"

namespace advectio::exchange {

bool is_served(const std::string& memory) {
  return workflow::is_held(memory + workflow::node_server);
}

Result<void> start_node_server(const NodeOptions& options) {
  constexpr int ready_fd = 3;
  std::vector<std::string> words = {"advectiod",  "workflow",        "--workflow-memory", options.memory,
                                    "--workflow", options.directory, "--ready-fd",        std::to_string(ready_fd)};
  for (const auto& address : options.listen) words.insert(words.end(), {"--listen", address});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto log = options.memory + "/log";
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed).string();  // by its name in `ps`
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe", errno);
  const readers::Descriptor in(ends[0]);
  readers::Descriptor out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return system_error("start the workflow's server", errno);
  if (child == 0) {
    // It belongs to nobody, and holds nothing of ours: not our locks, and no pipe whose end somebody waits for.
    if (::fork() != 0) ::_exit(0);
    (void)::setsid();
    const int null = ::open("/dev/null", O_RDWR);
    const int said = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int ready = ::fcntl(out.get(), F_DUPFD, 10);
    (void)::dup2(null, 0);
    (void)::dup2(null, 1);
    (void)::dup2(said, 2);
    (void)::dup2(ready, ready_fd);
    (void)::close_range(ready_fd + 1, ~0U, 0);
    (void)!::chdir("/");
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  out = readers::Descriptor();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::string said;
  char some[512];
  for (;;) {
    const auto n = ::read(in.get(), some, sizeof some);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    said.append(some, static_cast<std::size_t>(n));
    if (said == "ready\n") return {};
  }
  if (said.empty()) said = "it ended at once; " + log + " says more";
  return Error{Code::config, "the workflow's server of this node cannot begin: " + said, 0};
}

}  // namespace advectio::exchange
