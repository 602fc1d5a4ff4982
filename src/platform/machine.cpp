#include "platform/machine.h"

#include <linux/magic.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace advectio {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::uint64_t limit_in(const std::string& file) {
  std::ifstream in(file);
  std::uint64_t bytes = 0;
  return in >> bytes ? bytes : kNoLimit;  // "max" does not read as a number
}

struct GroupDirectory {
  std::string path;
  bool unified;  ///< version 2
};

/// Of the control groups of this process, and those above them, that `controller` may limit. `groups`:
/// /proc/self/cgroup.
std::vector<GroupDirectory> group_directories(const std::string& groups, const std::string& root,
                                              const std::string& controller) {
  std::vector<GroupDirectory> out;
  std::ifstream in(groups);
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (group.empty() || group.front() != '/') continue;
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    const auto top = unified ? root : root + "/" + controller;
    for (; group.size() > 1; group.erase(group.rfind('/'))) out.push_back({top + group, unified});
    out.push_back({top, unified});
  }
  return out;
}

constexpr const char* own_groups = "/proc/self/cgroup";
constexpr const char* groups_root = "/sys/fs/cgroup";

std::uint64_t control_group_limit() {
  std::uint64_t least = kNoLimit;
  for (const auto& [at, unified] : group_directories(own_groups, groups_root, "memory"))
    least = std::min(least, limit_in(at + (unified ? "/memory.max" : "/memory.limit_in_bytes")));
  return least;
}

#if defined(__x86_64__)
__attribute__((target("avx"))) void zero_upper_halves() noexcept {
  __builtin_ia32_vzeroupper();
}
#endif

}  // namespace

void clean_vector_registers() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) zero_upper_halves();
#endif
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

bool is_on_disk(const std::string& path) noexcept {
  struct statfs fs {};
  return ::statfs(path.c_str(), &fs) == 0 && fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC;
}

namespace {

/// The number behind a name ("MemAvailable: 12 kB", "inactive_file 12"); 0 where there is none.
std::uint64_t number_after(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(name, 0) == 0) return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  return 0;
}

/// What the control groups of this process leave, where they limit it. Pages of files can be dropped.
std::uint64_t left_by_control_groups() {
  std::uint64_t least = kNoLimit;
  for (const auto& [at, unified] : group_directories(own_groups, groups_root, "memory")) {
    if (!unified) continue;
    const auto limit = limit_in(at + "/memory.max");
    const auto used = limit_in(at + "/memory.current");
    if (limit == kNoLimit || used == kNoLimit) continue;
    const auto held = used - std::min(used, number_after(at + "/memory.stat", "inactive_file "));
    least = std::min(least, limit - std::min(limit, held));
  }
  return least;
}

}  // namespace

std::uint64_t available_memory_bytes() {
  return std::min(number_after("/proc/meminfo", "MemAvailable:") << 10U, left_by_control_groups());
}

std::uint64_t usable_memory_bytes() {
  const auto pages = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  return std::min(pages * page, control_group_limit());
}

unsigned cores_of_control_groups(const std::string& groups, const std::string& root) {
  auto least = kNoLimit;
  for (const auto& [at, unified] : group_directories(groups, root, "cpu")) {
    std::uint64_t quota = kNoLimit, period = kNoLimit;
    if (unified) {
      std::ifstream in(at + "/cpu.max");
      if (!(in >> quota >> period)) continue;  // "max"
    } else {
      quota = limit_in(at + "/cpu.cfs_quota_us"), period = limit_in(at + "/cpu.cfs_period_us");
    }
    // -1: no limit. It reads as a number near the greatest.
    if (period == 0 || period == kNoLimit || quota > (kNoLimit >> 1U)) continue;
    least = std::min(least, std::max<std::uint64_t>(1, quota / period));
  }
  return static_cast<unsigned>(std::min<std::uint64_t>(least, std::numeric_limits<unsigned>::max()));
}

unsigned usable_cores() {
  const auto by_groups = cores_of_control_groups(own_groups, groups_root);
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return std::min(by_groups, static_cast<unsigned>(std::max(1, CPU_COUNT(&set))));
  return std::min(by_groups, static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))));
}

void allow_open_files() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

std::uint32_t parent_of(std::uint32_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line)) return 0;
  // "PID (NAME) STATE PARENT …", where NAME may hold anything.
  const auto name_ends = line.rfind(')');
  if (name_ends == std::string::npos || name_ends + 4 >= line.size()) return 0;
  return static_cast<std::uint32_t>(std::strtoul(line.c_str() + name_ends + 4, nullptr, 10));
}

bool maps_to_write(std::uint32_t pid, const std::string& part_of_path) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(in, line);) {
    const auto blank = line.find(' ');
    if (blank + 2 < line.size() && line[blank + 2] == 'w' && line.find(part_of_path, blank) != std::string::npos)
      return true;
  }
  return false;
}

}  // namespace advectio
