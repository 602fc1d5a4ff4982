#include "apps/advectiod/boxes.h"

#include <algorithm>

namespace advectio {

std::vector<Box> cut(const std::vector<std::uint64_t>& lengths, const std::vector<std::uint64_t>& chunks,
                     std::uint64_t cells) {
  auto step = lengths;
  const auto volume = [&] {
    std::uint64_t n = 1;
    for (const auto s : step) n *= s;
    return n;
  };
  for (std::size_t i = 0; i < step.size() && volume() > cells; ++i) {
    const auto chunk = std::max<std::uint64_t>(1, chunks[i]), rest = volume() / step[i];
    step[i] = std::min(lengths[i], std::max<std::uint64_t>(1, cells / rest / chunk) * chunk);
  }
  std::vector<Box> boxes;
  if (volume() == 0) return boxes;
  Box box;
  box.start.assign(lengths.size(), 0);
  for (;;) {
    box.count.clear();
    for (std::size_t i = 0; i < step.size(); ++i) box.count.push_back(std::min(step[i], lengths[i] - box.start[i]));
    boxes.push_back(box);
    auto i = step.size();
    for (; i > 0; --i) {
      if ((box.start[i - 1] += step[i - 1]) < lengths[i - 1]) break;
      box.start[i - 1] = 0;
    }
    if (i == 0) return boxes;
  }
}

}  // namespace advectio
