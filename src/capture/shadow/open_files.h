// The captured datasets of this process. All of this happens once per file or less.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "capture/dataset.h"
#include "capture/shadow/interposed.h"

namespace advectio::shadow {

/// `File` has `lib`, `ncid`, `keep_all()` (CapturedDataset's) and `close_at_exit()`; `lib.enter(ncid, file)` is what
/// `lib.find(ncid)` then gives.
template <typename File>
class OpenFiles {
 public:
  static OpenFiles& of_process() {
    // Never destroyed: a program's last calls may come from destructors.
    alignas(OpenFiles) static std::byte place[sizeof(OpenFiles)];
    static auto* files = new (place) OpenFiles;
    return *files;
  }

  /// From now on the library's number means this dataset.
  File& add(std::unique_ptr<File> file) {
    watch_the_end();
    const std::lock_guard lock(mutex_);
    auto& added = *file;
    files_.reserve(files_.size() + 1);
    added.lib.enter(added.ncid, &added);
    files_.push_back(file.release());
    return added;
  }

  /// The number is the library's again.
  std::unique_ptr<File> remove(File& file) {
    const std::lock_guard lock(mutex_);
    forget(file);
    return std::unique_ptr<File>(&file);
  }

  /// The first for which `is(file)` is true, or null. Costs nothing in a process that has captured
  /// nothing.
  template <typename Is>
  File* find_if(Is&& is) {
    if (!any_ever_.load(std::memory_order_acquire)) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(files_.begin(), files_.end(), is);
    return found != files_.end() ? *found : nullptr;
  }

  /// When our library is unloaded. A process that has captured nothing has no session, and must not
  /// wait for one: a shell may have us preloaded.
  void finish() const noexcept {
    if (!any_ever_.load(std::memory_order_acquire) || Call::current() != nullptr) return;
    if constexpr (requires(File & file) { file.close_late(); })
      for (auto* file : of_process().files_) guarded("the end of the program", [&] { file->close_late(); });
    if (auto* session = Session::current(); session != nullptr) session->finish();
  }

 private:
  void forget(File& file) {
    file.lib.enter(file.ncid, nullptr);
    std::erase(files_, &file);
  }

  using Call = Entry<std::remove_cvref_t<decltype(std::declval<File&>().lib)>>;

  /// A program that ends without closing loses nothing that the library would have kept.
  static void close_what_is_open() {
    auto& all = of_process();
    // From a signal handler, in the midst of a call that may hold our locks: what was put is kept.
    if (Call::current() != nullptr) {
      for (auto* file : all.files_) file->keep_all();
      return;
    }
    close_all([](const File* file) {
      if constexpr (requires { file->stays_open_at_exit(); }) return !file->stays_open_at_exit();
      return true;
    });
    if constexpr (requires(File & file) { file.settle_at_exit(); })
      for (auto* file : all.files_) {
        const Call entry(file->lib);
        guarded("the end of the program", [&] { file->settle_at_exit(); });
      }
  }

  template <typename Is>
  static void close_all(Is&& is) {
    auto& all = of_process();
    for (;;) {
      File* file = nullptr;
      {
        const std::lock_guard lock(all.mutex_);
        const auto last = std::find_if(all.files_.rbegin(), all.files_.rend(), is);
        if (last == all.files_.rend()) return;
        file = *last;
        all.forget(*file);
      }
      const Entry entry(file->lib);
      guarded("the end of the program", [&] { file->close_at_exit(); });
      delete file;
    }
  }

  /// The datasets are the parent's. A child may read them, and take them over by a call that changes
  /// them (`File::note_heir`). Without that its calls reach its copies of the shadows and nothing else.
  static void after_fork_in_child() {
    auto& all = of_process();
    if constexpr (requires(File & file) { file.note_heir(); }) {
      for (auto* file : all.files_) file->note_heir();
    } else {
      while (!all.files_.empty()) all.forget(*all.files_.back());
    }
    all.mutex_.unlock();
  }

  /// The real library registered its exit handlers earlier, so ours run before them.
  void watch_the_end() {
    static std::once_flag once;
    std::call_once(once, [this] {
      any_ever_.store(true, std::memory_order_release);
      pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); }, after_fork_in_child);
      std::atexit(close_what_is_open);
    });
  }

  std::mutex mutex_;
  std::vector<File*> files_;
  std::atomic<bool> any_ever_{false};
};

}  // namespace advectio::shadow
