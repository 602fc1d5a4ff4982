#include "server/layouts.h"

#include <algorithm>
#include <utility>

namespace advectio {

Result<std::shared_ptr<const BoxLayout>> Layouts::of(const journal::Put& put, std::uint64_t elements) {
  ++asked_;
  std::uint64_t hash = journal::crc32c(put.packed.data(), put.packed.size());
  for (const auto n : put.box.count) hash = (hash ^ n) * 0x9E3779B97F4A7C15ULL;
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const auto kept = it->second;
    if (kept->layout->lengths() != put.box.count || kept->layout->elements() != elements ||
        !std::equal(kept->said.begin(), kept->said.end(), put.packed.begin(), put.packed.end()))
      continue;
    kept_.splice(kept_.begin(), kept_, kept);
    return kept->layout;
  }
  const auto boxes = journal::unpack(put, elements);
  if (!boxes) return boxes.error();
  auto made = BoxLayout::make(put.box.count, *boxes);
  if (!made) return made;
  ++made_;
  if ((*made)->elements() != elements) return Error{Code::corrupt, "a put has not the bytes its boxes take", 0};
  Kept kept{hash, {put.packed.begin(), put.packed.end()}, *made};
  if (kept.bytes() > most_) return made;
  bytes_ += kept.bytes();
  kept_.push_front(std::move(kept));
  by_hash_.emplace(hash, kept_.begin());
  while (bytes_ > most_) {
    const auto oldest = std::prev(kept_.end());
    bytes_ -= oldest->bytes();
    const auto [from, to] = by_hash_.equal_range(oldest->hash);
    by_hash_.erase(std::find_if(from, to, [oldest](const auto& x) { return x.second == oldest; }));
    kept_.pop_back();
  }
  return made;
}

}  // namespace advectio
