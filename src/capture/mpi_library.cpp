#include "capture/mpi_library.h"

#include <dlfcn.h>

#include <cstdint>
#include <type_traits>

#include "capture/interposed.h"

namespace advectio {

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

void MpiRanks::tell(std::span<std::byte> bytes) const {
  mpi_.MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), mpi_.byte, 0, comm_);
}

void* MpiRanks::communicator() const noexcept {
  return in_pointer(comm_);
}

void* MpiRanks::hints() const noexcept {
  return in_pointer(info_);
}

namespace {

/// For as long as the dataset is open, while the program may free what it gave.
class OwnRanks final : public MpiRanks {
 public:
  OwnRanks(std::unique_ptr<const Mpi> mpi, MPI_Comm comm, MPI_Info info) noexcept
      : MpiRanks(*mpi, comm, info), own_(std::move(mpi)) {}
  ~OwnRanks() override {
    int ended = 0;
    if (own_->MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0) return;
    own_->MPI_Comm_free(&comm_);
    if (info_ != own_->no_info) own_->MPI_Info_free(&info_);
  }
  OwnRanks(const OwnRanks&) = delete;
  OwnRanks& operator=(const OwnRanks&) = delete;

 private:
  std::unique_ptr<const Mpi> own_;
};

}  // namespace

std::unique_ptr<Ranks> duplicate(const void* function, const ProgramCommunicator& program) {
  const auto* map = interposed::map_of(function);
  void* library = map != nullptr ? interposed::handle_of(*map) : nullptr;
  if (library == nullptr) return nullptr;
  auto mpi = std::make_unique<Mpi>();
  load_mpi(library, *mpi);
  if (!mpi->usable) return nullptr;

  auto comm = from_pointer<MPI_Comm>(program.comm);
  auto info = from_pointer<MPI_Info>(program.hints);
  if (program.fortran && mpi->comm_from_fortran != nullptr) {
    comm = mpi->comm_from_fortran(from_pointer<MPI_Fint>(program.comm));
    info = mpi->info_from_fortran(from_pointer<MPI_Fint>(program.hints));
  }
  MPI_Comm own{};
  if (mpi->MPI_Comm_dup(comm, &own) != MPI_SUCCESS) return nullptr;
  MPI_Info hints = mpi->no_info;
  if (info != mpi->no_info && mpi->MPI_Info_dup(info, &hints) != MPI_SUCCESS) hints = mpi->no_info;
  auto ranks = std::make_unique<OwnRanks>(std::move(mpi), own, hints);
  return ranks->usable() ? std::move(ranks) : nullptr;
}

}  // namespace advectio
