// Messages between a reader and the server: a prefix of 16 bytes, a JSON object, and bytes.
// PROTOCOL.md has the objects.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace advectio::readers {

inline constexpr std::size_t prefix_bytes = 16;
inline constexpr std::uint32_t request_head_max = 1U << 20;
inline constexpr std::uint32_t reply_head_max = 256U << 20;
inline constexpr std::size_t descriptors_max = 200;  ///< in one message; Linux takes 253

struct Prefix {
  std::uint32_t head_bytes = 0;  ///< of the JSON object
  std::uint64_t data_bytes = 0;  ///< behind it
};
std::array<std::byte, prefix_bytes> encode(const Prefix& prefix);
/// Errors: Code::corrupt where it is no prefix, or the head is longer than `head_max`.
Result<Prefix> decode_prefix(std::span<const std::byte, prefix_bytes> bytes, std::uint32_t head_max);

/// A file descriptor that is closed when it goes.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// What came before the data of a message. `data_bytes` are still to be received.
struct Head {
  nlohmann::json object;
  std::uint64_t data_bytes = 0;
  std::vector<Descriptor> descriptors;
};

/// Blocks until all is sent. `data_bytes`: what the caller sends behind it with `send_bytes`.
/// Errors: Code::gone where nobody is at the other end.
Result<void> send_head(int socket, const nlohmann::json& object, std::uint64_t data_bytes = 0,
                       std::span<const int> descriptors = {});
Result<void> send_bytes(int socket, std::span<const std::byte> bytes);

/// Blocks until the head is there. Nothing: the other end has closed between two messages.
/// Errors: Code::gone in the midst of a message; Code::corrupt where it is none.
Result<std::optional<Head>> receive_head(int socket, std::uint32_t head_max);
/// Blocks until all of `bytes` is there.
Result<void> receive_bytes(int socket, std::span<std::byte> bytes);
/// The same, and forgets them.
Result<void> skip_bytes(int socket, std::uint64_t bytes);

/// "unix:/path" or "tcp:host:port" (an IPv6 address in brackets).
struct Address {
  bool local = true;
  std::string path;  ///< of a local one
  std::string host, port;
};
Result<Address> parse_address(const std::string& text);

/// Errors: Code::gone where nobody listens; Code::timeout; others of the system.
Result<Descriptor> connect_to(const Address& address, std::chrono::milliseconds timeout);

}  // namespace advectio::readers
