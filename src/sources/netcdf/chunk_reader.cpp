#include "sources/netcdf/chunk_reader.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/schema.h"

namespace advectio {
namespace {

// A chunk that is larger is read by the library, which need not hold it twice.
constexpr std::uint64_t chunk_bytes_max = 256ULL << 20U;

/// First bytes of all elements, then second ones, … → elements.
void unshuffle(const std::byte* in, std::size_t elements, std::size_t element, std::byte* out) noexcept {
  if (element == 4) {
    const auto* const a = reinterpret_cast<const std::uint8_t*>(in);
    const auto *const b = a + elements, *const c = b + elements, *const d = c + elements;
    for (std::size_t i = 0; i < elements; ++i) {
      const auto value = static_cast<std::uint32_t>(a[i]) | static_cast<std::uint32_t>(b[i]) << 8U |
                         static_cast<std::uint32_t>(c[i]) << 16U | static_cast<std::uint32_t>(d[i]) << 24U;
      std::memcpy(out + i * 4, &value, 4);
    }
    return;
  }
  for (std::size_t byte = 0; byte < element; ++byte)
    for (std::size_t i = 0; i < elements; ++i) out[i * element + byte] = in[byte * elements + i];
}

libdeflate_decompressor* decompressor() {
  struct Free {
    void operator()(libdeflate_decompressor* d) const noexcept { libdeflate_free_decompressor(d); }
  };
  thread_local const std::unique_ptr<libdeflate_decompressor, Free> made(libdeflate_alloc_decompressor());
  return made.get();
}

}  // namespace

ChunkReader::~ChunkReader() {
  const Hdf5Lock lock;
  datasets_.clear();
  file_.reset();
}

Box ChunkReader::Dataset::chunk_at(const std::vector<std::uint64_t>& element) const {
  Box one;
  for (std::size_t i = 0; i < chunk.size(); ++i) one.start.push_back(element[i] / chunk[i] * chunk[i]);
  one.count = chunk;
  return one;
}

bool ChunkReader::Dataset::next(Box& one, const Box& box) const {
  for (auto i = chunk.size(); i > 0; --i) {
    if ((one.start[i - 1] += chunk[i - 1]) < box.start[i - 1] + box.count[i - 1]) return true;
    one.start[i - 1] = box.start[i - 1] / chunk[i - 1] * chunk[i - 1];
  }
  return false;
}

ChunkReader::Dataset ChunkReader::open(const std::string& variable, DataType type) {
  Dataset d;
  const auto element = size_of(type);
  Hdf5Id id(H5Dopen2(file_, ("/" + variable).c_str(), H5P_DEFAULT), H5Dclose);
  if (!id || element == 0) return d;
  const Hdf5Id create(H5Dget_create_plist(id), H5Pclose), space(H5Dget_space(id), H5Sclose),
      stored(H5Dget_type(id), H5Tclose);
  if (!create || !space || !stored || H5Pget_layout(create) != H5D_CHUNKED || H5Tget_size(stored) != element) return d;
  const auto kind = H5Tget_class(stored);
  if (kind != H5T_INTEGER && kind != H5T_FLOAT && (kind != H5T_STRING || element != 1)) return d;
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 1) return d;
  std::vector<hsize_t> lengths(static_cast<std::size_t>(rank)), chunk(lengths.size());
  if (H5Sget_simple_extent_dims(space, lengths.data(), nullptr) != rank ||
      H5Pget_chunk(create, rank, chunk.data()) != rank)
    return d;
  d.lengths.assign(lengths.begin(), lengths.end());
  d.chunk.assign(chunk.begin(), chunk.end());
  std::uint64_t bytes = element;
  for (const auto c : d.chunk)
    if (__builtin_mul_overflow(bytes, c, &bytes) || bytes > chunk_bytes_max) return d;
  d.chunk_bytes = bytes;
  d.readable = kind != H5T_STRING && (element == 1 || H5Tget_order(stored) == H5T_ORDER_LE);
  const int filters = H5Pget_nfilters(create);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0;
    std::size_t parameters = 0;
    const auto filter =
        H5Pget_filter2(create, static_cast<unsigned>(i), &flags, &parameters, nullptr, 0, nullptr, nullptr);
    if (filter < 0) return d;
    d.filters.push_back(static_cast<std::uint32_t>(filter));
    if (filter == H5Z_FILTER_SHUFFLE && i == 0)
      d.shuffled = element > 1;
    else if (filter == H5Z_FILTER_DEFLATE && !d.deflated)
      d.deflated = true;
    else
      d.readable = false;
  }
  d.id = std::move(id);
  return d;
}

/// Null: not for us, or the box is not within it.
const ChunkReader::Dataset* ChunkReader::find(const std::string& variable, DataType type, const Box& box) {
  if (!std::exchange(tried_, true)) {
    // HDF5 wants the way of closing with which netCDF has opened the file; that differs between its versions.
    for (const auto closing : {H5F_CLOSE_STRONG, H5F_CLOSE_SEMI, H5F_CLOSE_WEAK}) {
      const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
      if (file_ || !access || H5Pset_fclose_degree(access, closing) < 0) continue;
      file_ = Hdf5Id(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
    }
  }
  if (!file_) return nullptr;
  auto it = datasets_.find(variable);
  if (it == datasets_.end()) it = datasets_.emplace(variable, open(variable, type)).first;
  const auto& d = it->second;
  if (!d.id || d.chunk.size() != box.rank()) return nullptr;
  for (std::size_t i = 0; i < box.rank(); ++i)
    if (box.count[i] == 0 || box.start[i] + box.count[i] > d.lengths[i]) return nullptr;
  return &d;
}

std::vector<StoredChunk> ChunkReader::read_stored(const std::string& variable, DataType type,
                                                  const std::vector<Filter>& filters, const Box& box,
                                                  std::span<std::byte> to) {
  const Hdf5Lock lock;
  const auto* const d = find(variable, type, box);
  if (d == nullptr || !std::ranges::equal(d->filters, filters, {}, {}, &Filter::id)) return {};
  std::vector<StoredChunk> chunks;
  std::uint64_t used = 0;
  auto one = d->chunk_at(box.start);
  do {
    const std::vector<hsize_t> at(one.start.begin(), one.start.end());
    hsize_t bytes = 0;
    if (H5Dget_chunk_storage_size(d->id, at.data(), &bytes) < 0 || bytes == 0 || bytes > to.size() - used) return {};
    auto& chunk = chunks.emplace_back(StoredChunk{bytes, 0});
    if (H5Dread_chunk(d->id, H5P_DEFAULT, at.data(), &chunk.mask, to.data() + used) < 0) return {};
    used += bytes;
  } while (d->next(one, box));
  return chunks;
}

/// A whole chunk as values; null where it is not there, or not as it should be.
const std::byte* ChunkReader::chunk(const Dataset& dataset, const std::vector<std::uint64_t>& start,
                                    std::size_t element) {
  const std::vector<hsize_t> at(start.begin(), start.end());
  hsize_t stored = 0;
  if (H5Dget_chunk_storage_size(dataset.id, at.data(), &stored) < 0 || stored == 0 || stored > 2 * chunk_bytes_max)
    return nullptr;
  raw_.reserve(stored);
  std::uint32_t mask = 0;
  if (H5Dread_chunk(dataset.id, H5P_DEFAULT, at.data(), &mask, raw_.data()) < 0 || mask != 0) return nullptr;
  const std::byte* values = raw_.data();
  if (dataset.deflated) {
    plain_.reserve(dataset.chunk_bytes);
    std::size_t made = 0;
    if (libdeflate_zlib_decompress(decompressor(), values, stored, plain_.data(), dataset.chunk_bytes, &made) !=
            LIBDEFLATE_SUCCESS ||
        made != dataset.chunk_bytes)
      return nullptr;
    values = plain_.data();
  } else if (stored != dataset.chunk_bytes) {
    return nullptr;
  }
  if (!dataset.shuffled) return values;
  whole_.reserve(dataset.chunk_bytes);
  unshuffle(values, dataset.chunk_bytes / element, element, whole_.data());
  return whole_.data();
}

bool ChunkReader::read(const std::string& variable, DataType type, const Box& box, std::byte* to) {
  const Hdf5Lock lock;
  const auto* const d = find(variable, type, box);
  if (d == nullptr || !d->readable || decompressor() == nullptr) return false;
  const auto element = size_of(type);
  auto one = d->chunk_at(box.start);
  do {
    const auto* const values = chunk(*d, one.start, element);
    if (values == nullptr) return false;
    copy_part(intersect(box, one), values, one, to, box, element);
  } while (d->next(one, box));
  return true;
}

}  // namespace advectio
