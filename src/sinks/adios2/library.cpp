#include "sinks/adios2/library.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <string>

namespace advectio::adios2 {
namespace {

/// Names by which a system has the library, with and without its development files.
constexpr std::array system_names = {"libadios2_c.so", "libadios2_c.so.2.12", "libadios2_c.so.2.11",
                                     "libadios2_c.so.2.10", "libadios2_c.so.2.9"};
constexpr const char* file_name = "libadios2_c.so";

struct Loaded {
  Library functions;
  bool complete = false;
  std::string why;  ///< where it is not
};

void* open_library(const std::string& name, std::string& why) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr && why.empty())
    if (const char* text = ::dlerror()) why = text;
  return handle;
}

void* find_library(std::string& why) {
  if (const char* given = std::getenv("ADVECTIO_ADIOS2"); given != nullptr && *given != '\0') {
    struct stat there {};
    std::string path = given;
    if (::stat(given, &there) == 0 && S_ISDIR(there.st_mode)) path.append("/").append(file_name);
    return open_library(path, why);
  }
  for (const char* name : system_names)
    if (void* handle = open_library(name, why)) return handle;
  return nullptr;
}

Loaded load() {
  Loaded out;
  auto& l = out.functions;
  l.handle = find_library(out.why);
  if (l.handle == nullptr) return out;
  out.complete = true;
  const auto find = [&](auto& function, const char* name) {
    *reinterpret_cast<void**>(&function) = ::dlsym(l.handle, name);
    if (function != nullptr) return;
    out.complete = false;
    out.why = std::string("it has no function ") + name;
  };
  find(l.init_serial, "adios2_init_serial");
  find(l.finalize, "adios2_finalize");
  find(l.declare_io, "adios2_declare_io");
  find(l.define_operator, "adios2_define_operator");
  find(l.set_engine, "adios2_set_engine");
  find(l.set_parameter, "adios2_set_parameter");
  find(l.define_variable, "adios2_define_variable");
  find(l.set_selection, "adios2_set_selection");
  find(l.add_operation, "adios2_add_operation");
  find(l.set_operation_parameter, "adios2_set_operation_parameter");
  find(l.define_attribute, "adios2_define_attribute");
  find(l.define_attribute_array, "adios2_define_attribute_array");
  find(l.remove_attribute, "adios2_remove_attribute");
  find(l.open, "adios2_open");
  find(l.begin_step, "adios2_begin_step");
  find(l.put, "adios2_put");
  find(l.perform_data_write, "adios2_perform_data_write");
  find(l.end_step, "adios2_end_step");
  find(l.close, "adios2_close");
  return out;
}

}  // namespace

Result<const Library*> library() {
  static const Loaded loaded = load();
  if (loaded.complete) return &loaded.functions;
  return Error{Code::unsupported,
               "ADIOS2 is not found (" + loaded.why +
                   "): pip install adios2 beside advectio, or name the directory of libadios2_c.so in ADVECTIO_ADIOS2",
               0};
}

}  // namespace advectio::adios2
