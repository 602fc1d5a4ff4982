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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto meta = fuzz::bytes_of(data + 1, size - 1);
  switch (data[0] % 5) {
    case 0: check(meta, journal::decode_create); break;
    case 1: check(meta, journal::decode_enter); break;
    case 2: check(meta, journal::decode_put); break;
    case 3: check(meta, journal::decode_sync); break;
    default: check(meta, journal::decode_settle); break;
  }
  return 0;
}
