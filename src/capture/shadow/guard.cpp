#include "capture/shadow/guard.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>

namespace advectio::shadow {

namespace {
// As in netcdf.h and pnetcdf.h.
constexpr int no_memory = -61, io_error = -68;
}  // namespace

int answer_to_exception(const char* function) noexcept {
  int code = io_error;
  char what[160] = "an unknown error";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    code = no_memory;
    std::snprintf(what, sizeof what, "no memory");
  } catch (const std::exception& error) {
    std::snprintf(what, sizeof what, "%s", error.what());
  } catch (...) {
  }
  char line[256];
  const int bytes = std::snprintf(line, sizeof line, "advectio: %s fails within Advectio: %s\n", function, what);
  if (bytes > 0) (void)!::write(STDERR_FILENO, line, static_cast<std::size_t>(bytes));
  return code;
}

}  // namespace advectio::shadow
