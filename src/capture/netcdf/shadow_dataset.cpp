#include "capture/netcdf/shadow_dataset.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace advectio::netcdf {

void ShadowDataset::close() {
  if (!open_) return;
  open_ = false;
  // A classic shadow is in a redefinition: closing would lay it out in memory, aborting forgets it.
  // Aborting also forgets a netCDF-4 shadow that has never left define mode. Where closing fails
  // (4.9.0: a quantized variable in the classic model), only aborting frees the number.
  if (classic_format() || may_put_off() || lib_.nc_close(ncid_) != NC_NOERR) lib_.nc_abort(ncid_);
}

void ShadowDataset::ended() {
  lib_.nc_inq(ncid_, &ended_dimensions_, &ended_variables_, nullptr, nullptr);
  define_mode_.end();
}

int ShadowDataset::take_up() {
  if (!classic_format()) return enddef(nullptr, 0, 0, 0);
  ended();
  return NC_NOERR;
}

void ShadowDataset::put_off() {
  ended();
  define_mode_.put_off();
}

int ShadowDataset::variables() const {
  int variables = 0;
  lib_.nc_inq(ncid_, nullptr, &variables, nullptr, nullptr);
  return variables;
}

void ShadowDataset::all_written() {
  written_.assign(static_cast<std::size_t>(variables()), true);
}

namespace {
/// A put or a get of nothing, or of a whole scalar, which the shadow knows no use for.
template <typename Access>
int touch_data(const RealLibrary& lib, int ncid, int variable, Access&& access) {
  static constexpr std::size_t none[NC_MAX_VAR_DIMS] = {};
  alignas(8) char element[8] = {};
  nc_type type = NC_NAT;
  int rank = 0;
  if (const int code = lib.nc_inq_var(ncid, variable, nullptr, &type, &rank, nullptr, nullptr); code != NC_NOERR)
    return code;
  const int code = access(none, none, static_cast<void*>(element));
  if (char* text = nullptr; type == NC_STRING && rank == 0 && code == NC_NOERR) {
    std::memcpy(&text, element, sizeof text);
    if (text != nullptr) lib.nc_free_string(1, &text);
  }
  return code;
}
}  // namespace

/// As by a put or a get: no variable counts as written.
int ShadowDataset::leave() {
  if (variables() == 0) return lib_.nc_enddef(ncid_);
  return touch_data(lib_, ncid_, 0, [&](const std::size_t* start, const std::size_t* count, void* to) {
    return lib_.nc_get_vara(ncid_, 0, start, count, to);
  });
}

void ShadowDataset::note_written(int variable) {
  const auto at = static_cast<std::size_t>(variable);
  if (explicit_modes() || written(variable)) return;
  if (written_.size() <= at) written_.resize(at + 1);
  written_[at] = true;
  if (enddef_pending()) return;
  touch_data(lib_, ncid_, variable, [&](const std::size_t* start, const std::size_t* count, void* from) {
    return lib_.nc_put_vara(ncid_, variable, start, count, from);
  });
}

void ShadowDataset::write_again(const std::vector<bool>& written) {
  for (std::size_t v = 0; v < written.size(); ++v)
    if (written[v]) note_written(static_cast<int>(v));
}

int ShadowDataset::end_pending() {
  follows_ = true;
  if (!define_mode_.take_pending()) return NC_NOERR;
  int code = leave();
  write_again(std::exchange(written_, {}));
  if (code == NC_NOERR && defining()) code = lib_.nc_redef(ncid_);
  return code;
}

int ShadowDataset::redef() {
  if (classic_format()) {
    if (defining()) return NC_EINDEFINE;
  } else if (enddef_pending()) {
    // netCDF-4 proper takes a second redef without a word.
  } else if (const int code = lib_.nc_redef(ncid_); code != NC_NOERR) {
    return code;
  }
  define_mode_.begin();
  return NC_NOERR;
}

int ShadowDataset::enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad,
                          std::size_t record_align) {
  if (may_put_off()) {
    all_written();
    if (!defining()) return NC_ENOTINDEFINE;
    put_off();
    return NC_NOERR;
  }
  const int code = header_pad != nullptr ? lib_.nc__enddef(ncid_, *header_pad, data_align, data_pad, record_align)
                                         : lib_.nc_enddef(ncid_);
  all_written();
  if (code == NC_NOERR) ended();
  return code;
}

int ShadowDataset::sync() {
  if (may_put_off()) {
    if (defining()) all_written();
    put_off();
    return NC_NOERR;
  }
  const bool all = is_defining();
  if (const int code = lib_.nc_sync(ncid_); code != NC_NOERR) return code;
  if (all) all_written();
  ended();
  return NC_NOERR;
}

int ShadowDataset::leave_define_mode() {
  if (may_put_off()) {
    put_off();
    return NC_NOERR;
  }
  const int code = explicit_modes() ? lib_.nc_enddef(ncid_) : leave();
  // We take it to be in define mode after any change of metadata; the library may know better.
  if (code != NC_NOERR && code != NC_ENOTINDEFINE) return code;
  ended();
  return NC_NOERR;
}

int ShadowDataset::set_fill(int fill_mode, int* old_mode) {
  const int code = lib_.nc_set_fill(ncid_, fill_mode, old_mode);
  if (code == NC_NOERR) fill_mode_ = fill_mode;
  return code;
}

/// A change that has failed may not have ended data mode. Only the shadow knows.
bool ShadowDataset::is_defining() const {
  if (!defining() || fresh() || ended_variables_ == 0 || lib_.nc_def_var_filter == nullptr) return defining();
  // The variable is there already, so the call fails in both modes. The code tells which mode it
  // is.
  const unsigned level = 1;
  return lib_.nc_def_var_filter(ncid_, 0, filter_id::deflate, 1, &level) != NC_EINDEFINE;
}

void ShadowDataset::ask_mode() {
  if (follows_ && !is_defining()) define_mode_.end();
}

void ShadowDataset::follow() noexcept {
  (void)define_mode_.take_pending();
  follows_ = true;
}

DefinitionCount ShadowDataset::ended_definitions() const noexcept {
  return {static_cast<std::size_t>(ended_dimensions_), static_cast<std::size_t>(ended_variables_)};
}

int ShadowDataset::end_again(bool alone) {
  const bool each_written = std::count(written_.begin(), written_.end(), true) >= ended_variables_;
  const int code = !alone || explicit_modes() || each_written ? lib_.nc_enddef(ncid_) : leave();
  const auto written = std::exchange(written_, {});
  if (!each_written && alone) write_again(written);
  return code;
}

}  // namespace advectio::netcdf
