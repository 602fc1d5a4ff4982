#include "capture/shadow/interposed.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <string_view>

namespace advectio::shadow {

const link_map* map_of(const void* address) {
#ifdef DLFO_STRUCT_HAS_EH_DBASE
  // dladdr looks through all symbols of the object: 50 µs for each function of a large library.
  dl_find_object found;
  if (_dl_find_object(const_cast<void*>(address), &found) == 0) return found.dlfo_link_map;
  return nullptr;
#else
  Dl_info info;
  void* map = nullptr;
  if (dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(map);
#endif
}

const link_map* own_map() {
  static const link_map* own = map_of(reinterpret_cast<const void*>(&own_map));
  return own;
}

namespace {

bool is_program(const link_map& map) {
  return map.l_name == nullptr || map.l_name[0] == '\0';
}

/// Does the object define what was found in it? A program that is not position-independent may
/// instead hold a stub of its own, which leads to us.
bool defines(const link_map& map, const void* address) {
  Dl_info info;
  void* symbol = nullptr;
  return map_of(address) == &map && dladdr1(address, &info, &symbol, RTLD_DL_SYMENT) != 0 && symbol != nullptr &&
         static_cast<const ElfW(Sym)*>(symbol)->st_shndx != SHN_UNDEF;
}

}  // namespace

void* handle_of(const link_map& map) {
  return dlopen(is_program(map) ? nullptr : map.l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void* function_of(const link_map& map, void* handle, const char* name) {
  void* f = dlsym(handle, name);
  if (f == nullptr || (is_program(map) ? !defines(map, f) : map_of(f) == own_map())) return nullptr;
  return f;
}

namespace {

std::atomic<const link_map*> looked_up{nullptr};

/// It has that function itself.
bool has(const link_map& map, const char* function) {
  void* h = dlopen(is_program(map) ? nullptr : map.l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (h == nullptr) return false;
  const void* found = dlsym(h, function);
  dlclose(h);
  return found != nullptr && defines(map, found);
}

/// A table of the object's dynamic section, or null.
template <typename T>
const T* table(const link_map& map, ElfW(Sxword) tag) {
  for (const auto* d = map.l_ld; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag != tag) continue;
    // glibc relocates this entry in place except where the dynamic section is read-only.
    const auto at = static_cast<std::uintptr_t>(d->d_un.d_ptr);
    return reinterpret_cast<const T*>(at < map.l_addr ? at + map.l_addr : at);
  }
  return nullptr;
}

/// The names of the libraries an object was linked with.
std::vector<std::string> needed(const link_map& map) {
  const auto* strings = table<char>(map, DT_STRTAB);
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

/// Breadth first through what the caller was linked with, as the dynamic linker searches, for an
/// object which itself defines these functions and is not ours.
const link_map* search(const Wanted& wanted, const link_map& caller) {
  std::set<const link_map*> seen{&caller, own_map()};
  std::deque<const link_map*> queue{&caller};
  std::vector<Handle> held;
  while (!queue.empty()) {
    const auto* map = queue.front();
    queue.pop_front();
    held.emplace_back(dlopen(is_program(*map) ? nullptr : map->l_name, RTLD_LAZY | RTLD_NOLOAD));
    if (void* h = held.back().handle; h != nullptr) {
      // The first in its scope; only if that is the object itself does it count here, for its
      // dependencies have their own turn.
      void* found = dlsym(h, wanted.probe);
      if (found != nullptr && defines(*map, found)) return map;
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

/// For callers that were not linked with the library themselves (plugins, wrappers made at run
/// time): what the global scope holds behind us, else any library loaded.
const link_map* search_everywhere(const Wanted& wanted) {
  if (const auto* map = looked_up.load(std::memory_order_acquire); map != nullptr && has(*map, wanted.probe))
    return map;
  if (void* next = dlsym(RTLD_NEXT, wanted.probe); next != nullptr) {
    if (const auto* map = map_of(next); map != nullptr && map != own_map()) return map;
  }
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0')
          static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
        return 0;
      },
      &names);
  for (const auto& name : names) {
    if (name.find(wanted.name_part) == std::string::npos) continue;
    Handle h(dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD));
    void* found = h.handle != nullptr ? dlsym(h.handle, wanted.probe) : nullptr;
    if (found == nullptr) continue;
    if (const auto* map = map_of(found); map != nullptr && map != own_map()) return map;
  }
  return nullptr;
}

}  // namespace

const link_map* find_library(const Wanted& wanted, std::uintptr_t address) {
  const auto* caller = map_of(reinterpret_cast<const void*>(address));
  const link_map* real = caller != nullptr && caller != own_map() ? search(wanted, *caller) : nullptr;
  return real != nullptr ? real : search_everywhere(wanted);
}

bool is_library(const Wanted& wanted, const link_map& real, std::uintptr_t address) {
  if (!wanted.alone || map_of(reinterpret_cast<const void*>(address)) != &real || is_program(real)) return false;
  const std::string_view path = real.l_name;
  return path.find(wanted.name_part, path.rfind('/') + 1) != std::string_view::npos;
}

bool imports(std::uintptr_t address, const char* function) {
  const auto* map = map_of(reinterpret_cast<const void*>(address));
  if (map == nullptr) return false;
  const auto* symbols = table<ElfW(Sym)>(*map, DT_SYMTAB);
  const auto* strings = table<char>(*map, DT_STRTAB);
  const auto* gnu_hash = table<std::uint32_t>(*map, DT_GNU_HASH);
  const auto* hash = table<std::uint32_t>(*map, DT_HASH);
  if (symbols == nullptr || strings == nullptr || (gnu_hash == nullptr && hash == nullptr)) return true;
  // In DT_HASH the second word counts all symbols, in DT_GNU_HASH those before the first that is exported. A program
  // that exports none has 1 there. Its symbols then reach up to their names.
  std::size_t count = hash != nullptr ? hash[1] : gnu_hash[1];
  if (count <= 1) {
    const auto begin = reinterpret_cast<std::uintptr_t>(symbols), end = reinterpret_cast<std::uintptr_t>(strings);
    if (end <= begin) return true;
    count = (end - begin) / sizeof(ElfW(Sym));
  }
  for (std::size_t i = 1; i < count; ++i)
    if (symbols[i].st_shndx == SHN_UNDEF && std::strcmp(strings + symbols[i].st_name, function) == 0) return true;
  return false;
}

void note_looked_up(const link_map& library) {
  // It stays loaded: the pointer is kept.
  if (looked_up.load(std::memory_order_acquire) != &library && handle_of(library) != nullptr)
    looked_up.store(&library, std::memory_order_release);
}

Extent keep_extent(std::uintptr_t address) {
  const auto* object = map_of(reinterpret_cast<const void*>(address));
  if (object != nullptr && object->l_name != nullptr && object->l_name[0] != '\0')
    dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  struct Searched : Extent {
    std::uintptr_t address;
  } searched{{}, address};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* e = static_cast<Searched*>(data);
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
      &searched);
  return searched;
}

}  // namespace advectio::shadow
