#include "server/weave.h"

#include <algorithm>
#include <limits>

namespace advectio {

using journal::Record;
using journal::RecordType;

namespace {
constexpr auto never = std::numeric_limits<std::uint64_t>::max();
}

bool Weave::ends_round(const Record& r) noexcept {
  if (r.type == RecordType::sync) return (r.flags & journal::flag_implicit) == 0;
  return r.type == RecordType::close || r.type == RecordType::abort;
}

void Weave::resume(std::size_t writer, std::uint64_t sequence, std::uint64_t round) {
  strands_[writer].seen = sequence;
  strands_[writer].round = round;
}

Result<void> Weave::take(std::size_t writer, const Record& record) {
  auto& strand = strands_[writer];
  if (record.sequence <= strand.seen) return {};
  strand.seen = record.sequence;
  if (record.type == RecordType::put && (record.flags & journal::flag_pending) != 0) {
    strand.pending.emplace(record.sequence, record);
    return {};
  }
  strand.turn = std::max<std::uint64_t>(strand.turn, record.turn);
  if (record.type != RecordType::settle) {
    if (ends_round(record) && record.type != RecordType::abort) {
      const auto sync = journal::decode_sync(record.meta);
      if (!sync) return sync.error();
      if (sync->round <= strand.round) return {};  // said again after a restart
    }
    strand.waiting.push_back(record);
    return {};
  }
  auto settle = journal::decode_settle(record.meta);
  if (!settle) return std::move(settle).error();
  // What is not there any more was committed, or written to make room, before.
  for (const auto sequence : settle->dropped) strand.pending.erase(sequence);
  for (const auto sequence : settle->written) {
    const auto it = strand.pending.find(sequence);
    if (it == strand.pending.end()) continue;
    it->second.turn = record.turn;
    strand.waiting.push_back(it->second);
    strand.pending.erase(it);
  }
  return {};
}

bool Weave::passed(std::size_t writer, std::uint64_t turn) {
  if (turn <= strands_[writer].turn) return false;
  strands_[writer].turn = turn;
  return true;
}

std::optional<Weave::Step> Weave::next() {
  // The round under way is that of the writers which are furthest behind.
  std::uint64_t round = never;
  for (const auto& s : strands_) round = std::min(round, s.round + 1);
  std::size_t first = strands_.size();
  bool complete = true;
  for (std::size_t i = 0; i < strands_.size(); ++i) {
    const auto& s = strands_[i];
    if (s.round >= round) continue;
    if (!s.waiting.empty() && ends_round(s.waiting.front())) continue;
    complete = false;
    if (s.waiting.empty() ||
        (first != strands_.size() && strands_[first].waiting.front().turn <= s.waiting.front().turn))
      continue;
    first = i;
  }
  Step step;
  if (complete) {
    step.round = round;
    for (std::size_t i = 0; i < strands_.size(); ++i) {
      auto& s = strands_[i];
      if (s.round >= round) continue;
      step.parts.push_back({i, s.waiting.front()});
      s.waiting.pop_front();
      s.round = round;
    }
    return step;
  }
  if (first == strands_.size()) return std::nullopt;
  const auto turn = strands_[first].waiting.front().turn;
  for (const auto& s : strands_) {
    const bool later = s.round >= round || s.turn >= turn;
    if (s.waiting.empty() && !later) return std::nullopt;
  }
  step.parts.push_back({first, strands_[first].waiting.front()});
  strands_[first].waiting.pop_front();
  return step;
}

std::optional<Weave::Step> Weave::next_at_any_price() {
  std::size_t first = strands_.size();
  for (std::size_t i = 0; i < strands_.size(); ++i) {
    const auto& s = strands_[i];
    if (s.waiting.empty()) continue;
    if (s.waiting.front().type == RecordType::abort) continue;
    if (first == strands_.size() || s.waiting.front().turn < strands_[first].waiting.front().turn) first = i;
  }
  if (first == strands_.size()) return std::nullopt;
  auto& s = strands_[first];
  if (ends_round(s.waiting.front())) ++s.round;  // the others will end it without this one
  Step step;
  step.parts.push_back({first, s.waiting.front()});
  s.waiting.pop_front();
  return step;
}

std::optional<Weave::Step> Weave::next_pending() {
  for (std::size_t i = 0; i < strands_.size(); ++i) {
    auto& s = strands_[i];
    if (s.pending.empty()) continue;
    Step step;
    step.parts.push_back({i, s.pending.begin()->second});
    s.pending.erase(s.pending.begin());
    return step;
  }
  return std::nullopt;
}

std::uint64_t Weave::given(std::size_t writer) const {
  const auto& s = strands_[writer];
  auto upto = s.seen;
  for (const auto& r : s.waiting) upto = std::min(upto, r.sequence - 1);
  if (!s.pending.empty()) upto = std::min(upto, s.pending.begin()->first - 1);
  return upto;
}

}  // namespace advectio
