// Many boxes of one variable that are put together, and whose values lie in one run of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/box.h"
#include "core/result.h"

namespace advectio {

/// Boxes of one rank, in order. None has memory of its own.
class BoxList {
 public:
  explicit BoxList(std::size_t rank) : rank_(rank) {}

  void reserve(std::size_t boxes) { numbers_.reserve(2 * rank_ * boxes); }
  void add(std::span<const std::uint64_t> start, std::span<const std::uint64_t> count) {
    numbers_.insert(numbers_.end(), start.begin(), start.end());
    numbers_.insert(numbers_.end(), count.begin(), count.end());
    ++size_;
  }
  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<const std::uint64_t> start(std::size_t i) const noexcept { return numbers(2 * i); }
  [[nodiscard]] std::span<const std::uint64_t> count(std::size_t i) const noexcept { return numbers(2 * i + 1); }
  /// As `Box::volume`.
  [[nodiscard]] std::uint64_t volume(std::size_t i) const noexcept;
  [[nodiscard]] Box operator[](std::size_t i) const;
  /// The smallest box that holds those from `first` to before `last`; there is one at least.
  [[nodiscard]] Box bounds(std::size_t first, std::size_t last) const;
  /// Those, one behind the other, are a dense array that holds their bounds.
  [[nodiscard]] bool is_a_box(std::size_t first, std::size_t last, const Box& bounds) const;

 private:
  [[nodiscard]] std::span<const std::uint64_t> numbers(std::size_t row) const noexcept {
    return std::span(numbers_).subspan(row * rank_, rank_);
  }

  std::size_t rank_, size_ = 0;
  std::vector<std::uint64_t> numbers_;  ///< of each box: starts, then counts
};

/// Boxes within a box, as runs in its order. They are sorted once, and serve each variable and record that is put
/// alike.
class BoxLayout {
 public:
  /// Neighbours among the values and in the box.
  struct Run {
    std::uint64_t to = 0;  ///< index of the first element in a dense array that holds the box
    std::uint32_t from = 0, count = 0;
  };

  /// Boxes in a box of these lengths. Their values lie box after box, each of them row-major. Of boxes that overlap the
  /// later one counts. Errors: Code::corrupt where one is empty or not within the lengths, or has too many elements.
  static Result<std::shared_ptr<const BoxLayout>> make(std::vector<std::uint64_t> lengths, const BoxList& boxes);

  [[nodiscard]] const std::vector<std::uint64_t>& lengths() const noexcept { return lengths_; }
  /// Values, also those that others overlap.
  [[nodiscard]] std::uint64_t elements() const noexcept { return elements_; }
  /// In the order of the box. None overlaps another.
  [[nodiscard]] const std::vector<Run>& runs() const noexcept { return runs_; }
  /// Of memory.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return sizeof *this + runs_.capacity() * sizeof(Run); }

  /// visit(index of a value, index in `part`, values) for all that the boxes and the part share, where the box around
  /// them begins at `start`.
  template <typename Visit>
  void for_each_run(std::span<const std::uint64_t> start, const Box& part, Visit visit) const;

  /// visit(box, index of its first value): the runs as boxes.
  template <typename Visit>
  void for_each_box(std::span<const std::uint64_t> start, Visit visit) const;

 private:
  BoxLayout(std::vector<std::uint64_t> lengths, std::vector<Run> runs, std::uint64_t elements)
      : lengths_(std::move(lengths)), runs_(std::move(runs)), elements_(elements) {}

  std::vector<std::uint64_t> lengths_;
  std::vector<Run> runs_;
  std::uint64_t elements_;
};

template <typename Visit>
void BoxLayout::for_each_run(std::span<const std::uint64_t> start, const Box& part, Visit visit) const {
  struct Along {
    std::uint64_t count, step, part_step, at;
  };
  const auto rank = lengths_.size();
  thread_local std::vector<Along> along;
  along.resize(rank);
  std::uint64_t first = 0, to = 0, size = 1, part_size = 1, inner = 1;
  auto outer = rank;
  bool joins = true;
  for (auto i = rank; i-- > 0;) {
    const auto low = std::max(start[i], part.start[i]);
    const auto high = std::min(start[i] + lengths_[i], part.start[i] + part.count[i]);
    if (low >= high) return;
    const auto n = high - low;
    first += (low - start[i]) * size;
    to += (low - part.start[i]) * part_size;
    along[i] = {n, size, part_size, 0};
    // Rows that lie together in both are one.
    if (joins) {
      inner *= n;
      outer = i;
      joins = n == lengths_[i] && n == part.count[i];
    }
    size *= lengths_[i];
    part_size *= part.count[i];
  }
  auto run = runs_.begin();
  for (;;) {
    const auto ends_before = [first](const Run& r) { return r.to + r.count <= first; };
    if (run != runs_.end() && ends_before(*run)) run = std::partition_point(run, runs_.end(), ends_before);
    for (auto r = run; r != runs_.end() && r->to < first + inner; ++r) {
      const auto begin = std::max(r->to, first), end = std::min(r->to + r->count, first + inner);
      visit(r->from + (begin - r->to), to + (begin - first), end - begin);
      run = r;
    }
    auto i = outer;
    for (; i > 0; --i) {
      auto& a = along[i - 1];
      first += a.step;
      to += a.part_step;
      if (++a.at < a.count) break;
      first -= a.step * a.count;
      to -= a.part_step * a.count;
      a.at = 0;
    }
    if (i == 0) return;
  }
}

template <typename Visit>
void BoxLayout::for_each_box(std::span<const std::uint64_t> start, Visit visit) const {
  const auto rank = lengths_.size();
  Box box{std::vector<std::uint64_t>(rank), std::vector<std::uint64_t>(rank, 1)};
  const auto row = rank > 0 ? lengths_[rank - 1] : 1;
  for (const auto& run : runs_) {
    for (std::uint64_t done = 0; done < run.count;) {
      auto rest = run.to + done;
      for (auto i = rank; i-- > 0;) {
        box.start[i] = start[i] + rest % lengths_[i];
        rest /= lengths_[i];
      }
      const auto n = std::min<std::uint64_t>(run.count - done, row - (run.to + done) % row);
      if (rank > 0) box.count[rank - 1] = n;
      visit(static_cast<const Box&>(box), run.from + done);
      done += n;
    }
  }
}

}  // namespace advectio
