#include "capture/ranks.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace advectio {
namespace {

/// What rank 0 tells the others: an invitation as it travels.
struct Told {
  char created;
  std::uint32_t format, number, writers, owner;
  std::uint64_t journal, created_ns;
  char page[64];
  char path[4096];
  char link[4096];
};

template <std::size_t n>
bool copy_text(char (&to)[n], const std::string& from) {
  if (from.size() >= n) return false;
  std::memcpy(to, from.c_str(), from.size() + 1);
  return true;
}

/// Rank 0 registers the dataset, the others join it.
std::unique_ptr<SharedDataset> begin(const Ranks& ranks, Session& session, const CreateRequest& request,
                                     std::string& why) {
  std::unique_ptr<SharedDataset> out;
  auto told = std::make_unique<Told>();
  if (ranks.rank() == 0) {
    Invitation i;
    auto made = session.create_shared(request, static_cast<std::uint32_t>(ranks.count()), i);
    if (made && copy_text(told->page, i.page) && copy_text(told->path, i.path) && copy_text(told->link, i.link)) {
      out = std::move(made).value();
      told->format = static_cast<std::uint32_t>(i.format);
      told->number = i.number;
      told->writers = i.writers;
      told->owner = i.owner;
      told->journal = i.journal;
      told->created_ns = i.created_ns;
      told->created = 1;
    }
  }
  ranks.tell({reinterpret_cast<std::byte*>(told.get()), sizeof *told});
  if (told->created == 0 || ranks.rank() == 0) return out;
  const Invitation invitation{told->page,      told->path,   told->link,    static_cast<FileFormat>(told->format),
                              told->journal,   told->number, told->writers, told->owner,
                              told->created_ns};
  auto joined = session.join(invitation, static_cast<std::uint32_t>(ranks.rank()));
  if (joined) return std::move(joined).value();
  why = joined.error().message;
  return nullptr;
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
  if (!ranks.all(can)) return nullptr;
  std::string why;
  auto out = begin(ranks, *session, request, why);
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
