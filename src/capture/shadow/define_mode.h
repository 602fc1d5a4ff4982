// The define mode of a dataset, as its program sees it.
#pragma once

#include <utility>

namespace advectio::shadow {

/// The shadow may be behind the program. To end define mode costs the library time, and programs
/// end it often. So a face only notes the end: it is pending. Before a call whose answer depends on
/// the shadow's mode, the face takes the pending end and lets the shadow end its define mode.
class DefineMode {
 public:
  [[nodiscard]] bool defining() const noexcept { return defining_; }
  /// The program has never ended define mode.
  [[nodiscard]] bool fresh() const noexcept { return fresh_; }
  [[nodiscard]] bool pending() const noexcept { return pending_; }

  void begin() noexcept { defining_ = true; }
  void end() noexcept { defining_ = fresh_ = false; }
  void put_off() noexcept { pending_ = true; }
  /// True: an end was pending. From here on the shadow is in the program's mode, once the caller
  /// has ended it.
  bool take_pending() noexcept { return std::exchange(pending_, false); }

 private:
  bool defining_ = true, fresh_ = true, pending_ = false;
};

}  // namespace advectio::shadow
