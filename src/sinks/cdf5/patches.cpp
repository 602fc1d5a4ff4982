#include "sinks/cdf5/patches.h"

#include <algorithm>

namespace advectio {

namespace {

/// The smallest box that holds all of them.
Box bounds_of(const std::vector<Box>& boxes) {
  Box out = boxes.front();
  for (const auto& b : boxes)
    for (std::size_t i = 0; i < out.rank(); ++i) {
      const auto end = std::max(out.start[i] + out.count[i], b.start[i] + b.count[i]);
      out.start[i] = std::min(out.start[i], b.start[i]);
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

void Patches::add(const std::shared_ptr<const Field>& field, const Box& box, bool has_records) {
  const auto variable = field->variable();
  variables_.insert(variable);
  auto& place = by_place_[{has_records ? box.start[0] + 1 : 0, variable}];
  place.field = field;
  place.boxes.push_back(box);
  ++boxes_;
}

void Patches::clear() noexcept {
  by_place_.clear();
  variables_.clear();
  boxes_ = 0;
  gathered_ = {};
}

Result<void> Patches::flush(const Schema& schema, const Put& put) {
  auto done = put_all(schema, put);
  clear();
  return done;
}

Result<void> Patches::put_all(const Schema& schema, const Put& put) {
  for (const auto& [order, place] : by_place_) {
    const auto& v = schema.variables[order.second];
    std::vector<std::uint64_t> lengths;
    for (const auto d : v.dimensions)
      lengths.push_back(schema.dimensions[d].unlimited ? 1 : schema.dimensions[d].length);
    ADVECTIO_TRY(put_pieces(place, lengths, put));
  }
  return {};
}

/// Each piece has all of the last dimensions, a part of the one before them, and one index of each before that.
Result<void> Patches::put_pieces(const Place& place, const std::vector<std::uint64_t>& lengths, const Put& put) {
  const auto bounds = bounds_of(place.boxes);
  Box piece = bounds;
  Boxes there;
  std::uint64_t bytes = size_of(place.field->type());
  auto part = lengths.size();  // the dimension of which a part is taken is the one before it
  while (part > 1 && lengths[part - 1] <= together_max / bytes) {
    --part;
    bytes *= lengths[part];
    piece.start[part] = 0;
    piece.count[part] = lengths[part];
  }
  if (part == 0) {
    for (const auto& b : place.boxes) there.push_back(&b);
    return put_together(*place.field, piece, there, put);
  }

  --part;
  const auto step = std::max<std::uint64_t>(1, together_max / bytes);
  const auto end = bounds.start[part] + bounds.count[part];
  for (std::size_t i = 0; i < part; ++i) piece.count[i] = 1;
  for (;;) {
    for (piece.start[part] = bounds.start[part]; piece.start[part] < end; piece.start[part] += step) {
      piece.count[part] = std::min(step, end - piece.start[part]);
      there.clear();
      for (const auto& b : place.boxes)
        if (meet(b, piece)) there.push_back(&b);
      if (!there.empty()) ADVECTIO_TRY(put_together(*place.field, piece, there, put));
    }
    auto i = part;
    for (; i > 0; --i) {
      if (++piece.start[i - 1] < bounds.start[i - 1] + bounds.count[i - 1]) break;
      piece.start[i - 1] = bounds.start[i - 1];
    }
    if (i == 0) return {};
  }
}

Result<void> Patches::put_together(const Field& field, const Box& box, const Boxes& boxes, const Put& put) {
  if (const auto view = field.view(box); !view.empty()) return put(field.variable(), box, view.data());
  const auto gather = [&](const Box& of) {
    gathered_.resize(std::max<std::size_t>(gathered_.size(), of.volume() * size_of(field.type())));
    field.read(of, gathered_.data());
    return put(field.variable(), of, gathered_.data());
  };
  if (field.covers(box)) return gather(box);
  // What nobody has put stays what it is.
  for (const auto* b : boxes) ADVECTIO_TRY(gather(intersect(*b, box)));
  return {};
}

}  // namespace advectio
