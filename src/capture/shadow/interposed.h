// Finds the library that a calling object would have reached without ours. A process may hold
// several of a kind (the system's, an MPI build, one bundled in a Python wheel). So the library is
// looked up by the calling object, once per object.
#pragma once

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "capture/export.h"
#include "capture/shadow/guard.h"

namespace advectio::shadow {

/// The loaded object that holds an address, or null.
const link_map* map_of(const void* address);
/// The interposer itself.
const link_map* own_map();

/// A handle of that object for `function_of`, or null. It stays loaded for good: the table of its
/// functions outlives any dlclose.
void* handle_of(const link_map& map);
/// The function of that name in the object or what it was linked with; null where there is none but
/// ours. Of the program itself (a static library is part of it), what it was linked with does not
/// count: that may be another library of the kind.
void* function_of(const link_map& map, void* handle, const char* name);

/// How to recognise a library: by a function that every version has, and a part of all its file
/// names.
struct Wanted {
  const char* probe;
  const char* name_part;
  /// The library has no other interface, as one for Fortran, that programs call and that calls this one.
  bool alone;
};
/// For the object that holds `address`. Null: there is none loaded.
const link_map* find_library(const Wanted& wanted, std::uintptr_t address);
/// Is the library itself that object? Not where a program or another library has it linked into it:
/// there its calls and theirs look the same.
bool is_library(const Wanted& wanted, const link_map& real, std::uintptr_t address);
/// A program has looked up functions of that library by name. It is the first choice for callers that
/// were not linked with one.
void note_looked_up(const link_map& library);

/// The object that holds `address` was linked to call that function by its name.
bool imports(std::uintptr_t address, const char* function);

/// The addresses of the object that holds `address`. It is kept loaded: were it not, another object
/// could take its place in memory and be taken for it. Empty: no object does, as of code that was made
/// at run time.
struct Extent {
  std::uintptr_t begin = 0, end = 0;
};
Extent keep_extent(std::uintptr_t address);

/// Where a call comes from, and the library that it would have reached. `itself`: it is the library that calls one of
/// its public functions.
template <typename Library>
struct Caller {
  const Library* reached;
  bool itself;
};

/// The libraries of one kind. `Library` has `wanted` and `load`, which makes its table of functions
/// or returns null. Never destroyed: calls may come from other libraries' destructors.
template <typename Library>
class Libraries {
 public:
  /// Never fails: where there is no such library at all the answer is one without functions.
  Caller<Library> of(const void* return_address) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(return_address);
    if (const auto* known = ranges_.load(std::memory_order_acquire); known != nullptr)
      for (const auto& range : *known)
        if (address >= range.extent.begin && address < range.extent.end) return range.caller;
    // Without a library this call fails, and other ranks may wait for it in MPI: what was no memory a moment ago is
    // asked for once more.
    for (const bool last : {false, true}) {
      try {
        return resolve(address);
      } catch (...) {
        if (last) (void)answer_to_exception("the search for the library");
      }
    }
    return {&absent_, false};
  }

 private:
  struct Known {
    Extent extent;  ///< of the calling object
    Caller<Library> caller;
  };
  using Ranges = std::vector<Known>;

  // The dynamic linker has locks of its own: nothing of it is called while ours is held.
  Caller<Library> resolve(std::uintptr_t address) {
    const link_map* real = find_library(Library::wanted, address);
    // Not remembered: it may be loaded later.
    if (real == nullptr) return {&absent_, false};
    auto fresh = Library::load(*real);
    const auto extent = keep_extent(address);
    const bool itself = is_library(Library::wanted, *real, address);

    const std::lock_guard lock(mutex_);
    const Library* library = nullptr;
    for (const auto& [map, known] : libraries_)
      if (map == real) library = known;
    if (library == nullptr) {
      if (fresh == nullptr) return {&absent_, false};
      library = fresh.release();
      libraries_.emplace_back(real, library);
    }
    if (extent.begin == extent.end) return {library, false};
    const auto* old = ranges_.load(std::memory_order_acquire);
    auto next = old != nullptr ? std::make_unique<Ranges>(*old) : std::make_unique<Ranges>();
    next->push_back({extent, {library, itself}});
    kept_.push_back(std::move(next));
    ranges_.store(kept_.back().get(), std::memory_order_release);
    return {library, itself};
  }

  std::mutex mutex_;
  std::vector<std::pair<const link_map*, const Library*>> libraries_;
  /// Old snapshots: readers may still hold them.
  std::vector<std::unique_ptr<Ranges>> kept_;
  std::atomic<const Ranges*> ranges_{nullptr};
  const Library absent_{};
};

/// Who calls, and the library that it would have reached without us.
template <typename Library>
Caller<Library> caller_of(const void* return_address) noexcept {
  alignas(Libraries<Library>) static std::byte place[sizeof(Libraries<Library>)];
  static auto* libraries = new (place) Libraries<Library>;
  return libraries->of(return_address);
}

/// Every exported function makes one first. It finds the library that the caller means, and marks
/// this thread as inside. The library's calls to its own public functions come back to us through
/// the PLT; they pass through, also where the program has found a way into the library that does not
/// lead past us. `Library` has `find`, which gives the captured dataset of a number or null.
template <typename Library>
class Entry {
 public:
  explicit Entry(const void* return_address) noexcept : Entry(Address{made_for(return_address)}) {}
  /// For our own calls into a library, outside any call of the program.
  explicit Entry(const Library& library) noexcept : Entry(Caller<Library>{&library, inside_ != nullptr}, nullptr) {}
  ~Entry() {
    if (nested_) return;
    inside_ = nullptr;
    if (later_ != nullptr) [[unlikely]]
      std::exchange(later_, nullptr)();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  /// The captured dataset of that number; null when it is not ours or the library is calling
  /// itself. But where the program has called a function of the library that we do not have, what that
  /// calls counts as called by the program.
  [[nodiscard]] auto* find(int ncid) noexcept {
    auto* file = nested_ && !past_us() ? nullptr : lib.find(ncid);
    if (nested_ && file != nullptr) {
      nested_ = false;
      inside_ = &lib;
    }
    return file;
  }
  /// The next entry of this thread is made for a call from that address: one of our functions is made
  /// of others.
  static void make_for(const void* return_address) noexcept { made_for_ = return_address; }
  [[nodiscard]] bool nested() const noexcept { return nested_; }
  [[nodiscard]] std::uintptr_t return_address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(return_address_);
  }
  /// The library calls itself, and was not called through us.
  [[nodiscard]] bool past_us() const noexcept { return nested_ && inside_ == nullptr; }
  /// The captured dataset of that number, where the program calls in the midst of another call of this
  /// thread: from a signal handler. Null: it is none, or the library calls itself.
  [[nodiscard]] auto* interrupted(int ncid) const noexcept {
    auto* file = nested_ && inside_ != nullptr && return_address_ != nullptr ? lib.find(ncid) : nullptr;
    return file == nullptr || caller_of<Library>(return_address_).itself ? nullptr : file;
  }
  /// The library this thread is inside of, or null.
  static const Library* current() noexcept { return inside_; }
  /// When this thread leaves the call that it is in, do that. From a signal handler.
  using PutOff = void (*)();
  static void do_later(PutOff what) noexcept { later_ = what; }

 private:
  struct Address {
    const void* caller;
  };
  explicit Entry(Address address) noexcept
      : Entry(inside_ != nullptr ? Caller<Library>{inside_, true} : caller_of<Library>(address.caller),
              address.caller) {}
  Entry(Caller<Library> caller, const void* return_address) noexcept
      : nested_(caller.itself), return_address_(return_address), lib(*caller.reached) {
    if (!nested_) inside_ = &lib;
  }
  // A preloaded library may use the static TLS block, which spares a function call per access.
  static constinit thread_local inline const Library* inside_ __attribute__((tls_model("initial-exec"))) = nullptr;
  static constinit thread_local inline PutOff later_ __attribute__((tls_model("initial-exec"))) = nullptr;
  static constinit thread_local inline const void* made_for_ __attribute__((tls_model("initial-exec"))) = nullptr;
  static const void* made_for(const void* return_address) noexcept {
    return made_for_ == nullptr ? return_address : std::exchange(made_for_, nullptr);
  }
  bool nested_;
  const void* return_address_;

 public:
  const Library& lib;
};

// `Entry` is the one of the face.
#define ADVECTIO_ENTER Entry entry(__builtin_extract_return_addr(__builtin_return_address(0)))

}  // namespace advectio::shadow
