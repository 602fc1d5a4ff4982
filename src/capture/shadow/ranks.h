// The ranks of a parallel program that write one dataset together, and how they begin it. This
// header needs no MPI.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "capture/dataset.h"
#include "capture/shadow/guard.h"

namespace advectio::shadow {

/// The ranks of the communicator that the program gave. Both calls are collective.
class Ranks {
 public:
  virtual ~Ranks() = default;
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int count() const noexcept { return count_; }
  /// True on all of them when it is on each.
  [[nodiscard]] virtual bool all(bool here) const = 0;
  /// Afterwards all ranks have the bytes of rank 0.
  virtual void broadcast(std::span<std::byte> bytes) const = 0;
  /// MPI's handles as its C functions take them: an int with one MPI and a pointer with another, in
  /// a pointer.
  [[nodiscard]] virtual void* communicator() const noexcept = 0;
  [[nodiscard]] virtual void* hints() const noexcept = 0;

 protected:
  int rank_ = 0, count_ = 1;
};

/// The program's arguments to its library, as in Ranks::communicator, or Fortran's numbers for
/// them.
struct ProgramCommunicator {
  void* comm = nullptr;
  void* hints = nullptr;
  bool fortran = false;
};

/// Collective. Ranks with a communicator of their own, by the MPI that the object with `function`
/// was linked with. Null: it has none, or one of another kind than this was built for.
std::shared_ptr<Ranks> duplicate(const void* function, const ProgramCommunicator& program);

/// Some of the program's ranks may not have us loaded, and would not answer a collective call of
/// ours: they are on other nodes, where Open MPI's launcher does not take the environment, and
/// there is no server on each node (ADVECTIO_SERVERS; who sets it has seen to the environment). The
/// same answer on all of them.
bool beyond_this_node() noexcept;
/// Log that this is why the library creates the file. `library` is its name in the text.
void say_beyond_this_node(const std::string& path, const char* library);

/// A dataset that rank 0 has registered and the others have joined. `dataset`: null on a rank that could not.
struct BegunTogether {
  bool registered = false;  ///< the same on all ranks
  std::unique_ptr<SharedDataset> dataset;
  Error why{};
};
/// Collective, and never fails: a rank that left it would let the others wait. `can`: this rank is
/// ready. `there`: the file is opened, and not created; null: it is created.
BegunTogether begin_together(const Ranks& ranks, bool can, Session* session, const CreateRequest& request,
                             const FileToOpen* there) noexcept;
/// Collective. Some rank cannot write it: returns when the server has let go of the path. `dataset`: this rank's.
void end_together(const Ranks& ranks, SharedDataset* dataset, Session* session, const CreateRequest& request) noexcept;
/// Log why the library makes the file or, where it is `there`, opens it. `library` is its name in
/// the text.
void say_not_together(Session* session, const CreateRequest& request, const char* library, const Error& why,
                      bool there) noexcept;

/// Collective. This rank's dataset. Null, on all ranks: the real library makes or opens the file,
/// and nothing of it is in flight. The log then has the reason, unless the library finds it too.
/// `there`: as in begin_together. `keep(dataset)` takes this rank's dataset, if it has memory for
/// what that needs; `forget()` takes back what it did.
template <typename Keep, typename Forget>
SharedDataset* create_together(const Ranks& ranks, bool can, Session* session, const CreateRequest& request,
                               const char* library, Keep&& keep, Forget&& forget,
                               const FileToOpen* there = nullptr) noexcept {
  auto begun = begin_together(ranks, can, session, request, there);
  if (!begun.registered) return nullptr;
  auto* dataset = begun.dataset.get();
  bool kept = false;
  if (dataset != nullptr) {
    const auto done = as_result([&]() -> Result<void> {
      keep(begun.dataset);
      return {};
    });
    kept = done.ok();
    if (!kept) begun.why = done.error();
  }
  if (ranks.all(kept)) return dataset;
  say_not_together(session, request, library, begun.why, there != nullptr);
  const bool has_one = kept || begun.dataset != nullptr;
  end_together(ranks, has_one ? dataset : nullptr, session, request);
  if (kept) forget();
  return nullptr;
}

/// The regular file at `path`. Nothing: there is none. The caller finds its format.
std::optional<FileToOpen> look_at(const std::string& path);
/// Collective. All ranks see the same file, unchanged.
bool is_the_same_for_all(const Ranks& ranks, const FileToOpen& there) noexcept;

/// Collective. As create_together, for a file that is there. Each rank has read its schema. False,
/// on all ranks: the library opens it. `take_up()` gives the dataset what the file holds, on rank 0
/// also its schema, and ends the collective index; then the server answers.
template <typename Keep, typename Forget, typename TakeUp>
bool open_together(const Ranks& ranks, bool can, Session* session, const FileToOpen& there, const char* library,
                   Keep&& keep, Forget&& forget, TakeUp&& take_up) noexcept {
  CreateRequest request;
  bool named = false;
  guarded("the opening of a file", [&] {
    request.path = there.path;
    named = true;
  });
  request.format = there.format;
  const bool same = is_the_same_for_all(ranks, there);
  if (!ranks.all(can && named && same)) return false;
  auto* dataset = create_together(ranks, true, session, request, library, keep, forget, &there);
  if (dataset == nullptr) return false;
  const auto answer = as_result([&]() -> Result<void> {
    ADVECTIO_TRY(take_up());
    return ranks.rank() == 0 ? dataset->await_answer() : Result<void>{};
  });
  if (ranks.all(answer.ok())) return true;
  if (!answer) say_not_together(session, request, library, answer.error(), true);
  end_together(ranks, dataset, session, request);
  forget();
  return false;
}

}  // namespace advectio::shadow
