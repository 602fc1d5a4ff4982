#include "workflow/members.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "workflow/versions.h"

namespace advectio::workflow {
namespace fs = std::filesystem;

namespace {

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (auto entry = fs::directory_iterator(directory, failed); !failed && entry != fs::directory_iterator();
       entry.increment(failed))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_in(const std::string& entry) {
  return entry.substr(0, entry.find(','));
}

}  // namespace

bool is_alive(const std::string& memory, const std::string& entry) {
  return is_held(memory + "/members/" + entry);
}

bool is_held(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  // Shared: two that look at one time must not take each other for the member.
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

std::vector<Member> members_in(const std::string& memory) {
  std::vector<Member> all;
  for (const auto& entry : names_in(memory + "/members")) {
    Member member{name_in(entry), entry, is_alive(memory, entry), false, 0, 0};
    std::ifstream in(memory + "/members/" + entry);
    for (std::string word; in >> word;) {
      if (word == "ended") member.ended = static_cast<bool>(in >> member.code);
      if (word == "started") in >> member.started;
    }
    all.push_back(std::move(member));
  }
  return all;
}

Wait::Wait(const std::string& memory, const std::string& name, const std::string& path,
           const std::vector<std::string>& programs)
    : entry_(memory + "/waits/" + name) {
  std::ofstream out(entry_);
  out << path << '\n';
  for (const auto& program : programs) out << program << '\n';
}

Wait::~Wait() {
  (void)::unlink(entry_.c_str());
}

std::vector<Waiting> waits_in(const std::string& memory) {
  std::vector<Waiting> all;
  for (const auto& name : names_in(memory + "/waits")) {
    const auto maker = maker_of("wait." + name);
    // Of another node's process its node says whether it is there.
    const bool is_here = name.find(of_node) == std::string::npos;
    if (!maker || (is_here && ::kill(static_cast<pid_t>(maker->pid), 0) != 0 && errno == ESRCH)) continue;
    std::ifstream in(memory + "/waits/" + name);
    Waiting waiting{name_in(maker->member), {}, {}};
    std::getline(in, waiting.path);
    for (std::string program; std::getline(in, program);) waiting.programs.push_back(program);
    if (!waiting.path.empty()) all.push_back(std::move(waiting));
  }
  return all;
}

}  // namespace advectio::workflow
