// One dataset that the program believes is a netCDF file: the shadow in the real library, which
// holds the metadata and answers for it, and the CapturedDataset, which takes the data away.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/dataset.h"
#include "capture/netcdf/closed_files.h"
#include "capture/netcdf/description.h"
#include "capture/netcdf/placement.h"
#include "capture/netcdf/puts.h"
#include "capture/netcdf/reader.h"
#include "capture/netcdf/real_library.h"
#include "capture/netcdf/sent_schema.h"
#include "capture/netcdf/shadow_dataset.h"
#include "capture/netcdf/shapes.h"
#include "capture/netcdf/together.h"
#include "capture/shadow/ranks.h"
#include "capture/shadow/stall.h"
#include "core/schema.h"
#include "workflow/workflow.h"

namespace advectio::netcdf {

struct PutAnswer {
  int code = NC_NOERR;
  /// The call cannot be right. The shadow, asked the same, knows the library's own code for it.
  bool ask_shadow = false;
  /// The library would have refused it before it waits for other ranks.
  bool refused = false;
};

/// A signal handler has called sync or close while the thread was in another call of the dataset.
/// It is done when that call ends.
class WantedLater {
 public:
  enum class What : std::uint8_t { nothing, sync, close };
  void want(What what) noexcept { what_ = std::max(what_.load(), what); }
  [[nodiscard]] What what() const noexcept { return what_; }
  void done() noexcept { what_ = What::nothing; }

 private:
  std::atomic<What> what_{What::nothing};
};

/// Of a get. What the form lacks is null.
struct ReadPlace {
  const std::size_t* start = nullptr;
  const std::size_t* count = nullptr;
  const std::ptrdiff_t* stride = nullptr;
  bool one = false;  ///< of one element
};

class CapturedFile {
 public:
  CapturedFile(const RealLibrary& real, int ncid, std::string path, int mode, FileFormat format,
               std::unique_ptr<CapturedDataset> out, std::string where = {});
  ~CapturedFile();
  CapturedFile(const CapturedFile&) = delete;
  CapturedFile& operator=(const CapturedFile&) = delete;

  const RealLibrary& lib;
  const int ncid;          ///< of the shadow, and for the program
  const std::string path;  ///< as the program gave it
  std::string where;       ///< of the file, absolute: the program may change its directory
  const int mode;          ///< creation flags as the program gave them
  const FileFormat format;

  [[nodiscard]] CapturedDataset& out() noexcept { return *out_; }

  /// The program has opened a file that was there. The shadow has its definitions.
  int take_up(const ClosedFile& file);
  [[nodiscard]] bool was_there() const noexcept { return opened_; }

  // --- processes that fork ----------------------------------------------------------------------
  /// This process was forked from the one that writes it. Calls that change it take it over first:
  /// the library goes on with the file, under the same number.
  [[nodiscard]] bool inherited() const noexcept { return out_ != nullptr && out_->inherited(); }
  void note_heir() noexcept {
    if (out_ != nullptr) out_->note_heir();
  }
  /// When the process ends without closing it, everything that was put is kept. Safe in a signal handler.
  void keep_all() noexcept {
    if (out_ != nullptr) out_->keep_all();
  }
  [[nodiscard]] bool must_be_taken_over_to_read() const noexcept { return inherited() && out_->inherited_unsynced(); }
  /// The sink changes the definitions of a classic file by a copy of it. The library does so in
  /// place, in a file of others that may be large.
  [[nodiscard]] bool must_be_taken_over_to_define() const noexcept {
    return inherited() || (of_others_ && shadow_.classic_format());
  }

  [[nodiscard]] WantedLater& later() noexcept { return later_; }

  // --- several ranks ----------------------------------------------------------------------------
  void write_together(std::shared_ptr<shadow::Ranks> ranks, SharedDataset& out);
  [[nodiscard]] Together& together() noexcept { return together_; }

  // --- modes ------------------------------------------------------------------------------------
  [[nodiscard]] ShadowDataset& shadow() noexcept { return shadow_; }
  /// netCDF-4 proper enters define mode by itself for a change of metadata, even one that then
  /// fails. Called before the change: the schema before it can still be sent.
  void before_change() {
    if (!shadow_.explicit_modes() && !shadow_.defining()) schema_.begin_define_mode();
  }
  int redef();
  int enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad, std::size_t record_align);
  int set_fill(int fill_mode, int* old_mode);
  /// Called before the program changes a fill value or mode. The library fills a classic file when
  /// define mode ends; the server makes the file with the first block. So a block goes out now.
  int keep_filled();

  // --- metadata ---------------------------------------------------------------------------------
  /// The program has changed metadata: what was read of it is stale.
  void touch(Touched what, int variable = NC_GLOBAL);

  /// It notes the attributes that the program puts.
  Description& description() noexcept { return description_; }
  [[nodiscard]] Shapes& shapes() noexcept { return shapes_; }
  /// Length as the program must see it: that of the puts so far for an unlimited dimension. False:
  /// not such a dimension.
  bool grown_length(int dimension, std::size_t& length);

  // --- data -------------------------------------------------------------------------------------
  PutAnswer put(const PutCall& call);

  /// A dataset of the real library, opened on the file itself, in which everything put so far can
  /// be read. ask_shadow: the call cannot be right.
  struct Reading {
    int code = NC_NOERR;
    bool ask_shadow = false;
    /// Some forms look at the lengths before the mode, and those of the shadow are zero.
    bool forbidden = false;
    int ncid = -1, variable = -1;
  };
  /// `whole`: the call leaves out the counts, so that lengths count.
  Reading read(int variable, nc_type memory, bool whole, bool placed, const ReadPlace& place = {});

  // --- frames and the end -----------------------------------------------------------------------
  int sync();
  /// Others in this process can read everything put so far from the file.
  int make_visible();
  /// These end the life of shadow and dataset; only destruction is left.
  int close();
  int abort();
  /// Exit handlers of the program and its static objects' destructors may still write it. HDF5, which has a handler of
  /// its own, is closed before them.
  [[nodiscard]] bool stays_open_at_exit() const noexcept {
    return shadow_.classic_format() && !together_.several() && out_ != nullptr && out_->can_close_late();
  }
  /// Then everything that is known of it is sent, and what ends it needs no netCDF library, which may be gone.
  void settle_at_exit();
  void close_late() {
    if (out_ != nullptr && !inherited()) (void)out_->close();
  }
  /// The program has ended without closing it.
  void close_at_exit() { (void)close(); }
  /// Where no other rank has a part in the call.
  [[nodiscard]] bool can_hand_over_alone() const noexcept { return !together_.several(); }
  /// Collective: only after the library has found the call right, as it answers a wrong one on that
  /// rank alone. Not so when one of several ranks has put data: parallel HDF5 (1.10) cannot make
  /// chunked variables longer in a file that it has not made itself.
  [[nodiscard]] bool can_hand_over() const {
    return !together_.several() || (!inherited() && together_.all(!puts_.any()));
  }
  /// The library's answer to a call that we cannot carry. `call(ncid)` is made on a dataset in memory
  /// that is defined like this one, and nothing else knows of it.
  template <typename Call>
  int would_be(Call&& call) {
    int likeness = -1;
    int code = make_likeness(likeness);
    if (code == NC_NOERR) code = call(likeness);
    if (likeness >= 0) lib.nc_abort(likeness);
    return code;
  }
  /// Collective. Give the file to the real library under the same ncid. From then on the number is
  /// not ours.
  int hand_over();

  /// The file is coupled: what is to be published when it is complete. The server does so, unless
  /// the library takes the file over.
  void couple(workflow::Opened opened) { coupled_ = std::move(opened); }

  /// For the time spent in our code, in every call that may take any.
  shadow::StallClock& stall() noexcept { return stall_; }

 private:
  int leave_define_mode();
  bool has_grown(const Shape& variable);
  PutAnswer put_checked(const PutCall& call);
  int grow(const PutCall& call, const Shape& variable);
  void keep_from_server();
  [[nodiscard]] std::optional<ClosedFile> known_when_closed();
  int make_likeness(int& likeness);
  int wrong_place(const Shape& variable, const ReadPlace& place) const;

  std::unique_ptr<CapturedDataset> out_;
  std::optional<workflow::Opened> coupled_;
  bool opened_ = false;     ///< by nc_open: the file was there before
  bool of_others_ = false;  ///< and this run has not made it
  shadow::StallClock stall_;
  ShadowDataset shadow_;
  Shapes shapes_;
  Together together_;
  Description description_;
  SentSchema schema_;
  Placement place_;
  Reader reader_;
  Puts puts_;
  WantedLater later_;
};

}  // namespace advectio::netcdf
