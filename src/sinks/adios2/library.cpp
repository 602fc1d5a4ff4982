#include "sinks/adios2/library.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace advectio::adios2 {
namespace {

/// Names by which a system has the library, with and without its development files.
constexpr std::array system_names = {"libadios2_c.so", "libadios2_c.so.2.12", "libadios2_c.so.2.11",
                                     "libadios2_c.so.2.10", "libadios2_c.so.2.9"};
constexpr const char* file_name = "libadios2_c.so";

Library load() {
  Library l;
  const auto given = library_named_in("ADVECTIO_ADIOS2", file_name);
  if (given.empty() ? !l.file.open_first(system_names) : !l.file.open(given)) return l;
  const auto find = [&](auto& function, const char* name) { l.file.find(function, name); };
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
  return l;
}

}  // namespace

Complaints::Complaints() : standard_error_(::dup(STDERR_FILENO)), kept_(::memfd_create("adios2", MFD_CLOEXEC)) {
  if (standard_error_ >= 0 && kept_ >= 0) (void)::dup2(kept_, STDERR_FILENO);
}

Complaints::~Complaints() {
  if (standard_error_ >= 0) {
    (void)::dup2(standard_error_, STDERR_FILENO);
    ::close(standard_error_);
  }
  if (kept_ >= 0) ::close(kept_);
}

std::string Complaints::last() const {
  std::array<char, 4096> text{};
  const auto end = kept_ < 0 ? 0 : ::lseek(kept_, 0, SEEK_END);
  const auto begin = std::max<off_t>(0, end - static_cast<off_t>(text.size()));
  const auto bytes = end <= 0 ? 0 : ::pread(kept_, text.data(), text.size(), begin);
  std::string out(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  if (const auto line = out.rfind('\n'); line != std::string::npos) out.erase(0, line + 1);
  // "function: [time] [ADIOS2 EXCEPTION] <kind> <class> <method> : why"
  if (const auto why = out.find("> : "); why != std::string::npos) out.erase(0, why + 4);
  if (const auto colour = out.find('\x1b'); colour != std::string::npos) out.erase(colour);
  return out;
}

Result<const Library*> library() {
  static const Library loaded = load();
  if (loaded.file.complete()) return &loaded;
  return Error{Code::unsupported,
               "ADIOS2 is not found (" + loaded.file.why() +
                   "): pip install adios2 beside advectio, or name the directory of libadios2_c.so in ADVECTIO_ADIOS2",
               0};
}

}  // namespace advectio::adios2
