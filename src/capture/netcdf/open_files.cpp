#include "capture/netcdf/open_files.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>
#include <vector>

namespace advectio {
namespace {

// Never destroyed: the last calls of a program may come from destructors.
struct OpenFiles {
  std::mutex mutex;
  std::vector<CapturedFile*> files;
};
OpenFiles& open_files() {
  static auto* o = new OpenFiles;
  return *o;
}
std::atomic<bool> any_ever{false};

void forget(CapturedFile& file) {
  auto* table = file.lib.files.load(std::memory_order_acquire);
  table[static_cast<unsigned>(file.ncid) >> 16].store(nullptr, std::memory_order_release);
  auto& files = open_files().files;
  files.erase(std::remove(files.begin(), files.end(), &file), files.end());
}

/// A program that ends without closing has lost nothing with us that it would have kept with the library.
void close_what_is_open() {
  for (;;) {
    CapturedFile* file = nullptr;
    {
      auto& o = open_files();
      const std::lock_guard lock(o.mutex);
      if (o.files.empty()) break;
      file = o.files.back();
      forget(*file);
    }
    const Entry entry(file->lib);
    file->close();
    delete file;
  }
}

void before_fork() {
  open_files().mutex.lock();
}
void after_fork_in_parent() {
  open_files().mutex.unlock();
}
/// The datasets are the parent's: what the child does to them reaches its copy of the shadows and nothing else. They
/// are not destroyed, for that would speak to the journal in the parent's name.
void after_fork_in_child() {
  auto& o = open_files();
  while (!o.files.empty()) forget(*o.files.back());
  o.mutex.unlock();
}

/// Once a process has captured something. Runs before the real library's own exit handlers, which were registered
/// earlier.
void watch_the_end() {
  static std::once_flag once;
  std::call_once(once, [] {
    any_ever.store(true, std::memory_order_release);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    std::atexit(close_what_is_open);
  });
}

/// The session is asked for only where one was opened: a shell that has us preloaded must not wait or speak.
__attribute__((destructor)) void finish() {
  if (!any_ever.load(std::memory_order_acquire)) return;
  if (auto* session = Session::current(); session != nullptr) session->finish();
}

}  // namespace

std::string absolute(const std::string& path) {
  std::error_code error;
  auto full = std::filesystem::absolute(path, error);
  return error ? path : full.string();
}

CapturedFile& add_file(std::unique_ptr<CapturedFile> file) {
  watch_the_end();
  auto& o = open_files();
  const std::lock_guard lock(o.mutex);
  auto* table = file->lib.files.load(std::memory_order_acquire);
  if (table == nullptr) {
    // Untouched pages of it cost nothing.
    table = static_cast<std::atomic<CapturedFile*>*>(
        std::calloc(RealLibrary::files_max, sizeof(std::atomic<CapturedFile*>)));
    if (table == nullptr) throw std::bad_alloc();
    file->lib.files.store(table, std::memory_order_release);
  }
  auto& added = *file.release();
  o.files.push_back(&added);
  table[static_cast<unsigned>(added.ncid) >> 16].store(&added, std::memory_order_release);
  return added;
}

std::unique_ptr<CapturedFile> remove_file(CapturedFile& file) {
  auto& o = open_files();
  const std::lock_guard lock(o.mutex);
  forget(file);
  return std::unique_ptr<CapturedFile>(&file);
}

CapturedFile* file_at(const std::string& path) {
  if (!any_ever.load(std::memory_order_acquire)) return nullptr;
  auto& o = open_files();
  const std::lock_guard lock(o.mutex);
  struct stat wanted {};
  if (o.files.empty() || stat(path.c_str(), &wanted) != 0) return nullptr;
  for (auto* file : o.files) {
    struct stat own {};
    if (stat(file->out().file_path().c_str(), &own) == 0 && own.st_dev == wanted.st_dev && own.st_ino == wanted.st_ino)
      return file;
  }
  return nullptr;
}

}  // namespace advectio
