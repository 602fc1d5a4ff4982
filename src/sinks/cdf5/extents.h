// Which bytes of a file have been put.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace advectio {

class Extents {
 public:
  /// [begin, end)
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto next = pieces_.upper_bound(begin);
    if (next != pieces_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != pieces_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = pieces_.erase(next);
    }
    pieces_.emplace_hint(next, begin, end);
  }

  /// gap(begin, end) for each piece of [begin, end) that has not been added, in their order. It returns what ends the
  /// walk when it is false.
  template <typename Gap>
  auto for_each_gap(std::uint64_t begin, std::uint64_t end, Gap gap) const -> decltype(gap(begin, end)) {
    auto it = pieces_.upper_bound(begin);
    if (it != pieces_.begin()) begin = std::max(begin, std::prev(it)->second);
    for (; begin < end; ++it) {
      const auto until = it == pieces_.end() ? end : std::min(end, it->first);
      if (begin < until)
        if (auto result = gap(begin, until); !result) return result;
      if (it == pieces_.end()) break;
      begin = std::max(begin, it->second);
    }
    return {};
  }

  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_.size(); }
  void clear() noexcept { pieces_.clear(); }

 private:
  std::map<std::uint64_t, std::uint64_t> pieces_;  // begin → end; they neither meet nor touch
};

}  // namespace advectio
