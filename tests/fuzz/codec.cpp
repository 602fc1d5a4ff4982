// Bytes that claim to be a compressed chunk: what our HDF5 filters get from a file that is read or taken up again.
// Two bytes of choice, two of parameters, then the chunk.
#include <array>

#include "core/schema.h"
#include "fuzz/fuzz.h"
#include "sinks/chunks/codec.h"

using namespace advectio;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  constexpr std::array ids{filter_id::zstd, filter_id::lz4, filter_id::blosc, filter_id::bitshuffle};
  EncodeStage stage;
  stage.id = ids[data[0] % ids.size()];
  stage.parameters = {0, 3, data[2], data[3], data[1] % 4U};
  Buffer out;
  const auto n = decode_stage(stage, fuzz::bytes_of(data + 4, size - 4), out, std::size_t{1} << 16);
  if (n) fuzz::hold(*n <= out.capacity(), "what came out is there");
  return 0;
}
