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
  Mpi mpi;  ///< as the real library sees it

  static constexpr interposed::Wanted wanted{"ncmpi_inq_libvers", "pnetcdf"};
  static std::unique_ptr<RealLibrary> load(const link_map& map);

  /// The captured dataset which the program knows by this number, or null.
  [[nodiscard]] ParallelFile* find(int ncid) const noexcept {
    return ncid >= 0 && ncid < NC_MAX_NFILES ? files[ncid].load(std::memory_order_acquire) : nullptr;
  }
  mutable std::atomic<ParallelFile*> files[NC_MAX_NFILES]{};
};

using Entry = interposed::Entry<RealLibrary>;

#define ADVECTIO_REAL(F, ...) (entry.lib.F != nullptr ? entry.lib.F(__VA_ARGS__) : NC_ENOTSUPPORT)

}  // namespace advectio
