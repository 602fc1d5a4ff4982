// HDF5 and netCDF-C, which is built upon it, keep global state without locks. All calls of either, by any sink, are
// made under one lock.
#pragma once

#include <mutex>

namespace advectio {

/// Recursive, so that a function which needs the lock takes it and does not ask who called. Never held while
/// waiting for another thread.
std::recursive_mutex& library_mutex();

}  // namespace advectio
