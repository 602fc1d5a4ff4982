#include "cluster/outbox.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace advectio {

using Lane = Transport::Lane;

namespace {

constexpr auto journals = static_cast<std::size_t>(Lane::journals), words = static_cast<std::size_t>(Lane::words),
               help = static_cast<std::size_t>(Lane::help);
constexpr std::uint64_t under_way_max = 64ULL << 20;  // bytes to one node that are neither here nor there

}  // namespace

void Outbox::push(Outgoing message) {
  {
    const std::lock_guard guard(mutex_);
    if (message.journal != 0) unsent_[message.journal].insert(message.sequence);
    waiting_[static_cast<std::size_t>(message.lane)].push_back(std::move(message));
  }
  wake_.notify_one();
}

void Outbox::push_to_all(Lane lane, int kind, const Bytes& bytes) {
  for (unsigned n = 0; n < transport_.nodes(); ++n)
    if (n != transport_.node()) push({n, lane, kind, bytes, {}});
}

std::uint64_t Outbox::unsent(std::uint64_t journal) const {
  const std::lock_guard guard(mutex_);
  const auto it = unsent_.find(journal);
  return it == unsent_.end() ? std::numeric_limits<std::uint64_t>::max() : *it->second.begin();
}

void Outbox::close() {
  {
    const std::lock_guard guard(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
}

bool Outbox::send() {
  bool moved = false;
  std::vector<std::uint64_t> tickets;
  transport_.sent(tickets);
  for (const auto ticket : tickets) {
    const auto it = under_way_.find(ticket);
    moved = true;
    under_way_bytes_[it->second.to] -= it->second.bytes.size();
    if (it->second.journal != 0) {
      const std::lock_guard guard(mutex_);
      const auto unsent = unsent_.find(it->second.journal);
      unsent->second.erase(it->second.sequence);
      if (unsent->second.empty()) unsent_.erase(unsent);
    }
    under_way_.erase(it);
  }
  std::unique_lock guard(mutex_);
  for (const auto lane : {words, help})
    for (; !waiting_[lane].empty(); moved = true) {
      auto message = std::move(waiting_[lane].front());
      waiting_[lane].pop_front();
      send_now(guard, std::move(message));
    }
  // A node that takes nothing holds back only what is for it.
  auto& records = waiting_[journals];
  for (std::size_t i = 0; i < records.size();) {
    if (under_way_bytes_[records[i].to] >= under_way_max) {
      ++i;
      continue;
    }
    auto record = std::move(records[i]);
    records.erase(records.begin() + static_cast<std::ptrdiff_t>(i));
    send_now(guard, std::move(record));
    moved = true;
  }
  return moved;
}

void Outbox::send_now(std::unique_lock<std::mutex>& guard, Outgoing message) {
  const auto ticket = next_ticket_++;
  auto& m = under_way_.emplace(ticket, std::move(message)).first->second;
  if (m.bytes.empty()) m.bytes = m.own;
  under_way_bytes_[m.to] += m.bytes.size();
  guard.unlock();
  transport_.send(m.to, m.lane, m.kind, m.bytes, ticket);
  guard.lock();
}

bool Outbox::wait(std::chrono::microseconds at_most) {
  std::unique_lock guard(mutex_);
  const bool all_said = std::all_of(std::begin(waiting_), std::end(waiting_), [](const auto& w) { return w.empty(); });
  if (closed_ && (cut_short_ || (all_said && under_way_.empty()))) return false;
  if (at_most.count() > 0) wake_.wait_for(guard, at_most);
  return true;
}

}  // namespace advectio
