// Finds the library that a calling object would have reached without ours. A process may hold
// several of a kind (the system's, an MPI build, one bundled in a Python wheel). So the library is
// looked up by the calling object, once per object.
#pragma once

#include <link.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "capture/export.h"

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
};
/// For the object that holds `address`. Null: there is none loaded.
const link_map* find_library(const Wanted& wanted, std::uintptr_t address);

/// The addresses of the object that holds `address`. It is kept loaded: were it not, another object
/// could take its place in memory and be taken for it.
struct Extent {
  std::uintptr_t begin, end;
};
Extent keep_extent(std::uintptr_t address);

/// The libraries of one kind. `Library` has `wanted` and `load`, which makes its table of functions
/// or returns null. Never destroyed: calls may come from other libraries' destructors.
template <typename Library>
class Libraries {
 public:
  /// Never fails: where there is no such library at all the answer is one without functions.
  const Library& of(const void* return_address) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(return_address);
    if (const auto* known = ranges_.load(std::memory_order_acquire); known != nullptr)
      for (const auto& range : *known)
        if (address >= range.extent.begin && address < range.extent.end) return *range.to;
    return resolve(address);
  }

 private:
  struct Known {
    Extent extent;  ///< of the calling object
    const Library* to;
  };
  using Ranges = std::vector<Known>;

  // The dynamic linker has locks of its own: nothing of it is called while ours is held.
  const Library& resolve(std::uintptr_t address) {
    const link_map* real = find_library(Library::wanted, address);
    // Not remembered: it may be loaded later.
    if (real == nullptr) return absent_;
    auto fresh = Library::load(*real);
    const auto extent = keep_extent(address);

    const std::lock_guard lock(mutex_);
    const Library* library = nullptr;
    for (const auto& [map, known] : libraries_)
      if (map == real) library = known;
    if (library == nullptr) {
      if (fresh == nullptr) return absent_;
      library = fresh.release();
      libraries_.emplace_back(real, library);
    }
    const auto* old = ranges_.load(std::memory_order_acquire);
    auto next = old != nullptr ? std::make_unique<Ranges>(*old) : std::make_unique<Ranges>();
    next->push_back({extent, library});
    ranges_.store(next.get(), std::memory_order_release);
    kept_.push_back(std::move(next));
    return *library;
  }

  std::mutex mutex_;
  std::vector<std::pair<const link_map*, const Library*>> libraries_;
  /// Old snapshots: readers may still hold them.
  std::vector<std::unique_ptr<Ranges>> kept_;
  std::atomic<const Ranges*> ranges_{nullptr};
  const Library absent_{};
};

/// The library that the caller with this return address would have reached.
template <typename Library>
const Library& library_of(const void* return_address) noexcept {
  static auto* libraries = new Libraries<Library>;
  return libraries->of(return_address);
}

/// Every exported function makes one first. It finds the library that the caller means, and marks
/// this thread as inside. The library's calls to its own public functions come back to us through
/// the PLT; they pass through. `Library` has `find`, which gives the captured dataset of a number
/// or null.
template <typename Library>
class Entry {
 public:
  explicit Entry(const void* return_address) noexcept
      : nested_(inside_ != nullptr), lib(nested_ ? *inside_ : library_of<Library>(return_address)) {
    inside_ = &lib;
  }
  /// For our own calls into a library, outside any call of the program.
  explicit Entry(const Library& library) noexcept : nested_(inside_ != nullptr), lib(library) { inside_ = &lib; }
  ~Entry() {
    if (!nested_) inside_ = nullptr;
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  /// The captured dataset of that number; null when it is not ours or the library is calling
  /// itself.
  [[nodiscard]] auto* find(int ncid) const noexcept { return nested_ ? nullptr : lib.find(ncid); }
  [[nodiscard]] bool nested() const noexcept { return nested_; }
  /// The library this thread is inside of, or null.
  static const Library* current() noexcept { return inside_; }

 private:
  // A preloaded library may use the static TLS block, which spares a function call per access.
  static constinit thread_local inline const Library* inside_ __attribute__((tls_model("initial-exec"))) = nullptr;
  bool nested_;

 public:
  const Library& lib;
};

// `Entry` is the one of the face.
#define ADVECTIO_ENTER Entry entry(__builtin_extract_return_addr(__builtin_return_address(0)))

}  // namespace advectio::shadow
