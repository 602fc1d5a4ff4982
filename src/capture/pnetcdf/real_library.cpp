#include "capture/pnetcdf/real_library.h"

#include <dlfcn.h>

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

void load_mpi(void* library, Mpi& mpi) {
  bool all = true;
#define ADVECTIO_FIND(F)                                         \
  mpi.F = reinterpret_cast<decltype(mpi.F)>(dlsym(library, #F)); \
  all = all && mpi.F != nullptr;
  ADVECTIO_MPI_FUNCTIONS(ADVECTIO_FIND)
#undef ADVECTIO_FIND
#ifdef OPEN_MPI
  all = all && dlsym(library, "ompi_mpi_comm_self") != nullptr;
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

}  // namespace

std::unique_ptr<RealLibrary> RealLibrary::load(const link_map& map) {
  void* h = interposed::handle_of(map);
  if (h == nullptr) return nullptr;
  auto lib = std::make_unique<RealLibrary>();
#define ADVECTIO_FIND(F) lib->F = reinterpret_cast<decltype(lib->F)>(interposed::function_of(h, #F));
#define ADVECTIO_FIND_TYPED(T, memory, type) ADVECTIO_FAMILIES(ADVECTIO_FIND, _##T)
#define ADVECTIO_FIND_ATTRIBUTE(T, memory, type) ADVECTIO_FIND(ncmpi_put_att_##T)
  ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_FIND)
  ADVECTIO_FAMILIES(ADVECTIO_FIND, )
  ADVECTIO_MEMORY_TYPES(ADVECTIO_FIND_TYPED)
  ADVECTIO_MEMORY_TYPES(ADVECTIO_FIND_ATTRIBUTE)
#undef ADVECTIO_FIND_ATTRIBUTE
#undef ADVECTIO_FIND_TYPED
#undef ADVECTIO_FIND
  load_mpi(h, lib->mpi);  // its own: what it was linked with is in its scope
  return lib;
}

}  // namespace advectio
