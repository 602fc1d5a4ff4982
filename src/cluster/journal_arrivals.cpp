#include "cluster/journal_arrivals.h"

#include <algorithm>
#include <cstring>

#include "cluster/messages.h"

namespace advectio {

using journal::monotonic_ns;
using Lane = Transport::Lane;

bool JournalArrivals::take(const std::function<void(const Transport::Arrival&)>& others) {
  bool moved = false;
  const auto take_one = [&](const Transport::Arrival& arrival) {
    if (arrival.kind >= first_writer_kind) return take_record(arrival);
    others(arrival);
    return true;
  };
  // In turns: the node that was served last comes last.
  for (unsigned n = 1, last = served_; n <= transport_.nodes(); ++n) {
    const auto from = (last + n) % transport_.nodes();
    auto& held = held_back_[from];
    while (!held.empty() && take_one(held.front())) {
      held.pop_front();
      served_ = from;
      moved = true;
    }
  }
  for (int n = 0; n < 256; ++n) {
    const auto arrival = transport_.arrived(Lane::journals);
    if (!arrival) break;
    auto& held = held_back_[arrival->from];
    if (held.empty() && take_one(*arrival)) {
      moved = true;
      continue;
    }
    held.push_back(*arrival);
  }
  held_up_ = std::any_of(held_back_.begin(), held_back_.end(), [](const auto& held) { return !held.second.empty(); });
  return moved;
}

/// False: there is no room for it yet.
bool JournalArrivals::take_record(const Transport::Arrival& arrival) {
  const auto& mirror = mirrors_[{arrival.from, arrival.kind}];
  auto* const to = mirror ? mirror->room(arrival.bytes, mappings_) : nullptr;
  if (!mirror || (to == nullptr && ended_)) {
    // It has no journal, or the stage stays full. Their node keeps the records.
    Bytes thrown_away(arrival.bytes);
    transport_.receive(arrival, thrown_away.data());
    return true;
  }
  if (to == nullptr) {
    // The other mirrors end their segments, so that these are given back as soon as they are drained.
    for (auto& [key, other] : mirrors_)
      if (other) other->seal();
    // Before the server's loop can hear of it: it takes other measures where nothing is held up.
    held_up_ = true;
    stage_.control().starved_ns.store(monotonic_ns(), std::memory_order_relaxed);
    journal::ring(stage_.control().work);
    return false;
  }
  if (held_up_) stage_.control().relieved_ns.store(monotonic_ns(), std::memory_order_relaxed);
  transport_.receive(arrival, to);
  journal::RecordHeader header;
  std::memcpy(&header, to, sizeof header);
  mirror->publish(arrival.bytes, header.sequence);
  // Its process may have nothing more to say for long.
  const auto type = static_cast<journal::RecordType>(header.type);
  if (type == journal::RecordType::close) mirror->seal();
  if (type != journal::RecordType::put || arrival.bytes >= (1U << 20U)) journal::ring(stage_.control().work);
  return true;
}

Result<void> JournalArrivals::on_writer(unsigned from, const Bytes& bytes) {
  Decoder in(bytes);
  const auto number = in.number<int>();
  const auto name = in.text();
  journal::WriterState writer;
  if (bytes.size() - in.position() != sizeof writer) return {};
  std::memcpy(&writer, bytes.data() + in.position(), sizeof writer);
  const auto& node = transport_.name(from);
  auto mirror = journal::Mirror::open(stage_, node, name, writer);
  if (!mirror) return std::move(mirror).error().with("a mirror of " + name + " on " + node);
  mirrors_[{from, number}] = std::move(mirror).value();
  return {};
}

}  // namespace advectio
