#include "capture/listing.h"

#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "capture/markers.h"
#include "capture/plain_path.h"
#include "capture/rules.h"
#include "journal/markers.h"

namespace advectio::capture {
namespace {

/// The entries that programs may still look at, by directory.
class Entries {
 public:
  static Entries& of_process() {
    static auto* const all = new Entries;  // lives as long as the process: threads list until the end
    return *all;
  }

  struct dirent* keep(DIR* directory, const struct dirent& as, const std::string& name) {
    const std::lock_guard guard(mutex_);
    auto& kept = of_[directory];
    kept = as;
    std::memcpy(kept.d_name, name.c_str(), name.size() + 1);
    any_.store(true, std::memory_order_release);
    return &kept;
  }
  void forget(DIR* directory) {
    if (!any_.load(std::memory_order_acquire)) return;
    const std::lock_guard guard(mutex_);
    of_.erase(directory);
  }

 private:
  std::mutex mutex_;
  std::map<DIR*, struct dirent> of_;
  std::atomic<bool> any_{false};
};

}  // namespace

struct dirent* listed(DIR* directory, struct dirent* entry, const void* caller) noexcept {
  if (entry == nullptr || !journal::is_held_name(entry->d_name) || !is_of_program(caller, entry->d_name)) return entry;
  const int kept = errno;
  auto* shown = entry;
  const Inside mark;
  try {
    const auto name = own_name(from_root(::dirfd(directory), entry->d_name));
    struct stat st {};
    if (!name.empty() && ::lstat(name.c_str(), &st) == 0)
      shown = nullptr;
    else if (const auto base = base_name(name); !base.empty() && base.size() < sizeof entry->d_name)
      shown = Entries::of_process().keep(directory, *entry, base);
  } catch (...) {  // no memory: the program sees what others see
  }
  errno = kept;
  return shown;
}

void end_listing(DIR* directory) noexcept {
  try {
    Entries::of_process().forget(directory);
  } catch (...) {  // no memory: an entry stays, and is used again
  }
}

}  // namespace advectio::capture
