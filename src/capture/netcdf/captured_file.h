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
#include "capture/netcdf/classic_layout.h"
#include "capture/netcdf/convert.h"
#include "capture/netcdf/description.h"
#include "capture/netcdf/placement.h"
#include "capture/netcdf/real_library.h"
#include "capture/netcdf/shapes.h"
#include "capture/shadow/define_mode.h"
#include "capture/shadow/ranks.h"
#include "capture/shadow/stall.h"
#include "core/schema.h"
#include "workflow/workflow.h"

namespace advectio::netcdf {

/// The netCDF error number that a program gets for a failure on our side: the system's errno where
/// there is one (nc_strerror explains positive numbers), else NC_EIO.
int code_of(const Error& error) noexcept;

struct PutAnswer {
  int code = NC_NOERR;
  /// The call cannot be right. The shadow, asked the same, knows the library's own code for it.
  bool ask_shadow = false;
};

/// Of a dataset that several ranks write together: who they are, and what the library keeps of each
/// variable then.
struct Together {
  struct Access {
    bool collective = false;
    /// Its length in the unlimited dimension, by this rank's collective puts.
    std::uint64_t records = 0;
    bool perhaps_longer = false;  ///< this rank had nothing to say in one of them
  };
  std::unique_ptr<shadow::Ranks> ranks;
  SharedDataset* out = nullptr;
  std::vector<Access> variables;  ///< shorter than the list of variables: the rest is as new
  bool structure_unsent = false;  ///< rank 0: others may put variables that its last schema lacks
  /// The collective index after the last collective put that may have made a variable longer.
  std::uint64_t grown_before = 0;
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

  // --- processes that fork ----------------------------------------------------------------------
  /// This process was forked from the one that writes it. Calls that change it take it over first:
  /// the library goes on with the file, under the same number.
  [[nodiscard]] bool inherited() const noexcept { return out_ != nullptr && out_->inherited(); }
  void note_heir() noexcept {
    if (out_ != nullptr) out_->note_heir();
  }
  /// From a signal handler, in the midst of another call of the thread: done when that call is over. When
  /// the process ends before, everything that was put is kept.
  enum class Later : std::uint8_t { nothing, sync, close };
  void do_later(Later what) noexcept {
    keep_all();
    later_ = std::max(later_.load(), what);
  }
  [[nodiscard]] Later later() const noexcept { return later_; }
  int sync_later() {
    later_ = Later::nothing;
    return sync();
  }
  void keep_all() noexcept {
    if (out_ != nullptr) out_->keep_all();
  }
  [[nodiscard]] bool must_be_taken_over_to_read() const noexcept { return inherited() && out_->inherited_unsynced(); }

  // --- several ranks ----------------------------------------------------------------------------
  void write_together(std::unique_ptr<shadow::Ranks> ranks, SharedDataset& out);
  /// Null where this process writes it alone.
  [[nodiscard]] const shadow::Ranks* ranks() const noexcept {
    return together_ != nullptr ? together_->ranks.get() : nullptr;
  }
  /// For a collective call, whose collective index ends with it: every call that changes metadata, mode or
  /// frame is one.
  [[nodiscard]] SharedDataset* collective_out() noexcept { return together_ != nullptr ? together_->out : nullptr; }
  int set_access(int variable, int access);
  /// HDF5 writes through filters together or not at all.
  void filtered(int variable);
  [[nodiscard]] bool has_unlimited();

  // --- modes ------------------------------------------------------------------------------------
  /// The shadow of a classic format never leaves define mode, for then the library would lay the
  /// file out in memory; which mode the program is in is known only here.
  [[nodiscard]] bool classic_format() const noexcept { return !is_hdf5(format); }
  /// Define mode is left and entered by the program alone; netCDF-4 proper does so by itself.
  [[nodiscard]] bool explicit_modes() const noexcept { return format != FileFormat::netcdf4; }
  [[nodiscard]] bool defining() const noexcept { return define_mode_.defining(); }
  /// Never left define mode yet.
  [[nodiscard]] bool fresh() const noexcept { return define_mode_.fresh(); }

  /// netCDF-4 proper enters define mode by itself for a change of metadata, even one that then
  /// fails. These are called around the change: the schema before it can still be sent.
  void before_change() {
    if (!explicit_modes() && !defining()) remember_ended();
  }
  void after_change() noexcept {
    if (!explicit_modes()) define_mode_.begin();
  }
  /// An end of define mode is pending. The shadow of a netCDF-4 dataset would make an HDF5 object
  /// of every variable (20 ms for a WRF history file, and as much again to close it). So it stays
  /// in its first define mode until an answer depends on the mode.
  [[nodiscard]] bool enddef_pending() const noexcept { return define_mode_.pending(); }
  /// The program has taken this variable out of define mode, and the shadow has not.
  [[nodiscard]] bool enddef_pending(int variable) const noexcept {
    return define_mode_.pending() && variable < ended_variables_;
  }
  /// netCDF-4 takes no fill value for the variable any more. It has been put, or it was there when
  /// nc_enddef or nc_sync ended define mode. A put or a get of another variable ends define mode
  /// without that effect.
  [[nodiscard]] bool written(int variable) const noexcept {
    return variable >= 0 && static_cast<std::size_t>(variable) < written_.size() &&
           written_[static_cast<std::size_t>(variable)];
  }
  /// End what is pending. From here on the shadow is in the program's mode, and changes it by
  /// itself.
  int end_pending();
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
  /// After nc_def_var. See Shapes.
  int choose_chunks(int variable) { return classic_format() ? NC_NOERR : shapes_.choose_chunks(variable); }

  /// Send the schema to the dataset if it has changed since.
  int flush_schema();
  /// The schema as the shadow has it now.
  const Schema& read_schema() { return description_.read(fill_mode_); }

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
  Reading read(int variable, nc_type memory, bool whole, bool placed);

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
    return classic_format() && ranks() == nullptr && out_ != nullptr && out_->can_close_late();
  }
  /// Then everything that is known of it is sent, and what ends it needs no netCDF library, which may be gone.
  void settle_at_exit();
  void close_late() {
    if (out_ != nullptr && !inherited()) (void)out_->close();
  }
  /// The program has ended without closing it.
  void close_at_exit() { (void)close(); }
  /// Collective. Not so when one of several ranks has put data: parallel HDF5 (1.10) cannot make
  /// chunked variables longer in a file that it has not made itself.
  [[nodiscard]] bool can_hand_over();
  /// Collective. Give the file to the real library under the same ncid. From then on the number is
  /// not ours.
  int hand_over();

  /// The file is coupled: what is to be published when it is complete. The server does so, unless
  /// the library takes the file over.
  void couple(workflow::Opened opened) { coupled_ = std::move(opened); }

  /// For the time spent in our code, in every call that may take any.
  shadow::StallClock& stall() noexcept { return stall_; }

 private:
  friend class HandOver;

  bool has_grown(const Shape& variable);
  int leave_define_mode();
  bool may_put_off() const noexcept { return format == FileFormat::netcdf4 && !shadow_follows_; }
  void put_off_enddef();
  void ended();
  void remember_ended();
  void all_written();
  void note_written(int variable);
  void note_put(int variable);
  int end_shadow();
  int send_rest();
  int end_classic(const ClassicPadding& padding, bool padded);
  int send_schema(Schema& schema);
  int put_fill(int variable, const Box& box);
  [[nodiscard]] bool collective(int variable) const noexcept;
  Together::Access& access(int variable);
  void learn_lengths();
  void note_structure(Touched what, int variable);
  int send_structure();
  [[nodiscard]] bool has_filters(int variable) const;
  int put_together(int variable, const Shape& v);
  /// Open the file to read what was put.
  int open_reader();
  void close_reader();
  /// Into the copy that is read, what has just been put: dense, of the variable's type.
  void put_into_copy(int variable, const Box& box, const std::vector<std::uint64_t>& stride, const void* data,
                     std::size_t element);
  void close_shadow();
  [[nodiscard]] bool nothing_put() const;
  bool agreed(int& code) const;
  [[nodiscard]] bool is_defining() const;

  int grow(const PutCall& call, const Shape& variable);
  int send(const PutCall& call, const Shape& variable, nc_type memory);
  int send_strings(const PutCall& call, const std::vector<std::uint64_t>& stride);
  int send_converted(const PutCall& call, const Shape& variable, nc_type memory,
                     const std::vector<std::uint64_t>& stride);

  void keep_from_server();

  std::unique_ptr<CapturedDataset> out_;
  std::optional<workflow::Opened> coupled_;
  shadow::StallClock stall_;
  std::unique_ptr<Together> together_;
  shadow::DefineMode define_mode_;
  int fill_mode_ = NC_FILL;
  bool shadow_follows_ = false;
  /// How many there were when define mode last ended.
  int ended_dimensions_ = 0, ended_variables_ = 0;
  std::vector<bool> written_;
  ClassicLayout layout_;
  Description description_;
  Shapes shapes_;
  Placement place_{shapes_, classic_format()};
  bool put_anything_ = false;
  /// How far each variable was put in each dimension. Shorter than their list: the rest was not.
  std::vector<std::optional<std::vector<std::size_t>>> put_;

  Converter converter_;
  int reader_ = -1;
  /// `reader_` is a copy of the file in memory, into which puts go, too. Reads then wait for no commit.
  bool reads_copy_ = false;
  int reads_after_puts_ = 0;
  std::uint64_t unread_bytes_ = 0;  ///< put into the copy since the last read
  bool shadow_open_ = true;
  std::atomic<Later> later_{Later::nothing};
};

}  // namespace advectio::netcdf
