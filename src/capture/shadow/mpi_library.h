// The MPI that a library of the program uses, found at run time. Nothing of MPI is linked: its
// header gives types and numbers only, of one kind of MPI.
#pragma once

#include <memory>

#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

#include "capture/shadow/ranks.h"

// Lists, one thought a line.
// clang-format off

/// X(function): what is called of MPI.
#define ADVECTIO_MPI_FUNCTIONS(X)                                                                                    \
  X(MPI_Comm_rank) X(MPI_Comm_size) X(MPI_Comm_dup) X(MPI_Comm_free) X(MPI_Info_dup) X(MPI_Info_free)                \
  X(MPI_Comm_create_keyval) X(MPI_Comm_set_attr) X(MPI_Comm_get_attr)                                                \
  X(MPI_Bcast) X(MPI_Allreduce) X(MPI_Finalized)                                                                     \
  X(MPI_Type_size) X(MPI_Type_get_envelope) X(MPI_Type_get_contents) X(MPI_Type_free) X(MPI_Type_dup) X(MPI_Pack)

/// X(member, MPI's name, Open MPI's symbol, nc_type): its datatypes and what they hold.
#define ADVECTIO_MPI_TYPES(X)                                                                                        \
  X(character, MPI_CHAR, char, NC_CHAR)                                                                              \
  X(signed_char, MPI_SIGNED_CHAR, signed_char, NC_BYTE)                                                              \
  X(unsigned_char, MPI_UNSIGNED_CHAR, unsigned_char, NC_UBYTE)                                                       \
  X(short_int, MPI_SHORT, short, NC_SHORT)                                                                           \
  X(unsigned_short, MPI_UNSIGNED_SHORT, unsigned_short, NC_USHORT)                                                   \
  X(integer, MPI_INT, int, NC_INT)                                                                                   \
  X(unsigned_int, MPI_UNSIGNED, unsigned, NC_UINT)                                                                   \
  X(long_int, MPI_LONG, long, (sizeof(long) == 8 ? NC_INT64 : NC_INT))                                               \
  X(real, MPI_FLOAT, float, NC_FLOAT)                                                                                \
  X(double_real, MPI_DOUBLE, double, NC_DOUBLE)                                                                      \
  X(long_long, MPI_LONG_LONG_INT, long_long_int, NC_INT64)                                                           \
  X(unsigned_long_long, MPI_UNSIGNED_LONG_LONG, unsigned_long_long, NC_UINT64)                                       \
  X(fortran_character, MPI_CHARACTER, character, NC_CHAR)                                                            \
  X(fortran_integer, MPI_INTEGER, integer, NC_INT)                                                                   \
  X(fortran_integer1, MPI_INTEGER1, integer1, NC_BYTE)                                                               \
  X(fortran_integer2, MPI_INTEGER2, integer2, NC_SHORT)                                                              \
  X(fortran_integer4, MPI_INTEGER4, integer4, NC_INT)                                                                \
  X(fortran_integer8, MPI_INTEGER8, integer8, NC_INT64)                                                              \
  X(fortran_real, MPI_REAL, real, NC_FLOAT)                                                                          \
  X(fortran_real4, MPI_REAL4, real4, NC_FLOAT)                                                                       \
  X(fortran_real8, MPI_REAL8, real8, NC_DOUBLE)                                                                      \
  X(fortran_double, MPI_DOUBLE_PRECISION, dblprec, NC_DOUBLE)
// clang-format on

namespace advectio::shadow {

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
  // Fortran's handles; null where they are the same numbers.
  MPI_Comm (*comm_from_fortran)(MPI_Fint) = nullptr;
  MPI_Info (*info_from_fortran)(MPI_Fint) = nullptr;
  /// All of it was found, and it is of the kind that this was built for.
  bool usable = false;
};

/// Load the MPI that `library` was linked with: a handle of an object that is loaded.
void load_mpi(void* library, Mpi& mpi);

/// Borrows the communicator.
class MpiRanks : public Ranks {
 public:
  /// `usable` is false where the communicator is not one.
  MpiRanks(const Mpi& mpi, MPI_Comm comm, MPI_Info info) noexcept;
  [[nodiscard]] bool usable() const noexcept { return usable_; }
  [[nodiscard]] bool all(bool here) const override;
  void broadcast(std::span<std::byte> bytes) const override;
  [[nodiscard]] void* communicator() const noexcept override;
  [[nodiscard]] void* hints() const noexcept override;

 protected:
  const Mpi& mpi_;
  MPI_Comm comm_;
  MPI_Info info_;

 private:
  bool usable_ = false;
};

}  // namespace advectio::shadow
