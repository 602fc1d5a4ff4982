// Datasets that several ranks write together. Access to each variable is collective or independent,
// and puts of other ranks count too.
#include <algorithm>

#include "capture/netcdf/captured_file.h"

namespace advectio::netcdf {

void CapturedFile::write_together(std::unique_ptr<shadow::Ranks> all, SharedDataset& out) {
  together_ = std::make_unique<Together>();
  together_->ranks = std::move(all);
  together_->out = &out;
  if (together_->ranks->rank() != 0) description_.note_nothing();
}

bool CapturedFile::collective(int variable) const noexcept {
  return together_ != nullptr && variable >= 0 && static_cast<std::size_t>(variable) < together_->variables.size() &&
         together_->variables[static_cast<std::size_t>(variable)].collective;
}

Together::Access& CapturedFile::access(int variable) {
  const auto id = static_cast<std::size_t>(variable);
  if (together_->variables.size() <= id) together_->variables.resize(id + 1);
  return together_->variables[id];
}

bool CapturedFile::has_filters(int variable) const {
  std::size_t filters = 0;
  if (lib.nc_inq_var_filter_ids != nullptr)
    return lib.nc_inq_var_filter_ids(ncid, variable, &filters, nullptr) == NC_NOERR && filters > 0;
  int shuffle = 0, deflate = 0, fletcher32 = 0;
  lib.nc_inq_var_deflate(ncid, variable, &shuffle, &deflate, nullptr);
  lib.nc_inq_var_fletcher32(ncid, variable, &fletcher32);
  return shuffle != 0 || deflate != 0 || fletcher32 != 0;
}

int CapturedFile::set_access(int variable, int how) {
  if (how != NC_INDEPENDENT && how != NC_COLLECTIVE) return NC_EINVAL;
  if (shapes_.of(variable) == nullptr) return NC_ENOTVAR;
  if (how == NC_INDEPENDENT && has_filters(variable)) return NC_EINVAL;
  access(variable).collective = how == NC_COLLECTIVE;
  return NC_NOERR;
}

void CapturedFile::filtered(int variable) {
  if (together_ != nullptr && has_filters(variable)) access(variable).collective = true;
}

bool CapturedFile::has_unlimited() {
  shapes_.load();
  return shapes_.any_unlimited();
}

/// The blocks of the others wait for what rank 0 has changed, except for global attributes.
void CapturedFile::note_structure(Touched what, int variable) {
  if (together_ == nullptr || together_->ranks->rank() != 0) return;
  const bool of_variable = what == Touched::variable || what == Touched::all_but_attributes;
  if (what == Touched::globals || (of_variable && variable == NC_GLOBAL)) return;
  together_->structure_unsent = true;
  together_->out->hold_schema();
}

/// At the end of define mode: rank 0 may have nothing to put for long, while the stage fills with
/// what others put.
int CapturedFile::send_structure() {
  return together_ != nullptr && together_->structure_unsent ? flush_schema() : NC_NOERR;
}

/// Waits for ranks that have not come as far as the last collective put here, as the library would
/// have done in it.
void CapturedFile::learn_lengths() {
  shapes_.load();
  if (together_ == nullptr || together_->grown_before == 0) return;
  const auto records = together_->out->records(std::exchange(together_->grown_before, 0));
  for (auto& extent : shapes_.extents())
    if (extent.unlimited) extent.length = std::max(extent.length, records);
}

/// The put as one of several ranks: a collective one makes the variable longer for all, any other
/// must fit.
int CapturedFile::put_together(int variable, const Shape& v) {
  auto& how = access(variable);
  if (how.collective) {
    close_reader();  // others put, too
    if (const int code = flush_schema(); code != NC_NOERR) return code;
  }
  const auto unlimited = [this](int d) { return shapes_.extent(d).unlimited; };
  const auto at = std::find_if(v.dimensions.begin(), v.dimensions.end(), unlimited);
  if (at == v.dimensions.end()) return NC_NOERR;
  if (how.collective) together_->grown_before = together_->out->collective_index() + 1;
  if (place_.box().empty()) {
    how.perhaps_longer |= how.collective;
    return NC_NOERR;
  }
  const auto d = static_cast<std::size_t>(at - v.dimensions.begin());
  const auto records = place_.end(d);
  if (how.collective) {
    how.records = std::max(how.records, records);
    together_->out->grow(records);
    return NC_NOERR;
  }
  if (records <= how.records) return NC_NOERR;
  if (how.perhaps_longer) learn_lengths();
  return how.perhaps_longer && records <= shapes_.extent(*at).length ? NC_NOERR : NC_ECANTEXTEND;
}

/// By any rank. Collective.
bool CapturedFile::nothing_put() const {
  return together_ != nullptr ? together_->ranks->all(!put_anything_) : !put_anything_;
}

bool CapturedFile::can_hand_over() {
  return together_ == nullptr || nothing_put();
}

/// All ranks have come so far without an error.
bool CapturedFile::agreed(int& code) const {
  const auto* all = ranks();
  if (all == nullptr) return code == NC_NOERR;
  if (all->all(code == NC_NOERR)) return true;
  if (code == NC_NOERR) code = NC_EIO;
  return false;
}

}  // namespace advectio::netcdf
