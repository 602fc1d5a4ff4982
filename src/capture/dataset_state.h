// What the shared state of a dataset in flight tells a program that waits for it.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/result.h"
#include "journal/stage.h"

namespace advectio::capture {

bool in_flight(const journal::SharedState& shared_state) noexcept;
/// The sink has met an error. What is staged stays staged.
bool has_failed(const journal::SharedState& shared_state) noexcept;
/// The latest error that the server has stored in the shared state.
Error error_of_state(const journal::SharedState& shared_state);

/// The server has read this tile up to `sequence` and waits for tiles of other processes (`join`).
/// A program must not wait for the tile then: the other processes may wait for that program.
bool waits_for_others(const journal::SharedState& shared_state, std::uint64_t sequence) noexcept;
/// The dataset is a tile without a file of its own, or may turn out to be one.
bool belongs_to_another(const journal::SharedState& shared_state, std::uint64_t sequence) noexcept;
/// Why a program cannot open such a tile.
Error goes_into_another(const journal::SharedState& shared_state);

/// Raise `number` to `value`. Several processes may do so at once; the largest value stays.
void raise(std::atomic<std::uint64_t>& number, std::uint64_t value) noexcept;

}  // namespace advectio::capture
