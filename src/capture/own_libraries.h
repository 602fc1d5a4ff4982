// Which calls come from Advectio itself.
#pragma once

#include <link.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace advectio {

/// The addresses of Advectio's preloaded libraries. No memory is allocated: an allocator may open files as it begins.
class OwnLibraries {
 public:
  static const OwnLibraries& of_process() noexcept {
    static const OwnLibraries own;
    return own;
  }
  [[nodiscard]] bool hold(const void* address) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (unsigned i = 0; i < count_; ++i)
      if (at >= ranges_[i].begin && at < ranges_[i].end) return true;
    return false;
  }

 private:
  OwnLibraries() noexcept {
    (void)::dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* to) {
          static_cast<OwnLibraries*>(to)->look_at(*object);
          return 0;
        },
        this);
  }
  void look_at(const dl_phdr_info& object) noexcept {
    if (object.dlpi_name == nullptr || std::strstr(object.dlpi_name, "/libadvectio_") == nullptr) return;
    for (unsigned i = 0; i < object.dlpi_phnum; ++i) {
      const auto& part = object.dlpi_phdr[i];
      if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0 || count_ == std::size(ranges_)) continue;
      const auto begin = static_cast<std::uintptr_t>(object.dlpi_addr + part.p_vaddr);
      ranges_[count_++] = {begin, begin + part.p_memsz};
    }
  }
  struct Range {
    std::uintptr_t begin, end;
  };
  std::array<Range, 8> ranges_{};
  unsigned count_ = 0;
};

}  // namespace advectio
