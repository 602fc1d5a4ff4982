// A shared library that is opened when it is asked for, so that one build serves those who have it
// and those who have not (decisions 20, 22, 23).
#pragma once

#include <dlfcn.h>

#include <span>
#include <string>

namespace advectio {

/// Stays open for the life of the process.
class LoadedLibrary {
 public:
  /// By a path, or by a name that the loader looks for. False: `why` has the loader's reason.
  bool open(const std::string& name);
  /// The first of these names that the loader finds; `why` is that of the first.
  bool open_first(std::span<const char* const> names);

  /// Sets the pointer; null where the library has no such function, which `why` says then.
  template <typename Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    if (function == nullptr) why_ = std::string("it has no function ") + name;
  }

  /// It is open, and has had every function that was looked for.
  [[nodiscard]] bool complete() const noexcept { return handle_ != nullptr && why_.empty(); }
  [[nodiscard]] const std::string& why() const noexcept { return why_; }

 private:
  void* handle_ = nullptr;
  std::string why_;
};

/// The path of a library that an environment variable names: the file itself, or `file` in the directory. Empty: the
/// variable is not set.
std::string library_named_in(const char* variable, const char* file);

}  // namespace advectio
