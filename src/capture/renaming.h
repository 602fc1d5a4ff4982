// rename(2) and link(2) where one of the names is of a coupled file (capture/coupling.h). A file that is moved to such
// a name becomes its next version; one that is moved from there leaves it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/result.h"
#include "workflow/workflow.h"

namespace advectio::capture {

/// A path of a call like renameat(2).
struct At {
  int directory;
  const char* path;
};

/// One rename(2), or link(2). On a path that is not coupled it does nothing.
class Renaming {
 public:
  enum class Kind : std::uint8_t { moves, links };
  Renaming(Kind kind, At from, At to, unsigned flags, const void* caller) noexcept;
  /// The call is done, or has failed, and errno says why. Nothing: the C library shall do it.
  [[nodiscard]] std::optional<int> answer() const noexcept { return answer_; }
  [[nodiscard]] bool is_coupled() const noexcept { return is_coupled_; }
  /// With the C library's answer. Returns the call's.
  int after(int answer) noexcept;

 private:
  using Files = std::optional<workflow::Coupled>;
  Result<void> begin(const std::string& from, const std::string& to, unsigned flags);
  Result<void> take_from(bool& in_memory);
  Result<void> move_from_memory(const std::string& version, const std::string& to, bool may_replace);
  void finish();
  void fail(const Error& error);

  const Kind kind_;
  Files from_, to_;
  std::string version_;  ///< of `from_`
  workflow::Pending::Kind comes_as_ = workflow::Pending::Kind::plain;
  std::optional<int> answer_;
  bool is_coupled_ = false;
};

}  // namespace advectio::capture
