// One dataset that the program believes is a PnetCDF file: the shadow in the real library, this
// rank's own and without data, which holds the metadata and answers for it, and the SharedDataset,
// which takes the data away.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/dataset.h"
#include "capture/pnetcdf/convert.h"
#include "capture/pnetcdf/reader.h"
#include "capture/pnetcdf/real_library.h"
#include "capture/pnetcdf/requests.h"
#include "capture/shadow/define_mode.h"
#include "capture/shadow/stall.h"
#include "core/schema.h"
#include "workflow/workflow.h"

namespace advectio::pnetcdf {

enum class Form : std::uint8_t { var, var1, vara, vars, varm };
enum class Mode : std::uint8_t {
  independent,
  collective,
  posted,    ///< iput, iget
  buffered,  ///< bput
};

/// The program's memory, by the arguments of a typed or a flexible call.
struct MemoryType {
  nc_type type = NC_NAT;  ///< of the elements; NC_NAT: flexible, see `datatype`
  MPI_Offset count = -1;
  MPI_Datatype datatype{};
};

/// One block of a call. A field that the form lacks is null.
struct Request {
  Form form = Form::vara;
  int variable = -1;
  const MPI_Offset* start = nullptr;
  const MPI_Offset* count = nullptr;
  const MPI_Offset* stride = nullptr;
  const MPI_Offset* map = nullptr;  ///< in elements
  const void* data = nullptr;
  MemoryType memory;
  bool one_of_many = false;  ///< of an mput or mget call, which the library makes of posted ones
};

/// Its place has no elements, wherever it is.
bool names_nothing(const Request& request, std::size_t rank) noexcept;

struct Answer {
  int code = NC_NOERR;
  /// The call may not be right. The shadow, asked the same, knows the library's own code for it.
  bool ask_shadow = false;
  /// It names no elements: where the shadow finds nothing wrong, nothing is to be done.
  bool nothing = false;
};

class ParallelFile {
 public:
  ParallelFile(const RealLibrary& real, int ncid, std::string path, std::string shadow, int rank, int ranks,
               std::unique_ptr<SharedDataset> out);
  ~ParallelFile();
  ParallelFile(const ParallelFile&) = delete;
  ParallelFile& operator=(const ParallelFile&) = delete;

  const RealLibrary& lib;
  const int ncid;          ///< of the shadow, and for the program
  const std::string path;  ///< as the program gave it
  /// Where it is coupled: what the server publishes when it is complete.
  std::optional<workflow::Opened> coupled;

  [[nodiscard]] SharedDataset& out() noexcept { return *out_; }
  /// The same for a collective call, whose collective index ends with it.
  [[nodiscard]] SharedDataset* collective_out(bool collective = true) noexcept {
    return collective ? out_.get() : nullptr;
  }

  // --- modes and metadata -----------------------------------------------------------------------
  int redef();
  int enddef();
  int enddef(MPI_Offset header_pad, MPI_Offset data_align, MPI_Offset data_pad, MPI_Offset record_align);
  /// End what is pending. Called before each call whose answer depends on the mode. Some programs
  /// define one thing at a time, and PnetCDF copies its whole header at each redef; so the shadow
  /// stays in define mode until then.
  int end_pending();
  void independent(bool now);
  [[nodiscard]] bool defining() const noexcept { return define_mode_.defining(); }
  [[nodiscard]] int record_dimension();

  /// The fill mode that the program has given a variable, where the shadow does not know it (any
  /// more).
  [[nodiscard]] bool fill_mode_kept(int variable) const noexcept {
    return variable >= 0 && static_cast<std::size_t>(variable) < filled_.size();
  }
  [[nodiscard]] bool filled(int variable) const noexcept {
    return fill_mode_kept(variable) && filled_[static_cast<std::size_t>(variable)];
  }
  /// The program has set it, for one variable or for all, and the shadow has it.
  void set_filled(int variable, bool filled);
  void set_all_filled(bool filled);
  int fill_record(int variable, MPI_Offset record);

  /// An attribute of that variable, or of the dataset (NC_GLOBAL), or its name may have changed.
  void touch(int variable);
  void touch_dimensions();
  /// `_FillValue` as it is, where it may no longer be set although the shadow would let it: for the
  /// shadow all is of one define mode. `undo` puts it back after such a call and gives the
  /// library's code.
  class LateFill {
   public:
    LateFill(ParallelFile& file, int variable, const char* name);
    int undo(int code);

   private:
    ParallelFile& file_;
    int variable_;
    bool late_ = false, there_ = false;
    Attribute before_;
  };

  // --- data -------------------------------------------------------------------------------------
  /// All blocks or, where one cannot be right, none. `request`: where a posted call gets its
  /// number.
  Answer put(Mode mode, const std::vector<Request>& requests, int* request);
  /// A varn call: many boxes of one variable, out of one run of memory.
  Answer put_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                   const void* data, const MemoryType& memory, int* request);

  /// A dataset of the real library, opened on the file itself, in which everything put so far can
  /// be read.
  struct Reading {
    int code = NC_NOERR;
    bool ask_shadow = false;
    bool done = false;  ///< nothing is left to be called; `code` is the answer
    int ncid = -1;
    std::vector<int> variables;  ///< of the requests, as the reader knows them
  };
  Reading read(Mode mode, const std::vector<Request>& requests);
  Reading read_boxes(Mode mode, int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts,
                     const MemoryType& memory);
  /// Before the shadow is asked about a read: it checks places by its own number of records.
  void show_records();
  /// The shadow has been asked about a posted call: it shall not hold a request, nor the program
  /// that one's number.
  int answered(const Answer& answer, int code, int* request);

  // --- requests ---------------------------------------------------------------------------------
  Answer post_get(const Request& request, int* id);
  Answer post_get_boxes(int variable, int boxes, MPI_Offset* const* starts, MPI_Offset* const* counts, void* data,
                        const MemoryType& memory, int* id);
  int wait(bool collective, int count, int* ids, int* statuses);
  int cancel(int count, int* ids, int* statuses);
  int attach(MPI_Offset bytes);
  int detach();
  int usage(MPI_Offset* bytes) const;
  [[nodiscard]] int pending() const noexcept { return requests_.pending(); }

  // --- frames and the end -----------------------------------------------------------------------
  int sync();
  int close();
  int abort();
  /// The program has ended without closing it; MPI may have ended too.
  void keep_all() noexcept {}
  void close_at_exit();

  std::uint64_t bytes_put = 0;

  /// For the time spent in our code, in every call that may take any.
  shadow::StallClock& stall() noexcept { return stall_; }

 private:
  struct Known {
    nc_type type = NC_NAT;
    std::size_t element = 0;
    std::vector<std::uint64_t> lengths;
    bool record = false;
  };
  /// A block in the making.
  struct Place {
    Box box;
    std::vector<std::uint64_t> stride;
    std::vector<MPI_Offset> map;
    std::uint64_t records = 0;
  };

  const Known* known(int variable);
  const Schema& described();
  void changed();
  void describe_variable(int variable, int record_dimension);
  int flush_schema();
  int end_definitions(const MPI_Offset* pads);
  void take_over_fill_modes();
  bool fill_value(int variable, Bytes& value);
  int fill_added_records(std::size_t first);
  int fill_share(int variable, std::uint64_t record);
  bool right_mode(Mode mode) const noexcept;
  bool surely_fits() const noexcept;
  /// `read`: within the records that there are.
  bool place(const Request& request, const Known& variable, Place& to, bool read = false);
  bool element_type(MPI_Datatype datatype, nc_type& type) const;
  bool memory_fits(const MemoryType& memory, const Known& variable, std::uint64_t elements, nc_type& type) const;
  int send(const Request& request, const Known& variable, const Place& place, nc_type type);
  int send_converted(int variable, const Known& known, const Place& place, const std::byte* data, nc_type type);
  Answer put_placed(Mode mode, const std::vector<Request>& requests, const std::vector<Place>& places,
                    const std::vector<nc_type>& types, int* request);
  int get_records(const Request& request, bool collective);
  Answer post(PostedGet get, const MemoryType& memory, int* id);
  int run(const PostedGet& get);
  void drop_pending(bool say);
  int finish();
  int remove();
  void close_shadow();

  std::unique_ptr<SharedDataset> out_;
  shadow::StallClock stall_;
  const std::string shadow_;
  const int rank_, ranks_;
  FileFormat format_ = FileFormat::classic;
  bool shadow_open_ = true;
  shadow::DefineMode define_mode_;
  bool independent_ = false;

  /// As it was when define mode last ended, with the changes in data mode since then.
  Schema schema_;
  bool unsent_ = false;  ///< rank 0 has not sent it so
  bool stale_dimensions_ = false, stale_globals_ = true;
  std::vector<int> stale_;  ///< variables of it of which something may have changed
  std::vector<Known> known_;
  /// By variable, where the shadow does not have its fill mode (any more).
  std::vector<bool> filled_;
  bool shadow_would_fill_ = false;  ///< the program has set it for some of these
  /// Bytes of these variables, with one record each, and of the padding. The largest variable.
  std::uint64_t bytes_defined_ = 0, largest_ = 0;
  MPI_Offset shown_records_ = 0;  ///< as many as the shadow has

  Requests requests_;
  Reader reader_;
  Converter converter_;
};

}  // namespace advectio::pnetcdf
