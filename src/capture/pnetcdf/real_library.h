// The PnetCDF library that a caller would have reached without us, and the MPI which that library
// uses (see capture/shadow/interposed.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "capture/pnetcdf/pnetcdf_api.h"
#include "capture/shadow/interposed.h"

namespace advectio::pnetcdf {

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
  shadow::Mpi mpi;  ///< as the real library sees it

  static constexpr shadow::Wanted wanted{"ncmpi_inq_libvers", "pnetcdf", false};
  static std::unique_ptr<RealLibrary> load(const link_map& map);

  /// The captured dataset which the program knows by this number, or null.
  [[nodiscard]] ParallelFile* find(int ncid) const noexcept {
    return ncid >= 0 && ncid < NC_MAX_NFILES ? files[ncid].load(std::memory_order_acquire) : nullptr;
  }
  /// The program knows that dataset by this number from now on; null: none of ours.
  void enter(int ncid, ParallelFile* file) const noexcept {
    files[ncid].store(file, std::memory_order_release);
  }
  mutable std::atomic<ParallelFile*> files[NC_MAX_NFILES]{};
};

using Entry = shadow::Entry<RealLibrary>;

#define ADVECTIO_REAL(F, ...) (entry.lib.F != nullptr ? entry.lib.F(__VA_ARGS__) : NC_ENOTSUPPORT)

}  // namespace advectio::pnetcdf
