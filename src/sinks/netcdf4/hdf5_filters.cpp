#include "sinks/netcdf4/hdf5_filters.h"

#include <blosc.h>
#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "core/schema.h"
#include "sinks/chunks/codec.h"

namespace advectio {

namespace {

constexpr std::size_t parameters_max = 16;

struct Current {
  unsigned flags = 0;
  std::size_t count = parameters_max;
  std::array<unsigned, parameters_max> values{};
};

bool current_of(hid_t creation, H5Z_filter_t id, Current& c) {
  return H5Pget_filter_by_id2(creation, id, &c.flags, &c.count, c.values.data(), 0, nullptr, nullptr) >= 0 &&
         c.count <= parameters_max;
}

// Called by HDF5 when a data set is created: the filter learns the element's size and the chunk's.
herr_t complete_blosc(hid_t creation, hid_t type, hid_t) {
  Current c;
  if (!current_of(creation, filter_id::blosc, c)) return -1;
  std::array<hsize_t, H5S_MAX_RANK> chunk{};
  const int rank = H5Pget_chunk(creation, H5S_MAX_RANK, chunk.data());
  const auto element = H5Tget_size(type);
  if (rank < 0 || element == 0) return -1;
  std::size_t bytes = element;
  for (int i = 0; i < rank; ++i) bytes *= chunk[static_cast<std::size_t>(i)];
  c.values[0] = 2;  // of the filter's parameters
  c.values[1] = BLOSC_VERSION_FORMAT;
  c.values[2] = static_cast<unsigned>(element > BLOSC_MAX_TYPESIZE ? 1 : element);
  c.values[3] = static_cast<unsigned>(bytes);
  return H5Pmodify_filter(creation, filter_id::blosc, c.flags, std::max<std::size_t>(c.count, 4), c.values.data());
}

herr_t complete_bitshuffle(hid_t creation, hid_t type, hid_t) {
  Current c;
  if (!current_of(creation, filter_id::bitshuffle, c)) return -1;
  // What the program gave (elements of a block, codec, level) follows three values of the filter's own.
  const std::size_t given = std::min<std::size_t>(c.count, parameters_max - 3);
  std::array<unsigned, parameters_max> values{};
  values[0] = 0;  // version of the format
  values[1] = 4;
  values[2] = static_cast<unsigned>(H5Tget_size(type));
  std::copy_n(c.values.begin(), given, values.begin() + 3);
  if (given > 0 && values[3] % 8 != 0) return -1;
  return H5Pmodify_filter(creation, filter_id::bitshuffle, c.flags, given + 3, values.data());
}

template <std::uint32_t id>
std::size_t run(unsigned flags, std::size_t count, const unsigned* values, std::size_t bytes, std::size_t* buffer_bytes,
                void** buffer) {
  try {
    EncodePipeline pipeline;
    EncodeStage stage{id, false, {values, values + count}};
    Buffer out;
    const auto in = std::span(static_cast<const std::byte*>(*buffer), bytes);
    const auto n = (flags & H5Z_FLAG_REVERSE) != 0 ? decode_stage(stage, in, out, *buffer_bytes)
                                                   : encode_stage(stage, pipeline, in, out);
    if (!n || *n == 0) return 0;
    void* to = H5allocate_memory(*n, false);
    if (to == nullptr) return 0;
    std::memcpy(to, out.data(), *n);
    H5free_memory(*buffer);
    *buffer = to;
    *buffer_bytes = *n;
    return *n;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

template <std::uint32_t id>
void add(const char* name, H5Z_set_local_func_t complete) {
  static const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, id, 1, 1, name, nullptr, complete, run<id>};
  (void)H5Zregister(&filter);
}

}  // namespace

void register_hdf5_filters() {
  add<filter_id::blosc>("blosc", complete_blosc);
  add<filter_id::lz4>("lz4", nullptr);
  add<filter_id::bitshuffle>("bitshuffle", complete_bitshuffle);
  add<filter_id::zstd>("zstd", nullptr);
}

}  // namespace advectio
