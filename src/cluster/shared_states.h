// What the servers of several nodes do to the shared states and slots of a dataset.
#pragma once

#include <atomic>

#include "cluster/peers.h"

namespace advectio {

/// False: one of the same name that is another dataset's.
bool is_of(const journal::SharedState& shared_state, const DatasetId& id) noexcept;
/// Into the slot of a writer on another node. Its collective index last: who sees that sees the rest.
void store(journal::WriterSlot& slot, const SlotState& s) noexcept;

template <typename T>
void raise(std::atomic<T>& number, T value) noexcept {
  auto old = number.load(std::memory_order_relaxed);
  while (old < value && !number.compare_exchange_weak(old, value, std::memory_order_release)) {
  }
}

}  // namespace advectio
