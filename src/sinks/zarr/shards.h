// The shards of a store: files that hold the chunks of some records of one array.
//
//   SHARD = index, then chunks in any order, with gaps
//   index = offset and length of each chunk (two u64; 2^64 - 1 twice: it is not there), then their
//         CRC-32C
//
//  * A chunk is appended; nothing that a committed index names is ever written again. So whoever
//    reads the committed state reads on while the next one is written.
//  * A shard that is new, and what an array without dimensions holds, is written under another name
//    (`.part`).
//  * `prepare` says what makes all of it visible. Nothing is visible before that is done.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "platform/files.h"
#include "sinks/chunks/chunk_assembly.h"
#include "sinks/zarr/metadata.h"
#include "sinks/zarr/redo.h"

namespace advectio::zarr {

class Shards final : public ChunkStore {
 public:
  Shards(Files& files, std::string store) : files_(files), store_(std::move(store)) {}

  /// Where the array of this variable lies now, within the store, and how.
  void place(std::uint32_t variable, std::string directory, Form form);

  Result<void> put(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                   std::uint32_t mask, std::span<const std::byte> data) override;
  Result<void> get(std::uint32_t variable, const ChunkedVariable& how, std::span<const std::uint64_t> start,
                   const std::vector<std::uint64_t>& extent, std::byte* to) override;

  /// The chunk's bytes as they lie in the file; empty: there is none.
  Result<Bytes> read(std::uint32_t variable, std::span<const std::uint64_t> start);
  Result<void> write(std::uint32_t variable, std::span<const std::uint64_t> start, std::span<const std::byte> data);

  /// Something was put since the last commit.
  [[nodiscard]] bool changed() const noexcept { return !touched_.empty(); }
  /// Finishes the files, and adds to `redo` what makes them visible. `directories`: of the arrays,
  /// by variable, as they are when that is done. Paths of files that have changed, as they are now,
  /// go to `files`; of those that take the place of another file, to `replacing`.
  Result<void> prepare(const std::vector<std::string>& directories, Redo& redo, std::vector<std::string>& files,
                       std::vector<std::string>& replacing);
  /// It has been done.
  void committed() noexcept { touched_.clear(); }
  /// Drop what was put since the last commit.
  void abandon() noexcept;

  [[nodiscard]] std::uint64_t bytes_written() const noexcept { return bytes_written_; }
  [[nodiscard]] std::uint64_t write_ns() const noexcept { return write_ns_; }

 private:
  struct Entry {
    std::uint64_t offset = UINT64_MAX, bytes = UINT64_MAX;
  };
  struct Array {
    std::string directory;
    Form form;
  };
  struct Shard {
    std::string name;  ///< within the array's directory, as readers know it
    bool is_new = false;
    std::unique_ptr<File> file;
    std::uint64_t begin = 0;  ///< bytes that it had
    std::uint64_t end = 0;
    std::vector<Entry> index;
  };
  using Key = std::pair<std::uint32_t, std::vector<std::uint64_t>>;  // variable, and the shard's place

  [[nodiscard]] std::string path_of(const Key& key, const Shard& shard) const;
  std::pair<Key, std::size_t> find(std::uint32_t variable, std::span<const std::uint64_t> start) const;
  Result<void> look_at(const Key& key, Shard& shard);
  Result<void> open(const Key& key, Shard& shard, OpenMode mode);
  Result<void> write(const Key& key, Shard& shard, std::uint64_t at, std::span<const std::byte> data);

  Files& files_;
  const std::string store_;
  std::vector<Array> arrays_;
  std::map<Key, Shard> touched_;
  std::size_t open_files_ = 0;
  std::uint64_t bytes_written_ = 0, write_ns_ = 0;
};

}  // namespace advectio::zarr
