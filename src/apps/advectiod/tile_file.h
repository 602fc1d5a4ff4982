// One tile of a split dataset, read with the netCDF library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/result.h"
#include "core/schema.h"

namespace advectio {

/// Calls may come from any thread; they take the library's lock.
class TileFile {
 public:
  /// Errors: Code::unsupported for what our schemas cannot hold (groups, user-defined types); else the library's
  /// reason.
  static Result<std::unique_ptr<TileFile>> open(const std::string& path);
  ~TileFile();
  TileFile(const TileFile&) = delete;
  TileFile& operator=(const TileFile&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const Schema& schema() const noexcept { return schema_; }
  /// What dimensions have now, unlimited ones too.
  [[nodiscard]] const std::vector<std::uint64_t>& lengths() const noexcept { return lengths_; }

  /// Dense, as a sink's block wants it. `to` has room for the box (not for strings, which have no fixed size).
  Result<void> read(std::uint32_t variable, const Box& box, std::byte* to) const;
  Result<Bytes> read_strings(std::uint32_t variable, const Box& box) const;

 private:
  TileFile(std::string path, int ncid) : path_(std::move(path)), ncid_(ncid) {}
  Result<void> read_schema();

  std::string path_;
  int ncid_;
  Schema schema_;
  std::vector<std::uint64_t> lengths_;
};

}  // namespace advectio
