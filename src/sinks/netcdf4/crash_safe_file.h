// A file that is, at every instant, in the state of a commit or can be brought to one.
//
// Bytes below `protected_end` belong to the last commit and change only through a redo file; bytes above it belong to
// nobody yet and are written in place. The redo file lies beside the file (`redo_path`).
//
//   write   1. The part above protected_end goes straight to the file, or to those who write it (`write_behind`).
//           2. The part below goes to copies of its 4 KiB pages: the first ones in memory, the others in the redo
//              file, which has no trailer yet and so counts for nothing.
//   commit  3. The file is made to reach up to its new end.
//           4. All copies are written to the redo file, then their page numbers, then a trailer with a checksum of
//              everything before it. From here on the commit will happen; until here it has not.
//           5. The copies are written to their places in the file.
//           6. The redo file is removed. protected_end becomes the new end.
//   open    7. With `resume`: a redo file with a valid trailer is applied (5, 6), which does no harm when done twice.
//              Any other is removed.
//
// Before the first commit nothing below 4 KiB is in the file, so that what a process leaves that dies before it begins
// with zeros: no reader takes it for a file, and `resume` starts anew.
//
// Loss of power: a commit that a caller has made durable must not be damaged by a later one that the disk has seen only
// parts of. So once somebody asks for that (`Durability::ordered`)
//   - in step 4 the file is synced before the trailer is written;
//   - in step 6 the redo file is kept until the file has been synced (transaction/redo_file.h).
// The file is in the state of a commit then, or can be brought to it, whatever part of it has reached the disk.
//
// The first write that fails puts the file into discard mode: the error is kept, and nothing is written any more.
// Writes are said to succeed, because HDF5 cannot let go of a file whose writes fail.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "platform/files.h"
#include "sinks/transaction/redo_file.h"
#include "sinks/transaction/write_behind.h"

namespace advectio {

class CrashSafeFile {
 public:
  static constexpr std::uint64_t page_bytes = 4096;

  /// The file must exist; its inode stays. Without `resume` it is emptied.
  static Result<std::unique_ptr<CrashSafeFile>> open(Files& files, const std::string& path,
                                                     const std::string& redo_path, bool resume);

  /// From here on `write` waits for no disk, but where too much waits for it. Arguments are WriteBehind's.
  void write_behind(Executor& threads, std::shared_ptr<MemoryBudget> memory, std::function<void()> wake) {
    behind_.emplace(file_, threads, std::move(memory), std::move(wake));
  }
  /// On return the queued bytes are in the file.
  Result<void> drain();
  [[nodiscard]] bool is_behind() const { return behind_ && behind_->is_behind(); }

  /// False: nothing has ever been committed; the file is to be created.
  [[nodiscard]] bool has_commit() const noexcept { return has_commit_; }

  /// Bytes that were never written read as zeros.
  Result<void> read(std::uint64_t offset, std::span<std::byte> data);

  enum class Kind : std::uint8_t { metadata, raw };
  /// Never fails: see discard mode above, and `error`.
  void write(std::uint64_t offset, std::span<const std::byte> data, Kind kind) noexcept;

  /// While one lives that was given true, raw data behind the end of the file are not written. They
  /// read as zeros.
  class Holes {
   public:
    Holes(CrashSafeFile& file, bool wanted) : file_(file) { file_.leaves_holes_ = wanted; }
    ~Holes() { file_.leaves_holes_ = false; }
    Holes(const Holes&) = delete;
    Holes& operator=(const Holes&) = delete;

   private:
    CrashSafeFile& file_;
  };

  /// Bytes up to the end of what was written, or of what `truncate` says.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  void truncate(std::uint64_t size) noexcept { size_ = size; }

  /// What the writer has given out so far, used or not: kept for it, and the `end` of its commits.
  [[nodiscard]] std::uint64_t allocated() const noexcept { return allocated_; }
  void set_allocated(std::uint64_t end) noexcept { allocated_ = end; }

  /// After resume: what lies above `end` was not committed and is cut off.
  Result<void> settle(std::uint64_t end);

  /// Everything written becomes what the file holds, up to `end`.
  Result<void> commit(std::uint64_t end);

  /// Enter discard mode. `error` stays what it is.
  void discard() noexcept;

  /// All that was committed is in the file, and nothing is left beside it. Where the disk refuses that: an error, and
  /// the next `open` does it. The object may only be abandoned, read and destroyed afterwards.
  Result<void> close();
  /// Give back what was not committed. The object may only be read and destroyed afterwards.
  void abandon() noexcept;

  /// The first failure, as long as the file lives.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }

  struct Durability {
    Files& files;
    std::shared_ptr<File> file;
    std::string directory;
    Durability(Files& f, std::shared_ptr<File> to, std::string in)
        : files(f), file(std::move(to)), directory(std::move(in)) {}
    std::atomic<bool> ordered = false;
    std::mutex committing;  ///< a commit that was begun without order is over before the file is synced
    /// Everything committed before survives a loss of power on return. On any thread.
    Result<void> make_durable();
  };
  [[nodiscard]] std::shared_ptr<Durability> durability() const noexcept { return durability_; }

  [[nodiscard]] std::uint64_t bytes_written() const {
    return bytes_written_ + (behind_ ? behind_->bytes_written() : 0);
  }
  [[nodiscard]] std::uint64_t write_ns() const { return write_ns_ + (behind_ ? behind_->write_ns() : 0); }

 private:
  static constexpr std::size_t arena_pages = 256;
  static constexpr std::size_t memory_pages_max = 4096;

  struct Arena {
    std::array<std::byte, arena_pages * page_bytes> bytes;
  };

  CrashSafeFile(Files& files, std::shared_ptr<File> file, const std::string& redo_path);

  Result<void> recover();
  Result<void> apply_redo();
  Result<void> apply(const std::vector<std::uint64_t>& pages, std::uint64_t end);
  Result<void> write_redo(std::uint64_t end);
  Result<void> timed_write(File& file, std::uint64_t offset, std::span<const std::byte> data);
  Result<void> read_file(std::uint64_t offset, std::span<std::byte> data);
  Result<void> write_pages(std::uint64_t offset, std::span<const std::byte> data);
  Result<std::size_t> slot_for(std::uint64_t page, bool whole);
  void fail(Error error) noexcept;
  void forget_pages() noexcept;
  [[nodiscard]] std::byte* in_memory(std::size_t slot) noexcept;

  std::shared_ptr<File> file_;
  std::shared_ptr<Durability> durability_;
  std::optional<WriteBehind> behind_;
  RedoFile redo_;
  std::uint64_t file_size_ = 0;  // of the file itself
  std::uint64_t size_ = 0;       // as the writer sees it
  std::uint64_t allocated_ = 0;
  std::uint64_t protected_end_ = 0;                       // see the top of this file
  std::uint64_t committed_end_ = 0;                       // 0 before the first commit
  std::unordered_map<std::uint64_t, std::size_t> slots_;  // page → where its copy is
  std::vector<std::uint64_t> pages_;                      // slot → page
  std::vector<std::unique_ptr<Arena>> arenas_;            // of slots below memory_pages_max
  std::optional<Error> error_;
  bool has_commit_ = false;
  bool discarding_ = false;
  bool leaves_holes_ = false;
  std::uint64_t bytes_written_ = 0, write_ns_ = 0;
};

}  // namespace advectio
