#include "capture/netcdf/real_library.h"

#include <dlfcn.h>

namespace advectio {

thread_local const RealLibrary* Entry::inside_ = nullptr;

std::unique_ptr<RealLibrary> RealLibrary::load(const link_map& map) {
  // Kept loaded for good: the table outlives any dlclose.
  void* h = dlopen(map.l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (h == nullptr) return nullptr;
  auto lib = std::make_unique<RealLibrary>();
#define ADVECTIO_FIND(F)                                                                      \
  if (void* f = dlsym(h, #F); f != nullptr && interposed::map_of(f) != interposed::own_map()) \
    lib->F = reinterpret_cast<decltype(lib->F)>(f);
#define ADVECTIO_FIND_TYPED(T, put, get, type) ADVECTIO_TYPED_FUNCTIONS(ADVECTIO_FIND, T)
  ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_FIND)
  ADVECTIO_MEMORY_TYPES(ADVECTIO_FIND_TYPED)
#undef ADVECTIO_FIND_TYPED
#undef ADVECTIO_FIND
  return lib;
}

const RealLibrary& library_of(const void* return_address) noexcept {
  static auto* libraries = new interposed::Libraries<RealLibrary>;
  return libraries->of(return_address);
}

}  // namespace advectio
