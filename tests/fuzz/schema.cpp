// The bytes of a schema, and what is made of one: storage, default chunks, the place of a tile, the whole of a single
// tile.
#include "core/schema.h"
#include "core/placement.h"
#include "fuzz/fuzz.h"
#include "server/stored_schema.h"

using namespace advectio;

namespace {

void store(const Schema& schema) {
  DatasetPolicy policy;
  (void)as_stored(schema, policy);
  policy.codec = Codec::blosc_lz4;
  policy.format = FileFormat::netcdf4;
  policy.chunks = {{"x", 7}};
  policy.round = {{"*", 5}};
  const auto stored = as_stored(schema, policy);
  if (!stored) return;
  for (const auto& v : stored->variables)
    for (const auto c : v.chunks) fuzz::hold(c > 0, "no chunk is empty");
}

void place(const Schema& schema) {
  auto placement = placement_of(schema);
  if (!placement || !*placement) return;
  std::vector<Tile> tiles{{"one", schema, **placement}};
  (void)join_tiles(tiles);
  tiles = {{"one", schema, **placement}, {"two", schema, **placement}};
  (void)join_tiles(tiles);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto schema = decode_schema(fuzz::bytes_of(data, size));
  if (!schema) return 0;
  const auto again = encode(*schema);
  const auto second = decode_schema(again);
  fuzz::hold(second.ok() && *second == *schema, "a schema survives being encoded");
  (void)frame_bytes(*schema);
  store(*schema);
  place(*schema);
  return 0;
}
