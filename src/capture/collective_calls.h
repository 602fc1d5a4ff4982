// What the writers of one shared dataset know of each other: slots in shared memory, no messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "journal/stage.h"

namespace advectio::capture {

/// This process as one of several writers. A collective index ends with each collective call; all writers make
/// these calls in one order. Without `begin` the dataset has one writer, and only `writers` and
/// `collective_index` may be asked.
class CollectiveCalls {
 public:
  void begin(journal::MappedState<journal::WriterSlot> slots, std::uint32_t writer, std::uint32_t writers) noexcept {
    slots_ = std::move(slots);
    writer_ = writer;
    writers_ = writers;
    index_ = 1;
    own().collective_index.store(index_, std::memory_order_release);
  }
  /// 0: one process writes the dataset alone.
  [[nodiscard]] std::uint32_t writers() const noexcept { return writers_; }
  [[nodiscard]] bool shared() const noexcept { return writers_ > 0; }
  [[nodiscard]] bool first() const noexcept { return writer_ == 0; }
  [[nodiscard]] std::uint64_t collective_index() const noexcept { return index_; }
  void end_collective_call() noexcept { own().collective_index.store(++index_, std::memory_order_release); }

  /// The schema has changed. The server holds back blocks of later collective indexes until it has the new one.
  void hold_schema() noexcept {
    auto& schema_pending = own().schema_pending;
    if (schema_pending.load(std::memory_order_relaxed) == 0) schema_pending.store(index_, std::memory_order_release);
  }
  /// The first collective index for which the schema is pending; 0: none is.
  [[nodiscard]] std::uint64_t schema_index() const noexcept {
    return own().schema_pending.load(std::memory_order_relaxed);
  }
  void schema_sent() noexcept { own().schema_pending.store(0, std::memory_order_release); }

  /// See SharedDataset.
  void grow(std::uint64_t records) noexcept;
  std::uint64_t records(std::uint64_t collective_index) noexcept;

  /// The server has committed the implicit sync with this sequence, or everything up to it.
  [[nodiscard]] bool can_read(std::uint64_t sequence) const noexcept {
    return own().read.load(std::memory_order_acquire) >= sequence ||
           own().visible.load(std::memory_order_acquire) >= sequence;
  }

 private:
  [[nodiscard]] journal::WriterSlot& own() const noexcept { return slots_[writer_]; }
  bool await_index(std::uint32_t writer, std::uint64_t collective_index) const noexcept;

  journal::MappedState<journal::WriterSlot> slots_;
  std::uint32_t writer_ = 0, writers_ = 0;
  std::uint64_t index_ = 0;
  std::uint64_t records_ = 0;  ///< length of the record dimension, as far as this writer knows
};

}  // namespace advectio::capture
