// Values over UCX: RDMA, shared memory or TCP, whichever it finds between the two ends. Requests stay on
// the connection; only values travel here, from the server to the reader.
//
// The library is loaded when it is first wanted: programs that never ask for it meet nothing of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"

namespace advectio::readers {

/// One end. One thread at a time.
class Ucx {
 public:
  /// Errors: Code::unsupported where it was built without UCX, or the library is not there; Code::io.
  static Result<std::unique_ptr<Ucx>> open();
  virtual ~Ucx() = default;

  /// By which another end connects to this one, base64.
  [[nodiscard]] virtual const std::string& address() const = 0;
  virtual Result<void> connect(const std::string& address) = 0;

  /// Asked now and then while it blocks: true ends it with Code::gone.
  using GiveUp = std::function<bool()>;
  /// Blocks until the other end has the bytes.
  virtual Result<void> send(std::uint64_t tag, std::span<const std::byte> bytes, const GiveUp& give_up) = 0;
  /// Blocks until `bytes` is filled by messages of that tag, in their order.
  virtual Result<void> receive(std::uint64_t tag, std::span<std::byte> bytes, const GiveUp& give_up) = 0;
};

}  // namespace advectio::readers
