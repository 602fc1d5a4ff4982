#include "capture/netcdf/placement.h"

#include <algorithm>
#include <climits>

namespace advectio::netcdf {

namespace {

bool is_text(nc_type type) {
  return type == NC_CHAR;
}

bool is_string(nc_type type) {
  return type == NC_STRING;
}

}  // namespace

bool Placement::strides_are_ones() const noexcept {
  return std::all_of(stride_.begin(), stride_.end(), [](std::uint64_t s) { return s == 1; });
}

int Placement::vara_hdf5(const Shape& v) const {
  const std::size_t rank = v.dimensions.size();
  bool nothing = false;
  for (std::size_t i = 0; i < rank; ++i) nothing |= box_.count[i] == 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = shapes_.extent(v.dimensions[i]);
    if (extent.unlimited) continue;
    if (box_.start[i] > extent.length || (box_.start[i] == extent.length && box_.count[i] > 0)) return NC_EINVALCOORDS;
    // In this form no product can wrap.
    if (!nothing && (extent.length - 1 - box_.start[i]) / stride_[i] < box_.count[i] - 1) return NC_EEDGE;
  }
  return NC_NOERR;
}

int Placement::vara_classic(const Shape& v) const {
  const std::size_t rank = v.dimensions.size();
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = shapes_.extent(v.dimensions[i]);
    if (extent.unlimited) {
      if (box_.start[i] > UINT_MAX) return NC_EINVALCOORDS;
    } else if (box_.start[i] > extent.length) {
      return NC_EINVALCOORDS;
    }
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = shapes_.extent(v.dimensions[i]);
    if (extent.unlimited) continue;
    if (box_.start[i] == extent.length && box_.count[i] > 0) return NC_EINVALCOORDS;
    if (box_.count[i] > extent.length || box_.start[i] + box_.count[i] > extent.length) return NC_EEDGE;
  }
  return NC_NOERR;
}

/// The library splits such a call into single elements. It writes those inside, fails for the
/// others, and then fails the call. `box_` becomes the elements inside; `map_` keeps their places
/// in the program's memory.
void Placement::clip(const Shape& v, const PutCall& call) {
  const std::size_t rank = v.dimensions.size();
  map_.assign(rank, 1);
  for (std::size_t i = rank; i-- > 0;) {
    if (call.map != nullptr)
      map_[i] = call.map[i];
    else if (i + 1 < rank)
      map_[i] = map_[i + 1] * static_cast<std::ptrdiff_t>(box_.count[i + 1]);
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = shapes_.extent(v.dimensions[i]);
    if (extent.unlimited) continue;
    const auto inside = (extent.length - 1 - box_.start[i]) / stride_[i] + 1;
    clipped_ |= inside < box_.count[i];
    box_.count[i] = std::min(box_.count[i], inside);
  }
}

int Placement::vars_classic(const Shape& v, const PutCall& call) {
  const std::size_t rank = v.dimensions.size();
  bool ones = true, nothing = false;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto& extent = shapes_.extent(v.dimensions[i]);
    if (!extent.unlimited) {
      if (box_.start[i] > extent.length || (box_.start[i] == extent.length && box_.count[i] > 0))
        return NC_EINVALCOORDS;
      if (box_.start[i] + box_.count[i] > extent.length) return NC_EEDGE;
    }
    const auto stride = call.stride != nullptr ? call.stride[i] : 1;
    if (stride <= 0 || stride >= INT_MAX) return NC_ESTRIDE;
    ones &= stride == 1;
    nothing |= box_.count[i] == 0;
  }
  if (ones) return vara_classic(v);
  if (nothing) return NC_NOERR;
  clip(v, call);
  return NC_NOERR;
}

int Placement::varm(const Shape& v, const PutCall& call) {
  const std::size_t rank = v.dimensions.size();
  bool ones = true;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto stride = call.stride != nullptr ? call.stride[i] : 1;
    if (stride <= 0 || stride >= INT_MAX) return NC_ESTRIDE;
    ones &= stride == 1;
  }
  if (ones && call.map == nullptr) return classic_format_ ? vara_classic(v) : vara_hdf5(v);
  // Only the first unlimited dimension of the dataset, in the first place, may be exceeded in this
  // form of the call.
  const auto& extents = shapes_.extents();
  const auto record = std::find_if(extents.begin(), extents.end(), [](const Extent& e) { return e.unlimited; });
  const bool grows = rank > 0 && v.dimensions[0] == record - extents.begin();
  for (std::size_t i = grows ? 1 : 0; i < rank; ++i) {
    const auto length = shapes_.extent(v.dimensions[i]).length;
    if (box_.start[i] > length || (box_.start[i] == length && box_.count[i] > 0)) return NC_EINVALCOORDS;
    if (box_.start[i] + box_.count[i] > length) return NC_EEDGE;
  }
  for (std::size_t i = 0; i < rank; ++i)
    if (box_.count[i] == 0) return NC_NOERR;
  clip(v, call);
  return NC_NOERR;
}

int Placement::of(const PutCall& call, const Shape& v, nc_type memory, bool& ask_shadow) {
  using Form = PutCall::Form;
  const std::size_t rank = v.dimensions.size();
  ask_shadow = !classic_format_;
  clipped_ = false;
  const bool needs_start = call.form != Form::var;
  if (needs_start && rank > 0 && call.start == nullptr) return NC_EINVALCOORDS;
  if (is_text(memory) != is_text(v.type)) return NC_ECHAR;

  box_.start.resize(rank);
  box_.count.resize(rank);
  stride_.assign(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {
    auto& extent = shapes_.extent(v.dimensions[i]);
    const auto length = extent.length;
    if (call.form == Form::var || (call.count == nullptr && call.form != Form::var1)) extent.asked = length;
    box_.start[i] = needs_start ? call.start[i] : 0;
    box_.count[i] = call.form == Form::var1 ? 1
                    // Without a count the library takes the whole length, wherever the start.
                    : call.form == Form::var || call.count == nullptr ? length
                                                                      : call.count[i];
    if (call.stride == nullptr) continue;
    if (call.stride[i] <= 0) {
      if (!classic_format_) return NC_ESTRIDE;
    } else {
      stride_[i] = static_cast<std::uint64_t>(call.stride[i]);
    }
  }

  int code = NC_NOERR;
  if (call.form == Form::varm && rank > 0) {
    ask_shadow = false;
    code = varm(v, call);
  } else if (classic_format_) {
    code = call.form == Form::vars ? vars_classic(v, call) : vara_classic(v);
  } else {
    code = vara_hdf5(v);
  }
  if (code != NC_NOERR || is_string(memory) == is_string(v.type)) return code;
  // Found out while converting, which HDF5 datasets do even where there is nothing to convert.
  const bool converts = !box_.empty() || (!classic_format_ && (call.form != Form::varm || call.map == nullptr));
  return clipped_ ? NC_EINVALCOORDS : converts ? NC_EBADTYPE : NC_NOERR;
}

}  // namespace advectio::netcdf
