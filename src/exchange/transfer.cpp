#include "exchange/transfer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "journal/format.h"
#include "platform/files.h"
#include "readers/message.h"

namespace advectio::exchange {

using nlohmann::json;
using readers::Descriptor;

namespace {

constexpr std::size_t slice_bytes = 4UL << 20;
constexpr std::uint32_t transfer_head_max = 1U << 16;

/// Calls `pass` for one slice after the other.
template <typename Bytes, typename Pass>
Result<void> in_slices(Bytes bytes, Pass&& pass) {
  while (!bytes.empty()) {
    const auto slice = bytes.first(std::min(bytes.size(), slice_bytes));
    ADVECTIO_TRY(pass(slice));
    bytes = bytes.subspan(slice.size());
  }
  return {};
}

Result<std::uint64_t> receive_into(int socket, std::uint64_t bytes, const std::string& to) {
  auto file = system_files().open(to, OpenMode::create_new, 0600);
  if (!file) return std::move(file).error();
  std::uint32_t crc = 0;
  if (bytes > 0) {
    ADVECTIO_TRY((*file)->reserve(bytes));
    auto mapping = system_files().map(**file, bytes, true);
    if (!mapping) return std::move(mapping).error();
    auto all = in_slices(std::span(mapping->data(), bytes), [&](std::span<std::byte> slice) -> Result<void> {
      ADVECTIO_TRY(readers::receive_bytes(socket, slice));
      crc = journal::crc32c(slice.data(), slice.size(), crc);
      return {};
    });
    if (!all) return std::move(all).error();
  }
  auto tail = readers::receive_head(socket, transfer_head_max);
  if (!tail) return std::move(tail).error();
  if (!*tail) return Error{Code::gone, "the other end has closed the connection", EPIPE};
  if ((**tail).object.value("crc32c", std::uint64_t{UINT64_MAX}) != crc)
    return Error{Code::corrupt, "its bytes came changed: they have another checksum", EIO};
  return bytes;
}

}  // namespace

Result<std::uint64_t> send_version(int socket, const std::string& version) {
  const Descriptor fd(::open(version.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) {
    ADVECTIO_TRY(readers::send_head(socket, {{"error", "it is not there"}, {"code", "not found"}}));
    return std::uint64_t{0};
  }
  const auto bytes = static_cast<std::size_t>(st.st_size);
  ADVECTIO_TRY(readers::send_head(socket, {{"bytes", bytes}}, bytes));
  std::uint32_t crc = 0;
  if (bytes > 0) {
    auto* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) return Error{Code::gone, "map " + version + ": no memory", errno};  // it sees the end
    const Mapping mapping(static_cast<std::byte*>(at), bytes);
    ADVECTIO_TRY(in_slices(std::span<const std::byte>(mapping.data(), bytes), [&](auto slice) -> Result<void> {
      crc = journal::crc32c(slice.data(), slice.size(), crc);
      return readers::send_bytes(socket, slice);
    }));
  }
  ADVECTIO_TRY(readers::send_head(socket, {{"crc32c", crc}}));
  return bytes;
}

Result<std::uint64_t> receive_version(int socket, const std::string& to) {
  auto head = readers::receive_head(socket, transfer_head_max);
  if (!head) return std::move(head).error();
  if (!*head) return Error{Code::gone, "the other end has closed the connection", EPIPE};
  const auto& object = (**head).object;
  const auto bytes = object.value("bytes", std::uint64_t{UINT64_MAX});
  if (object.contains("error")) return Error{Code::not_found, object.value("error", ""), ENOENT};
  if (bytes != (**head).data_bytes) return Error{Code::corrupt, "the answer does not say how long it is", EIO};
  auto received = receive_into(socket, bytes, to);
  if (!received) (void)::unlink(to.c_str());
  return received;
}

}  // namespace advectio::exchange
