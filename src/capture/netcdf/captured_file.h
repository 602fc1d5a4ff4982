// One dataset that the program believes is a netCDF file: the shadow in the real library, which holds the metadata and
// answers for it, and the CapturedDataset, which takes the data away.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/dataset.h"
#include "capture/netcdf/classic_layout.h"
#include "capture/netcdf/convert.h"
#include "capture/netcdf/real_library.h"
#include "capture/ranks.h"
#include "core/schema.h"

namespace advectio {

/// The netCDF error number that a program gets for a failure on our side: the system's errno where there is one
/// (nc_strerror explains positive numbers), else NC_EIO.
int code_of(const Error& error) noexcept;

/// One nc_put_var* call. What the form does not have is null.
struct PutCall {
  enum class Form : std::uint8_t { var, var1, vara, vars, varm };
  Form form = Form::vara;
  int variable = -1;
  const std::size_t* start = nullptr;
  const std::size_t* count = nullptr;
  const std::ptrdiff_t* stride = nullptr;
  const std::ptrdiff_t* map = nullptr;  ///< in elements
  const void* data = nullptr;
  nc_type memory = NC_NAT;  ///< NC_NAT: as the variable
};

struct PutAnswer {
  int code = NC_NOERR;
  /// The call cannot be right. The shadow, asked the same, knows the library's own code for it.
  bool ask_shadow = false;
};

/// Of a dataset that several ranks write together: who they are, and what the library keeps of each variable then.
struct Together {
  struct Access {
    bool collective = false;
    std::uint64_t records = 0;    ///< its length in the unlimited dimension, as this rank's collective puts made it
    bool perhaps_longer = false;  ///< this rank had nothing to say in one of them
  };
  std::unique_ptr<Ranks> ranks;
  SharedDataset* out = nullptr;
  std::vector<Access> variables;   ///< shorter than the list of variables: the rest is as new
  bool owes_structure = false;     ///< rank 0: others may put what its schema does not tell yet
  std::uint64_t grown_before = 0;  ///< the turn after the last collective put that may have made it longer
};

class CapturedFile {
 public:
  CapturedFile(const RealLibrary& real, int ncid, std::string path, int mode, FileFormat format,
               std::unique_ptr<CapturedDataset> out);
  ~CapturedFile();
  CapturedFile(const CapturedFile&) = delete;
  CapturedFile& operator=(const CapturedFile&) = delete;

  const RealLibrary& lib;
  const int ncid;           ///< of the shadow, and for the program
  const std::string path;   ///< as the program gave it
  const std::string where;  ///< the same, absolute: the program may change its directory
  const int mode;           ///< creation flags as the program gave them
  const FileFormat format;

  [[nodiscard]] CapturedDataset& out() noexcept { return *out_; }

  // --- several ranks ---------------------------------------------------------------------------------------------
  void write_together(std::unique_ptr<Ranks> ranks, SharedDataset& out);
  /// Null where this process writes it alone.
  [[nodiscard]] const Ranks* ranks() const noexcept { return together_ != nullptr ? together_->ranks.get() : nullptr; }
  /// For a collective call, whose turn ends with it: every call that changes metadata, mode or frame is one.
  [[nodiscard]] SharedDataset* turns() noexcept { return together_ != nullptr ? together_->out : nullptr; }
  int set_access(int variable, int access);
  /// HDF5 writes through filters together or not at all.
  void filtered(int variable);
  [[nodiscard]] bool has_unlimited();

  // --- modes -----------------------------------------------------------------------------------------------------
  /// The shadow of a classic format never leaves define mode, for then the library would lay the file out in memory;
  /// which mode the program is in is known only here.
  [[nodiscard]] bool classic_format() const noexcept { return !is_hdf5(format); }
  /// Define mode is left and entered by the program alone; netCDF-4 proper does so by itself.
  [[nodiscard]] bool explicit_modes() const noexcept { return format != FileFormat::netcdf4; }
  [[nodiscard]] bool defining() const noexcept { return defining_; }
  /// Never left define mode yet.
  [[nodiscard]] bool fresh() const noexcept { return fresh_; }

  /// netCDF-4 proper enters define mode by itself when metadata are to be changed, also for a change that then fails.
  /// Around the change: what was before it can still be told.
  void before_change() {
    if (!explicit_modes() && !defining_) remember_ended();
  }
  void after_change() noexcept {
    if (!explicit_modes()) defining_ = true;
  }
  /// The shadow of a netCDF-4 dataset would make an HDF5 object of every variable when define mode ends (20 ms for a
  /// WRF history file, and as much again to close it). So the end is only noted, and owed: the shadow stays in its
  /// first define mode until somebody asks what depends on it. True while the program's mode is not the shadow's.
  [[nodiscard]] bool owes_enddef() const noexcept { return owed_; }
  /// True for a variable that the program has taken out of define mode while the shadow has not.
  [[nodiscard]] bool owed(int variable) const noexcept { return owed_ && variable < ended_variables_; }
  /// netCDF-4 takes no fill value for it any more: it has been put, or there when define mode ended by nc_enddef or
  /// nc_sync. A put or a get of another variable ends define mode without that.
  [[nodiscard]] bool written(int variable) const noexcept {
    return variable >= 0 && static_cast<std::size_t>(variable) < written_.size() &&
           written_[static_cast<std::size_t>(variable)];
  }
  /// Pay: the shadow is in the program's mode from here on, and changes it by itself.
  int pay_enddef();
  int redef();
  int enddef(const std::size_t* header_pad, std::size_t data_align, std::size_t data_pad, std::size_t record_align);
  int set_fill(int fill_mode, int* old_mode);
  /// Before the program changes what fills. A classic file is filled when define mode ends, where the server makes it
  /// only with the first block.
  int keep_filled();

  // --- metadata --------------------------------------------------------------------------------------------------
  enum class Touched : std::uint8_t { dimensions, globals, variable, all_but_attributes, everything };
  /// The program has changed metadata: what was read of it is stale.
  void touch(Touched what, int variable = NC_GLOBAL);

  /// The variable is new: it has no attributes.
  void note_variable(int variable);
  /// The library has taken these `values`, of `type`, as an attribute of the variable (or NC_GLOBAL). Null: they are
  /// not as the library has them now.
  void note_attribute(int variable, const char* name, nc_type type, std::size_t count, const void* values);
  /// They are to be read back.
  void forget_attributes(int variable);
  /// The library writes how it is quantized as an attribute, behind those that are there when it makes the variable.
  void note_quantized(int variable) { quantized_.push_back({variable, -1}); }

  /// After nc_def_var: the library's choice of chunks depends on how long the unlimited dimensions were when last asked
  /// for, which the shadow does not know.
  int choose_chunks(int variable);

  /// Tell the schema to the dataset if it has changed since.
  int flush_schema();
  /// The schema as the shadow has it now.
  const Schema& read_schema();

  /// Length as the program must see it: that of the puts so far for an unlimited dimension. False: not such a
  /// dimension.
  bool grown_length(int dimension, std::size_t& length);

  // --- data ------------------------------------------------------------------------------------------------------
  PutAnswer put(const PutCall& call);

  /// A dataset of the real library, opened on the file itself, in which everything put so far can be read.
  /// ask_shadow: the call cannot be right.
  struct Reading {
    int code = NC_NOERR;
    bool ask_shadow = false;
    /// Some forms look at the lengths before the mode, and those of the shadow are zero.
    bool forbidden = false;
    int ncid = -1, variable = -1;
  };
  /// `whole`: the call leaves out the counts, so that lengths count.
  Reading read(int variable, nc_type memory, bool whole, bool placed);

  // --- frames and the end ----------------------------------------------------------------------------------------
  int sync();
  /// Everything said so far can be read from the file by others in this process.
  int make_visible();
  /// These end the life of shadow and dataset; only destruction is left.
  int close();
  int abort();
  /// Collective. Not so when one of several ranks has put data: parallel HDF5 (1.10) cannot make chunked variables
  /// longer in a file that it has not made itself.
  [[nodiscard]] bool can_hand_over();
  /// Collective. Give the file to the real library under the same ncid. From then on the number is not ours.
  int hand_over();

  // --- time ------------------------------------------------------------------------------------------------------
  /// Measures the calls into the dataset apart: it keeps their time itself.
  template <typename Call>
  auto timed(Call&& call) {
    const auto begin = now();
    auto result = call();
    inside_ns_ += now() - begin;
    return result;
  }
  static std::uint64_t now() noexcept;

 private:
  friend class Stall;

  struct Known {
    nc_type type = NC_NAT;
    std::size_t element = 0;
    std::vector<int> dimensions;
  };
  struct Extent {
    bool unlimited = false;
    std::uint64_t length = 0;
    std::uint64_t asked = 0;  ///< the length when the program, or the library for it, last asked
  };

  void load_dimensions();
  const Known* known(int variable);
  /// Some unlimited dimension of it is longer than in the shadow.
  bool has_grown(const Known& variable);
  int leave_define_mode();
  bool may_owe() const noexcept { return format == FileFormat::netcdf4 && !paid_; }
  void owe_enddef();
  void ended();
  void remember_ended();
  void all_written();
  void note_written(int variable);
  void note_put(int variable);
  int end_shadow();
  int settle();
  int end_classic(const ClassicPadding& padding, bool padded);
  int tell(Schema& schema);
  [[nodiscard]] std::optional<std::vector<Attribute>>* noted(int variable);
  int read_globals();
  void mark_rounding(Variable& v, int variable) const;
  int put_fill(int variable, const Box& box);
  [[nodiscard]] bool collective(int variable) const noexcept;
  Together::Access& access(int variable);
  void learn_lengths();
  void owe_structure(Touched what, int variable);
  int tell_structure();
  [[nodiscard]] bool has_filters(int variable) const;
  int put_together(int variable, const Known& v);
  void close_reader();
  void close_shadow();
  [[nodiscard]] bool nothing_put() const;
  bool agreed(int& code) const;
  int hold_lower_numbers(std::vector<int>& held) const;
  int create_real(const std::string& name, int& id) const;
  int take_number(const std::string& name);
  int make_anew(const std::string& values);
  int empty_file(const std::string& link);
  int replace_file(const std::string& link);
  [[nodiscard]] bool is_defining() const;
  int copy_values(const std::string& from) const;

  int refusal(const PutCall& call, const Known& variable, nc_type memory, bool& ask_shadow);
  int vara_refusal_hdf5(const Known& variable) const;
  int vara_refusal_classic(const Known& variable) const;
  int vars_refusal_classic(const Known& variable, const PutCall& call);
  void clip(const Known& variable, const PutCall& call);
  int varm_refusal(const Known& variable, const PutCall& call);
  int grow(const PutCall& call, const Known& variable);
  int send(const PutCall& call, const Known& variable, nc_type memory);
  int send_strings(const PutCall& call, const std::vector<std::uint64_t>& stride);
  int send_converted(const PutCall& call, const Known& variable, nc_type memory,
                     const std::vector<std::uint64_t>& stride);

  std::unique_ptr<CapturedDataset> out_;
  std::unique_ptr<Together> together_;
  bool defining_ = true;
  bool fresh_ = true;
  int fill_mode_ = NC_FILL;
  bool owed_ = false, paid_ = false;
  int ended_dimensions_ = 0, ended_variables_ = 0;  ///< how many there were when define mode last ended
  std::vector<bool> written_;
  ClassicLayout layout_;
  std::size_t told_variables_ = 0;  ///< how many the dataset has been told of

  Schema schema_;
  bool dirty_ = true, dirty_dimensions_ = true, dirty_globals_ = true;
  /// Within define mode: what was ended before has not been told; `schema_` is as it was then.
  bool dirty_before_redef_ = false;
  struct Quantized {
    int variable, attributes_before;  ///< -1: not yet made
  };
  std::vector<Quantized> quantized_;
  /// The attributes of each variable, the global ones first, where all that was done with them was to put each once:
  /// reading them back by their names takes as long as putting them (1.4 ms for a WRF history file). Shorter than the
  /// list of variables: nothing is known of the rest.
  std::vector<std::optional<std::vector<Attribute>>> noted_;
  std::vector<bool> dirty_variables_;  // shorter than the list of variables: the rest is new

  std::vector<Extent> extents_;
  bool extents_stale_ = true;
  bool asked_ = false;  ///< the program has asked for the length of a dimension that had grown
  std::vector<Known> known_;
  bool put_anything_ = false;
  /// How far each variable was put in each dimension. Shorter than their list: the rest was not.
  std::vector<std::optional<std::vector<std::size_t>>> put_;

  // The place of the put under way; members to spare allocations.
  Box box_;
  std::vector<std::uint64_t> stride_;
  std::vector<std::ptrdiff_t> map_;
  bool clipped_ = false;

  Converter converter_;
  int reader_ = -1;
  bool shadow_open_ = true;
  std::uint64_t inside_ns_ = 0;
};

/// Reports the time spent in our code, apart from that in the dataset's own calls, as stall of the frame.
class Stall {
 public:
  explicit Stall(CapturedFile& file) noexcept : file_(&file), begin_(CapturedFile::now()) { file.inside_ns_ = 0; }
  ~Stall() { report(); }
  Stall(const Stall&) = delete;
  Stall& operator=(const Stall&) = delete;
  /// Before the dataset goes.
  void report() noexcept;

 private:
  CapturedFile* file_;
  std::uint64_t begin_;
};

}  // namespace advectio
