#include "capture/shadow/mpi_library.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "capture/shadow/interposed.h"

namespace advectio::shadow {

namespace {

// Open MPI's handles are addresses of its objects, MPICH's and its relatives' are numbers.
#ifdef OPEN_MPI
#define ADVECTIO_MPI_HANDLE(TYPE, NAME, SYMBOL) reinterpret_cast<TYPE>(object_of(library, "ompi_mpi_" #SYMBOL))

/// An executable may hold the object itself (a copy relocation), and then MPI too uses that one.
void* object_of(void* library, const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  return found != nullptr ? found : dlsym(library, name);
}
#else
#define ADVECTIO_MPI_HANDLE(TYPE, NAME, SYMBOL) NAME
#endif

template <typename Handle>
void* in_pointer(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>)
    return handle;
  else
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(handle));
}

template <typename Handle>
Handle from_pointer(void* pointer) {
  if constexpr (std::is_pointer_v<Handle>)
    return static_cast<Handle>(pointer);
  else
    return static_cast<Handle>(reinterpret_cast<std::intptr_t>(pointer));
}

}  // namespace

void load_mpi(void* library, Mpi& mpi) {
  bool all = true;
#define ADVECTIO_FIND(F)                                         \
  mpi.F = reinterpret_cast<decltype(mpi.F)>(dlsym(library, #F)); \
  all = all && mpi.F != nullptr;
  ADVECTIO_MPI_FUNCTIONS(ADVECTIO_FIND)
#undef ADVECTIO_FIND
#ifdef OPEN_MPI
  all = all && dlsym(library, "ompi_mpi_comm_self") != nullptr;
  mpi.comm_from_fortran = reinterpret_cast<decltype(mpi.comm_from_fortran)>(dlsym(library, "MPI_Comm_f2c"));
  mpi.info_from_fortran = reinterpret_cast<decltype(mpi.info_from_fortran)>(dlsym(library, "MPI_Info_f2c"));
  all = all && mpi.comm_from_fortran != nullptr && mpi.info_from_fortran != nullptr;
#else
  all = all && dlsym(library, "ompi_mpi_comm_self") == nullptr;
#endif
  if (!all) return;
  mpi.self = ADVECTIO_MPI_HANDLE(MPI_Comm, MPI_COMM_SELF, comm_self);
  mpi.min = ADVECTIO_MPI_HANDLE(MPI_Op, MPI_MIN, op_min);
  mpi.no_info = ADVECTIO_MPI_HANDLE(MPI_Info, MPI_INFO_NULL, info_null);
  mpi.byte = ADVECTIO_MPI_HANDLE(MPI_Datatype, MPI_BYTE, byte);
  mpi.null_type = ADVECTIO_MPI_HANDLE(MPI_Datatype, MPI_DATATYPE_NULL, datatype_null);
#define ADVECTIO_FIND(MEMBER, NAME, SYMBOL, type) mpi.MEMBER = ADVECTIO_MPI_HANDLE(MPI_Datatype, NAME, SYMBOL);
  ADVECTIO_MPI_TYPES(ADVECTIO_FIND)
#undef ADVECTIO_FIND
  mpi.usable = true;
}

MpiRanks::MpiRanks(const Mpi& mpi, MPI_Comm comm, MPI_Info info) noexcept : mpi_(mpi), comm_(comm), info_(info) {
  usable_ =
      mpi.usable && mpi.MPI_Comm_rank(comm, &rank_) == MPI_SUCCESS && mpi.MPI_Comm_size(comm, &count_) == MPI_SUCCESS;
}

bool MpiRanks::all(bool here) const {
  int mine = here ? 1 : 0, least = 0;
  return mpi_.MPI_Allreduce(&mine, &least, 1, mpi_.integer, mpi_.min, comm_) == MPI_SUCCESS && least == 1;
}

void MpiRanks::broadcast(std::span<std::byte> bytes) const {
  mpi_.MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), mpi_.byte, 0, comm_);
}

void* MpiRanks::communicator() const noexcept {
  return in_pointer(comm_);
}

void* MpiRanks::hints() const noexcept {
  return in_pointer(info_);
}

namespace {

/// The MPI of one library, and what its communicators keep for us under.
struct KeepingMpi {
  void* library = nullptr;
  Mpi mpi;
  int key = 0;
  bool keeps = false;
};

/// A communicator of our own: the program may free what it gave while the dataset is open.
class OwnCommunicator {
 public:
  explicit OwnCommunicator(const Mpi& mpi) noexcept : mpi_(mpi) {}
  ~OwnCommunicator() {
    int ended = 0;
    if (there && mpi_.MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0) mpi_.MPI_Comm_free(&comm);
  }
  OwnCommunicator(const OwnCommunicator&) = delete;
  OwnCommunicator& operator=(const OwnCommunicator&) = delete;
  MPI_Comm comm{};
  bool there = false;

 private:
  const Mpi& mpi_;
};

using Kept = std::shared_ptr<const OwnCommunicator>;

/// MPI calls it when the program frees its communicator, which is collective; the last open dataset
/// then frees ours.
int let_go(MPI_Comm /*comm*/, int /*key*/, void* kept, void* /*extra*/) {
  delete static_cast<Kept*>(kept);
  return MPI_SUCCESS;
}

/// A copy that the program makes of its communicator gets one of its own.
int not_copied(MPI_Comm /*comm*/, int /*key*/, void* /*extra*/, void* /*kept*/, void* /*copy*/, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

/// Loaded once for each library, and never given back: MPI may end after our own objects. Needs no memory: a rank
/// without it could not even tell the others. Null: it has no MPI, or one of another kind.
const KeepingMpi* mpi_of(void* library) {
  static std::mutex mutex;
  static std::array<KeepingMpi, 8> loaded;  // netCDF and PnetCDF, and some that are loaded later
  const std::lock_guard lock(mutex);
  auto* found = loaded.begin();
  while (found != loaded.end() && found->library != nullptr && found->library != library) ++found;
  if (found == loaded.end()) return nullptr;
  if (found->library == nullptr) {
    found->library = library;
    load_mpi(library, found->mpi);
    found->keeps =
        found->mpi.usable && found->mpi.MPI_Comm_create_keyval(not_copied, let_go, &found->key, nullptr) == MPI_SUCCESS;
  }
  return found->mpi.usable ? found : nullptr;
}

/// Collective. Our duplicate of the program's communicator, made once and kept with it: making one
/// takes all ranks several rounds of messages, for each file. Null, on all ranks: one has no memory.
Kept own_communicator(const KeepingMpi& from, MPI_Comm comm) {
  void* found = nullptr;
  int is_there = 0;
  if (from.keeps && from.mpi.MPI_Comm_get_attr(comm, from.key, static_cast<void*>(&found), &is_there) == MPI_SUCCESS &&
      is_there != 0)
    return *static_cast<const Kept*>(found);
  std::shared_ptr<OwnCommunicator> made;
  std::unique_ptr<Kept> kept;
  guarded("a communicator", [&] {
    auto fresh = std::make_shared<OwnCommunicator>(from.mpi);
    kept = std::make_unique<Kept>(fresh);
    made = std::move(fresh);
  });
  if (!MpiRanks(from.mpi, comm, from.mpi.no_info).all(made != nullptr)) return nullptr;
  if (from.mpi.MPI_Comm_dup(comm, &made->comm) != MPI_SUCCESS) return nullptr;
  made->there = true;
  if (from.keeps && from.mpi.MPI_Comm_set_attr(comm, from.key, kept.get()) == MPI_SUCCESS) (void)kept.release();
  return made;
}

class OwnRanks final : public MpiRanks {
 public:
  OwnRanks(const Mpi& mpi, Kept own, MPI_Info info) noexcept : MpiRanks(mpi, own->comm, info), own_(std::move(own)) {}
  ~OwnRanks() override {
    int ended = 0;
    if (mpi_.MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0) return;
    if (info_ != mpi_.no_info) mpi_.MPI_Info_free(&info_);
  }
  OwnRanks(const OwnRanks&) = delete;
  OwnRanks& operator=(const OwnRanks&) = delete;

  /// The other ranks wait for a rank without memory. So there is room for one in each process.
  static void* operator new(std::size_t bytes) {
    if (void* at = std::malloc(bytes); at != nullptr) return at;
    if (reserve_used.exchange(true)) throw std::bad_alloc();
    return reserve;
  }
  static void operator delete(void* at) noexcept {
    if (at == reserve)
      reserve_used = false;
    else
      std::free(at);
  }

 private:
  Kept own_;
  static std::atomic<bool> reserve_used;
  static std::byte reserve[];
};
std::atomic<bool> OwnRanks::reserve_used = false;
alignas(OwnRanks) std::byte OwnRanks::reserve[sizeof(OwnRanks)];

}  // namespace

std::shared_ptr<Ranks> duplicate(const void* function, const ProgramCommunicator& program) {
  const auto* map = map_of(function);
  void* library = map != nullptr ? handle_of(*map) : nullptr;
  const auto* from = library != nullptr ? mpi_of(library) : nullptr;
  if (from == nullptr) return nullptr;
  const Mpi& mpi = from->mpi;

  auto comm = from_pointer<MPI_Comm>(program.comm);
  auto info = from_pointer<MPI_Info>(program.hints);
  if (program.fortran && mpi.comm_from_fortran != nullptr) {
    comm = mpi.comm_from_fortran(from_pointer<MPI_Fint>(program.comm));
    info = mpi.info_from_fortran(from_pointer<MPI_Fint>(program.hints));
  }
  auto own = own_communicator(*from, comm);
  if (own == nullptr) return nullptr;
  MPI_Info hints = mpi.no_info;
  if (info != mpi.no_info && mpi.MPI_Info_dup(info, &hints) != MPI_SUCCESS) hints = mpi.no_info;
  auto ranks = std::make_shared<OwnRanks>(mpi, std::move(own), hints);
  return ranks->usable() ? ranks : nullptr;
}

}  // namespace advectio::shadow
