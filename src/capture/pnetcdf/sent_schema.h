// The schema of a dataset, and what of it is still to be sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/dataset.h"
#include "capture/pnetcdf/fill_modes.h"
#include "capture/pnetcdf/real_library.h"
#include "capture/shadow/define_mode.h"
#include "capture/shadow/stall.h"
#include "core/schema.h"

namespace advectio::pnetcdf {

/// As it was when define mode last ended, with the changes in data mode since then. Rank 0 sends it.
class SentSchema {
 public:
  SentSchema(const RealLibrary& lib, int ncid, const shadow::DefineMode& define_mode, const FillModes& fill_modes,
             bool sends, SharedDataset& out, shadow::StallClock& stall)
      : lib_(lib),
        ncid_(ncid),
        define_mode_(define_mode),
        fill_modes_(fill_modes),
        sends_(sends),
        out_(out),
        stall_(stall) {}
  void set_format(FileFormat format) noexcept { schema_.format = format; }

  /// Without what the program is defining. Only parts that may have changed are read again. A shadow
  /// cannot be read while its library ends; the schema then stays as it was read before.
  const Schema& read();
  /// How many there were when it was read last.
  [[nodiscard]] std::size_t variables() const noexcept { return schema_.variables.size(); }
  /// The four pads of ncmpi__enddef. Returns them as PnetCDF takes them.
  std::array<std::uint64_t, 4> pad(const MPI_Offset* pads);
  /// An attribute of that variable, or of the dataset (NC_GLOBAL), or its name may have changed.
  void touch(int variable);
  void touch_dimensions();
  /// It has changed, as at the end of define mode.
  void must_send();
  /// Send it if it has changed since. What comes after it is done also where that fails, as on the other ranks.
  int flush() noexcept;

 private:
  void changed();
  const Schema& read_changes();
  void read_variable(int variable, int record_dimension);

  const RealLibrary& lib_;
  const int ncid_;
  const shadow::DefineMode& define_mode_;
  const FillModes& fill_modes_;
  const bool sends_;
  SharedDataset& out_;
  shadow::StallClock& stall_;
  Schema schema_;
  bool unsent_ = false;
  bool stale_dimensions_ = false, stale_globals_ = true;
  std::vector<int> stale_;  ///< variables of it of which something may have changed
};

}  // namespace advectio::pnetcdf
