#include "capture/netcdf/shapes.h"

#include <algorithm>
#include <string>

#include "capture/netcdf/convert.h"
#include "capture/netcdf/shadow_schema.h"

namespace advectio::netcdf {

void Shapes::load() {
  if (!stale_) return;
  std::vector<Dimension> dimensions;
  if (read_dimensions(lib_, ncid_, dimensions) != NC_NOERR) return;
  extents_.resize(dimensions.size());
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    extents_[i].unlimited = dimensions[i].unlimited;
    if (!dimensions[i].unlimited) extents_[i].length = dimensions[i].length;
  }
  stale_ = false;
}

const Shape* Shapes::of(int variable) {
  if (variable < 0) return nullptr;
  while (shapes_.size() <= static_cast<std::size_t>(variable)) {
    Shape s;
    int rank = 0;
    int dimensions[NC_MAX_VAR_DIMS];
    const int id = static_cast<int>(shapes_.size());
    if (lib_.nc_inq_var(ncid_, id, nullptr, &s.type, &rank, dimensions, nullptr) != NC_NOERR) return nullptr;
    s.element = memory_size(s.type);
    s.dimensions.assign(dimensions, dimensions + rank);
    // Also where the library no longer tells of them: it may have closed the shadow.
    for (const int d : s.dimensions)
      if (extents_.size() <= static_cast<std::size_t>(d)) extents_.resize(static_cast<std::size_t>(d) + 1);
    shapes_.push_back(std::move(s));
  }
  return &shapes_[static_cast<std::size_t>(variable)];
}

bool Shapes::any_unlimited() {
  load();
  return std::any_of(extents_.begin(), extents_.end(), [](const Extent& e) { return e.unlimited; });
}

bool Shapes::has_grown(const Shape& variable) const noexcept {
  return std::any_of(variable.dimensions.begin(), variable.dimensions.end(),
                     [this](int d) { return extent(d).unlimited && extent(d).length > 0; });
}

bool Shapes::ask(int dimension, std::size_t& length) noexcept {
  if (dimension < 0 || static_cast<std::size_t>(dimension) >= extents_.size()) return false;
  auto& e = extent(dimension);
  if (!e.unlimited) return false;
  length = e.asked = e.length;
  asked_ = asked_ || length > 0;
  return true;
}

int Shapes::choose_chunks(int variable) {
  if (!asked_ || lib_.nc_inq_var_chunking == nullptr) return NC_NOERR;
  const auto* v = of(variable);
  if (v == nullptr) return NC_NOERR;
  load();
  bool grown = false;
  for (const int d : v->dimensions) {
    const auto& extent = extents_[static_cast<std::size_t>(d)];
    grown |= extent.unlimited && extent.asked > 0;
  }
  if (!grown) return NC_NOERR;

  // The same variable in a dataset in memory whose dimensions have grown the same.
  int scratch = -1;
  int code = lib_.nc_create("advectio-chunks", NC_NETCDF4 | NC_DISKLESS, &scratch);
  if (code != NC_NOERR) return code;
  const char nothing = 0;
  std::vector<int> dimensions;
  for (std::size_t i = 0; i < v->dimensions.size() && code == NC_NOERR; ++i) {
    const auto& extent = extents_[static_cast<std::size_t>(v->dimensions[i])];
    const std::string name = std::to_string(i);
    int d = -1, grower = -1;
    code = lib_.nc_def_dim(scratch, name.c_str(), extent.unlimited ? NC_UNLIMITED : extent.length, &d);
    dimensions.push_back(d);
    if (code != NC_NOERR || !extent.unlimited || extent.asked == 0) continue;
    const std::size_t last = extent.asked - 1;
    std::size_t length = 0;
    code = lib_.nc_def_var(scratch, ("grower" + name).c_str(), NC_CHAR, 1, &d, &grower);
    if (code == NC_NOERR) code = lib_.nc_put_var1_text(scratch, grower, &last, &nothing);
    if (code == NC_NOERR) code = lib_.nc_inq_dimlen(scratch, d, &length);
  }
  int like = -1, storage = NC_CONTIGUOUS;
  std::vector<std::size_t> chunks(v->dimensions.size());
  if (code == NC_NOERR)
    code = lib_.nc_def_var(scratch, "v", v->type, static_cast<int>(dimensions.size()), dimensions.data(), &like);
  if (code == NC_NOERR) code = lib_.nc_inq_var_chunking(scratch, like, &storage, chunks.data());
  if (code == NC_NOERR && storage == NC_CHUNKED)
    code = lib_.nc_def_var_chunking(ncid_, variable, storage, chunks.data());
  lib_.nc_close(scratch);
  return code;
}

}  // namespace advectio::netcdf
