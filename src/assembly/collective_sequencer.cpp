#include "assembly/collective_sequencer.h"

#include <algorithm>
#include <limits>

namespace advectio {

using journal::Record;
using journal::RecordType;
using journal::SyncIndex;

namespace {
constexpr auto never = std::numeric_limits<std::uint64_t>::max();
}

bool CollectiveSequencer::ends_record(const Record& r) noexcept {
  return r.type == RecordType::sync && (r.flags & journal::flag_record) != 0;
}

bool CollectiveSequencer::ends_sync(const Record& r) noexcept {
  if (r.type == RecordType::sync) return (r.flags & journal::flag_implicit) == 0 && !ends_record(r);
  return r.type == RecordType::close || r.type == RecordType::abort;
}

void CollectiveSequencer::resume(std::size_t writer, std::uint64_t sequence, SyncIndex sync_index) {
  queues_[writer].seen = sequence;
  queues_[writer].sync_index = sync_index;
}

void CollectiveSequencer::remember(const CollectiveSequencer& before) {
  const auto keep = [this](const Record& end) {
    if (end.sequence <= queues_[0].seen) ends_of_records_.push_back(end);
  };
  std::for_each(before.returned_ends_.begin(), before.returned_ends_.end(), keep);
  std::for_each(before.ends_of_records_.begin(), before.ends_of_records_.end(), keep);
}

void CollectiveSequencer::remember(const std::vector<journal::RecordEnd>& ends) {
  for (const auto& end : ends) {
    if (end.sequence > queues_[0].seen) continue;  // it comes again
    auto& r = ends_of_records_.emplace_back();
    r.type = RecordType::sync;
    r.flags = journal::flag_record;
    r.sequence = end.sequence;
    r.collective_index = static_cast<std::uint32_t>(end.collective_index);
    r.time_ns = end.time_ns;
  }
}

std::vector<journal::RecordEnd> CollectiveSequencer::overtaken(bool ahead) const {
  std::vector<journal::RecordEnd> all;
  const auto note = [&all](const Record& r) { all.push_back({r.sequence, r.collective_index, r.time_ns}); };
  std::for_each(ends_of_records_.begin(), ends_of_records_.end(), note);
  for (const auto& r : queues_[0].waiting)
    if (ahead && ends_record(r)) note(r);
  return all;
}

Result<void> CollectiveSequencer::take(std::size_t writer, const Record& record) {
  auto& queue = queues_[writer];
  if (record.sequence <= queue.seen) return {};
  queue.seen = record.sequence;
  if (record.type == RecordType::put && (record.flags & journal::flag_pending) != 0) {
    queue.pending.emplace(record.sequence, record);
    return {};
  }
  queue.collective_index = std::max<std::uint64_t>(queue.collective_index, record.collective_index);
  if (record.type != RecordType::settle) {
    if (ends_sync(record) && record.type != RecordType::abort) {
      const auto sync = journal::decode_sync(record.meta);
      if (!sync) return sync.error();
      if (sync->sync_index <= queue.sync_index) return {};  // said again after a restart
    }
    queue.waiting.push_back(record);
    return {};
  }
  auto settle = journal::decode_settle(record.meta);
  if (!settle) return std::move(settle).error();
  // What is not there any more was committed, or written to make room, before.
  for (const auto sequence : settle->dropped) queue.pending.erase(sequence);
  for (const auto sequence : settle->written) {
    const auto it = queue.pending.find(sequence);
    if (it == queue.pending.end()) continue;
    it->second.collective_index = record.collective_index;
    it->second.flags |= record.flags & journal::flag_collective;
    queue.waiting.push_back(it->second);
    queue.pending.erase(it);
  }
  return {};
}

bool CollectiveSequencer::passed(std::size_t writer, std::uint64_t collective_index) {
  if (collective_index <= queues_[writer].collective_index) return false;
  queues_[writer].collective_index = collective_index;
  return true;
}

/// All records with a smaller one have been returned.
bool CollectiveSequencer::all_have_come_to(std::uint64_t collective_index) const {
  return std::all_of(queues_.begin(), queues_.end(), [collective_index](const WriterQueue& s) {
    return s.waiting.empty() ? s.collective_index >= collective_index
                             : s.waiting.front().collective_index >= collective_index;
  });
}

std::optional<CollectiveSequencer::Step> CollectiveSequencer::next() {
  if (!ends_of_records_.empty() && all_have_come_to(ends_of_records_.front().collective_index)) {
    Step step;
    step.parts.push_back({0, ends_of_records_.front()});
    returned_ends_.push_back(ends_of_records_.front());
    ends_of_records_.pop_front();
    return step;
  }
  // The sync under way is that of the writers which are furthest behind.
  SyncIndex sync_index{never};
  for (const auto& s : queues_) sync_index = std::min(sync_index, after(s.sync_index));
  std::size_t first = queues_.size();
  bool complete = true;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const auto& s = queues_[i];
    if (s.sync_index >= sync_index) continue;
    if (!s.waiting.empty() && ends_sync(s.waiting.front())) continue;
    complete = false;
    if (s.waiting.empty() || (first != queues_.size() &&
                              queues_[first].waiting.front().collective_index <= s.waiting.front().collective_index))
      continue;
    first = i;
  }
  Step step;
  if (complete) {
    step.sync_index = sync_index;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      auto& s = queues_[i];
      if (s.sync_index >= sync_index) continue;
      step.parts.push_back({i, s.waiting.front()});
      s.waiting.pop_front();
      s.sync_index = sync_index;
    }
    return step;
  }
  if (first == queues_.size()) return std::nullopt;
  const auto collective_index = queues_[first].waiting.front().collective_index;
  for (const auto& s : queues_) {
    const bool later = s.sync_index >= sync_index || s.collective_index >= collective_index;
    if (s.waiting.empty() && !later) return std::nullopt;
  }
  // Writer 0 may still end a record in this very call.
  const auto& writer_0 = queues_[0];
  const bool in_call = (queues_[first].waiting.front().flags & journal::flag_collective) != 0;
  if (in_call && writer_0.waiting.empty() && writer_0.sync_index < sync_index &&
      writer_0.collective_index <= collective_index)
    return std::nullopt;
  step.parts.push_back({first, queues_[first].waiting.front()});
  queues_[first].waiting.pop_front();
  return step;
}

std::optional<CollectiveSequencer::Step> CollectiveSequencer::next_at_any_price() {
  for (auto& waiting = queues_[0].waiting; !waiting.empty() && ends_record(waiting.front()); waiting.pop_front()) {
    auto& end = ends_of_records_.emplace_back(waiting.front());
    end.meta = end.payload = end.whole = {};
    end.lease = {};
  }
  std::size_t first = queues_.size();
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const auto& s = queues_[i];
    if (s.waiting.empty()) continue;
    if (s.waiting.front().type == RecordType::abort) continue;
    if (first == queues_.size() || s.waiting.front().collective_index < queues_[first].waiting.front().collective_index)
      first = i;
  }
  if (first == queues_.size()) return std::nullopt;
  auto& s = queues_[first];
  if (ends_sync(s.waiting.front())) s.sync_index = after(s.sync_index);  // the others will end it without this one
  Step step;
  step.parts.push_back({first, s.waiting.front()});
  s.waiting.pop_front();
  return step;
}

std::optional<CollectiveSequencer::Step> CollectiveSequencer::next_pending() {
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    auto& s = queues_[i];
    if (s.pending.empty()) continue;
    Step step;
    step.parts.push_back({i, s.pending.begin()->second});
    s.pending.erase(s.pending.begin());
    return step;
  }
  return std::nullopt;
}

bool CollectiveSequencer::holds_puts() const {
  return std::any_of(queues_.begin(), queues_.end(), [](const WriterQueue& s) {
    return !s.pending.empty() ||
           std::any_of(s.waiting.begin(), s.waiting.end(), [](const Record& r) { return r.type == RecordType::put; });
  });
}

std::uint64_t CollectiveSequencer::given(std::size_t writer) const {
  const auto& s = queues_[writer];
  auto upto = s.seen;
  for (const auto& r : s.waiting) upto = std::min(upto, r.sequence - 1);
  if (!s.pending.empty()) upto = std::min(upto, s.pending.begin()->first - 1);
  return upto;
}

}  // namespace advectio
