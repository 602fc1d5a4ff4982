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

}  // namespace

bool Part::dense() const noexcept {
  return std::all_of(stride.begin(), stride.end(), [](std::uint64_t s) { return s == 1; });
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
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Lease lease;
  std::vector<std::uint64_t> strings;  ///< where each begins in `data`

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
};

AssembledField::AssembledField(std::uint32_t variable, DataType type, std::size_t rank)
    : Field(variable, type), rank_(rank) {}

AssembledField::~AssembledField() = default;

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
  auto index = pieces_.size();
  const auto& added = pieces_.emplace_back(std::move(piece));
  for (auto& bounds : groups_) {
    index /= fan;
    if (bounds.size() <= index * 2 * rank_ || rank_ == 0) {
      for (std::size_t i = 0; i < rank_; ++i) bounds.insert(bounds.end(), {added.place[3 * i], added.place[3 * i + 1]});
      continue;
    }
    auto* group = bounds.data() + index * 2 * rank_;
    for (std::size_t i = 0; i < rank_; ++i) {
      group[2 * i] = std::min(group[2 * i], added.place[3 * i]);
      group[2 * i + 1] = std::max(group[2 * i + 1], added.place[3 * i + 1]);
    }
  }
  return {};
}

/// Looks through the members of a group, the latest first. False: there is no need to look further.
bool AssembledField::search(const Box& box, std::size_t most, std::size_t level, std::size_t index,
                            Pieces& found) const {
  if (level == 0) {
    const auto& piece = pieces_[index];
    if (!piece.meets(box)) return true;
    found.push_back(&piece);
    return found.size() < most && !piece.contains(box);
  }
  const auto* bounds = groups_[level - 1].data() + index * 2 * rank_;
  for (std::size_t i = 0; i < rank_; ++i)
    if (bounds[2 * i] >= box.start[i] + box.count[i] || bounds[2 * i + 1] <= box.start[i]) return true;
  std::size_t below = pieces_.size();
  for (std::size_t l = 1; l < level; ++l) below = (below + fan - 1) / fan;
  for (auto i = std::min((index + 1) * fan, below); i > index * fan; --i)
    if (!search(box, most, level - 1, i - 1, found)) return false;
  return true;
}

/// The pieces that meet a box, the latest first, down to the one that hides all before it.
AssembledField::Pieces AssembledField::meeting(const Box& box, std::size_t most) const {
  Pieces found;
  if (box.empty()) return found;
  const std::shared_lock lock(mutex_);
  auto top = pieces_.size();
  for (std::size_t l = 0; l < groups_.size(); ++l) top = (top + fan - 1) / fan;
  for (; top > 0; --top)
    if (!search(box, most, groups_.size(), top - 1, found)) break;
  return found;
}

void AssembledField::read(const Part& part, std::byte* destination) const {
  const auto element = size_of(type());
  const auto pieces = meeting(part.bounds(), SIZE_MAX);
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) {
    const auto* data = (*it)->data;
    (*it)->for_each_run(part, [&](std::uint64_t from, std::uint64_t to, std::uint64_t n) {
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

std::vector<Block> AssembledField::blocks() const {
  std::vector<Block> out;
  const std::shared_lock lock(mutex_);
  out.reserve(pieces_.size());
  for (const auto& piece : pieces_) {
    Block block;
    block.variable = variable();
    block.box = piece.box();
    if (!piece.dense)
      for (std::size_t i = 0; i < rank_; ++i) block.stride.push_back(piece.place[3 * i + 2]);
    block.data = piece.data;
    block.bytes = piece.bytes;
    block.lease = piece.lease;
    out.push_back(std::move(block));
  }
  return out;
}

Box AssembledField::bounds() const {
  Box out;
  const std::shared_lock lock(mutex_);
  const auto& top = groups_.back();
  for (std::size_t at = 0; rank_ > 0 && at < top.size(); at += 2 * rank_)
    for (std::size_t i = 0; i < rank_; ++i) {
      const auto start = top[at + 2 * i], end = top[at + 2 * i + 1];
      if (at == 0) {
        out.start.push_back(start);
        out.count.push_back(end - start);
        continue;
      }
      const auto last = std::max(out.start[i] + out.count[i], end);
      out.start[i] = std::min(out.start[i], start);
      out.count[i] = last - out.start[i];
    }
  return out;
}

Result<std::shared_ptr<const Field>> Frame::add(const Block& block) {
  if (block.variable >= schema_.variables.size())
    return Error{Code::invalid, "no variable " + std::to_string(block.variable), 0};
  const auto& v = schema_.variables[block.variable];
  ADVECTIO_TRY(check({block.box, block.stride}, v,
                     [this](std::uint32_t d) -> const Dimension& { return schema_.dimensions[d]; }));
  const auto volume = block.box.volume();
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
