#include "capture/shadow/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "capture/shadow/guard.h"

namespace advectio::shadow {
namespace {

/// An invitation as rank 0 broadcasts it. MPI sends this much without asking the receiver first. A
/// second message follows where the names are long.
constexpr std::size_t first_message_bytes = 1024;
struct InvitationHeader {
  std::uint32_t bytes;  ///< all of it, 0: not created
  std::uint32_t format, number, writers, owner;
  std::uint64_t journal, created_ns;
  std::uint32_t shared_state, path, link;  ///< lengths of the names, which follow
};
static_assert(sizeof(InvitationHeader) < first_message_bytes && std::is_trivially_copyable_v<InvitationHeader>);

std::vector<std::byte> packed(const Invitation& i) {
  InvitationHeader header{};
  header.format = static_cast<std::uint32_t>(i.format);
  header.number = i.number;
  header.writers = i.writers;
  header.owner = i.owner;
  header.journal = i.journal;
  header.created_ns = i.created_ns;
  header.shared_state = static_cast<std::uint32_t>(i.shared_state.size());
  header.path = static_cast<std::uint32_t>(i.path.size());
  header.link = static_cast<std::uint32_t>(i.link.size());
  const std::string names = i.shared_state + i.path + i.link;
  header.bytes = static_cast<std::uint32_t>(sizeof header + names.size());
  std::vector<std::byte> out(header.bytes);
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + sizeof header, names.data(), names.size());
  return out;
}

Invitation unpacked(const std::vector<std::byte>& message) {
  InvitationHeader header{};
  std::memcpy(&header, message.data(), sizeof header);
  const auto* names = reinterpret_cast<const char*>(message.data()) + sizeof header;
  return {{names, header.shared_state},
          {names + header.shared_state, header.path},
          {names + header.shared_state + header.path, header.link},
          static_cast<FileFormat>(header.format),
          header.journal,
          header.number,
          header.writers,
          header.owner,
          header.created_ns};
}

/// Collective. All have rank 0's message afterwards.
void broadcast(const Ranks& ranks, std::vector<std::byte>& message) {
  message.resize(std::max(message.size(), first_message_bytes));
  ranks.broadcast({message.data(), first_message_bytes});
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, message.data(), sizeof bytes);
  message.resize(std::max<std::size_t>(bytes, first_message_bytes));
  if (bytes > first_message_bytes) ranks.broadcast({message.data() + first_message_bytes, bytes - first_message_bytes});
}

/// Rank 0 registers the dataset, the others join it. False, on all of them: it was not registered.
bool begin(const Ranks& ranks, bool can, Session* session, const CreateRequest& request,
           std::unique_ptr<SharedDataset>& out, std::string& why) {
  std::vector<std::byte> message;
  if (can && ranks.rank() == 0) {
    Invitation invitation;
    // Also after an exception: the others wait for the message.
    if (auto made = as_result(
            [&] { return session->create_shared(request, static_cast<std::uint32_t>(ranks.count()), invitation); })) {
      out = std::move(made).value();
      message = packed(invitation);
    }
  }
  broadcast(ranks, message);
  const auto invitation = unpacked(message);
  if (invitation.writers == 0) return false;
  if (!can || ranks.rank() == 0) return true;
  auto joined = as_result([&] { return session->join(invitation, static_cast<std::uint32_t>(ranks.rank())); });
  if (joined) {
    out = std::move(joined).value();
  } else {
    why = joined.error().message;
  }
  return true;
}

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

std::unique_ptr<SharedDataset> create_together(const Ranks& ranks, bool can, Session* session,
                                               const CreateRequest& request, const char* library) {
  std::string why;
  std::unique_ptr<SharedDataset> out;
  if (!begin(ranks, can, session, request, out, why)) return nullptr;
  if (ranks.all(out != nullptr)) return out;
  if (!why.empty()) session->say_once(request.path + " goes through the " + library + " library as usual: " + why);
  if (out != nullptr) {
    (void)out->abort();
    (void)out->hand_over();  // until the server has let go of the path
  }
  // No rank may create the file before all ranks are done with that.
  (void)ranks.all(true);
  return nullptr;
}

}  // namespace advectio::shadow
