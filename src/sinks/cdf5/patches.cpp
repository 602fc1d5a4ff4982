#include "sinks/cdf5/patches.h"

#include <algorithm>
#include <iterator>

#include "sinks/blocks.h"

namespace advectio {

namespace {

/// The smallest box that holds all of them.
Box bounds_of(const std::vector<const Block*>& blocks) {
  Box out = blocks.front()->box;
  for (const auto* b : blocks)
    for (std::size_t i = 0; i < out.rank(); ++i) {
      const auto end = std::max(out.start[i] + out.count[i], b->box.start[i] + b->box.count[i]);
      out.start[i] = std::min(out.start[i], b->box.start[i]);
      out.count[i] = end - out.start[i];
    }
  return out;
}

/// Neither is empty.
bool meet(const Box& a, const Box& b) noexcept {
  for (std::size_t i = 0; i < a.rank(); ++i)
    if (a.start[i] + a.count[i] <= b.start[i] || b.start[i] + b.count[i] <= a.start[i]) return false;
  return true;
}

}  // namespace

void Patches::add(const Block& block, bool has_records) {
  blocks_.push_back(block);
  variables_.insert(block.variable);
  by_place_[{has_records ? block.box.start[0] + 1 : 0, block.variable}].push_back(&blocks_.back());
}

void Patches::clear() noexcept {
  by_place_.clear();
  variables_.clear();
  blocks_.clear();
  gathered_ = {};
}

Result<void> Patches::flush(const Schema& schema, const Put& put) {
  auto done = put_all(schema, put);
  clear();
  return done;
}

Result<void> Patches::put_all(const Schema& schema, const Put& put) {
  for (const auto& [place, blocks] : by_place_) {
    const auto& v = schema.variables[place.second];
    std::vector<std::uint64_t> lengths;
    for (const auto d : v.dimensions)
      lengths.push_back(schema.dimensions[d].unlimited ? 1 : schema.dimensions[d].length);
    ADVECTIO_TRY(put_pieces(place.second, lengths, size_of(v.type), blocks, put));
  }
  return {};
}

/// Each piece has all of the last dimensions, a part of the one before them, and one index of each before that.
Result<void> Patches::put_pieces(std::uint32_t variable, const std::vector<std::uint64_t>& lengths, std::size_t element,
                                 const Blocks& blocks, const Put& put) {
  const auto bounds = bounds_of(blocks);
  Box piece = bounds;
  std::uint64_t bytes = element;
  auto part = lengths.size();  // the dimension of which a part is taken is the one before it
  while (part > 1 && lengths[part - 1] <= together_max / bytes) {
    --part;
    bytes *= lengths[part];
    piece.start[part] = 0;
    piece.count[part] = lengths[part];
  }
  if (part == 0) return put_together(variable, piece, element, blocks, put);

  --part;
  const auto step = std::max<std::uint64_t>(1, together_max / bytes);
  const auto end = bounds.start[part] + bounds.count[part];
  for (std::size_t i = 0; i < part; ++i) piece.count[i] = 1;
  Blocks there;
  for (;;) {
    for (piece.start[part] = bounds.start[part]; piece.start[part] < end; piece.start[part] += step) {
      piece.count[part] = std::min(step, end - piece.start[part]);
      there.clear();
      std::copy_if(blocks.begin(), blocks.end(), std::back_inserter(there),
                   [&](const Block* b) { return meet(b->box, piece); });
      if (!there.empty()) ADVECTIO_TRY(put_together(variable, piece, element, there, put));
    }
    auto i = part;
    for (; i > 0; --i) {
      if (++piece.start[i - 1] < bounds.start[i - 1] + bounds.count[i - 1]) break;
      piece.start[i - 1] = bounds.start[i - 1];
    }
    if (i == 0) return {};
  }
}

Result<void> Patches::put_together(std::uint32_t variable, const Box& box, std::size_t element, const Blocks& blocks,
                                   const Put& put) {
  const auto gather = [&](const Box& of, const Blocks& from) {
    gathered_.resize(std::max<std::size_t>(gathered_.size(), of.volume() * element));
    for (const auto* b : from) {
      const auto common = intersect(b->box, of);
      if (!common.empty()) copy_part(common, b->data, b->box, gathered_.data(), of, element);
    }
    return put(variable, of, gathered_.data());
  };
  const auto& last = *blocks.back();
  if (last.box.contains(box) && is_contiguous(box, last.box))
    return put(variable, box, last.data + offset_in(box, last.box) * element);
  if (cover(blocks, box)) return gather(box, blocks);
  // What nobody has put stays what it is.
  for (const auto* b : blocks) ADVECTIO_TRY(gather(intersect(b->box, box), {b}));
  return {};
}

}  // namespace advectio
