// What the processes of a run share, in memory that Advectio knows nothing of: what the writers have seen, the weather,
// and what is told of the run to whoever counts runs.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <new>

#include "faults/case.h"
#include "faults/system_calls.h"

namespace advectio::faults {

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
    char shared_state[64], path[256], link[320];
    std::uint64_t journal, created_ns;
    std::uint32_t number, owner;
  };
  Meeting meeting[datasets_max];
};

struct Report {
  bool done = false;
  struct Count {
    std::uint64_t datasets = 0, synced = 0, lost = 0, lost_said = 0, malformed = 0, malformed_said = 0;
  };
  Count of[writing_names.size()];  ///< by `Writing`
  std::uint64_t strikes = 0, kills = 0;
  bool damaged = false;
  char failure[4096] = "";
};

template <typename T>
T* share() {
  void* p = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : new (p) T;
}

/// A process of a run goes with the one that drives it.
inline pid_t start(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);
  ::_exit(body());
}

}  // namespace advectio::faults
