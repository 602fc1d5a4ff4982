// ecCodes' C interface, found when somebody names a GRIB file: neither the build nor a program that
// reads other files needs ecCodes.
//
// Where it is looked for, in this order:
//   1. ADVECTIO_ECCODES: the library `libeccodes.so`, or the directory that it lies in. The command
//      `advectio` sets it to the wheel `eccodeslib` of its own Python, where there is one
//   2. where the system looks for libraries (LD_LIBRARY_PATH, ldconfig); Debian: libeccodes0
//
// Declared here by hand, after ECMWF's documentation of ecCodes: those of 2.28, 2.39 and 2.50 are
// alike.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/result.h"
#include "platform/loaded_library.h"

namespace advectio::grib {

struct ContextHandle;
struct MessageHandle;

/// 0: no error.
using Status = int;

struct Library {
  LoadedLibrary file;

  ContextHandle* (*context_get_default)() = nullptr;
  void (*context_set_logging_proc)(ContextHandle*,
                                   void (*)(const ContextHandle*, int level, const char* text)) = nullptr;
  MessageHandle* (*handle_new_from_message)(ContextHandle*, const void* data, std::size_t bytes) = nullptr;
  Status (*handle_delete)(MessageHandle*) = nullptr;
  Status (*get_long)(const MessageHandle*, const char* key, long* value) = nullptr;
  Status (*get_double)(const MessageHandle*, const char* key, double* value) = nullptr;
  Status (*get_string)(const MessageHandle*, const char* key, char* text, std::size_t* bytes) = nullptr;
  Status (*get_size)(const MessageHandle*, const char* key, std::size_t* count) = nullptr;
  Status (*get_long_array)(const MessageHandle*, const char* key, long* values, std::size_t* count) = nullptr;
  Status (*get_double_array)(const MessageHandle*, const char* key, double* values, std::size_t* count) = nullptr;
  Status (*get_data)(const MessageHandle*, double* latitudes, double* longitudes, double* values) = nullptr;
  Status (*set_double)(MessageHandle*, const char* key, double value) = nullptr;
  Status (*set_string)(MessageHandle*, const char* key, const char* text, std::size_t* bytes) = nullptr;
  const char* (*get_error_message)(Status) = nullptr;
};

/// Loaded once; any thread. Errors: Code::unsupported, with what to do, where there is none.
Result<const Library*> library();

/// ecCodes keeps global state, and not every build of it has locks. Whoever has a `Message` holds this.
std::recursive_mutex& eccodes_mutex();

/// A message that ecCodes has looked at. Not to be used by two threads.
class Message {
 public:
  /// The bytes of one whole message with one field. Errors: Code::unsupported as `library`; Code::corrupt.
  static Result<Message> decode(Bytes bytes);

  [[nodiscard]] const Bytes& bytes() const noexcept { return bytes_; }
  /// None: the message does not have the key, or no value of this type for it.
  [[nodiscard]] std::optional<long> integer(const char* key) const;
  [[nodiscard]] std::optional<double> number(const char* key) const;
  [[nodiscard]] std::string text(const char* key) const;  ///< empty: none
  [[nodiscard]] std::vector<long> integers(const char* key) const;
  /// Errors: Code::corrupt, with the library's reason.
  [[nodiscard]] Result<std::vector<double>> numbers(const char* key) const;
  struct Points {
    std::vector<double> latitudes, longitudes, values;  ///< degrees; NaN: fewer than `count` are described
  };
  [[nodiscard]] Result<Points> points(std::size_t count) const;

  /// False: it cannot be set to this.
  bool set(const char* key, double value);
  bool set(const char* key, const std::string& text);

 private:
  struct Delete {
    void operator()(MessageHandle* handle) const;
  };
  Message() = default;
  const Library* eccodes_ = nullptr;
  Bytes bytes_;  ///< which the handle points into
  std::unique_ptr<MessageHandle, Delete> handle_;
};

}  // namespace advectio::grib
