#include "capture/pnetcdf/fill_modes.h"

namespace advectio::pnetcdf {

void FillModes::take_over() {
  int variables = 0;
  if (lib_.ncmpi_inq(ncid_, nullptr, &variables, nullptr, nullptr) != NC_NOERR) return;
  const auto filled_there = [this](int v) {
    int no_fill = 1;
    return lib_.ncmpi_inq_var_fill(ncid_, v, &no_fill, nullptr) == NC_NOERR && no_fill == 0;
  };
  const int before = count();
  filled_.reserve(static_cast<std::size_t>(variables));  // nothing fails once the shadow has changed
  for (int v = shadow_would_fill_ ? 0 : before; v < variables; ++v) {
    const bool fills = filled_there(v);
    if (fills) lib_.ncmpi_def_var_fill(ncid_, v, 1, nullptr);
    if (v >= before) filled_.push_back(fills);
  }
  shadow_would_fill_ = false;
}

void FillModes::set(int variable, bool is_filled) {
  if (!kept(variable)) return;
  filled_[static_cast<std::size_t>(variable)] = is_filled;
  shadow_would_fill_ = shadow_would_fill_ || is_filled;
}

void FillModes::set_all(bool are_filled) {
  for (int v = 0; v < count(); ++v) set(v, are_filled);
}

}  // namespace advectio::pnetcdf
