#include "core/box.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace advectio {

std::uint64_t Box::volume() const noexcept {
  std::uint64_t n = 1;
  for (const auto c : count) {
    if (c == 0) return 0;
    if (__builtin_mul_overflow(n, c, &n)) n = UINT64_MAX;
  }
  return n;
}

bool Box::contains(const Box& inner) const noexcept {
  for (std::size_t i = 0; i < rank(); ++i) {
    if (inner.start[i] < start[i]) return false;
    if (inner.start[i] + inner.count[i] > start[i] + count[i]) return false;
  }
  return true;
}

Box intersect(const Box& a, const Box& b) {
  assert(a.rank() == b.rank());
  Box out{a.start, a.count};
  for (std::size_t i = 0; i < a.rank(); ++i) {
    const auto lo = std::max(a.start[i], b.start[i]);
    const auto hi = std::min(a.start[i] + a.count[i], b.start[i] + b.count[i]);
    out.start[i] = lo;
    out.count[i] = hi > lo ? hi - lo : 0;
  }
  return out;
}

std::uint64_t offset_in(const Box& part, const Box& whole) noexcept {
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < whole.rank(); ++i) offset = offset * whole.count[i] + (part.start[i] - whole.start[i]);
  return offset;
}

bool is_contiguous(const Box& part, const Box& whole) noexcept {
  // From the fastest dimension outwards: once one is cut, every slower one must have length 1.
  bool cut = false;
  for (std::size_t i = whole.rank(); i-- > 0;) {
    if (cut && part.count[i] != 1) return false;
    if (part.count[i] != whole.count[i]) cut = true;
  }
  return true;
}

void copy_part(const Box& part, const void* from, const Box& from_box, void* to, const Box& to_box,
               std::size_t element) noexcept {
  if (part.empty()) return;
  const auto* src = static_cast<const std::byte*>(from) + offset_in(part, from_box) * element;
  auto* dst = static_cast<std::byte*>(to) + offset_in(part, to_box) * element;

  // TileSequencer the fastest dimensions that are whole in both arrays into one run.
  const std::size_t rank = part.rank();
  std::size_t run = element;
  std::size_t outer = rank;  // dimensions [0, outer) are walked
  while (outer > 0) {
    const std::size_t i = outer - 1;
    run *= part.count[i];
    --outer;
    if (part.count[i] != from_box.count[i] || part.count[i] != to_box.count[i]) break;
  }
  if (outer == 0) {
    std::memcpy(dst, src, run);
    return;
  }

  std::vector<std::uint64_t> src_step(outer), dst_step(outer), at(outer, 0);
  std::uint64_t src_size = element, dst_size = element;
  for (std::size_t i = rank; i-- > 0;) {
    if (i < outer) {
      src_step[i] = src_size;
      dst_step[i] = dst_size;
    }
    src_size *= from_box.count[i];
    dst_size *= to_box.count[i];
  }
  for (;;) {
    std::memcpy(dst, src, run);
    std::size_t i = outer;
    for (;;) {
      if (i == 0) return;
      --i;
      src += src_step[i];
      dst += dst_step[i];
      if (++at[i] < part.count[i]) break;
      src -= src_step[i] * part.count[i];
      dst -= dst_step[i] * part.count[i];
      at[i] = 0;
    }
  }
}

}  // namespace advectio
