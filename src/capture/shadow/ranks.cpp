#include "capture/shadow/ranks.h"

#include <sys/stat.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

namespace advectio::shadow {
namespace {

/// An invitation as rank 0 broadcasts it. It lies on the stack: no rank may lack the memory for it.
class Message {
 public:
  /// False: the names are too long.
  [[nodiscard]] bool write(const Invitation& i) noexcept {
    const std::string* const names[] = {&i.shared_state, &i.path, &i.link};
    std::size_t at = sizeof(Header);
    Header header{0,  0,         i.number,    i.writers, i.owner, static_cast<std::uint32_t>(i.format),
                  {}, i.journal, i.created_ns};
    for (std::size_t n = 0; n < 3; ++n) {
      if (names[n]->size() > bytes_.size() - at) return false;
      header.names[n] = static_cast<std::uint32_t>(names[n]->size());
      at += names[n]->copy(bytes_.data() + at, names[n]->size());
    }
    header.registered = 1;
    header.bytes = static_cast<std::uint32_t>(at);
    std::memcpy(bytes_.data(), &header, sizeof header);
    return true;
  }
  /// Collective. MPI sends the first part without asking the receiver before.
  void broadcast(const Ranks& ranks) noexcept {
    ranks.broadcast(std::as_writable_bytes(std::span(bytes_).first(first_part)));
    if (const auto bytes = header().bytes; bytes > first_part)
      ranks.broadcast(std::as_writable_bytes(std::span(bytes_).subspan(first_part, bytes - first_part)));
  }
  [[nodiscard]] bool registered() const noexcept { return header().registered != 0; }
  [[nodiscard]] Invitation read() const {
    const auto h = header();
    const char* at = bytes_.data() + sizeof h;
    const auto next = [&at](std::uint32_t bytes) { return std::string(std::exchange(at, at + bytes), bytes); };
    Invitation i{};
    i.shared_state = next(h.names[0]);
    i.path = next(h.names[1]);
    i.link = next(h.names[2]);
    i.format = static_cast<FileFormat>(h.format);
    i.journal = h.journal;
    i.number = h.number;
    i.writers = h.writers;
    i.owner = h.owner;
    i.created_ns = h.created_ns;
    return i;
  }

 private:
  struct Header {
    std::uint32_t registered, bytes, number, writers, owner, format;
    std::uint32_t names[3];  ///< their lengths; they follow
    std::uint64_t journal, created_ns;
  };
  static constexpr std::size_t first_part = 1024;
  [[nodiscard]] Header header() const noexcept {
    Header h;
    std::memcpy(&h, bytes_.data(), sizeof h);
    return h;
  }
  std::array<char, sizeof(Header) + 2 * PATH_MAX + 256> bytes_{};
  static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) < first_part);
};

}  // namespace

bool beyond_this_node() noexcept {
  const char* servers = std::getenv("ADVECTIO_SERVERS");
  if (servers != nullptr && std::atoi(servers) > 1) return false;
  const char* here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const char* all = std::getenv("OMPI_COMM_WORLD_SIZE");
  return here != nullptr && all != nullptr && std::strcmp(here, all) != 0;
}

void say_beyond_this_node(const std::string& path, const char* library) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr || std::strcmp(rank, "0") != 0 || std::getenv("ADVECTIO_RUN") == nullptr) return;
  if (auto* session = Session::current(); session != nullptr)
    session->say_once(path + " goes through the " + library + " library as usual: there are ranks on other nodes");
}

std::optional<FileToOpen> look_at(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return {};
  FileToOpen file;
  file.path = path;
  file.length = static_cast<std::uint64_t>(st.st_size);
  file.changed_ns =
      static_cast<std::uint64_t>(st.st_mtim.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(st.st_mtim.tv_nsec);
  file.device = st.st_dev;
  file.inode = st.st_ino;
  return file;
}

bool is_the_same_for_all(const Ranks& ranks, const FileToOpen& there) noexcept {
  const std::array<std::uint64_t, 4> here{there.length, there.changed_ns, there.device, there.inode};
  auto of_first = here;
  ranks.broadcast(std::as_writable_bytes(std::span(of_first)));
  return of_first == here;
}

BegunTogether begin_together(const Ranks& ranks, bool can, Session* session, const CreateRequest& request,
                             const FileToOpen* there) noexcept {
  BegunTogether begun;
  Message message;
  if (can && ranks.rank() == 0) {
    Invitation invitation;
    const auto writers = static_cast<std::uint32_t>(ranks.count());
    auto made = as_result([&] {
      return there != nullptr ? session->open_shared(*there, writers, invitation)
                              : session->create_shared(request, writers, invitation);
    });
    if (made && message.write(invitation)) begun.dataset = std::move(made).value();
    // The library finds other reasons, too.
    if (!made && there != nullptr && made.error().code == Code::unsupported) session->say_once(made.error().message);
  }
  message.broadcast(ranks);
  begun.registered = message.registered();
  if (!begun.registered || !can || ranks.rank() == 0) return begun;
  auto joined = as_result([&] { return session->join(message.read(), static_cast<std::uint32_t>(ranks.rank())); });
  if (joined)
    begun.dataset = std::move(joined).value();
  else
    begun.why = std::move(joined).error();
  return begun;
}

void end_together(const Ranks& ranks, SharedDataset* dataset, Session* session, const CreateRequest& request) noexcept {
  guarded("the end of a file that some rank cannot write", [&] {
    if (dataset != nullptr) {
      (void)dataset->abort();
      (void)dataset->hand_over();
    } else if (session != nullptr) {
      (void)session->wait_for_file(request.path, true);
    }
  });
  // No rank may create the file before all ranks are done with that.
  (void)ranks.all(true);
}

void say_not_together(Session* session, const CreateRequest& request, const char* library, const Error& why,
                      bool there) noexcept {
  if (session == nullptr || why.message.empty()) return;
  guarded("the log", [&] {
    session->say_once(there ? request.path + " is opened for writing, and the " + library +
                                  " library writes it: " + why.message
                            : request.path + " goes through the " + library + " library as usual: " + why.message);
  });
}

}  // namespace advectio::shadow
