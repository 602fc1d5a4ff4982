// Files that other programs of the workflow write or read: where they are, for the faces (netcdf/, pnetcdf/) and for
// plain_files.cpp. A process without coupled files pays one look at a pointer.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/result.h"
#include "workflow/workflow.h"

namespace advectio::capture {

/// The workflow of this process' run; null: its config couples nothing. Opens no session.
workflow::Workflow* workflow_of_process();

/// Error, whose text has been logged: the run is of a workflow, and `advectio run` was killed before this process asked
/// for its rules. Which files are coupled, it cannot know.
Result<void> run_is_there(const std::string& path);

/// Writes one line of log to stderr, each text once.
void say_of_coupling(const std::string& text);

/// Before a file is read or looked at: it may have been moved to its name while the program wrote it, and closed since.
void look_at_moved(const workflow::Coupled& file);

/// The program makes a file of its own under a name that others write.
void say_not_for_others(const workflow::Coupled& file);

/// Where the file of a name is, and what is to be done when it is closed.
struct Place {
  std::string path;                         ///< for the library
  std::optional<workflow::Opened> coupled;  ///< empty: the program's own name
};

/// Errors: Code::exists, Code::not_found, those of the system.
Result<Place> place_to_create(const std::string& path, bool no_clobber);
/// Waits, see workflow::Workflow. The error's text has been logged.
Result<Place> place_to_open(const std::string& path, bool writing);
/// The library has closed it; `complete`: without an error. An error has been logged.
Result<void> leave(const workflow::Opened& opened, bool complete);

/// The program removes a file. False: it is not one in memory.
bool remove_coupled(const std::string& path);

/// Coupled files that the real library has open, by its number. `Beside`: what a face keeps beside each.
template <typename Beside>
class LentFiles {
 public:
  struct Lent {
    std::string name;  ///< as the program gave it
    workflow::Opened opened;
    Beside beside;
  };
  static LentFiles& of_process() {
    static auto* files = new LentFiles;  // never destroyed: a program's last calls may come from destructors
    return *files;
  }
  void add(int number, Lent lent) {
    const std::lock_guard guard(mutex_);
    files_.insert_or_assign(number, std::move(lent));
    count_.store(files_.size(), std::memory_order_release);
  }
  std::optional<Lent> take(int number) {
    if (count_.load(std::memory_order_acquire) == 0) return std::nullopt;
    const std::lock_guard guard(mutex_);
    const auto found = files_.find(number);
    if (found == files_.end()) return std::nullopt;
    std::optional<Lent> lent(std::move(found->second));
    files_.erase(found);
    count_.store(files_.size(), std::memory_order_release);
    return lent;
  }
  /// The name that the program gave; empty: not one of these.
  std::string name_of(int number) {
    if (count_.load(std::memory_order_acquire) == 0) return {};
    const std::lock_guard guard(mutex_);
    const auto found = files_.find(number);
    return found != files_.end() ? found->second.name : std::string();
  }

 private:
  std::mutex mutex_;
  std::map<int, Lent> files_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace advectio::capture
