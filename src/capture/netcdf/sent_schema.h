// Which schema was sent to the dataset, and whether it has changed since.
#pragma once

#include <cstddef>

#include "capture/dataset.h"
#include "capture/netcdf/classic_layout.h"
#include "capture/netcdf/description.h"
#include "capture/netcdf/shadow_dataset.h"
#include "capture/netcdf/together.h"
#include "capture/shadow/stall.h"
#include "core/schema.h"

namespace advectio::netcdf {

/// Of several ranks rank 0 sends the schema.
class SentSchema {
 public:
  SentSchema(Description& description, const ShadowDataset& shadow, const Together& together, CapturedDataset& out,
             shadow::StallClock& stall)
      : description_(description), shadow_(shadow), together_(together), out_(out), stall_(stall) {}

  /// The schema as the shadow has it now.
  const Schema& read();
  /// The program has changed metadata.
  void touch(Touched what, int variable);
  /// Define mode is about to begin again. The definitions ended before can still be sent until it
  /// ends.
  void begin_define_mode();
  /// Check the limits of the format, as nc_enddef does; the shadow of a classic format never gets
  /// there. `padded`: by nc__enddef.
  int end_classic(const ClassicPadding& padding, bool padded);

  /// Of a file that was there.
  void take_up(const ClassicLayout& layout, const Schema& schema) {
    layout_ = layout;
    layout_.reopen(schema);
  }
  [[nodiscard]] const ClassicLayout& layout() const noexcept { return layout_; }

  /// Something has changed since the schema was sent.
  [[nodiscard]] bool unsent() const noexcept { return unsent_; }
  /// The same of what the program has ended. In define mode the schema that was read last is of that.
  [[nodiscard]] bool unsent_ended() const noexcept { return shadow_.defining() ? unsent_before_redef_ : unsent_; }
  /// How many variables the schema had that was sent last.
  [[nodiscard]] std::size_t variables() const noexcept { return variables_; }

  /// Send it if it has changed since.
  int flush() noexcept;
  /// The same at the end of define mode: rank 0 may have nothing to put for long, while the stage
  /// fills with what others put.
  int flush_structure() { return structure_unsent_ ? flush() : NC_NOERR; }
  /// Sends the schema that was read last: the definitions of the last completed define mode.
  int send_ended();
  int send(Schema& schema);

 private:
  Description& description_;
  const ShadowDataset& shadow_;
  const Together& together_;
  CapturedDataset& out_;
  shadow::StallClock& stall_;
  ClassicLayout layout_;
  bool unsent_ = true, unsent_before_redef_ = false;
  bool structure_unsent_ = false;  ///< other ranks may put variables that the last one lacks
  std::size_t variables_ = 0;
};

}  // namespace advectio::netcdf
