#include "capture/netcdf/real_library.h"

namespace advectio::netcdf {

std::unique_ptr<RealLibrary> RealLibrary::load(const link_map& map) {
  void* h = shadow::handle_of(map);
  if (h == nullptr) return nullptr;
  auto lib = std::make_unique<RealLibrary>();
#define ADVECTIO_FIND(F) lib->F = reinterpret_cast<decltype(lib->F)>(shadow::function_of(map, h, #F));
#define ADVECTIO_FIND_TYPED(T, put, get, type) ADVECTIO_TYPED_FUNCTIONS(ADVECTIO_FIND, T)
  ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_FIND)
  ADVECTIO_MEMORY_TYPES(ADVECTIO_FIND_TYPED)
#undef ADVECTIO_FIND_TYPED
#undef ADVECTIO_FIND
  return lib;
}

}  // namespace advectio::netcdf
