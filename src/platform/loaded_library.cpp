#include "platform/loaded_library.h"

#include <sys/stat.h>

#include <cstdlib>

namespace advectio {

bool LoadedLibrary::open(const std::string& name) {
  why_.clear();
  handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return true;
  const char* const text = ::dlerror();
  why_ = text != nullptr ? text : name + " cannot be opened";
  return false;
}

bool LoadedLibrary::open_first(std::span<const char* const> names) {
  std::string first;
  for (const char* name : names) {
    if (open(name)) return true;
    if (first.empty()) first = why_;
  }
  why_ = first;
  return false;
}

std::string library_named_in(const char* variable, const char* file) {
  const char* const given = std::getenv(variable);
  if (given == nullptr || *given == '\0') return {};
  struct stat there {};
  std::string path = given;
  if (::stat(given, &there) == 0 && S_ISDIR(there.st_mode)) path.append("/").append(file);
  return path;
}

}  // namespace advectio
