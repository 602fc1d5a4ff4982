// The state of each node of the run, of this one too: whether it is quiet, whether it is at its end, and its status.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace advectio {

/// The server's loop asks, and sets what this node says; the relay's thread sets what the others say. The mutex guards
/// all of it.
class NodeStates {
 public:
  explicit NodeStates(unsigned nodes) : states_(nodes) {}

  /// False: it was quiet before.
  bool set_quiet(unsigned node);
  [[nodiscard]] bool is_quiet(unsigned node) const;
  [[nodiscard]] bool all_quiet() const;
  /// False: it was final before, and nothing has changed.
  bool set_final(unsigned node, bool clean);
  [[nodiscard]] bool all_final() const;
  [[nodiscard]] bool all_clean() const;

  void set_snapshot(unsigned node, std::string status);
  [[nodiscard]] std::vector<std::string> snapshots() const;

 private:
  struct State {
    bool quiet = false, final = false, clean = false;
    std::string snapshot;
  };
  [[nodiscard]] bool all(bool State::*member) const;

  mutable std::mutex mutex_;  // of what follows
  std::vector<State> states_;
};

}  // namespace advectio
