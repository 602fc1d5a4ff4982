// The servers of a run, one on each of its nodes, in processes of their own. Those of several nodes begin and end
// together, as the MPI job does that they are otherwise.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "faults/ledger.h"

namespace advectio::faults {

/// Of stages.
inline constexpr std::uint64_t segment_bytes = 64 * 1024;

class Servers {
 public:
  Servers(const Case& c, Ledger& ledger, const std::string& run_dir, std::string output, std::string log_file);

  [[nodiscard]] const std::string& run_dir(std::uint32_t node) const { return run_dirs_[node]; }
  /// Of any node: the directory, or a file in it.
  [[nodiscard]] bool any_has(const std::string& file = {}) const;

  /// From now on it is another boot of the machine.
  void power_lost() { ++boot_; }

  enum class Task : std::uint8_t { serve, recover };
  /// `dies_at`: the first of them that does so many calls (of its own) is killed within it, on node `victim`.
  void start(Task task, std::uint32_t victim = 0, std::uint64_t dies_at = 0);
  /// All of them listen.
  [[nodiscard]] bool ready() const;
  void drain();
  void kill(std::uint32_t node);

  /// True while any of them runs. When one has ended badly the others are ended, gently or not, as mpirun does.
  bool running();
  /// When none does: the exit code of the first that ended badly; 128 + n where signal n ended it.
  [[nodiscard]] int code() const { return code_; }
  int wait();

 private:
  using Clock = std::chrono::steady_clock;
  void end_others();

  const Case& case_;
  Ledger& ledger_;
  std::vector<std::string> run_dirs_;
  std::string output_, log_file_;
  std::vector<pid_t> pids_;  // 0: ended
  int code_ = 0, boot_ = 1;
  bool ending_ = false;
  Clock::time_point ending_since_;
};

}  // namespace advectio::faults
