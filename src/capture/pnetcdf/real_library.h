// The PnetCDF library that a caller would have reached without us, and the MPI which that library uses (see
// capture/interposed.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "capture/interposed.h"
#include "capture/pnetcdf/pnetcdf_api.h"

namespace advectio {

class ParallelFile;

/// MPI as the real library sees it.
struct Mpi {
#define ADVECTIO_MEMBER(F) decltype(&::F) F = nullptr;
  ADVECTIO_MPI_FUNCTIONS(ADVECTIO_MEMBER)
#undef ADVECTIO_MEMBER
  MPI_Comm self{};
  MPI_Op min{};
  MPI_Info no_info{};
  MPI_Datatype byte{}, null_type{};
#define ADVECTIO_MEMBER(NAME, MPI_NAME, SYMBOL, TYPE) MPI_Datatype NAME{};
  ADVECTIO_MPI_TYPES(ADVECTIO_MEMBER)
#undef ADVECTIO_MEMBER
  /// All of it was found, and it is of the kind that this was built for.
  bool usable = false;
};

/// The functions of one loaded PnetCDF library; null where that version lacks one.
struct RealLibrary {
#define ADVECTIO_MEMBER(F) decltype(&::F) F = nullptr;
#define ADVECTIO_TYPED_MEMBERS(T, memory, type) ADVECTIO_FAMILIES(ADVECTIO_MEMBER, _##T)
#define ADVECTIO_ATTRIBUTE_MEMBER(T, memory, type) decltype(&::ncmpi_put_att_##T) ncmpi_put_att_##T = nullptr;
  ADVECTIO_PLAIN_FUNCTIONS(ADVECTIO_MEMBER)
  ADVECTIO_FAMILIES(ADVECTIO_MEMBER, )
  ADVECTIO_MEMORY_TYPES(ADVECTIO_TYPED_MEMBERS)
  ADVECTIO_MEMORY_TYPES(ADVECTIO_ATTRIBUTE_MEMBER)
#undef ADVECTIO_ATTRIBUTE_MEMBER
#undef ADVECTIO_TYPED_MEMBERS
#undef ADVECTIO_MEMBER
  Mpi mpi;

  static constexpr interposed::Wanted wanted{"ncmpi_inq_libvers", "pnetcdf"};
  static std::unique_ptr<RealLibrary> load(const link_map& map);

  /// The captured dataset which the program knows by this number, or null.
  [[nodiscard]] ParallelFile* find(int ncid) const noexcept {
    return ncid >= 0 && ncid < NC_MAX_NFILES ? files[ncid].load(std::memory_order_acquire) : nullptr;
  }
  mutable std::atomic<ParallelFile*> files[NC_MAX_NFILES]{};
};

/// Never fails: where there is no PnetCDF at all the answer is a library without functions.
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
  explicit Entry(const RealLibrary& library) noexcept : nested_(inside_ != nullptr), lib(library) { inside_ = &lib; }
  ~Entry() {
    if (!nested_) inside_ = nullptr;
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  /// The captured dataset of that number; null when it is not ours or the library is calling itself.
  [[nodiscard]] ParallelFile* find(int ncid) const noexcept { return nested_ ? nullptr : lib.find(ncid); }
  [[nodiscard]] bool nested() const noexcept { return nested_; }

 private:
  static thread_local const RealLibrary* inside_ __attribute__((tls_model("initial-exec")));
  bool nested_;

 public:
  const RealLibrary& lib;
};

#define ADVECTIO_ENTER ::advectio::Entry entry(__builtin_extract_return_addr(__builtin_return_address(0)))
#define ADVECTIO_REAL(F, ...) (entry.lib.F != nullptr ? entry.lib.F(__VA_ARGS__) : NC_ENOTSUPPORT)
#define ADVECTIO_EXPORT extern "C" __attribute__((visibility("default")))

}  // namespace advectio
