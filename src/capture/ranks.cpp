#include "capture/ranks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace advectio {
namespace {

/// What rank 0 tells the others: an invitation as it travels. MPI sends so much at once, without asking the receiver
/// first; the rest follows where the names are long.
constexpr std::size_t told_at_once = 1024;
struct Told {
  std::uint32_t bytes;  ///< all of it, 0: not created
  std::uint32_t format, number, writers, owner;
  std::uint64_t journal, created_ns;
  std::uint32_t page, path, link;  ///< lengths of the names, which follow
};
static_assert(sizeof(Told) < told_at_once && std::is_trivially_copyable_v<Told>);

std::vector<std::byte> to_tell(const Invitation& i) {
  Told told{};
  told.format = static_cast<std::uint32_t>(i.format);
  told.number = i.number;
  told.writers = i.writers;
  told.owner = i.owner;
  told.journal = i.journal;
  told.created_ns = i.created_ns;
  told.page = static_cast<std::uint32_t>(i.page.size());
  told.path = static_cast<std::uint32_t>(i.path.size());
  told.link = static_cast<std::uint32_t>(i.link.size());
  const std::string names = i.page + i.path + i.link;
  told.bytes = static_cast<std::uint32_t>(sizeof told + names.size());
  std::vector<std::byte> out(told.bytes);
  std::memcpy(out.data(), &told, sizeof told);
  std::memcpy(out.data() + sizeof told, names.data(), names.size());
  return out;
}

Invitation as_told(const std::vector<std::byte>& message) {
  Told told{};
  std::memcpy(&told, message.data(), sizeof told);
  const auto* names = reinterpret_cast<const char*>(message.data()) + sizeof told;
  return {{names, told.page},
          {names + told.page, told.path},
          {names + told.page + told.path, told.link},
          static_cast<FileFormat>(told.format),
          told.journal,
          told.number,
          told.writers,
          told.owner,
          told.created_ns};
}

/// Collective. All have rank 0's message afterwards.
void tell(const Ranks& ranks, std::vector<std::byte>& message) {
  message.resize(std::max(message.size(), told_at_once));
  ranks.tell({message.data(), told_at_once});
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, message.data(), sizeof bytes);
  message.resize(std::max<std::size_t>(bytes, told_at_once));
  if (bytes > told_at_once) ranks.tell({message.data() + told_at_once, bytes - told_at_once});
}

/// Rank 0 registers the dataset, the others join it. False, on all of them: it was not registered.
bool begin(const Ranks& ranks, bool can, Session* session, const CreateRequest& request,
           std::unique_ptr<SharedDataset>& out, std::string& why) {
  std::vector<std::byte> message;
  if (can && ranks.rank() == 0) {
    Invitation invitation;
    if (auto made = session->create_shared(request, static_cast<std::uint32_t>(ranks.count()), invitation); made) {
      out = std::move(made).value();
      message = to_tell(invitation);
    }
  }
  tell(ranks, message);
  const auto invitation = as_told(message);
  if (invitation.writers == 0) return false;
  if (!can || ranks.rank() == 0) return true;
  auto joined = session->join(invitation, static_cast<std::uint32_t>(ranks.rank()));
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
  // Nobody may create the file before all of that is over.
  (void)ranks.all(true);
  return nullptr;
}

}  // namespace advectio
