#include "sinks/cdf5/patches.h"

#include <algorithm>
#include <utility>
#include <vector>

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

/// Marks the elements of `part` in `marks`, which has one for each element of `whole`. Returns how
/// many had none.
std::uint64_t mark(const Box& part, const Box& whole, std::vector<bool>& marks) {
  if (part.empty()) return 0;
  const auto rank = part.rank();
  const auto row = rank > 0 ? part.count[rank - 1] : 1;
  std::uint64_t fresh = 0;
  for (auto at = part;;) {
    const auto first = offset_in(at, whole);
    for (auto k = first; k < first + row; ++k) {
      fresh += marks[k] ? 0 : 1;
      marks[k] = true;
    }
    auto i = rank > 0 ? rank - 1 : 0;
    for (; i > 0; --i) {
      if (++at.start[i - 1] < part.start[i - 1] + part.count[i - 1]) break;
      at.start[i - 1] = part.start[i - 1];
    }
    if (i == 0) return fresh;
  }
}

/// Each element of `box` is in one of the boxes.
bool cover(const std::vector<const Box*>& boxes, const Box& box) {
  const auto volume = box.volume();
  std::uint64_t most = 0;
  for (const auto* b : boxes) most += intersect(*b, box).volume();
  if (most < volume) return false;
  std::vector<bool> marks(volume);
  std::uint64_t marked = 0;
  for (const auto* b : boxes) marked += mark(intersect(*b, box), box, marks);
  return marked == volume;
}

}  // namespace

void Patches::add(const std::shared_ptr<const Field>& field, const Box& box, bool has_records, bool scattered) {
  const auto variable = field->variable();
  variables_.insert(variable);
  auto& place = by_place_[{has_records ? box.start[0] + 1 : 0, variable}];
  place.field = field;
  place.scattered = place.scattered || scattered;
  place.boxes.push_back(box);
  ++boxes_;
}

void Patches::clear() noexcept {
  by_place_.clear();
  variables_.clear();
  boxes_ = 0;
  gathered_ = {};
  one_ = {};
  marks_ = {};
}

Result<void> Patches::flush(const Schema& schema, const Put& put, const PutMarked& put_marked) {
  auto done = put_all(schema, {put, put_marked});
  clear();
  return done;
}

Result<void> Patches::put_all(const Schema& schema, const Calls& calls) {
  for (const auto& [order, place] : by_place_) {
    const auto& v = schema.variables[order.second];
    std::vector<std::uint64_t> lengths;
    for (const auto d : v.dimensions)
      lengths.push_back(schema.dimensions[d].unlimited ? 1 : schema.dimensions[d].length);
    ADVECTIO_TRY(put_pieces(place, lengths, calls));
  }
  return {};
}

/// Each piece has all of the last dimensions, a part of the one before them, and one index of each before that.
Result<void> Patches::put_pieces(const Place& place, const std::vector<std::uint64_t>& lengths, const Calls& calls) {
  const auto bounds = bounds_of(place.boxes);
  Box piece = bounds;
  std::uint64_t bytes = size_of(place.field->type());
  auto part = lengths.size();  // the dimension of which a part is taken is the one before it
  while (part > 1 && lengths[part - 1] <= together_max / bytes) {
    --part;
    bytes *= lengths[part];
    piece.start[part] = 0;
    piece.count[part] = lengths[part];
  }
  Boxes there;
  if (part == 0) {
    for (const auto& b : place.boxes) there.push_back(&b);
    return put_together(place, piece, there, calls);
  }

  --part;
  const auto step = std::max<std::uint64_t>(1, together_max / bytes);
  // From box to piece, as from piece to box each would look at all boxes. Pieces are counted in the order of the file.
  std::vector<std::pair<std::uint64_t, const Box*>> met;
  const auto steps = (bounds.count[part] + step - 1) / step;
  for (const auto& b : place.boxes) {
    const auto from = (b.start[part] - bounds.start[part]) / step;
    const auto to = (b.start[part] + b.count[part] - 1 - bounds.start[part]) / step;
    auto at = b;
    for (;;) {
      std::uint64_t row = 0;
      for (std::size_t i = 0; i < part; ++i) row = row * bounds.count[i] + (at.start[i] - bounds.start[i]);
      for (auto k = from; k <= to; ++k) met.emplace_back(row * steps + k, &b);
      auto i = part;
      for (; i > 0; --i) {
        if (++at.start[i - 1] < b.start[i - 1] + b.count[i - 1]) break;
        at.start[i - 1] = b.start[i - 1];
      }
      if (i == 0) break;
    }
  }
  std::stable_sort(met.begin(), met.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t k = 0; k < met.size();) {
    const auto number = met[k].first;
    there.clear();
    for (; k < met.size() && met[k].first == number; ++k) there.push_back(met[k].second);
    piece.start[part] = bounds.start[part] + number % steps * step;
    piece.count[part] = std::min(step, bounds.start[part] + bounds.count[part] - piece.start[part]);
    auto row = number / steps;
    for (auto i = part; i > 0; --i) {
      piece.start[i - 1] = bounds.start[i - 1] + row % bounds.count[i - 1];
      piece.count[i - 1] = 1;
      row /= bounds.count[i - 1];
    }
    ADVECTIO_TRY(put_together(place, piece, there, calls));
  }
  return {};
}

Result<void> Patches::put_together(const Place& place, const Box& box, const Boxes& boxes, const Calls& calls) {
  const auto& field = *place.field;
  if (const auto view = field.view(box); !view.empty()) return calls.put(field.variable(), box, view.data());
  const auto element = size_of(field.type());
  gathered_.resize(std::max<std::size_t>(gathered_.size(), box.volume() * element));
  field.read(box, gathered_.data());
  if (place.scattered) return put_marked(field, box, calls);
  if (field.covers(box) || cover(boxes, box)) return calls.put(field.variable(), box, gathered_.data());
  // What nobody has put stays what it is.
  for (const auto* b : boxes) {
    const auto part = intersect(*b, box);
    one_.resize(std::max<std::size_t>(one_.size(), part.volume() * element));
    copy_part(part, gathered_.data(), box, one_.data(), part, element);
    ADVECTIO_TRY(calls.put(field.variable(), part, one_.data()));
  }
  return {};
}

/// Elements that have not been put keep their values.
Result<void> Patches::put_marked(const Field& field, const Box& box, const Calls& calls) {
  const auto element = size_of(field.type());
  if (field.mark_put(box, marks_) == marks_.size()) return calls.put(field.variable(), box, gathered_.data());
  std::uint64_t runs = 0;
  for (std::size_t i = 0; i < marks_.size(); ++i) runs += marks_[i] && (i == 0 || !marks_[i - 1]) ? 1 : 0;
  if (runs > 1 && runs * hole_bytes >= marks_.size() * element)
    return calls.put_marked(field.variable(), box, gathered_.data(), marks_);
  const auto rank = box.rank();
  const auto row = rank > 0 ? box.count[rank - 1] : 1;
  for (std::size_t at = 0; at < marks_.size();) {
    if (!marks_[at]) {
      ++at;
      continue;
    }
    auto end = at + 1;
    while (end < marks_.size() && end % row != 0 && marks_[end]) ++end;
    Box run{box.start, std::vector<std::uint64_t>(rank, 1)};
    auto rest = at;
    for (auto i = rank; i-- > 0;) {
      run.start[i] += rest % box.count[i];
      rest /= box.count[i];
    }
    if (rank > 0) run.count[rank - 1] = end - at;
    ADVECTIO_TRY(calls.put(field.variable(), run, gathered_.data() + at * element));
    at = end;
  }
  return {};
}

}  // namespace advectio
