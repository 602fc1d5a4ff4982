#include "core/field.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <tuple>

namespace advectio {

namespace {

/// What a part and a block share of one dimension.
struct Common {
  std::uint64_t count = 0;
  std::uint64_t from = 0, from_step = 1;  ///< elements of the block
  std::uint64_t to = 0, to_step = 1;      ///< elements of the part
};

/// start, start + stride, … up to but not including `end`
struct Sequence {
  std::uint64_t start, end, stride;
};

Common common_of(const Sequence& block, const Sequence& part) {
  Common out;
  const auto end = std::min(block.end, part.end);
  auto first = std::max(block.start, part.start);
  std::uint64_t step = 1;
  if (block.stride != 1 || part.stride != 1) {
    // Walk along the one with the longer stride: an element of both comes within as many steps as
    // the other is long.
    const auto& [wide, narrow] = block.stride >= part.stride ? std::tie(block, part) : std::tie(part, block);
    const auto behind = (first - wide.start) % wide.stride;
    if (behind != 0 && __builtin_add_overflow(first, wide.stride - behind, &first)) return out;
    const auto tries = narrow.stride / std::gcd(wide.stride, narrow.stride);
    for (std::uint64_t i = 0; first < end && (first - narrow.start) % narrow.stride != 0; ++i)
      if (i == tries || __builtin_add_overflow(first, wide.stride, &first)) return out;
    if (__builtin_mul_overflow(wide.stride, tries, &step)) step = UINT64_MAX / 2;
  }
  if (first >= end) return out;
  out.count = (end - first - 1) / step + 1;
  out.from = (first - block.start) / block.stride;
  out.to = (first - part.start) / part.stride;
  out.from_step = out.count > 1 ? step / block.stride : 1;
  out.to_step = out.count > 1 ? step / part.stride : 1;
  return out;
}

/// What is left of `box` around `common` goes to `rest`, cut off dimension by dimension.
void cut_off(const Box& common, Box& box, std::vector<Box>& rest) {
  for (std::size_t i = 0; i < box.rank(); ++i) {
    const auto end = box.start[i] + box.count[i], common_end = common.start[i] + common.count[i];
    if (common.start[i] > box.start[i]) {
      rest.push_back(box);
      rest.back().count[i] = common.start[i] - box.start[i];
    }
    if (common_end < end) {
      rest.push_back(box);
      rest.back().start[i] = common_end;
      rest.back().count[i] = end - common_end;
    }
    box.start[i] = common.start[i];
    box.count[i] = common.count[i];
  }
}

/// The box holds all of the bounds: start and end per dimension.
bool holds(const Box& box, const std::vector<std::uint64_t>& bounds) {
  for (std::size_t i = 0; 2 * i < bounds.size(); ++i)
    if (bounds[2 * i] < box.start[i] || bounds[2 * i + 1] > box.start[i] + box.count[i]) return false;
  return true;
}

}  // namespace

bool Part::dense() const noexcept {
  return !layout && std::all_of(stride.begin(), stride.end(), [](std::uint64_t s) { return s == 1; });
}

Box Part::bounds() const {
  auto out = box;
  for (std::size_t i = 0; i < stride.size(); ++i)
    if (out.count[i] > 0) out.count[i] = (out.count[i] - 1) * stride[i] + 1;
  return out;
}

/// A block as the field keeps it.
struct AssembledField::Piece {
  std::vector<std::uint64_t> place;  ///< per dimension start, end and stride; the stride of one element is 1
  bool dense = true;
  std::shared_ptr<const BoxLayout> layout;  ///< of many boxes: `place` is that around them, and `dense` is false
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Lease lease;
  std::vector<std::uint64_t> strings;  ///< where each begins in `data`
  std::size_t number = 0;              ///< a piece with a greater number hides this one

  [[nodiscard]] Sequence sequence(std::size_t i) const { return {place[3 * i], place[3 * i + 1], place[3 * i + 2]}; }
  [[nodiscard]] std::uint64_t count(std::size_t i) const {
    return (place[3 * i + 1] - place[3 * i] - 1) / place[3 * i + 2] + 1;
  }
  [[nodiscard]] bool meets(const Box& box) const {
    for (std::size_t i = 0; i < box.rank(); ++i)
      if (place[3 * i] >= box.start[i] + box.count[i] || place[3 * i + 1] <= box.start[i]) return false;
    return true;
  }
  [[nodiscard]] bool contains(const Box& box) const {
    for (std::size_t i = 0; i < box.rank(); ++i)
      if (place[3 * i] > box.start[i] || place[3 * i + 1] < box.start[i] + box.count[i]) return false;
    return dense;
  }
  [[nodiscard]] Box box() const {
    Box out;
    for (std::size_t i = 0; 3 * i < place.size(); ++i) {
      out.start.push_back(place[3 * i]);
      out.count.push_back(count(i));
    }
    return out;
  }

  /// run(index in the block, index in the part, elements) for all that the block and the part
  /// share.
  template <typename Run>
  void for_each_run(const Part& part, Run run) const {
    if (layout) return for_each_run_of_layout(part, run);
    const auto rank = part.box.rank();
    thread_local std::vector<Common> common;
    thread_local std::vector<std::uint64_t> at;
    common.resize(rank);
    std::uint64_t from = 0, to = 0, from_size = 1, to_size = 1, together = 1;
    auto outer = rank;
    bool joins = true;
    for (auto i = rank; i-- > 0;) {
      const auto n = part.box.count[i], stride = n < 2 || part.stride.empty() ? 1 : part.stride[i];
      const auto start = part.box.start[i];
      auto& c = common[i] = common_of(sequence(i), {start, start + (n - 1) * stride + 1, stride});
      if (c.count == 0) return;
      from += c.from * from_size;
      to += c.to * to_size;
      c.from_step *= from_size;
      c.to_step *= to_size;
      // Rows that lie together in both are one run.
      if (joins && (c.count == 1 || (c.from_step == together && c.to_step == together))) {
        together *= c.count;
        outer = i;
        joins = c.count == count(i) && c.count == n;
      } else {
        joins = false;
      }
      from_size *= count(i);
      to_size *= n;
    }
    at.assign(outer, 0);
    for (;;) {
      run(from, to, together);
      auto i = outer;
      for (; i > 0; --i) {
        const auto& c = common[i - 1];
        from += c.from_step;
        to += c.to_step;
        if (++at[i - 1] < c.count) break;
        from -= c.from_step * c.count;
        to -= c.to_step * c.count;
        at[i - 1] = 0;
      }
      if (i == 0) return;
    }
  }

 private:
  template <typename Run>
  void for_each_run_of_layout(const Part& part, Run run) const {
    const auto start = box().start;
    if (std::all_of(part.stride.begin(), part.stride.end(), [](std::uint64_t s) { return s == 1; }))
      return layout->for_each_run(start, part.box, run);
    // One by one: few ask for it.
    Box one{part.box.start, std::vector<std::uint64_t>(part.box.rank(), 1)};
    const auto volume = part.box.volume();
    for (std::uint64_t i = 0; i < volume; ++i) {
      auto rest = i;
      for (auto k = part.box.rank(); k-- > 0;) {
        one.start[k] = part.box.start[k] + rest % part.box.count[k] * part.stride[k];
        rest /= part.box.count[k];
      }
      layout->for_each_run(start, one, [&](std::uint64_t from, std::uint64_t, std::uint64_t) { run(from, i, 1); });
    }
  }
};

/// `bounds`, start and end per dimension, take in the piece.
void AssembledField::widen(std::vector<std::uint64_t>& bounds, const Piece& piece) {
  const bool first = bounds.empty();
  for (std::size_t i = 0; 3 * i < piece.place.size(); ++i) {
    const auto start = piece.place[3 * i], end = piece.place[3 * i + 1];
    if (first) {
      bounds.insert(bounds.end(), {start, end});
      continue;
    }
    bounds[2 * i] = std::min(bounds[2 * i], start);
    bounds[2 * i + 1] = std::max(bounds[2 * i + 1], end);
  }
}

Result<void> AssembledField::add(const Block& block) {
  if (block.box.empty()) return {};
  Piece piece;
  piece.data = block.data;
  piece.bytes = block.bytes;
  piece.lease = block.lease;
  for (std::size_t i = 0; i < rank_; ++i) {
    const auto n = block.box.count[i], stride = n < 2 || block.stride.empty() ? 1 : block.stride[i];
    piece.place.insert(piece.place.end(), {block.box.start[i], block.box.start[i] + (n - 1) * stride + 1, stride});
    piece.dense = piece.dense && stride == 1;
  }
  piece.layout = block.layout;
  piece.dense = piece.dense && !block.layout;
  if (type() == DataType::string) {
    const auto volume = block.box.volume();
    piece.strings.reserve(std::min(volume, block.bytes / 4));
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; i < volume; ++i) {
      std::uint32_t length = 0;
      if (block.bytes - at < sizeof length) break;
      std::memcpy(&length, block.data + at, sizeof length);
      if (length != null_string && block.bytes - at - sizeof length < length) break;
      piece.strings.push_back(at);
      at += sizeof length + (length == null_string ? 0 : length);
    }
    if (piece.strings.size() != volume || at != block.bytes)
      return Error{Code::corrupt, "a block does not hold the " + std::to_string(volume) + " strings of its box", 0};
  }

  const std::unique_lock lock(mutex_);
  piece.number = pieces_.size();
  const auto& added = pieces_.emplace_back(std::move(piece));
  widen(bounds_, added);
  widen(loose_bounds_, added);
  return {};
}

/// Pieces that follow each other in time, as a tree of boxes. A node's pieces are halved along the
/// dimension in which they lie farthest apart; those in one place along time, so that the newest is
/// found first.
struct AssembledField::Tree {
  struct Node {
    std::size_t newest = 0;  ///< number of its newest piece
    std::uint32_t begin = 0, end = 0;
    std::uint32_t second = 0;  ///< the other child; the first is the next node. 0: a leaf
  };

  std::size_t first = 0;  ///< number of its oldest piece
  std::vector<const Piece*> pieces;
  std::vector<Node> nodes;
  std::vector<std::uint64_t> bounds;  ///< of each node: start and end per dimension

  /// Appends the node of pieces [begin, end), and those below it.
  void grow(std::size_t rank, std::size_t begin, std::size_t end) {
    const auto at = nodes.size();
    Node node;
    node.begin = static_cast<std::uint32_t>(begin);
    node.end = static_cast<std::uint32_t>(end);
    std::size_t along = 0;
    std::uint64_t apart = 0;
    for (std::size_t i = 0; i < rank; ++i) {
      std::uint64_t start = UINT64_MAX, last = 0, nearest = UINT64_MAX, farthest = 0;
      for (auto p = begin; p < end; ++p) {
        const auto& place = pieces[p]->place;
        start = std::min(start, place[3 * i]);
        last = std::max(last, place[3 * i + 1]);
        nearest = std::min(nearest, middle(*pieces[p], i));
        farthest = std::max(farthest, middle(*pieces[p], i));
      }
      bounds.insert(bounds.end(), {start, last});
      if (farthest - nearest > apart) {
        apart = farthest - nearest;
        along = i;
      }
    }
    for (auto p = begin; p < end; ++p) node.newest = std::max(node.newest, pieces[p]->number);
    nodes.push_back(node);
    if (end - begin <= leaf) return;
    const auto half = begin + (end - begin) / 2;
    const auto place = [this](std::size_t p) { return pieces.begin() + static_cast<std::ptrdiff_t>(p); };
    std::nth_element(place(begin), place(half), place(end), [along, apart](const Piece* a, const Piece* b) {
      const auto x = apart == 0 ? 0 : middle(*a, along), y = apart == 0 ? 0 : middle(*b, along);
      return x != y ? x < y : a->number < b->number;
    });
    grow(rank, begin, half);
    nodes[at].second = static_cast<std::uint32_t>(nodes.size());
    grow(rank, half, end);
  }

 private:
  /// Half of the sum: ends are below 2^63.
  static std::uint64_t middle(const Piece& piece, std::size_t i) {
    return (piece.place[3 * i] + piece.place[3 * i + 1]) / 2;
  }
};

AssembledField::AssembledField(std::uint32_t variable, DataType type, std::size_t rank)
    : Field(variable, type), rank_(rank) {}

AssembledField::~AssembledField() = default;

/// Which pieces meet a box, as far as they are not known to be hidden.
struct AssembledField::Search {
  const Box& box;
  const std::size_t most;
  Pieces found;
  std::size_t oldest = 0;  ///< pieces with smaller numbers are hidden, or not wanted
  std::uint64_t looked_at = 0;

  void look(const Piece& piece) {
    ++looked_at;
    if (piece.number < oldest || !piece.meets(box)) return;
    found.push_back(&piece);
    if (most == 1 || piece.contains(box)) oldest = piece.number;
  }
  void look(const Tree& tree, std::size_t index) {
    ++looked_at;
    const auto& node = tree.nodes[index];
    const auto* bounds = tree.bounds.data() + index * 2 * box.rank();
    if (node.newest < oldest || !meets(bounds)) return;
    if (node.second == 0) {
      for (auto p = node.begin; p < node.end; ++p) look(*tree.pieces[p]);
      return;
    }
    auto sooner = index + 1, later = static_cast<std::size_t>(node.second);
    if (tree.nodes[sooner].newest < tree.nodes[later].newest) std::swap(sooner, later);
    look(tree, sooner);
    look(tree, later);
  }

 private:
  [[nodiscard]] bool meets(const std::uint64_t* bounds) const {
    for (std::size_t i = 0; i < box.rank(); ++i)
      if (bounds[2 * i] >= box.start[i] + box.count[i] || bounds[2 * i + 1] <= box.start[i]) return false;
    return true;
  }
};

/// Brings all pieces into trees. Each is at least twice as large as the next.
void AssembledField::plant() const {
  Tree tree;
  tree.first = planted_;
  while (!trees_.empty() && trees_.back().pieces.size() < 2 * (pieces_.size() - tree.first)) {
    tree.first = trees_.back().first;
    trees_.pop_back();
  }
  tree.pieces.reserve(pieces_.size() - tree.first);
  for (auto i = tree.first; i < pieces_.size(); ++i) tree.pieces.push_back(&pieces_[i]);
  tree.grow(rank_, 0, tree.pieces.size());
  trees_.push_back(std::move(tree));
  planted_ = pieces_.size();
  loose_bounds_.clear();
}

/// The pieces that meet a box, the latest first, down to the one that hides all before it.
AssembledField::Pieces AssembledField::meeting(const Box& box, std::size_t most) const {
  if (box.empty()) return {};
  std::shared_lock lock(mutex_);
  if (pieces_.size() - planted_ > loose && !holds(box, loose_bounds_)) {
    lock.unlock();
    {
      const std::unique_lock alone(mutex_);
      if (pieces_.size() > planted_) plant();
    }
    lock.lock();
  }
  Search search{box, most, {}, 0, 0};
  for (auto i = pieces_.size(); i > planted_ && i > search.oldest; --i) search.look(pieces_[i - 1]);
  for (auto tree = trees_.rbegin(); tree != trees_.rend(); ++tree) search.look(*tree, 0);
  looked_at_.fetch_add(search.looked_at, std::memory_order_relaxed);
  std::erase_if(search.found, [&search](const auto* piece) { return piece->number < search.oldest; });
  std::sort(search.found.begin(), search.found.end(),
            [](const auto* a, const auto* b) { return a->number > b->number; });
  return std::move(search.found);
}

void AssembledField::read(const Part& part, std::byte* destination) const {
  const auto element = size_of(type());
  const auto pieces = meeting(part.bounds(), SIZE_MAX);
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) {
    const auto* data = (*it)->data;
    (*it)->for_each_run(part, [&](std::uint64_t from, std::uint64_t to, std::uint64_t n) {
      // Most runs of scattered boxes are one element, and a copy of a known size is no call.
      if (n == 1 && element == 4)
        std::memcpy(destination + to * 4, data + from * 4, 4);
      else if (n == 1 && element == 8)
        std::memcpy(destination + to * 8, data + from * 8, 8);
      else
        std::memcpy(destination + to * element, data + from * element, n * element);
    });
  }
}

void AssembledField::read(const Part& part, std::span<String> destination) const {
  const auto pieces = meeting(part.bounds(), SIZE_MAX);
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) {
    const auto& piece = **it;
    piece.for_each_run(part, [&](std::uint64_t from, std::uint64_t to, std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        const auto* at = piece.data + piece.strings[from + i];
        std::uint32_t length = 0;
        std::memcpy(&length, at, sizeof length);
        auto& out = destination[to + i];
        if (length == null_string)
          out.reset();
        else
          out.emplace(reinterpret_cast<const char*>(at + sizeof length), length);
      }
    });
  }
}

std::span<const std::byte> AssembledField::view(const Part& part) const {
  const auto element = size_of(type());
  if (element == 0) return {};
  const auto bounds = part.bounds();
  const auto last = meeting(bounds, 1);
  if (last.empty()) return {};
  const auto& piece = *last.front();
  if (piece.layout || part.layout) return {};
  const auto bytes = part.box.volume() * element;
  const auto its = piece.box();
  if (part.dense()) {
    if (!piece.contains(bounds) || !is_contiguous(part.box, its)) return {};
    return {piece.data + offset_in(part.box, its) * element, bytes};
  }
  if (its != part.box) return {};
  for (std::size_t i = 0; i < rank_; ++i)
    if (part.box.count[i] > 1 && part.stride[i] != piece.place[3 * i + 2]) return {};
  return {piece.data, bytes};
}

bool AssembledField::covers(const Box& box) const {
  if (box.empty()) return true;
  std::vector<Box> open = {box}, next;
  for (const auto* piece : meeting(box, SIZE_MAX)) {
    if (!piece->dense) continue;
    if (piece->contains(box)) return true;
    const auto its = piece->box();
    next.clear();
    for (auto& rest : open) {
      const auto common = intersect(rest, its);
      if (common.empty())
        next.push_back(std::move(rest));
      else
        cut_off(common, rest, next);
    }
    open.swap(next);
    if (open.empty()) return true;
    if (open.size() > 256) return false;
  }
  return false;
}

std::uint64_t AssembledField::mark_put(const Box& box, std::vector<bool>& marks) const {
  marks.assign(box.volume(), false);
  std::uint64_t found = 0;
  const auto pieces = meeting(box, SIZE_MAX);
  for (const auto* piece : pieces) {
    piece->for_each_run(Part(box), [&](std::uint64_t, std::uint64_t to, std::uint64_t n) {
      for (auto i = to; i < to + n; ++i) {
        found += marks[i] ? 0 : 1;
        marks[i] = true;
      }
    });
    if (found == marks.size()) break;
  }
  return found;
}

std::vector<Block> AssembledField::blocks() const {
  std::vector<Block> out;
  const std::shared_lock lock(mutex_);
  out.reserve(pieces_.size());
  for (const auto& piece : pieces_) {
    Block block;
    block.variable = variable();
    block.lease = piece.lease;
    block.box = piece.box();
    if (piece.layout) {
      const auto element = size_of(type());
      piece.layout->for_each_box(std::vector(block.box.start), [&](const Box& box, std::uint64_t from) {
        block.box = box;
        block.data = piece.data + from * element;
        block.bytes = box.volume() * element;
        out.push_back(block);
      });
      continue;
    }
    if (!piece.dense)
      for (std::size_t i = 0; i < rank_; ++i) block.stride.push_back(piece.place[3 * i + 2]);
    block.data = piece.data;
    block.bytes = piece.bytes;
    out.push_back(std::move(block));
  }
  return out;
}

Box AssembledField::bounds() const {
  Box out;
  const std::shared_lock lock(mutex_);
  for (std::size_t i = 0; i < bounds_.size(); i += 2) {
    out.start.push_back(bounds_[i]);
    out.count.push_back(bounds_[i + 1] - bounds_[i]);
  }
  return out;
}

Result<std::shared_ptr<const Field>> Frame::add(const Block& block) {
  if (block.variable >= schema_.variables.size())
    return Error{Code::invalid, "no variable " + std::to_string(block.variable), 0};
  const auto& v = schema_.variables[block.variable];
  ADVECTIO_TRY(check({block.box, block.stride}, v,
                     [this](std::uint32_t d) -> const Dimension& { return schema_.dimensions[d]; }));
  if (block.layout &&
      (v.type == DataType::string || !block.stride.empty() || block.layout->lengths() != block.box.count))
    return Error{Code::invalid, "block of " + v.name + ": its boxes are of another kind", 0};
  const auto volume = block.layout ? block.layout->elements() : block.box.volume();
  if (v.type != DataType::string && block.bytes != volume * size_of(v.type))
    return Error{Code::invalid,
                 "block of " + v.name + ": " + std::to_string(block.bytes) + " bytes are not " +
                     std::to_string(volume) + " elements",
                 0};
  auto& field = fields_[block.variable];
  if (!field) field = std::make_shared<AssembledField>(block.variable, v.type, v.dimensions.size());
  ADVECTIO_TRY_WITH(field->add(block), "variable " + v.name);
  return std::shared_ptr<const Field>(field);
}

Result<void> for_each_box(const Part& part, const std::function<Result<void>(const Part&)>& visit) {
  Result<void> done;
  part.layout->for_each_box(part.box.start, [&](const Box& box, std::uint64_t) {
    if (done) done = visit(Part(box));
  });
  return done;
}

Result<void> check(const Part& part, const Variable& variable,
                   const std::function<const Dimension&(std::uint32_t)>& dimension) {
  const auto bad = [&](const std::string& what) {
    return Error{Code::invalid, "block of " + variable.name + ": " + what, 0};
  };
  const auto& box = part.box;
  const auto rank = variable.dimensions.size();
  if (box.start.size() != rank || box.count.size() != rank || (!part.stride.empty() && part.stride.size() != rank))
    return bad("it has not the variable's rank");
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& d = dimension(variable.dimensions[i]);
    const auto stride = part.stride.empty() ? 1 : part.stride[i];
    std::uint64_t end = 0;
    if (box.count[i] == 0) continue;
    if (stride == 0 || __builtin_mul_overflow(box.count[i] - 1, stride, &end) ||
        __builtin_add_overflow(end, box.start[i], &end) || end >= INT64_MAX || (!d.unlimited && end >= d.length))
      return bad("it reaches beyond dimension " + d.name);
  }
  if (box.volume() > UINT64_MAX / 8) return bad("its bytes cannot be counted");
  return {};
}

}  // namespace advectio
