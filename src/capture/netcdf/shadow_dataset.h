// The shadow of a dataset in the real library, and its modes.
#pragma once

#include <cstddef>
#include <vector>

#include "capture/netcdf/real_library.h"
#include "capture/netcdf/shadow_schema.h"
#include "capture/shadow/define_mode.h"
#include "core/schema.h"

namespace advectio::netcdf {

/// Define mode and fill mode as the program sees them. The shadow of a classic format never leaves
/// define mode, for then the library would lay the file out in memory. The shadow of a netCDF-4
/// dataset would make an HDF5 object of every variable (20 ms for a WRF history file, and as much
/// again to close it), so it stays in its first define mode until an answer depends on the mode.
class ShadowDataset {
 public:
  ShadowDataset(const RealLibrary& lib, int ncid, FileFormat format) : lib_(lib), ncid_(ncid), format_(format) {}
  void close();

  [[nodiscard]] bool classic_format() const noexcept { return !is_hdf5(format_); }
  /// Define mode is left and entered by the program alone; netCDF-4 proper does so by itself.
  [[nodiscard]] bool explicit_modes() const noexcept { return format_ != FileFormat::netcdf4; }
  [[nodiscard]] bool defining() const noexcept { return define_mode_.defining(); }
  /// No call may read or write data now.
  [[nodiscard]] bool forbids_data() const noexcept { return explicit_modes() && defining(); }
  /// Never left define mode yet.
  [[nodiscard]] bool fresh() const noexcept { return define_mode_.fresh(); }
  /// An end of define mode is pending.
  [[nodiscard]] bool enddef_pending() const noexcept { return define_mode_.pending(); }
  /// The program has taken this variable out of define mode, and the shadow has not.
  [[nodiscard]] bool enddef_pending(int variable) const noexcept {
    return define_mode_.pending() && variable < ended_variables_;
  }
  /// The variable was there when define mode last ended.
  [[nodiscard]] bool ended(int variable) const noexcept { return variable < ended_variables_; }
  /// netCDF-4 takes no fill value for the variable any more. It has been put, or it was there when
  /// nc_enddef or nc_sync ended define mode. A put or a get of another variable ends define mode
  /// without that effect.
  [[nodiscard]] bool written(int variable) const noexcept {
    return variable >= 0 && static_cast<std::size_t>(variable) < written_.size() &&
           written_[static_cast<std::size_t>(variable)];
  }
  /// For the library the variable has data from here on.
  void note_written(int variable);

  /// The shadow has been given the definitions of a file that the program opens.
  int take_up();

  /// How many it has.
  [[nodiscard]] int variables() const;

  // --- the program changes the mode -------------------------------------------------------------
  int redef();
  /// Not of a classic format. `header_pad` is null for nc_enddef.
  int enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad, std::size_t record_align);
  int sync();
  /// A put or a get leaves define mode.
  int leave_define_mode();
  /// Define mode has ended for the program.
  void ended();
  /// Metadata may have changed: netCDF-4 proper has entered define mode by itself, even where that
  /// has failed.
  void after_change() noexcept {
    if (!explicit_modes()) define_mode_.begin();
  }
  /// End what is pending. From here on the shadow is in the program's mode, and changes it by
  /// itself.
  int end_pending();
  int set_fill(int fill_mode, int* old_mode);
  /// The one of the whole file, in the classic formats.
  [[nodiscard]] int fill_mode() const noexcept { return fill_mode_; }

  // --- the library takes the file over ----------------------------------------------------------
  /// A change that has failed may not have ended data mode.
  void ask_mode();
  /// From here on our number is the real file's.
  void follow() noexcept;
  /// When define mode last ended.
  [[nodiscard]] DefinitionCount ended_definitions() const noexcept;
  /// The real file has been given these definitions, and leaves define mode as the program did.
  /// `alone`: one process writes it.
  int end_again(bool alone);

 private:
  [[nodiscard]] bool may_put_off() const noexcept { return format_ == FileFormat::netcdf4 && !follows_; }
  [[nodiscard]] bool is_defining() const;
  void put_off();
  void all_written();
  void write_again(const std::vector<bool>& written);
  int leave();

  const RealLibrary& lib_;
  const int ncid_;
  const FileFormat format_;
  bool open_ = true;
  shadow::DefineMode define_mode_;
  int fill_mode_ = NC_FILL;
  bool follows_ = false;  ///< it is in the program's mode
  /// How many there were when define mode last ended.
  int ended_dimensions_ = 0, ended_variables_ = 0;
  std::vector<bool> written_;
};

}  // namespace advectio::netcdf
