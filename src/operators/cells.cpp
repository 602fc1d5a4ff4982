#include "operators/cells.h"

#include <cmath>
#include <limits>

namespace advectio {
namespace {

using Kind = Selection::Kind;
using Method = CoarsenRule::Method;

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

/// A box of a part in the file: one, or the two at both sides of the seam, and along which dimension.
struct Pieces {
  std::vector<Box> boxes;
  std::size_t seam = 0;
};

Pieces pieces_of(Box box, const std::vector<Selection::Along>& parts) {
  Pieces out;
  std::uint64_t beyond = 0;
  for (std::size_t i = 0; i < box.rank(); ++i) {
    box.start[i] += parts[i].start;
    const auto length = parts[i].length;
    if (!parts[i].wraps()) continue;
    if (box.start[i] >= length) {
      box.start[i] -= length;
    } else if (box.start[i] + box.count[i] > length) {
      beyond = box.start[i] + box.count[i] - length;
      out.seam = i;
    }
  }
  if (beyond > 0) {
    auto second = box;
    box.count[out.seam] -= beyond;
    second.start[out.seam] = 0;
    second.count[out.seam] = beyond;
    out.boxes = {std::move(box), std::move(second)};
  } else {
    out.boxes = {std::move(box)};
  }
  return out;
}

/// The way through what one cell of the result is made of.
class Block {
 public:
  explicit Block(Method method, double period) : method_(method), period_(period) {}
  void add(double v) {
    if (std::isnan(v)) return;
    if (count_++ == 0) {
      first_ = value_ = v;
      return;
    }
    switch (method_) {
      case Method::maximum: value_ = std::max(value_, v); break;
      case Method::minimum: value_ = std::min(value_, v); break;
      case Method::first: break;
      default: value_ += period_ == 0 ? v : v + period_ * std::round((first_ - v) / period_);
    }
  }
  [[nodiscard]] double result() const {
    if (count_ == 0) return missing;
    return method_ == Method::mean ? value_ / static_cast<double>(count_) : value_;
  }

 private:
  Method method_;
  double period_;
  double value_ = 0, first_ = 0;
  std::uint64_t count_ = 0;
};

/// The next place of a box in row-major order; false after the last.
bool advance(std::vector<std::uint64_t>& place, const std::vector<std::uint64_t>& count) {
  for (std::size_t i = place.size(); i-- > 0;) {
    if (++place[i] < count[i]) return true;
    place[i] = 0;
  }
  return false;
}

}  // namespace

FileParts parts_of(const Schema& input, std::uint32_t time_dimension, const Selection& selection) {
  FileParts out;
  for (const auto& v : input.variables) {
    auto& parts = out.emplace_back();
    for (const auto d : v.dimensions)
      if (d != time_dimension) parts.push_back(selection.along[d]);
  }
  return out;
}

void FromFile::needs(const Box& box, std::vector<Need>& all) const {
  std::vector<Need> its;
  of_->needs(box, its);
  for (auto& need : its)
    for (auto& piece : pieces_of(std::move(need.box), (*parts_)[need.variable]).boxes)
      all.push_back({need.variable, std::move(piece)});
}

void FromFile::make(const Box& box, Needed& values, std::span<double> result) const {
  std::vector<Need> its;
  of_->needs(box, its);
  std::vector<std::vector<double>> joined;
  joined.reserve(its.size());
  std::vector<std::span<const double>> all;
  for (const auto& need : its) {
    const auto pieces = pieces_of(need.box, (*parts_)[need.variable]);
    const auto first = values.next();
    if (pieces.boxes.size() == 1) {
      all.push_back(first);
      continue;
    }
    const auto second = values.next();
    std::uint64_t inner = 1;
    for (std::size_t i = pieces.seam + 1; i < need.box.rank(); ++i) inner *= need.box.count[i];
    const auto one = pieces.boxes[0].count[pieces.seam] * inner, other = pieces.boxes[1].count[pieces.seam] * inner;
    auto& to = joined.emplace_back();
    to.reserve(need.box.volume());
    for (std::uint64_t at = 0, its_at = 0; at < first.size(); at += one, its_at += other) {
      to.insert(to.end(), first.begin() + static_cast<std::ptrdiff_t>(at),
                first.begin() + static_cast<std::ptrdiff_t>(at + one));
      to.insert(to.end(), second.begin() + static_cast<std::ptrdiff_t>(its_at),
                second.begin() + static_cast<std::ptrdiff_t>(its_at + other));
    }
    all.emplace_back(to);
  }
  Needed needed(all);
  of_->make(box, needed, result);
}

Box Blocks::source(const Box& box) const {
  Box out = box;
  for (std::size_t i = 0; i < box.rank(); ++i) {
    const auto& a = along_[i];
    if (!a.thinned() || box.count[i] == 0) continue;
    const auto first = box.start[i] * a.step, last = (box.start[i] + box.count[i] - 1) * a.step;
    const auto least = a.kind == Kind::faces ? std::min(first, a.count - 1) : first;
    const auto end = a.kind == Kind::blocks  ? std::min(last + a.step, a.count)
                     : a.kind == Kind::faces ? std::min(last, a.count - 1) + 1
                                             : last + 1;
    out.start[i] = least;
    out.count[i] = end - least;
  }
  return out;
}

void Blocks::make(const Box& box, Needed& values, std::span<double> result) const {
  if (box.volume() == 0) return;
  const auto from = source(box);
  std::vector<double> cells(from.volume());
  of_->make(from, values, cells);
  const auto rank = box.rank();
  std::vector<std::uint64_t> stride(rank, 1);
  for (std::size_t i = rank; i-- > 1;) stride[i - 1] = stride[i] * from.count[i];
  std::vector<std::uint64_t> place(rank, 0), count(rank, 1), within(rank, 0);
  for (std::size_t next = 0;; ++next) {
    std::uint64_t corner = 0, many = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      const auto& a = along_[i];
      const auto cell = box.start[i] + place[i];
      const auto first = a.kind == Kind::all     ? cell
                         : a.kind == Kind::faces ? std::min(cell * a.step, a.count - 1)
                                                 : cell * a.step;
      count[i] = a.kind == Kind::blocks && method_ != Method::first ? std::min(a.step, a.count - first) : 1;
      many *= count[i];
      corner += (first - from.start[i]) * stride[i];
    }
    if (many == 1) {
      result[next] = cells[corner];
    } else {
      Block block(method_, period_);
      std::fill(within.begin(), within.end(), 0);
      do {
        auto at = corner;
        for (std::size_t i = 0; i < rank; ++i) at += within[i] * stride[i];
        block.add(cells[at]);
      } while (advance(within, count));
      result[next] = block.result();
    }
    if (!advance(place, box.count)) break;
  }
}

void Eastward::make(const Box& box, Needed& values, std::span<double> result) const {
  of_->make(box, values, result);
  for (auto& v : result) v += period_ * std::ceil((west_ - v) / period_);
}

}  // namespace advectio
