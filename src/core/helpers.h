// Threads of other processes that do short pieces of work for this one: bytes there, bytes back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "core/buffer.h"

namespace advectio {

struct Message {
  Buffer buffer;
  std::size_t bytes = 0;
  [[nodiscard]] std::span<const std::byte> span() const noexcept { return buffer.first(bytes); }
};

/// May be called by any thread. Nothing here waits.
class Helpers {
 public:
  virtual ~Helpers() = default;

  /// A place for a piece of work of so many bytes, with somebody who has time for it: for `ask` or `let_go`.
  virtual std::optional<unsigned> place(std::size_t bytes) = 0;
  virtual void let_go(unsigned place) = 0;

  /// `answer` is called once, on some thread: with what the work has given, or with nothing where nobody has done it.
  using Answer = std::function<void(std::optional<Message>)>;
  virtual void ask(unsigned place, std::shared_ptr<const Message> request, Answer answer) = 0;
};

}  // namespace advectio
