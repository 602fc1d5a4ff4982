#include "cluster/node_states.h"

#include <algorithm>
#include <utility>

namespace advectio {

bool NodeStates::set_quiet(unsigned node) {
  const std::lock_guard guard(mutex_);
  return !std::exchange(states_[node].quiet, true);
}

bool NodeStates::is_quiet(unsigned node) const {
  const std::lock_guard guard(mutex_);
  return states_[node].quiet;
}

bool NodeStates::all(bool State::*member) const {
  const std::lock_guard guard(mutex_);
  return std::all_of(states_.begin(), states_.end(), [member](const State& s) { return s.*member; });
}

bool NodeStates::all_quiet() const {
  return all(&State::quiet);
}

bool NodeStates::set_final(unsigned node, bool clean) {
  const std::lock_guard guard(mutex_);
  if (std::exchange(states_[node].final, true)) return false;
  states_[node].clean = clean;
  return true;
}

bool NodeStates::all_final() const {
  return all(&State::final);
}

bool NodeStates::all_clean() const {
  return all(&State::clean);
}

void NodeStates::set_snapshot(unsigned node, std::string status) {
  const std::lock_guard guard(mutex_);
  states_[node].snapshot = std::move(status);
}

std::vector<std::string> NodeStates::snapshots() const {
  const std::lock_guard guard(mutex_);
  std::vector<std::string> all;
  for (const auto& s : states_) all.push_back(s.snapshot);
  return all;
}

}  // namespace advectio
