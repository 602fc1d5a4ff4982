#include "core/box_layout.h"

#include <map>
#include <tuple>
#include <utility>

namespace advectio {

std::uint64_t BoxList::volume(std::size_t i) const noexcept {
  std::uint64_t n = 1;
  for (const auto c : count(i)) {
    if (c == 0) return 0;
    if (__builtin_mul_overflow(n, c, &n)) n = UINT64_MAX;
  }
  return n;
}

Box BoxList::operator[](std::size_t i) const {
  const auto s = start(i), c = count(i);
  return {{s.begin(), s.end()}, {c.begin(), c.end()}};
}

Box BoxList::bounds(std::size_t first, std::size_t last) const {
  std::vector<std::uint64_t> begin(rank_, UINT64_MAX), end(rank_, 0);
  for (auto i = first; i < last; ++i) {
    const auto s = start(i), c = count(i);
    for (std::size_t k = 0; k < rank_; ++k) {
      begin[k] = std::min(begin[k], s[k]);
      end[k] = std::max(end[k], s[k] + c[k]);
    }
  }
  for (std::size_t k = 0; k < rank_; ++k) end[k] -= begin[k];
  return {std::move(begin), std::move(end)};
}

bool BoxList::is_a_box(std::size_t first, std::size_t last, const Box& bounds) const {
  std::uint64_t behind = 0;
  Box box = bounds;
  for (auto i = first; i < last; ++i) {
    const auto s = start(i), c = count(i);
    std::copy(s.begin(), s.end(), box.start.begin());
    std::copy(c.begin(), c.end(), box.count.begin());
    if (offset_in(box, bounds) != behind || !is_contiguous(box, bounds)) return false;
    behind += box.volume();
  }
  return behind == bounds.volume();
}

namespace {

using Run = BoxLayout::Run;

std::uint64_t end_of(const Run& r) {
  return r.to + r.count;
}

/// Of runs that overlap the one with the later value counts.
std::vector<Run> painted(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.from < b.from; });
  std::map<std::uint64_t, Run> all;
  const auto put = [&all](const Run& r) { all[r.to] = r; };
  const auto behind = [](const Run& r, std::uint64_t at) {
    const auto cut = static_cast<std::uint32_t>(at - r.to);
    return Run{at, r.from + cut, r.count - cut};
  };
  for (const auto& r : runs) {
    auto it = all.lower_bound(r.to);
    if (it != all.begin() && end_of(std::prev(it)->second) > r.to) {
      auto& before = std::prev(it)->second;
      if (end_of(before) > end_of(r)) put(behind(before, end_of(r)));
      before.count = static_cast<std::uint32_t>(r.to - before.to);
    }
    for (it = all.lower_bound(r.to); it != all.end() && it->first < end_of(r); it = all.erase(it))
      if (end_of(it->second) > end_of(r)) put(behind(it->second, end_of(r)));
    put(r);
  }
  runs.clear();
  for (const auto& [to, r] : all) runs.push_back(r);
  return runs;
}

}  // namespace

Result<std::shared_ptr<const BoxLayout>> BoxLayout::make(std::vector<std::uint64_t> lengths, const BoxList& boxes) {
  const auto bad = [](const char* what) { return Error{Code::corrupt, std::string("boxes of a put: ") + what, 0}; };
  const auto rank = lengths.size();
  if (boxes.rank() != rank) return bad("another rank");
  if (Box{std::vector<std::uint64_t>(rank, 0), lengths}.volume() > UINT64_MAX / 8) return bad("too large");
  std::vector<Run> runs;
  runs.reserve(boxes.size());
  std::uint64_t elements = 0;
  std::vector<std::uint64_t> at(rank);
  for (std::size_t b = 0; b < boxes.size(); ++b) {
    const auto start = boxes.start(b), count = boxes.count(b);
    const auto volume = boxes.volume(b);
    for (std::size_t i = 0; i < rank; ++i)
      if (start[i] >= lengths[i] || count[i] > lengths[i] - start[i]) return bad("one is not within their bounds");
    if (volume == 0) return bad("one is empty");
    if (elements + volume > UINT32_MAX) return bad("too many elements");
    // The dimensions [outer, rank) are one run.
    std::uint64_t run = 1, to = 0, size = 1;
    auto outer = rank;
    bool joins = true;
    for (auto i = rank; i-- > 0;) {
      to += start[i] * size;
      size *= lengths[i];
      if (!joins) continue;
      run *= count[i];
      outer = i;
      joins = count[i] == lengths[i];
    }
    std::fill(at.begin(), at.end(), 0);
    for (;;) {
      runs.push_back({to, static_cast<std::uint32_t>(elements), static_cast<std::uint32_t>(run)});
      elements += run;
      auto i = outer;
      auto step = std::uint64_t{1};
      for (auto k = outer; k < rank; ++k) step *= lengths[k];
      for (; i > 0; --i) {
        to += step;
        if (++at[i - 1] < count[i - 1]) break;
        to -= step * count[i - 1];
        at[i - 1] = 0;
        step *= lengths[i - 1];
      }
      if (i == 0) break;
    }
  }
  const auto in_order = [](const Run& a, const Run& b) { return std::tie(a.to, a.from) < std::tie(b.to, b.from); };
  if (!std::is_sorted(runs.begin(), runs.end(), in_order)) std::sort(runs.begin(), runs.end(), in_order);
  const auto overlap = [](const Run& a, const Run& b) { return end_of(a) > b.to; };
  if (std::adjacent_find(runs.begin(), runs.end(), overlap) != runs.end()) runs = painted(std::move(runs));
  std::size_t kept = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    auto& last = runs[kept];
    const auto& next = runs[i];
    if (end_of(last) == next.to && last.from + last.count == next.from)
      last.count += next.count;
    else
      runs[++kept] = next;
  }
  if (!runs.empty()) runs.resize(kept + 1);
  runs.shrink_to_fit();
  return std::shared_ptr<const BoxLayout>(new BoxLayout(std::move(lengths), std::move(runs), elements));
}

}  // namespace advectio
