// No exception may leave a preloaded function: the program may be in C or Fortran, and would be
// aborted. Each of our functions that a netCDF program calls is such a boundary.
#pragma once

#include <cerrno>
#include <exception>
#include <new>

#include "core/result.h"

namespace advectio::shadow {

/// In a handler: the error number of netCDF for the exception, after one line on stderr. Needs no
/// memory. `function`: the one that the program has called.
int answer_to_exception(const char* function) noexcept;

/// The end of an exported function: ADVECTIO_EXPORT int nc_sync(int ncid) try {…} ADVECTIO_GUARDED
#define ADVECTIO_GUARDED                                      \
  catch (...) {                                               \
    return ::advectio::shadow::answer_to_exception(__func__); \
  }

/// Returns the work's Result. An exception becomes its error.
template <typename Work>
auto as_result(Work&& work) noexcept -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Error{Code::full, "no memory", ENOMEM};  // a text that needs none
  } catch (...) {
    return Error{Code::bug, "an exception", 0};
  }
}

/// Returns the work's error number of netCDF. An exception becomes one.
template <typename Work>
int answered(const char* what, Work&& work) noexcept {
  try {
    return work();
  } catch (...) {
    return answer_to_exception(what);
  }
}

/// The same for what nobody gets an answer from: handlers of fork(2) and exit(3), work put off.
template <typename Work>
void guarded(const char* what, Work&& work) noexcept {
  try {
    work();
  } catch (...) {
    (void)answer_to_exception(what);
  }
}

}  // namespace advectio::shadow
