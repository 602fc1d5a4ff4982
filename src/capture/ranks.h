// The ranks of a parallel program that write one dataset together, and how they begin it. Nothing of MPI is seen here.
// Compiled into the interposers that need it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "capture/dataset.h"

namespace advectio {

/// The ranks of the communicator that the program gave. Both calls are collective.
class Ranks {
 public:
  virtual ~Ranks() = default;
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int count() const noexcept { return count_; }
  /// True on all of them when it is on each.
  [[nodiscard]] virtual bool all(bool here) const = 0;
  /// What rank 0 has in there all have afterwards.
  virtual void tell(std::span<std::byte> bytes) const = 0;
  /// MPI's handles as its C functions take them: an int with one MPI and a pointer with another, in a pointer.
  [[nodiscard]] virtual void* communicator() const noexcept = 0;
  [[nodiscard]] virtual void* hints() const noexcept = 0;

 protected:
  int rank_ = 0, count_ = 1;
};

/// What a program gives to its library, as in Ranks::communicator, or the numbers that Fortran has for it.
struct ProgramCommunicator {
  void* comm = nullptr;
  void* hints = nullptr;
  bool fortran = false;
};

/// Collective. Ranks with a communicator of their own, by the MPI that the object with `function` was linked with.
/// Null: it has none, or one of another kind than this was built for.
std::unique_ptr<Ranks> duplicate(const void* function, const ProgramCommunicator& program);

/// Some of the program's ranks may not have us loaded, and would not answer a collective call of ours: they are on
/// other nodes, where Open MPI's launcher does not take the environment, and there is no server on each node
/// (ADVECTIO_SERVERS; who sets it has seen to the environment). The same answer on all of them.
bool beyond_this_node() noexcept;
/// That this is why the library shall create the file. `library` is its name in what is said.
void say_beyond_this_node(const std::string& path, const char* library);

/// Collective. `can`: this rank is ready to. Null, on all ranks: the real library shall create the file; nothing of it
/// is in flight then, and why it is so has been said where the library would not say it (`library` is its name there).
std::unique_ptr<SharedDataset> create_together(const Ranks& ranks, bool can, Session* session,
                                               const CreateRequest& request, const char* library);

}  // namespace advectio
