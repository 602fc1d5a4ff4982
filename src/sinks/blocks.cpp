#include "sinks/blocks.h"

#include <string>
#include <utility>

namespace advectio {

Result<void> check(const Block& block, const Variable& variable,
                   const std::function<const Dimension&(std::uint32_t)>& dimension) {
  const auto bad = [&](const std::string& what) {
    return Error{Code::invalid, "block of " + variable.name + ": " + what, 0};
  };
  const auto& box = block.box;
  const auto rank = variable.dimensions.size();
  if (box.start.size() != rank || box.count.size() != rank || (!block.stride.empty() && block.stride.size() != rank))
    return bad("it has not the variable's rank");
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& d = dimension(variable.dimensions[i]);
    const auto stride = block.stride.empty() ? 1 : block.stride[i];
    std::uint64_t end = 0;
    if (box.count[i] == 0) continue;
    if (stride == 0 || __builtin_mul_overflow(box.count[i] - 1, stride, &end) ||
        __builtin_add_overflow(end, box.start[i], &end) || end >= INT64_MAX || (!d.unlimited && end >= d.length))
      return bad("it reaches beyond dimension " + d.name);
  }
  const auto volume = box.volume();
  if (variable.type != DataType::string && (volume > UINT64_MAX / 8 || block.bytes != volume * size_of(variable.type)))
    return bad(std::to_string(block.bytes) + " bytes are not " + std::to_string(volume) + " elements");
  return {};
}

bool cover(const std::vector<const Block*>& blocks, const Box& whole) {
  std::vector<Box> open = {whole}, next;
  for (auto it = blocks.rbegin(); it != blocks.rend() && !open.empty(); ++it) {
    next.clear();
    for (auto& box : open) {
      const auto common = intersect(box, (*it)->box);
      if (common.empty()) {
        next.push_back(std::move(box));
        continue;
      }
      // What is left of the box, cut off dimension by dimension.
      for (std::size_t i = 0; i < box.rank(); ++i) {
        const auto end = box.start[i] + box.count[i], common_end = common.start[i] + common.count[i];
        if (common.start[i] > box.start[i]) {
          auto piece = box;
          piece.count[i] = common.start[i] - box.start[i];
          next.push_back(std::move(piece));
        }
        if (common_end < end) {
          auto piece = box;
          piece.start[i] = common_end;
          piece.count[i] = end - common_end;
          next.push_back(std::move(piece));
        }
        box.start[i] = common.start[i];
        box.count[i] = common.count[i];
      }
    }
    open.swap(next);
    if (open.size() > 256) return false;
  }
  return open.empty();
}

}  // namespace advectio
