#include "server/frame_under_way.h"

#include <algorithm>
#include <functional>

#include "journal/stage.h"
#include "operators/operated_field.h"

namespace advectio {

bool FrameUnderWay::is_small(const Block& block, const Variable& variable) {
  constexpr std::uint64_t far = 1ULL << 62U;
  const auto within = [](std::uint64_t n) { return n < far; };
  const auto& box = block.box;
  const auto element = size_of(variable.type);
  return !block.layout && block.stride.empty() && block.bytes <= small_max && element > 0 && box.rank() > 0 &&
         box.rank() == variable.dimensions.size() && !box.empty() && block.bytes == box.volume() * element &&
         std::all_of(box.start.begin(), box.start.end(), within);
}

Result<bool> FrameUnderWay::add(const Block& block, const Schema& schema,
                                const std::shared_ptr<const Operators>& operators) {
  const auto& v = schema.variables[block.variable];
  note_records(schema, block.variable, Part{block.box, block.stride}.bounds());
  const auto it = small_.find(block.variable);
  if (!is_small(block, v) || (it != small_.end() && it->second.operators != operators)) {
    if (it != small_.end()) ADVECTIO_TRY(join(std::move(small_.extract(it).mapped())));
    ADVECTIO_TRY(add_now(block, operators));
    return true;
  }
  if (it == small_.end()) {
    small_.emplace(block.variable, Small{block, operators, BoxList(block.box.rank()), {}});
    return false;
  }
  auto& small = it->second;
  const auto take = [&small](const Block& b) {
    small.boxes.add(b.box.start, b.box.count);
    small.values.insert(small.values.end(), b.data, b.data + b.bytes);
  };
  if (small.boxes.size() == 0) take(small.first);
  take(block);
  if (small.values.size() < together_max && small.boxes.size() < boxes_max) return false;
  ADVECTIO_TRY(join(std::move(small_.extract(it).mapped())));
  return true;
}

Result<void> FrameUnderWay::join(Small small) {
  const auto n = small.boxes.size();
  if (n == 0) return add_now(small.first, small.operators);
  Block block;
  block.variable = small.first.variable;
  block.box = small.boxes.bounds(0, n);
  if (!small.boxes.is_a_box(0, n, block.box)) {
    BoxList within(small.boxes.rank());
    within.reserve(n);
    std::vector<std::uint64_t> start(small.boxes.rank());
    for (std::size_t i = 0; i < n; ++i) {
      const auto its = small.boxes.start(i);
      std::transform(its.begin(), its.end(), block.box.start.begin(), start.begin(), std::minus<>());
      within.add(start, small.boxes.count(i));
    }
    auto layout = BoxLayout::make(block.box.count, within);
    if (!layout) return std::move(layout).error();
    block.layout = std::move(layout).value();
  }
  const auto values = std::make_shared<const Bytes>(std::move(small.values));
  block.data = values->data();
  block.bytes = values->size();
  block.lease = values;
  return add_now(block, small.operators);
}

Result<void> FrameUnderWay::join() {
  auto all = std::exchange(small_, {});
  for (auto& [variable, small] : all) ADVECTIO_TRY(join(std::move(small)));
  return {};
}

Result<void> FrameUnderWay::add_now(const Block& block, const std::shared_ptr<const Operators>& operators) {
  auto field = fields_.add(block);
  if (!field) return std::move(field).error();
  Part part{block.box, block.stride};
  part.layout = block.layout;
  held_back_.emplace_back(operated(std::move(field).value(), operators), std::move(part));
  return {};
}

/// Which records the frame has, along the unlimited dimension that comes first.
void FrameUnderWay::note_records(const Schema& schema, std::uint32_t variable, const Box& bounds) {
  const auto& dimensions = schema.variables[variable].dimensions;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (!schema.dimensions[dimensions[i]].unlimited) continue;
    const auto first = bounds.start[i], end = first + bounds.count[i];
    records_ =
        records_ ? std::pair{std::min(records_->first, first), std::max(records_->second, end)} : std::pair{first, end};
    return;
  }
}

Result<void> FrameUnderWay::give_to(Sink& sink, const Schema& schema) {
  ADVECTIO_TRY(join());
  for (const auto& [field, part] : held_back_)
    ADVECTIO_TRY_WITH(sink.ready(field, part), "write " + schema.variables[field->variable()].name);
  held_back_.clear();
  return {};
}

void FrameUnderWay::clear() {
  fields_.clear();
  small_.clear();
  held_back_.clear();
  records_.reset();
}

void FrameUnderWay::end_uncommitted() {
  records_.reset();
  begun_ = in_parts_ = false;
}

bool WaitingFrames::has_room(std::uint64_t bytes_max) const {
  constexpr std::size_t frames_max = 256;
  constexpr std::uint64_t time_max_ns = 100'000'000;
  return allowed_ && synced_.size() < frames_max && bytes_ < bytes_max &&
         (synced_.empty() || journal::monotonic_ns() - since_ns_ < time_max_ns);
}

void WaitingFrames::add(std::uint64_t synced_ns) {
  if (synced_.empty()) since_ns_ = journal::monotonic_ns();
  synced_.push_back(synced_ns);
}

}  // namespace advectio
