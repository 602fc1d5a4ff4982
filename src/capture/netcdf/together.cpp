#include "capture/netcdf/together.h"

#include <algorithm>

namespace advectio::netcdf {

bool Together::agreed(int& code) const {
  if (all(code == NC_NOERR)) return true;
  if (code == NC_NOERR) code = NC_EIO;
  return false;
}

Together::Access& Together::access(int variable) {
  const auto id = static_cast<std::size_t>(variable);
  if (variables_.size() <= id) variables_.resize(id + 1);
  return variables_[id];
}

bool Together::has_filters(int variable) const {
  std::size_t filters = 0;
  if (lib_.nc_inq_var_filter_ids != nullptr)
    return lib_.nc_inq_var_filter_ids(ncid_, variable, &filters, nullptr) == NC_NOERR && filters > 0;
  int shuffle = 0, deflate = 0, fletcher32 = 0;
  lib_.nc_inq_var_deflate(ncid_, variable, &shuffle, &deflate, nullptr);
  lib_.nc_inq_var_fletcher32(ncid_, variable, &fletcher32);
  return shuffle != 0 || deflate != 0 || fletcher32 != 0;
}

int Together::set_access(int variable, int how) {
  if (how != NC_INDEPENDENT && how != NC_COLLECTIVE) return NC_EINVAL;
  if (shapes_.of(variable) == nullptr) return NC_ENOTVAR;
  if (how == NC_INDEPENDENT && has_filters(variable)) return NC_EINVAL;
  access(variable).collective = how == NC_COLLECTIVE;
  return NC_NOERR;
}

void Together::filtered(int variable) {
  if (several() && has_filters(variable)) access(variable).collective = true;
}

void Together::repeat_access() const {
  for (std::size_t v = 0; v < variables_.size(); ++v)
    if (variables_[v].collective) lib_.nc_var_par_access(ncid_, static_cast<int>(v), NC_COLLECTIVE);
}

void Together::learn_lengths() {
  shapes_.load();
  if (grown_before_ == 0) return;
  const auto records = out_->records(std::exchange(grown_before_, 0));
  for (auto& extent : shapes_.extents())
    if (extent.unlimited) extent.length = std::max(extent.length, records);
}

void Together::take_up(const std::vector<Variable>& variables) {
  const auto& extents = shapes_.extents();
  for (std::size_t v = 0; v < variables.size(); ++v)
    for (const auto d : variables[v].dimensions)
      if (d < extents.size() && extents[d].unlimited) access(static_cast<int>(v)).records = extents[d].length;
}

int Together::put(int variable, const Shape& v, const Placement& place) {
  if (!several()) return NC_NOERR;
  auto& how = access(variable);
  const auto unlimited = [this](int d) { return shapes_.extent(d).unlimited; };
  const auto at = std::find_if(v.dimensions.begin(), v.dimensions.end(), unlimited);
  if (at == v.dimensions.end()) return NC_NOERR;
  if (how.collective) grown_before_ = out_->collective_index() + 1;
  if (place.box().empty()) {
    how.perhaps_longer |= how.collective;
    return NC_NOERR;
  }
  const auto records = place.end(static_cast<std::size_t>(at - v.dimensions.begin()));
  if (how.collective) {
    how.records = std::max(how.records, records);
    out_->grow(records);
    return NC_NOERR;
  }
  if (records <= how.records) return NC_NOERR;
  if (how.perhaps_longer) learn_lengths();
  return how.perhaps_longer && records <= shapes_.extent(*at).length ? NC_NOERR : NC_ECANTEXTEND;
}

}  // namespace advectio::netcdf
