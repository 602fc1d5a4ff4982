// Which variables of a dataset are filled.
#pragma once

#include <cstddef>
#include <vector>

#include "capture/pnetcdf/real_library.h"

namespace advectio::pnetcdf {

/// The shadow is not to fill its variables, for it would then hold them. So their fill modes are
/// taken out of it when define mode ends, and kept here.
class FillModes {
 public:
  FillModes(const RealLibrary& lib, int ncid) : lib_(lib), ncid_(ncid) {}

  /// The shadow does not know it (any more).
  [[nodiscard]] bool kept(int variable) const noexcept {
    return variable >= 0 && static_cast<std::size_t>(variable) < filled_.size();
  }
  [[nodiscard]] bool filled(int variable) const noexcept {
    return kept(variable) && filled_[static_cast<std::size_t>(variable)];
  }
  /// As many are kept.
  [[nodiscard]] int count() const noexcept { return static_cast<int>(filled_.size()); }
  /// The program has set it, for one variable or for all, and the shadow has it.
  void set(int variable, bool filled);
  void set_all(bool filled);
  /// Before the shadow leaves define mode.
  void take_over();

 private:
  const RealLibrary& lib_;
  const int ncid_;
  std::vector<bool> filled_;
  bool shadow_would_fill_ = false;  ///< the program has set it for some of these
};

}  // namespace advectio::pnetcdf
