// Expected failures are values: a `Result<T>` is either a T or an `Error`.
// Exceptions mean bugs or exhausted memory and never cross a C boundary.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace advectio {

/// Whose fault a failure is, and what the user can do about it.
enum class Code {
  invalid,      ///< caller: arguments that cannot be right
  config,       ///< config: a key, value or unit of `advectio.yaml`
  not_found,    ///< caller: a path or name that is not there
  exists,       ///< caller: it is there already
  permission,   ///< resource: the system refuses
  full,         ///< resource: disk, stage or memory exhausted
  io,           ///< resource: the system failed to read or write
  timeout,      ///< peer: nobody answered in time
  gone,         ///< peer: the server or the writing process has ended
  corrupt,      ///< data: bytes that are not what was written
  unsupported,  ///< caller: a request that this part does not carry out
  bug,          ///< ours
};

std::string_view name_of(Code code) noexcept;

/// A failure with its story. Each level that passes it on adds one fact in front (`with`), so that the text
/// reads from the outside in: "commit frame 3 of wrfout_d01: append 1048576 bytes: No space left on device".
struct [[nodiscard]] Error {
  Code code = Code::bug;
  std::string message;
  int sys = 0;  ///< errno of the system call that failed, or 0

  Error with(std::string_view fact) && {
    message.insert(0, std::string(fact) + ": ");
    return std::move(*this);
  }
};

/// An Error from errno, e.g. `system_error("open /scratch/wrfout_d01", errno)`.
Error system_error(std::string_view what, int sys);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }
  const Error& error() const& {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    assert(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  Error& error() & {
    assert(!ok());
    return *error_;
  }
  const Error& error() const& {
    assert(!ok());
    return *error_;
  }
  Error&& error() && {
    assert(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace advectio

/// Return the error of `expr` (a Result) to our caller, with one fact in front.
#define ADVECTIO_TRY_WITH(expr, fact)                                                                   \
  do {                                                                                                  \
    if (auto advectio_r_ = (expr); !advectio_r_.ok()) return std::move(advectio_r_).error().with(fact); \
  } while (false)

/// Return the error of `expr` (a Result) to our caller as it is.
#define ADVECTIO_TRY(expr)                                                                   \
  do {                                                                                       \
    if (auto advectio_r_ = (expr); !advectio_r_.ok()) return std::move(advectio_r_).error(); \
  } while (false)
