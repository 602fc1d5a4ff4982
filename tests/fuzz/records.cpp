// What a record says: the first byte chooses which record, the rest is its description.
#include "fuzz/fuzz.h"
#include "journal/format.h"

using namespace advectio;

namespace {

/// What has been understood is said again in the same words, or in words that are understood the same way.
template <typename Decode>
void check(std::span<const std::byte> meta, Decode decode) {
  const auto first = decode(meta);
  if (!first) return;
  const auto again = journal::encode(*first);
  const auto second = decode(again);
  fuzz::hold(second.ok(), "what is encoded decodes");
  fuzz::hold(journal::encode(*second) == again, "and to the same");
}

/// Boxes of a put: within the box around them, and as many values as they say. Packed again they are the same.
void check_boxes(std::span<const std::byte> meta) {
  const auto put = journal::decode_put(meta);
  if (!put || put->boxes == 0) return;
  const auto boxes = journal::unpack(*put, 1 << 16);
  if (!boxes) return;
  fuzz::hold(boxes->size() == put->boxes, "there are as many boxes as it says");
  auto again = *put;
  const std::vector<std::uint64_t> nought(boxes->rank());
  const auto packed = journal::pack(*boxes, 0, boxes->size(), nought);
  again.packed = packed;
  fuzz::hold(journal::unpack(again, 1 << 16).ok(), "and they are packed again");
  // More elements are more memory than a fuzzer has.
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < boxes->size(); ++i) {
    const auto n = boxes->volume(i);
    if (n > 1 << 20 || (elements += n) > 1 << 20) return;
  }
  const auto layout = BoxLayout::make(put->box.count, *boxes);
  if (!layout) return;
  std::uint64_t behind = 0;
  for (const auto& run : (*layout)->runs()) {
    fuzz::hold(run.to >= behind && run.count > 0 && run.from + run.count <= elements, "runs are in order and apart");
    behind = run.to + run.count;
  }
  fuzz::hold(behind <= Box{put->box.start, put->box.count}.volume(), "and within the box");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto meta = fuzz::bytes_of(data + 1, size - 1);
  switch (data[0] % 5) {
    case 0: check(meta, journal::decode_create); break;
    case 1: check(meta, journal::decode_enter); break;
    case 2:
      check(meta, journal::decode_put);
      check_boxes(meta);
      break;
    case 3: check(meta, journal::decode_sync); break;
    default: check(meta, journal::decode_settle); break;
  }
  return 0;
}
