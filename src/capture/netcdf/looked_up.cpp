// dlsym(3): a program that looks up a function of netCDF or PnetCDF by its name gets ours, as one that
// was linked with the library. Julia's NCDatasets, Python's ctypes and Java's JNA reach it so.
// All other names, and lookups outside a run, pass through.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "capture/export.h"
#include "capture/netcdf/real_library.h"
#include "capture/own_libraries.h"

namespace advectio::netcdf {
namespace {

using LookUp = void*(void*, const char*) noexcept;

/// The address sanitizer looks up names before it can stand any code of its own.
#define ADVECTIO_BEFORE_SANITIZERS __attribute__((no_sanitize("address")))

/// The C library's, under the versions that it has had. dlsym cannot be asked for itself.
ADVECTIO_BEFORE_SANITIZERS LookUp* find_real() noexcept {
  static const char* const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (const char* version : versions)
    if (void* found = ::dlvsym(RTLD_NEXT, "dlsym", version); found != nullptr) return reinterpret_cast<LookUp*>(found);
  return nullptr;
}

/// A function that every version of the library has, whose functions begin so; null: none of ours do.
const char* probe_of(const char* name) noexcept {
  if (std::strncmp(name, "ncmpi_", 6) == 0) return "ncmpi_inq_libvers";
  return std::strncmp(name, "nc", 2) == 0 ? RealLibrary::wanted.probe : nullptr;  // nc_put_var, ncvarput
}

/// The names that were looked up. Programs keep what they were told, so dlsym is not asked often.
struct LookedUp {
  std::mutex mutex;
  std::set<std::string, std::less<>> names;
};
LookedUp& looked_up() {
  static auto* l = new LookedUp;  // never destroyed: a program's last calls may come from destructors
  return *l;
}

/// Our function, where `theirs` is the library's of that name. Null: there is none.
void* ours(LookUp& real, const char* probe, const char* name, const void* theirs) {
  const auto* map = shadow::map_of(theirs);
  void* handle = map != nullptr ? shadow::handle_of(*map) : nullptr;
  if (handle == nullptr || shadow::function_of(*map, handle, probe) == nullptr) return nullptr;
  void* found = real(RTLD_DEFAULT, name);
  if (found == nullptr || !OwnLibraries::of_process().hold(found)) return nullptr;
  if (probe == RealLibrary::wanted.probe) shadow::note_looked_up(*map);
  auto& l = looked_up();
  const std::lock_guard lock(l.mutex);
  l.names.insert(name);
  return found;
}

void* ours_in_place_of(LookUp& real, void* handle, const char* name, const void* caller) noexcept {
  // Whoever asks for the next one stands between the program and the library, as we do.
  if (handle == RTLD_NEXT || name == nullptr) return nullptr;
  const char* probe = probe_of(name);
  if (probe == nullptr || std::getenv("ADVECTIO_RUN") == nullptr || OwnLibraries::of_process().hold(caller))
    return nullptr;
  const void* theirs = real(handle, name);
  if (theirs == nullptr) return nullptr;
  try {
    return ours(real, probe, name, theirs);
  } catch (...) {  // no memory
    return nullptr;
  }
}

}  // namespace

bool was_looked_up(const char* function) {
  auto& l = looked_up();
  const std::lock_guard lock(l.mutex);
  return l.names.contains(function);
}

}  // namespace advectio::netcdf

// The C library looks at the caller's address where the handle is RTLD_NEXT or RTLD_DEFAULT. So its
// function is jumped to, not called.
#ifdef __clang__
#define ADVECTIO_JUMPS
#define ADVECTIO_JUMP [[clang::musttail]]
#else
#define ADVECTIO_JUMPS __attribute__((optimize("O2")))
#define ADVECTIO_JUMP
#endif

extern "C" __attribute__((visibility("default"))) ADVECTIO_JUMPS ADVECTIO_BEFORE_SANITIZERS void* dlsym(
    void* handle, const char* name) noexcept {
  using namespace advectio::netcdf;
  static LookUp* known = nullptr;
  auto* real = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (real == nullptr) {
    real = find_real();
    if (real == nullptr) return nullptr;
    __atomic_store_n(&known, real, __ATOMIC_RELAXED);
  }
  if (name[0] == 'n' && name[1] == 'c')
    if (void* found = ours_in_place_of(*real, handle, name, __builtin_return_address(0)); found != nullptr)
      return found;
  ADVECTIO_JUMP return real(handle, name);
}
