// Messages to the servers of other nodes, until the transport has sent them: those that wait, by lane, and those under
// way.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "cluster/transport.h"
#include "core/bytes.h"
#include "core/helpers.h"

namespace advectio {

/// Any thread puts messages in; only the relay's thread sends them. Holds its mutex for no call of another class.
class Outbox {
 public:
  struct Outgoing {
    unsigned to = 0;
    Transport::Lane lane = Transport::Lane::words;
    int kind = 0;
    Bytes own;
    std::span<const std::byte> bytes;  ///< where not `own`
    std::uint64_t journal = 0;         ///< of the record, where it is one
    std::uint64_t sequence = 0;
    std::shared_ptr<const Message> letter;  ///< of who helps, or is helped
  };

  explicit Outbox(Transport& transport) : transport_(transport) {}

  // ---- any thread ----

  void push(Outgoing message);
  void push_to_all(Transport::Lane lane, int kind, const Bytes& bytes);
  /// Sequence of the first record of that journal that has not left yet, else the largest number there is.
  [[nodiscard]] std::uint64_t unsent(std::uint64_t journal) const;
  /// Nothing more is put in.
  void close();
  /// A closed outbox does not wait for what is in it.
  void cut_short() noexcept { cut_short_ = true; }

  // ---- the relay's thread ----

  /// True: something was sent or has left.
  bool send();
  /// Waits until a message is put in, and no longer than that. False: closed, and done.
  bool wait(std::chrono::microseconds at_most);

 private:
  void send_now(std::unique_lock<std::mutex>& guard, Outgoing message);

  Transport& transport_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::deque<Outgoing> waiting_[Transport::lanes];           ///< by lane
  std::map<std::uint64_t, std::set<std::uint64_t>> unsent_;  ///< sequences, by journal
  bool closed_ = false;

  // The relay's thread only.
  std::map<std::uint64_t, Outgoing> under_way_;  ///< by ticket
  std::map<unsigned, std::uint64_t> under_way_bytes_;
  std::uint64_t next_ticket_ = 1;

  std::atomic<bool> cut_short_{false};
};

}  // namespace advectio
