#include "server/frame_under_way.h"

#include <algorithm>

#include "journal/stage.h"
#include "operators/operated_field.h"

namespace advectio {

Result<void> FrameUnderWay::add(const Block& block, const Schema& schema,
                                const std::shared_ptr<const Operators>& operators) {
  auto field = fields_.add(block);
  if (!field) return std::move(field).error();
  Part part{block.box, block.stride};
  part.layout = block.layout;
  note_records(schema, block.variable, part.bounds());
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
  for (const auto& [field, part] : held_back_)
    ADVECTIO_TRY_WITH(sink.ready(field, part), "write " + schema.variables[field->variable()].name);
  held_back_.clear();
  return {};
}

void FrameUnderWay::clear() {
  fields_.clear();
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
