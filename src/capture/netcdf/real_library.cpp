#include "capture/netcdf/real_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace advectio {

thread_local const RealLibrary* Entry::inside_ = nullptr;

namespace {

// Every netCDF-C since 3.0 has it.
constexpr const char* probe = "nc_inq_libvers";

struct Known {
  std::uintptr_t begin = 0, end = 0;  // of the calling object
  const RealLibrary* lib = nullptr;
};
using Ranges = std::vector<Known>;

// Never destroyed: calls may come from other libraries' destructors.
struct State {
  std::mutex mutex;
  std::vector<std::pair<const link_map*, const RealLibrary*>> libraries;
  std::vector<std::unique_ptr<Ranges>> kept;  // old snapshots stay valid for readers that still hold them
  const RealLibrary absent{};
};
State& state() {
  static auto* s = new State;
  return *s;
}
std::atomic<const Ranges*> ranges{nullptr};

const link_map* map_of(const void* address) {
  Dl_info info;
  void* map = nullptr;
  if (dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(map);
}

const link_map* own_map() {
  static const link_map* own = map_of(reinterpret_cast<const void*>(&library_of));
  return own;
}

/// The names of the libraries an object was linked with.
std::vector<std::string> needed(const link_map& map) {
  const char* strings = nullptr;
  for (const auto* d = map.l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag != DT_STRTAB) continue;
    // glibc relocates this entry in place except where the dynamic section is read-only.
    const auto at = static_cast<std::uintptr_t>(d->d_un.d_ptr);
    strings = reinterpret_cast<const char*>(at < map.l_addr ? at + map.l_addr : at);
  }
  std::vector<std::string> names;
  if (strings == nullptr) return names;
  for (const auto* d = map.l_ld; d->d_tag != DT_NULL; ++d)
    if (d->d_tag == DT_NEEDED) names.emplace_back(strings + d->d_un.d_val);
  return names;
}

struct Handle {
  void* handle = nullptr;
  explicit Handle(void* h) : handle(h) {}
  Handle(Handle&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (handle != nullptr) dlclose(handle);
  }
};

/// Breadth first through what the caller was linked with, as the dynamic linker searches, for an object which itself
/// defines netCDF's functions and is not ours.
const link_map* search(const link_map& caller) {
  std::set<const link_map*> seen{&caller, own_map()};
  std::deque<const link_map*> queue{&caller};
  std::vector<Handle> held;
  while (!queue.empty()) {
    const auto* map = queue.front();
    queue.pop_front();
    if (map->l_name != nullptr && map->l_name[0] != '\0') {
      held.emplace_back(dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD));
      if (void* h = held.back().handle; h != nullptr) {
        // The first in its scope; only if that is the object itself does it count here, for its dependencies have their
        // own turn.
        void* found = dlsym(h, probe);
        if (found != nullptr && map_of(found) == map) return map;
      }
    }
    for (const auto& name : needed(*map)) {
      held.emplace_back(dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD));
      void* h = held.back().handle;
      link_map* child = nullptr;
      if (h == nullptr || dlinfo(h, RTLD_DI_LINKMAP, &child) != 0 || child == nullptr) continue;
      if (seen.insert(child).second) queue.push_back(child);
    }
  }
  return nullptr;
}

/// For callers that were not linked with netCDF themselves (plugins, wrappers made at run time): what the global scope
/// holds behind us, else any library loaded.
const link_map* search_everywhere() {
  if (void* next = dlsym(RTLD_NEXT, probe); next != nullptr) {
    if (const auto* map = map_of(next); map != nullptr && map != own_map()) return map;
  }
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        if (info->dlpi_name != nullptr && std::strstr(info->dlpi_name, "netcdf") != nullptr)
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
        return 0;
      },
      &names);
  for (const auto& name : names) {
    Handle h(dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD));
    void* found = h.handle != nullptr ? dlsym(h.handle, probe) : nullptr;
    if (found == nullptr) continue;
    if (const auto* map = map_of(found); map != nullptr && map != own_map()) return map;
  }
  return nullptr;
}

std::unique_ptr<RealLibrary> load(const link_map* map) {
  // Kept loaded for good: the table outlives any dlclose.
  void* h = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (h == nullptr) return nullptr;
  auto lib = std::make_unique<RealLibrary>();
#define ADVECTIO_FIND(F) \
  if (void* f = dlsym(h, #F); f != nullptr && map_of(f) != own_map()) lib->F = reinterpret_cast<decltype(lib->F)>(f);
#define ADVECTIO_FIND_TYPED(T, put, get, type) ADVECTIO_TYPED_FUNCTIONS(ADVECTIO_FIND, T)
  ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_FIND)
  ADVECTIO_MEMORY_TYPES(ADVECTIO_FIND_TYPED)
#undef ADVECTIO_FIND_TYPED
#undef ADVECTIO_FIND
  return lib;
}

struct Extent {
  std::uintptr_t address, begin, end;
};

Extent extent_of(std::uintptr_t address) {
  Extent extent{address, address, address + 1};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* e = static_cast<Extent*>(data);
        std::uintptr_t begin = UINTPTR_MAX, end = 0;
        bool inside = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& p = info->dlpi_phdr[i];
          if (p.p_type != PT_LOAD) continue;
          const std::uintptr_t from = info->dlpi_addr + p.p_vaddr, to = from + p.p_memsz;
          begin = std::min(begin, from);
          end = std::max(end, to);
          inside = inside || (e->address >= from && e->address < to);
        }
        if (!inside) return 0;
        e->begin = begin;
        e->end = end;
        return 1;
      },
      &extent);
  return extent;
}

const RealLibrary* loaded(const State& s, const link_map* map) {
  for (const auto& [known, lib] : s.libraries)
    if (known == map) return lib;
  return nullptr;
}

// The dynamic linker has locks of its own: nothing of it is called while ours is held.
const RealLibrary& resolve(std::uintptr_t address) {
  auto& s = state();
  const auto* caller = map_of(reinterpret_cast<const void*>(address));
  const link_map* real = caller != nullptr && caller != own_map() ? search(*caller) : nullptr;
  if (real == nullptr) real = search_everywhere();
  // Not remembered: netCDF may be loaded later.
  if (real == nullptr) return s.absent;
  auto fresh = load(real);

  // Were the caller unloaded, another object could take its place in memory and be taken for it.
  if (caller != nullptr && caller->l_name != nullptr && caller->l_name[0] != '\0')
    dlopen(caller->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  const auto extent = extent_of(address);

  const std::lock_guard lock(s.mutex);
  const auto* lib = loaded(s, real);
  if (lib == nullptr) {
    if (fresh == nullptr) return s.absent;
    lib = fresh.release();
    s.libraries.emplace_back(real, lib);
  }
  const auto* old = ranges.load(std::memory_order_acquire);
  auto next = old != nullptr ? std::make_unique<Ranges>(*old) : std::make_unique<Ranges>();
  next->push_back({extent.begin, extent.end, lib});
  ranges.store(next.get(), std::memory_order_release);
  s.kept.push_back(std::move(next));
  return *lib;
}

}  // namespace

const RealLibrary& library_of(const void* return_address) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(return_address);
  if (const auto* known = ranges.load(std::memory_order_acquire); known != nullptr)
    for (const auto& range : *known)
      if (address >= range.begin && address < range.end) return *range.lib;
  return resolve(address);
}

}  // namespace advectio
