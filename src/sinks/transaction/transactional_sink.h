// What sinks do alike, so that each of them writes down its own work only: which calls are allowed,
// what was declared and is not in the file yet, and how an error ends a sink.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sinks/sink.h"

namespace advectio {

/// A sink in which all between two commits is one transaction. Its destructor calls `abandon`.
class TransactionalSink : public Sink {
 public:
  /// Kept, and put into the file by `apply` when something needs it: a program may define hundreds
  /// of things one at a time.
  Result<void> declare(const Schema& schema) final;
  Result<void> begin(std::uint64_t frame) final;
  Result<void> ready(const std::shared_ptr<const Field>& field, const Part& part) final;
  Result<void> ready_stored(std::uint32_t variable, const Box& box, std::uint32_t mask,
                            std::span<const std::byte> bytes) final;
  Result<void> seal() final;
  Result<bool> advance() final;
  Result<void> end() final;
  Result<void> checkpoint() final;
  Result<void> close() final;
  void abandon() noexcept final;

 protected:
  explicit TransactionalSink(std::string path) : path_(std::move(path)) {}

  /// Bring this schema into the file.
  virtual Result<void> apply(const Schema& schema) = 0;
  /// A part of a variable of the schema applied last, as `ready` gives it.
  virtual Result<void> take(const std::shared_ptr<const Field>& field, const Part& part) = 0;
  /// It takes parts with a layout; else `ready` gives it their boxes one by one.
  [[nodiscard]] virtual bool takes_layouts() const { return false; }
  /// The same of a chunk that is stored already.
  virtual Result<void> take_stored(std::uint32_t variable, const Box& box, std::uint32_t mask,
                                   std::span<const std::byte> bytes) {
    return Sink::ready_stored(variable, box, mask, bytes);
  }
  /// As `seal`.
  virtual void seal_parts() {}
  /// As `advance`.
  virtual Result<bool> advance_parts() { return true; }
  /// All that was taken becomes readable, and every field is let go. `last`: `close` asks for it.
  virtual Result<void> commit(bool last) = 0;
  /// After the last commit: leave the file as it will be, and call `closed` once there is nothing
  /// to abandon.
  virtual Result<void> leave() = 0;
  /// Drop what is not committed, and let go of fields and file.
  virtual void drop() noexcept = 0;
  /// An error that a library has not reported.
  [[nodiscard]] virtual std::optional<Error> hidden_error() const { return std::nullopt; }
  /// Nothing more can come of this transaction: let go of the fields.
  virtual void failed() noexcept {}

  void closed() noexcept { closed_ = true; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The frame begun last.
  [[nodiscard]] std::uint64_t frame() const noexcept { return frame_; }

 private:
  [[nodiscard]] Result<void> usable() const;
  Result<void> judge(Result<void> result);
  Result<void> apply_pending();
  Result<void> ready_for_parts();
  Result<void> commit_all(bool last);

  std::string path_;
  std::optional<Schema> pending_;  // declared, not in the file yet
  std::uint64_t frame_ = 0;
  bool begun_ = false, closed_ = false;
  std::optional<Error> error_;
};

/// Beside the file and hidden: `.NAME.advectio-redo`; of a name that is hidden already `NAME-redo`; of a long name
/// `.advectio-HASH-redo`.
std::string default_redo_path(const std::string& path);

/// `bytes` of it, beginning with a whole element.
void fill_with(std::byte* to, std::size_t bytes, const Bytes& element) noexcept;

}  // namespace advectio
