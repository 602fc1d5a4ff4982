// Processes that read sources: tiles of a whole, files of a series. The netCDF library reads and decompresses under one
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
#include "sources/source.h"

namespace advectio {

class SourceReaders {
 public:
  struct Request {
    std::size_t number = 0;  ///< all of one number are read by the same reader
    std::string path;
    std::uint32_t variable = 0;  ///< not of strings
    Box box;
    std::uint64_t to = 0;  ///< where in `memory`
    /// Null: values are wanted. Else its chunks as they are stored, in so many bytes; where it stays empty, there are
    /// values. Of at most `stored_chunks_max` chunks.
    std::vector<StoredChunk>* stored = nullptr;
    std::uint64_t room = 0;
  };
  static constexpr std::uint64_t stored_chunks_max = 1000;

  /// `count` processes that share `bytes` of memory with this one, which must have no other thread yet. Each opens what
  /// it reads by `open`, and keeps at most `open_max` sources open.
  static Result<std::unique_ptr<SourceReaders>> start(unsigned count, std::uint64_t bytes, const OpenSource& open,
                                                      std::size_t open_max = SIZE_MAX);
  /// Ends them.
  ~SourceReaders();
  SourceReaders(const SourceReaders&) = delete;
  SourceReaders& operator=(const SourceReaders&) = delete;

  [[nodiscard]] std::byte* memory() const noexcept { return memory_.data(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return memory_.bytes(); }

  /// Returns when all have been read. Code::gone when `stop` has become true, or a reader has ended. After an error
  /// nothing more can be read.
  Result<void> read(std::span<const Request> requests, const std::atomic<bool>& stop);

 private:
  struct Reader {
    pid_t pid = -1;
    int socket = -1;
    const Request* busy = nullptr;
  };
  SourceReaders() = default;
  Result<void> start_one(const OpenSource& open, std::size_t open_max);
  Result<void> take_answer(Reader& reader);

  Mapping memory_;
  std::vector<Reader> readers_;
};

}  // namespace advectio
