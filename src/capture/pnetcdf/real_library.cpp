#include "capture/pnetcdf/real_library.h"

namespace advectio::pnetcdf {

std::unique_ptr<RealLibrary> RealLibrary::load(const link_map& map) {
  void* h = shadow::handle_of(map);
  if (h == nullptr) return nullptr;
  auto lib = std::make_unique<RealLibrary>();
#define ADVECTIO_FIND(F) lib->F = reinterpret_cast<decltype(lib->F)>(shadow::function_of(map, h, #F));
#define ADVECTIO_FIND_TYPED(T, memory, type) ADVECTIO_FAMILIES(ADVECTIO_FIND, _##T)
#define ADVECTIO_FIND_ATTRIBUTE(T, memory, type) ADVECTIO_FIND(ncmpi_put_att_##T)
  ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_FIND)
  ADVECTIO_FAMILIES(ADVECTIO_FIND, )
  ADVECTIO_MEMORY_TYPES(ADVECTIO_FIND_TYPED)
  ADVECTIO_MEMORY_TYPES(ADVECTIO_FIND_ATTRIBUTE)
#undef ADVECTIO_FIND_ATTRIBUTE
#undef ADVECTIO_FIND_TYPED
#undef ADVECTIO_FIND
  shadow::load_mpi(h, lib->mpi);  // its own: what it was linked with is in its scope
  return lib;
}

}  // namespace advectio::pnetcdf
