// The netCDF library that a caller would have reached without us (see capture/interposed.h).
#pragma once

#include <atomic>
#include <cstddef>

#include "capture/interposed.h"
#include "capture/netcdf/netcdf_api.h"

namespace advectio {

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
  static constexpr interposed::Wanted wanted{"nc_inq_libvers", "netcdf"};
  static std::unique_ptr<RealLibrary> load(const link_map& map);

  /// The captured dataset which the program knows by this number, or null. Lock-free: every call passes here.
  [[nodiscard]] CapturedFile* find(int ncid) const noexcept {
    const auto* table = files.load(std::memory_order_acquire);
    if (table == nullptr || (ncid & 0xffff) != 0) return nullptr;
    return table[static_cast<unsigned>(ncid) >> 16].load(std::memory_order_acquire);
  }

  /// netCDF-C numbers files in the upper half of an ncid (groups in the lower), from a table of 65536.
  static constexpr std::size_t files_max = 0x10000;
  mutable std::atomic<std::atomic<CapturedFile*>*> files{nullptr};
};

/// Never fails: where there is no netCDF at all the answer is a library without functions.
const RealLibrary& library_of(const void* return_address) noexcept;

/// What every exported function does first: find the library its caller means, and mark this thread as being inside, so
/// that the calls which the library makes to its own public functions (they come back to us through the PLT) pass
/// through.
class Entry {
 public:
  explicit Entry(const void* return_address) noexcept
      : nested_(inside_ != nullptr), lib(nested_ ? *inside_ : library_of(return_address)) {
    inside_ = &lib;
  }
  /// For our own calls into a library, outside any call of the program.
  explicit Entry(const RealLibrary& library) noexcept : nested_(inside_ != nullptr), lib(library) { inside_ = &lib; }
  ~Entry() {
    if (!nested_) inside_ = nullptr;
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  /// The captured dataset of that number; null when it is not ours or the library is calling itself.
  [[nodiscard]] CapturedFile* find(int ncid) const noexcept { return nested_ ? nullptr : lib.find(ncid); }
  [[nodiscard]] bool nested() const noexcept { return nested_; }
  /// The library this thread is inside of, or null.
  static const RealLibrary* current() noexcept { return inside_; }

 private:
  // A preloaded library may use the static TLS block, which spares a function call per access.
  static thread_local const RealLibrary* inside_ __attribute__((tls_model("initial-exec")));
  bool nested_;

 public:
  const RealLibrary& lib;
};

#define ADVECTIO_ENTER ::advectio::Entry entry(__builtin_extract_return_addr(__builtin_return_address(0)))
/// Call the real function; a build that lacks it cannot be linked against by a program that needs it, but may be asked
/// by one that found the name at run time.
#define ADVECTIO_REAL(F, ...) (entry.lib.F != nullptr ? entry.lib.F(__VA_ARGS__) : NC_ENOTBUILT)
#define ADVECTIO_EXPORT extern "C" __attribute__((visibility("default")))

}  // namespace advectio
