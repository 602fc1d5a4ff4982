// The netCDF library that a caller would have reached without us (see capture/shadow/interposed.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "capture/netcdf/netcdf_api.h"
#include "capture/shadow/interposed.h"

namespace advectio::netcdf {

class CapturedFile;

/// The functions of one loaded netCDF library; null where that build or version lacks one.
struct RealLibrary {
#define ADVECTIO_MEMBER(F) decltype(&::F) F = nullptr;
#define ADVECTIO_TYPED_MEMBERS(T, put, get, type) ADVECTIO_TYPED_FUNCTIONS(ADVECTIO_MEMBER, T)
  ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_MEMBER)
  ADVECTIO_MEMORY_TYPES(ADVECTIO_TYPED_MEMBERS)
#undef ADVECTIO_TYPED_MEMBERS
#undef ADVECTIO_MEMBER

  // Every netCDF-C since 3.0 has it.
  static constexpr shadow::Wanted wanted{"nc_inq_libvers", "netcdf", true};
  static std::unique_ptr<RealLibrary> load(const link_map& map);

  /// The captured dataset which the program knows by this number, or null. Lock-free: every call
  /// passes here.
  [[nodiscard]] CapturedFile* find(int ncid) const noexcept {
    const auto* table = files.load(std::memory_order_acquire);
    if (table == nullptr || (ncid & 0xffff) != 0) return nullptr;
    return table[static_cast<unsigned>(ncid) >> 16].load(std::memory_order_acquire);
  }

  /// The program knows that dataset by this number from now on; null: none of ours. One caller at a
  /// time.
  void enter(int ncid, CapturedFile* file) const {
    auto* table = files.load(std::memory_order_acquire);
    if (table == nullptr) {
      // Pages of it that nobody touches cost nothing.
      table = static_cast<std::atomic<CapturedFile*>*>(std::calloc(files_max, sizeof(std::atomic<CapturedFile*>)));
      if (table == nullptr) throw std::bad_alloc();
      files.store(table, std::memory_order_release);
    }
    table[static_cast<unsigned>(ncid) >> 16].store(file, std::memory_order_release);
  }

  /// netCDF-C numbers files in the upper half of an ncid (groups in the lower), from a table of
  /// 65536.
  static constexpr std::size_t files_max = 0x10000;
  mutable std::atomic<std::atomic<CapturedFile*>*> files{nullptr};
};

using Entry = shadow::Entry<RealLibrary>;

/// A program has asked dlsym(3) for our function of that name.
bool was_looked_up(const char* function);

/// Call the real function; a build that lacks it cannot be linked against by a program that needs
/// it, but may be asked by one that found the name at run time.
#define ADVECTIO_REAL(F, ...) (entry.lib.F != nullptr ? entry.lib.F(__VA_ARGS__) : NC_ENOTBUILT)

}  // namespace advectio::netcdf
