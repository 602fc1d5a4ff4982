// The servers of a run's other nodes, and messages to and from them. What carries them is the concern of the program
// (apps/advectiod: MPI).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace advectio {

/// All but the numbers and names may be called by one thread only.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual unsigned node() const noexcept = 0;  ///< this one's number
  [[nodiscard]] virtual unsigned nodes() const noexcept = 0;
  [[nodiscard]] virtual unsigned io_nodes() const noexcept = 0;  ///< the last so many have no ranks
  [[nodiscard]] virtual const std::string& name(unsigned node) const noexcept = 0;

  /// Messages of one lane from one node come in the order they were sent in; lanes do not wait for each other.
  enum class Lane : std::uint8_t { journals = 0, words = 1, help = 2 };
  static constexpr std::size_t lanes = 3;

  /// Begin to send. The bytes must stay as they are until `sent` has named the ticket.
  virtual void send(unsigned to, Lane lane, int kind, std::span<const std::byte> bytes, std::uint64_t ticket) = 0;
  /// What has gone out since it was last asked for.
  virtual void sent(std::vector<std::uint64_t>& tickets) = 0;

  /// A message that has arrived and is to be received.
  struct Arrival {
    unsigned from = 0;
    Lane lane = Lane::words;
    int kind = 0;
    std::uint64_t bytes = 0;
    std::uint64_t handle = 0;
  };
  virtual std::optional<Arrival> arrived(Lane lane) = 0;
  /// Waits until all of it is there. Each arrival once.
  virtual void receive(const Arrival& arrival, std::byte* to) = 0;

  /// The last call. `agreed`: all nodes leave, none waits for another any more.
  virtual void leave(bool agreed) = 0;
};

}  // namespace advectio
