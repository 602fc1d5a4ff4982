// Finding, for a calling object, the library that it would have reached without the one preloaded before it. A process
// may hold several of a kind (the system's, an MPI build, one bundled in a Python wheel), so it is looked up by the
// calling object, once per object. Compiled into each interposer.
#pragma once

#include <link.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace advectio::interposed {

/// The loaded object that holds an address, or null.
const link_map* map_of(const void* address);
/// The interposer itself.
const link_map* own_map();

/// What is looked for: a function that every version of the library has, and what all its file names contain.
struct Wanted {
  const char* probe;
  const char* name_part;
};
/// For the object that holds `address`. Null: there is none loaded.
const link_map* find(const Wanted& wanted, std::uintptr_t address);

/// The addresses of the object that holds `address`. It is kept loaded: were it not, another object could take its
/// place in memory and be taken for it.
struct Extent {
  std::uintptr_t begin, end;
};
Extent keep_extent(std::uintptr_t address);

/// The libraries of one kind. `Library` has `wanted` and `load`, which makes its table of functions or returns null.
/// Never destroyed: calls may come from other libraries' destructors.
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
    const link_map* real = find(Library::wanted, address);
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
  std::vector<std::unique_ptr<Ranges>> kept_;  // old snapshots stay valid for readers that still hold them
  std::atomic<const Ranges*> ranges_{nullptr};
  const Library absent_{};
};

}  // namespace advectio::interposed
