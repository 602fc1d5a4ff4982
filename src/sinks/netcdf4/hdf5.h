// HDF5 as the sink uses it: its lock, its errors as values, and its ids as objects.
#pragma once

#include <hdf5.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "sinks/library_lock.h"

namespace advectio {

class CrashSafeFile;

/// Hold one around every use of HDF5. Also keeps this thread's errors off stderr, and makes our filters known.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

/// An open HDF5 object. Must be destroyed under Hdf5Lock.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id() = default;
  Hdf5Id(hid_t id, Close close) noexcept : id_(id), close_(close) {}
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
      close_ = other.close_;
    }
    return *this;
  }
  ~Hdf5Id() { reset(); }
  void reset() noexcept {
    if (id_ >= 0) (void)close_(id_);
    id_ = H5I_INVALID_HID;
  }
  [[nodiscard]] hid_t get() const noexcept { return id_; }
  operator hid_t() const noexcept { return id_; }  // NOLINT(google-explicit-constructor)
  explicit operator bool() const noexcept { return id_ >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// What HDF5 says about the call that has just failed on this thread.
Error hdf5_error(std::string_view what);

/// A file access property list by which HDF5 reads and writes through `file`, which must outlive every use.
Hdf5Id crash_safe_access(CrashSafeFile& file);

}  // namespace advectio

/// Return to our caller when an HDF5 call fails.
#define ADVECTIO_HDF5(call, what)                        \
  do {                                                   \
    if ((call) < 0) return ::advectio::hdf5_error(what); \
  } while (false)
