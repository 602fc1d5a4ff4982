// A netCDF file, of any format.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sources/netcdf/chunk_reader.h"
#include "sources/source.h"

namespace advectio {

/// Calls take the library's lock, so that sources and sinks on several threads do not meet in it.
class NetcdfSource final : public Source {
 public:
  static Result<std::unique_ptr<Source>> open(const std::string& path);
  ~NetcdfSource() override;
  NetcdfSource(const NetcdfSource&) = delete;
  NetcdfSource& operator=(const NetcdfSource&) = delete;

  [[nodiscard]] Result<SourceHead> head() const override;
  Result<void> read(std::uint32_t variable, const Box& box, std::byte* to) const override;
  [[nodiscard]] Result<Bytes> read_strings(std::uint32_t variable, const Box& box) const override;
  Result<std::vector<StoredChunk>> read_stored(std::uint32_t variable, const Box& box,
                                               std::span<std::byte> to) const override;

 private:
  NetcdfSource(std::string path, int ncid) : path_(std::move(path)), ncid_(ncid) {}
  Result<void> read_head(SourceHead& to) const;

  std::string path_;
  int ncid_;
  /// For what it can read faster; null where the file is no HDF5. Used under the library's lock.
  std::unique_ptr<ChunkReader> chunks_;
  mutable std::optional<Schema> schema_;  ///< once `read_stored` has asked for it
};

}  // namespace advectio
