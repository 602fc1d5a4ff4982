#include "capture/dataset_state.h"

#include <cerrno>
#include <cstring>
#include <string>

namespace advectio::capture {

using journal::DatasetState;
using journal::SharedState;

bool in_flight(const SharedState& shared_state) noexcept {
  return state_of(shared_state) == DatasetState::in_flight;
}

bool has_failed(const SharedState& shared_state) noexcept {
  return state_of(shared_state) == DatasetState::failed;
}

Error error_of_state(const SharedState& shared_state) {
  const int sys = shared_state.error_sys.load(std::memory_order_acquire);
  return Error{sys != 0 ? system_error("", sys).code : Code::io, shared_state.error_text, sys};
}

bool waits_for_others(const SharedState& shared_state, std::uint64_t sequence) noexcept {
  return sequence > 0 && shared_state.waits.load(std::memory_order_acquire) >= sequence;
}

bool belongs_to_another(const SharedState& shared_state, std::uint64_t sequence) noexcept {
  const bool named = shared_state.whole[0] != '\0' && std::strcmp(shared_state.whole, journal::alone) != 0;
  return named || waits_for_others(shared_state, sequence);
}

Error goes_into_another(const SharedState& shared_state) {
  return Error{
      Code::unsupported,
      std::string(shared_state.path) +
          " is a tile that becomes one file with others (join: true in the config): it cannot be opened, read or"
          " gone on with by itself",
      EBUSY};
}

void raise(std::atomic<std::uint64_t>& number, std::uint64_t value) noexcept {
  auto old = number.load(std::memory_order_relaxed);
  while (old < value && !number.compare_exchange_weak(old, value, std::memory_order_release)) {
  }
}

}  // namespace advectio::capture
