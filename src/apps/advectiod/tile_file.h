// One tile of a split dataset, read with the netCDF library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/advectiod/chunk_reader.h"
#include "core/box.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// What a tile is, without its values.
struct TileHead {
  Schema schema;
  std::vector<std::uint64_t> lengths;  ///< of dimensions as they are now, unlimited ones too
};

/// Calls may come from any thread; they take the library's lock.
class TileFile {
 public:
  static Result<std::unique_ptr<TileFile>> open(const std::string& path);
  ~TileFile();
  TileFile(const TileFile&) = delete;
  TileFile& operator=(const TileFile&) = delete;

  /// Errors: Code::unsupported for what our schemas cannot hold (groups, user-defined types); else the library's
  /// reason.
  [[nodiscard]] Result<TileHead> head() const;

  /// Dense, as a sink's block wants it. `to` has room for the box (not for strings, which have no fixed size).
  Result<void> read(std::uint32_t variable, const Box& box, std::byte* to) const;
  Result<Bytes> read_strings(std::uint32_t variable, const Box& box) const;

 private:
  TileFile(std::string path, int ncid) : path_(std::move(path)), ncid_(ncid) {}
  Result<void> read_head(TileHead& to) const;

  std::string path_;
  int ncid_;
  /// For what it can read faster; null where the file is no HDF5. Used under the library's lock.
  std::unique_ptr<ChunkReader> chunks_;
};

}  // namespace advectio
