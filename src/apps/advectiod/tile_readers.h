// Processes that read files: tiles of a whole, files of a series. The netCDF library reads and decompresses under one
// lock, so that threads would only wait for each other.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/box.h"
#include "core/result.h"
#include "platform/files.h"

namespace advectio {

class TileReaders {
 public:
  struct Request {
    std::size_t tile = 0;  ///< all of one number are read by the same reader
    std::string path;
    std::uint32_t variable = 0;  ///< not of strings
    Box box;
    std::uint64_t to = 0;  ///< where in `memory`
  };

  /// `count` processes that share `bytes` of memory with this one, which must have no other thread yet. Each keeps at
  /// most `files_open_max` files open.
  static Result<std::unique_ptr<TileReaders>> start(unsigned count, std::uint64_t bytes,
                                                    std::size_t files_open_max = SIZE_MAX);
  /// Ends them.
  ~TileReaders();
  TileReaders(const TileReaders&) = delete;
  TileReaders& operator=(const TileReaders&) = delete;

  [[nodiscard]] std::byte* memory() const noexcept { return memory_.data(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return memory_.bytes(); }

  /// Returns when all have been read. Code::gone when `stop` has become true, or a reader has ended. After an error
  /// nothing more can be read.
  Result<void> read(std::span<const Request> requests, const std::atomic<bool>& stop);

 private:
  struct Reader {
    pid_t pid = -1;
    int socket = -1;
    bool busy = false;
  };
  TileReaders() = default;
  Result<void> start_one(std::size_t files_open_max);
  Result<void> take_answer(Reader& reader);

  Mapping memory_;
  std::vector<Reader> readers_;
};

}  // namespace advectio
