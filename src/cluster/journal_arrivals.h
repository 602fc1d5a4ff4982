// Takes the records that other nodes send, and puts them into mirrors of the journals they come from. Those of one node
// stay in order: where the stage has no room for a record, the later ones of its node wait behind it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "cluster/transport.h"
#include "core/bytes.h"
#include "core/result.h"
#include "journal/mirror.h"

namespace advectio {

/// The relay's thread only, unless a function says otherwise.
class JournalArrivals {
 public:
  JournalArrivals(const journal::Stage& stage, Transport& transport) : stage_(stage), transport_(transport) {}

  /// Gives to `others` what is no record. True: something has been taken.
  bool take(const std::function<void(const Transport::Arrival&)>& others);
  /// The process of the records that follow. Fails: no mirror could be made, and its records will be thrown away.
  Result<void> on_writer(unsigned from, const Bytes& bytes);
  void on_gone(unsigned from, Decoder& in) { mirrors_.erase({from, in.number<int>()}); }

  /// Any thread: the server makes no more room. Records without room are thrown away; their node keeps them.
  void end() noexcept { ended_ = true; }

  /// Any thread: there is no room for what has come.
  [[nodiscard]] bool held_up() const noexcept { return held_up_.load(); }

 private:
  bool take_record(const Transport::Arrival& arrival);

  const journal::Stage& stage_;
  Transport& transport_;
  std::map<unsigned, std::deque<Transport::Arrival>> held_back_;
  unsigned served_ = 0;  ///< the node for which there was room last
  journal::SegmentMappings mappings_;
  std::map<std::pair<unsigned, int>, std::unique_ptr<journal::Mirror>> mirrors_;

  std::atomic<bool> held_up_{false}, ended_{false};
};

}  // namespace advectio
