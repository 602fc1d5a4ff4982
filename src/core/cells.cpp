#include "core/cells.h"

#include <algorithm>
#include <set>

namespace advectio {
namespace {

/// Call `visit(index)` for each element of `part` in an array that holds `whole`.
template <typename Visit>
void for_each_in(const Box& part, const Box& whole, Visit&& visit) {
  Box at{part.start, std::vector<std::uint64_t>(part.rank(), 1)};
  for (std::uint64_t n = part.volume(); n > 0; --n) {
    visit(static_cast<std::size_t>(offset_in(at, whole)));
    for (std::size_t i = part.rank(); i-- > 0;) {
      if (++at.start[i] < part.start[i] + part.count[i]) break;
      at.start[i] = part.start[i];
    }
  }
}

}  // namespace

Cells::Cells(const std::vector<Box>& boxes, const std::vector<std::uint64_t>& whole) {
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::set<std::uint64_t> at{0, whole[i]};
    for (const auto& b : boxes) at.insert({b.start[i], b.start[i] + b.count[i]});
    cuts_.emplace_back(at.begin(), at.end());
    all_.start.push_back(0);
    all_.count.push_back(cuts_.back().size() - 1);
  }
  if (made()) owner_.assign(all_.volume(), nobody);
}

std::optional<std::size_t> Cells::take(const Box& box, std::size_t who) {
  std::optional<std::size_t> before;
  for_each_in(cells_of(box), all_, [&](std::size_t index) {
    if (owner_[index] != nobody) before = owner_[index];
    owner_[index] = who;
  });
  return before;
}

std::uint64_t Cells::open_points() const {
  std::uint64_t points = 0;
  for (std::size_t i = 0; i < owner_.size(); ++i)
    if (owner_[i] == nobody) points += points_of(cell(i)).volume();
  return points;
}

Box Cells::open_box() const {
  Box cells = cell(static_cast<std::size_t>(std::find(owner_.begin(), owner_.end(), nobody) - owner_.begin()));
  for (std::size_t i = cells.rank(); i-- > 0;) {
    for (; cells.start[i] + cells.count[i] < all_.count[i]; ++cells.count[i]) {
      auto next = cells;
      next.start[i] += next.count[i];
      next.count[i] = 1;
      if (!open(next)) break;
    }
  }
  return points_of(cells);
}

bool Cells::open(const Box& cells) const {
  bool all = true;
  for_each_in(cells, all_, [&](std::size_t index) { all = all && owner_[index] == nobody; });
  return all;
}

Box Cells::cell(std::size_t index) const {
  Box out{std::vector<std::uint64_t>(all_.rank()), std::vector<std::uint64_t>(all_.rank(), 1)};
  for (std::size_t i = all_.rank(); i-- > 0; index /= all_.count[i]) out.start[i] = index % all_.count[i];
  return out;
}

Box Cells::cells_of(const Box& points) const {
  Box cells = points;
  for (std::size_t i = 0; i < points.rank(); ++i) {
    const auto at = [&](std::uint64_t point) {
      return static_cast<std::uint64_t>(std::lower_bound(cuts_[i].begin(), cuts_[i].end(), point) - cuts_[i].begin());
    };
    cells.start[i] = at(points.start[i]);
    cells.count[i] = at(points.start[i] + points.count[i]) - cells.start[i];
  }
  return cells;
}

Box Cells::points_of(const Box& cells) const {
  Box points = cells;
  for (std::size_t i = 0; i < cells.rank(); ++i) {
    points.start[i] = cuts_[i][cells.start[i]];
    points.count[i] = cuts_[i][cells.start[i] + cells.count[i]] - points.start[i];
  }
  return points;
}

}  // namespace advectio
