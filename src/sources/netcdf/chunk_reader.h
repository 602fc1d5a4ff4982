// Chunks of an HDF5 file, read as they are in it and unpacked here: shuffle and deflate by
// libdeflate, which takes a fraction of the time of the library's zlib.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/buffer.h"
#include "core/schema.h"
#include "core/types.h"
#include "sinks/netcdf4/hdf5.h"

namespace advectio {

/// One thread.
class ChunkReader {
 public:
  explicit ChunkReader(std::string path) : path_(std::move(path)) {}
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  /// The box of a variable, dense, as netCDF would give it. False: this is not for us (the variable is not chunked, has
  /// another filter or byte order, a chunk was never written, the file is damaged, …); `to` may have been written to,
  /// and netCDF reads it or says what is wrong.
  bool read(const std::string& variable, DataType type, const Box& box, std::byte* to);

  /// As Source::read_stored; `filters` are those that it speaks of.
  std::vector<StoredChunk> read_stored(const std::string& variable, DataType type, const std::vector<Filter>& filters,
                                       const Box& box, std::span<std::byte> to);

 private:
  struct Dataset {
    Hdf5Id id;  ///< none: not for us
    std::vector<std::uint64_t> lengths, chunk;
    std::vector<std::uint32_t> filters;
    bool readable = false;  ///< unpacked here
    bool shuffled = false, deflated = false;
    std::size_t chunk_bytes = 0;

    /// The chunk that has the element, and the one after it among those that meet the box; false: there is none.
    [[nodiscard]] Box chunk_at(const std::vector<std::uint64_t>& element) const;
    bool next(Box& one, const Box& box) const;
  };
  const Dataset* find(const std::string& variable, DataType type, const Box& box);
  Dataset open(const std::string& variable, DataType type);
  const std::byte* chunk(const Dataset& dataset, const std::vector<std::uint64_t>& start, std::size_t element);

  std::string path_;
  bool tried_ = false;
  Hdf5Id file_;
  std::map<std::string, Dataset> datasets_;
  Buffer raw_, plain_, whole_;
};

}  // namespace advectio
